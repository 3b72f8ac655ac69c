"""The dtype that an op computes in, by NumPy's rules of promotion."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, f64, i8, i64, result_type, u8
from ztorch.errors import DataError
from ztorch.graph.op import Public
from ztorch.ir.opcodes import OPCODES

_RANK = {"b": 0, "u": 1, "s": 1, "f": 2}  # a kind of dtype can hold kinds of lower rank
_KINDS = {bool: "b", int: "s", float: "f"}  # of Python numbers

# Ops that find one dtype for all operands, but are neither opcodes nor ufuncs of NumPy.
_COMMON_DTYPE = (
    "append", "cdist", "clip", "concat", "convolve", "correlate", "cross", "divide_no_nan", "dot",
    "fmax", "fmin", "gcd", "heaviside", "inner", "isclose", "isin", "kron", "lcm", "logaddexp2",
    "matmul", "nextafter", "outer", "remainder", "stack", "tensordot", "vdot", "vecdot", "where")

# Ufuncs with the dtypes of opcodes that take floats alone, if not those of np.exp.
_LIKE = {"round": np.floor}

_SEPARATE = ("broadcast_arrays", "meshgrid")  # each result has the dtype of its operand

# The dtype in which bools are computed, for ops that do not take bools.
_BOOLS_AS = {**dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), u8),
             **dict.fromkeys(("floor_divide", "remainder", "shift_left", "shift_right", "power"),
                             i8),
             **dict.fromkeys(("sum", "prod", "cumsum", "cumprod", "trace"), i64),
             **dict.fromkeys(("mean", "var", "std"), f64)}

# The logical ops that NumPy computes if all operands are bools.
_LOGIC = {"add": "logical_or", "maximum": "logical_or", "max": "any",
          "mul": "logical_and", "minimum": "logical_and", "min": "all"}


def name_for(name: str, operands: Sequence[DType | type]) -> str:
    """The name of the op for operands of these dtypes: ops on bools alone may be logical ones.

    >>> name_for("add", [boolean, bool]), name_for("add", [boolean, int])
    ('logical_or', 'add')
    """
    if name in _LOGIC and all(d is boolean or d is bool for d in operands):
        return _LOGIC[name]
    return name


def operand_dtypes(public: Public, operands: Sequence[DType | type]) -> list[DType]:
    """The dtype that each operand of an op is computed in.

    Elementwise ops find a common dtype for all operands, others one for the floats among them.

    Args:
        public: The op.
        operands: The dtype of each tensor, and the type of each Python number. A number takes the
            dtype of the tensor operands, unless that dtype cannot hold its kind.
    """
    if public.name in _SEPARATE:
        return [d for d in operands if isinstance(d, DType)]
    opcode = OPCODES.get(public.primitive.opcode) if public.primitive and (
        public.primitive.kind == "map") else None
    elementwise = opcode is not None or public.name in _COMMON_DTYPE or (
        isinstance(public.reference, np.ufunc) and public.reference.signature is None)
    first = 1 if public.name == "where" else 0  # the condition keeps its own dtype
    strong = [d for d in operands[first:] if isinstance(d, DType)]
    if not elementwise:
        strong = [d for d in strong if d.is_float] or strong[:1]
    common = _with_numbers(result_type(*strong) if strong else boolean,
                           [n for n in operands[first:] if not isinstance(n, DType)])
    if elementwise and not common.is_float and isinstance(public.reference, np.ufunc):
        common = _computed_in(public.reference, common)
    elif opcode is not None and opcode.kinds == "f" and not common.is_float:
        common = _computed_in(_LIKE.get(public.name, np.exp), common)
    if common is boolean:
        common = _BOOLS_AS.get(public.name, boolean)
    if not elementwise and common in (i64, f64) and strong == [boolean]:
        return [common]
    return [common if not isinstance(d, DType) or (
                k >= first and (elementwise or d.is_float)) else d
            for k, d in enumerate(operands)]


@functools.cache
def _computed_in(function: np.ufunc, d: DType) -> DType:
    """The float dtype in which a ufunc of NumPy computes a dtype; the dtype itself if that is not a
    float. Functions of floats compute int8 in float16, and int16 in float32."""
    try:
        first, *_ = function.resolve_dtypes((d.numpy,) * function.nin + (None,) * function.nout)
    except TypeError:  # the function does not take this dtype
        return d
    return dtype(first) if first.kind == "f" else d


def _with_numbers(common: DType, numbers: Sequence[type]) -> DType:
    """The common dtype of the tensors, or a wider one if it cannot hold the kind of the numbers."""
    rank = max((_RANK[_KINDS[n]] for n in numbers), default=0)
    return common if rank <= _RANK[common.kind] else {1: i64, 2: f64}[rank]


def integer_range(d: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype."""
    limits = np.iinfo(d.numpy)
    return int(limits.min), int(limits.max)


def need_in_range(name: str, number: float, d: DType) -> None:
    """Raises a DataError if an integer dtype cannot hold a number."""
    low, high = integer_range(d)
    if not low <= number <= high:
        raise DataError(f"zt.ops.{name}: {number} does not fit {d}; use an array of a wider dtype")
