"""What users pass to ops that run at once: arrays and numbers as operands, and their dtypes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, f64, i64, need_no_mask
from ztorch.errors import ConfigError, DataError, UnknownName
from ztorch.graph.op import Public
from ztorch.ir.opcodes import OPCODES

dtype_of = functools.lru_cache(dtype)

_RANK = {"b": 0, "u": 1, "s": 1, "f": 2}  # of kinds of dtypes: which one can hold the other


class ArrayArgument(NamedTuple):
    """A tensor argument of an op."""

    array: np.ndarray
    weak: bool  # a Python number: it takes the dtype of the arrays beside it


def as_argument(name: str, parameter: str, x: Any, weak: bool) -> ArrayArgument:
    """An argument as an operand.

    Args:
        name: The op, for errors.
        parameter: The parameter, for errors.
        x: An array of any framework, a number, or nested lists of numbers.
        weak: Whether a number is weak here. As an index it is not: it is an int64.
    """
    if isinstance(x, (bool, int, float)):
        return ArrayArgument(np.asarray(x), weak)
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        return ArrayArgument(np.from_dlpack(x), False)
    need_no_mask(f"{name}: {parameter}", x)
    try:
        array = np.asarray(x)
    except ValueError as error:  # lists of lists of several lengths
        raise DataError(f"{name}: {parameter} is no array: {error}") from None
    try:
        dtype_of(array.dtype)
    except UnknownName:
        raise DataError(f"{name}: {parameter} is an array of {array.dtype}; use "
                        "numbers of a dtype such as float32, int64 or bool") from None
    return ArrayArgument(array, False)


def as_attribute(label: str, x: Any) -> Any:
    """An argument that is no tensor, as Python's own numbers, names and tuples of them: these can
    be compared, and so name a compiled program."""
    if isinstance(x, (np.generic, np.ndarray)):
        x = x.tolist()
    if isinstance(x, (list, tuple)):
        return tuple(as_attribute(label, item) for item in x)
    if isinstance(x, slice):
        return slice(*(as_attribute(label, bound) for bound in (x.start, x.stop, x.step)))
    if x is None or x is Ellipsis or isinstance(x, (bool, int, float, str, DType)):
        return x
    try:
        return dtype(x)  # np.float32 and the like
    except UnknownName:
        raise ConfigError(f"{label} takes plain values, not {x!r}") from None


def with_dtypes(public: Public,
                operands: Sequence[ArrayArgument]) -> list[tuple[ArrayArgument, DType]]:
    """Each operand with the dtype that it is computed in, by NumPy's rules of promotion.

    Elementwise ops find a common dtype for all operands, others one for the floats among them.
    """
    opcode = OPCODES.get(public.primitive.opcode) if public.primitive and (
        public.primitive.kind == "map") else None
    elementwise = opcode is not None or public.name == "clip"
    first = 1 if public.name == "where" else 0  # the condition keeps its own dtype
    promoted = operands[first:]
    strong = [operand.array.dtype for operand in promoted if not operand.weak]
    if not elementwise:
        strong = [d for d in strong if dtype_of(d).is_float] or strong[:1]
    common = _common_dtype(public, strong, [o.array for o in promoted if o.weak])
    if opcode is not None and opcode.kinds == "f" and not common.is_float:
        common = f64  # as NumPy's functions of integers
    typed = []
    for k, operand in enumerate(operands):
        array, weak = operand
        array_dtype = dtype_of(array.dtype)
        takes_common = k >= first and (elementwise or weak or array_dtype.is_float)
        typed.append((operand, common if takes_common else array_dtype))
        if takes_common and weak and common.is_int and array != array.astype(common.numpy):
            raise DataError(f"zt.ops.{public.name}: {array} is no {common}; use an array of a "
                            "wider dtype")
    return typed


def _common_dtype(public: Public, strong: Sequence[np.dtype], weak: Sequence[np.ndarray]) -> DType:
    """The dtype of the arrays, unless it cannot hold the kind of the numbers beside them."""
    try:
        common = dtype_of(np.result_type(*strong)) if strong else boolean
    except (TypeError, UnknownName):
        raise DataError(f"zt.ops.{public.name}: {' and '.join(map(str, strong))} have no common "
                        "dtype; use zt.ops.cast to choose one") from None
    rank = max((_RANK[dtype_of(array.dtype).kind] for array in weak), default=0)
    return common if rank <= _RANK[common.kind] else {1: i64, 2: f64}[rank]
