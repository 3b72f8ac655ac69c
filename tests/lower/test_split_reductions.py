"""Long sums are those of parts that workers share, and parts keep neighbors in memory together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import GROUPS, HERE, Job, agree, compiled
from ztorch import ops
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.rewrites.split_reductions import split_reduction

# the shape, the axes that are summed, and the shape of the parts
CASES = {
    "channels last": ((1, 32, 32, 64), None, (1, 32, 1, 32, 64)),
    "more channels than positions": ((16, 3, 3, 512), None, (16, 1, 3, 3, 512)),
    "one long row": ((3, 50000), (1,), (3, 50, 1000)),
    "short parts of rows": ((2, 3, 5, 2048), None, (2, 3, 5, 32, 64)),
    "columns": ((40000, 3), (0,), (64, 625, 3)),
    "many columns": ((3000, 99), (0,), (15, 200, 99)),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_of_a_long_sum(name: str) -> None:
    shape, axes, parts = CASES[name]
    x = leaf("input", "x", shape, "float32")
    y = ops.sum(x, axis=axes)
    [partial] = split_reduction(y, None).args
    assert partial.args[0].shape == parts
    job = Job(Graph({"y": y}), {x: np.random.default_rng(0).normal(size=shape).astype(np.float32)})
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=x.size // y.size)


def test_columns_that_a_cache_holds_are_whole() -> None:
    """A second pass over columns finds them there, and few rows need no parts."""
    for shape in ((300, 99), (16384, 256)):
        y = ops.sum(leaf("input", "x", shape, "float32"), axis=0)
        assert split_reduction(y, None) is y


def test_parts_where_tiles_are_more_than_rows() -> None:
    """Of 3 rows, two pairs of tiles have four: each row is a part, and the epilogue has no room for its sums."""
    y = ops.sum(leaf("input", "x", (3, 64), "float32"), axis=0)
    for tiles, parts in ((2, 3), (3, 3), (4, 3), (7, 0)):
        [partial] = split_reduction(y, GROUPS.grid, tiles).args
        assert partial.shape == ((parts, 64) if parts else (3, 64))
