"""docs/onnx.md lists the current contents of the registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interchange.onnx_files import UNWRITABLE
from ztorch.interchange.onnx.protobuf import DTYPES
from ztorch.interchange.onnx.save import OPSET
from ztorch.interchange.onnx.tables import exported, imported
from ztorch.interchange.torch_export.tables import translated

PAGE = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text()
RUN = ("run python -m ztorch.interchange.onnx.tables and .torch_export.tables, and put their tables "
       "into docs/onnx.md")


@pytest.mark.parametrize("table", [imported, exported, translated])
def test_the_tables(table: object) -> None:
    assert callable(table) and f"\n{table()}\n" in PAGE, RUN


def test_what_cannot_be_exported_is_named() -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith("Without an equivalent in ONNX: ")]
    assert {word.strip("`.") for word in line.split(": ")[1].split(", ")} == UNWRITABLE
    assert f"opset {OPSET}" in PAGE and len(DTYPES) == 13
