"""Compiles the kernels that gather rows of columns in a device's memory."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.compile.program_cache import build
from ztorch.dtypes import DType, i32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.runtime.loaded_program import LoadedProgram


def row_gather(device: str, columns: Mapping[str, tuple[tuple[int, ...], DType]],
               counts: Mapping[str, int]) -> LoadedProgram:
    """A program with a function `gather`, which copies rows of columns to arrays of their own.

    Its inputs are column/NAME and numbers/NAME, its outputs NAME.

    Args:
        device: The device to compile for.
        columns: The shape of each column and its dtype.
        counts: How many rows of each are copied.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> program = row_gather("cpu", {"x": ((100, 3), f32)}, {"x": 8})
        >>> program.functions["gather"].outputs["x"].shape
        (8, 3)
    """
    return build({"gather": Graph({name: OPS.take(
        leaf("input", f"column/{name}", shape, d),
        leaf("input", f"numbers/{name}", (counts[name],), i32), axis=0)
        for name, (shape, d) in columns.items()})}, device, "gather")
