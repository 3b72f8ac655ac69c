"""The dtypes that devices lack: named at the line that makes a tensor or records an op."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from ztorch.compile.program_cache import build
from ztorch.dtypes import DType, boolean, f32, i32, u32
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value, topological

EVERYWHERE = frozenset((boolean, f32, i32, u32))  # dtypes of every device


def need_dtype(memory: str, d: DType, purpose: str) -> None:
    """Raises an error if a device lacks a dtype.

    Args:
        memory: The device: "cpu", which has all dtypes, or one such as "vulkan:0".
        d: The dtype.
        purpose: The need for it, for the error, such as "do exp".

    Raises:
        Unsupported: The device lacks the dtype.

    Examples:
        >>> from ztorch.dtypes import f64
        >>> need_dtype("cpu", f64, "do exp")
    """
    if memory != "cpu" and d not in EVERYWHERE and (why := _lack(memory, d)):
        raise Unsupported(f"backend {memory} cannot {purpose} of {d}: {why}")


def need_dtypes_of(memory: str, results: Iterable[Value], name: str) -> None:
    """Raises an error if a device lacks a dtype that an op computes in.

    Args:
        memory: The device.
        results: The results of the op.
        name: Its name.

    Raises:
        Unsupported: The device lacks a dtype.
    """
    if memory != "cpu":
        for d in dict.fromkeys(v.dtype for v in topological(results)):
            need_dtype(memory, d, f"do {name}")


@functools.cache  # a small kernel is compiled and loaded, so that the driver answers too
def _lack(memory: str, d: DType) -> str:
    x, y = (leaf("input", name, (4,), d) for name in "xy")
    try:
        build({"call": Graph({"y": OPS.maximum(x, y)})}, memory, "maximum")
    except Unsupported as error:
        return str(error)
    return ""
