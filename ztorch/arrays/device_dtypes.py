"""The dtypes that devices lack: named at the line that makes a tensor or records an op."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ztorch.arrays.placement import default_device, memory_of
from ztorch.compile.program_cache import build
from ztorch.dtypes import DType, boolean, f16, f32, f64, i32, i64, result_type, u32
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value, topological

EVERYWHERE = frozenset((boolean, f32, i32, u32))  # dtypes of every device
_NEAREST = {f16: f32, f64: f32, i64: i32}  # what stands for a dtype that a device lacks


def nearest_dtype(memory: str, d: DType) -> DType:
    """The dtype for numbers to which the user gave none: the usual one, or the nearest that the
    device has.

    Args:
        memory: The device.
        d: The usual dtype.

    Examples:
        >>> nearest_dtype("cpu", i64)
        i64
    """
    lacks = memory != "cpu" and d in _NEAREST and _lack(memory, d)
    return _NEAREST[d] if lacks else d


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
        for d in dict.fromkeys(v.dtype for v in (*results, *topological(results))):
            need_dtype(memory, d, f"do {name}")


def default_integer(device: str | None) -> DType:
    """The dtype of integers to which the user gave none.

    Args:
        device: The device; `None` means the default one.

    Examples:
        >>> default_integer("cpu")
        i64
    """
    return nearest_dtype(memory_of(device or default_device()), i64)


def dtypes_on(memory: str, kinds: Sequence[DType | type], dtypes: list[DType]) -> list[DType]:
    """The dtypes in which a device computes an op. One that follows from bools, from Python numbers
    or from the op, and not from the dtypes of tensors, is one that the device has.

    Args:
        memory: The device.
        kinds: The dtype of each tensor, and the type of each Python number.
        dtypes: The dtype of each operand by NumPy's rules.

    Examples:
        >>> dtypes_on("cpu", [boolean], [i64])
        [i64]
    """
    if memory == "cpu":
        return dtypes
    tensors = [d for d in kinds if isinstance(d, DType)]
    exact = {*tensors, result_type(*tensors)} if tensors else set()
    return [d if d in exact else nearest_dtype(memory, d) for d in dtypes]


@functools.cache  # a small kernel is compiled and loaded, so that the driver answers too
def _lack(memory: str, d: DType) -> str:
    x, y = (leaf("input", name, (4,), d) for name in "xy")
    try:
        build({"call": Graph({"y": OPS.maximum(x, y)})}, memory, "maximum")
    except Unsupported as error:
        return str(error)
    return ""
