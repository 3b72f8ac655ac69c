"""The table of a model's parts beside the modules of a file that do not match."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.weights.matching import Pairs, table
from ztorch.weights.modules import FileModule, StoredTensor


def module(k: int) -> FileModule:
    return FileModule((f"part.{k}",), {"weight": StoredTensor((k, 2), lambda: np.zeros((k, 2)))})


@pytest.mark.cheap
@pytest.mark.parametrize(("count", "omitted"), [(11, 0), (12, 0), (13, 1), (20, 8)])
def test_a_long_table_is_cut(count: int, omitted: int) -> None:
    pairs: Pairs = [(None, module(k)) for k in range(count)]
    lines = table(pairs).splitlines()
    assert lines[0].split() == ["theirs", "|", "ours"]
    rows = [line.split() for line in lines if "part." in line]
    assert rows == [[f"part.{k}:", "weight", f"({k},", "2)", "|", "-"] for k in range(count - omitted)]
    assert lines[1 + count - omitted:] == ([f"  and {omitted} more"] if omitted else [])
