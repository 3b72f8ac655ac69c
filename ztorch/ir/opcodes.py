"""The table of opcodes: operands, NumPy meaning, gradient, and rewriting for targets without it.

A row is all it takes to add a scalar opcode. `meaning` is the definition that every target is held
to. `grad(o, g, y, *xs)` gives the gradient of each operand, written with the tensor operations of
the namespace `o`. `via(b, *xs)` rewrites it with a builder for targets that lack the opcode.

A raw opcode is the machine's own instruction; machines trap or differ for some operands. Only
rewritings emit it (`ir/safe.py`), and its meaning is wrong there, so that tests find misuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.ir import atomic_rewritings as atomics
from ztorch.ir import copy_rewritings as copies
from ztorch.ir import meanings, product_rewritings, remainders, safe
from ztorch.ir import polynomials as poly
from ztorch.ir.dots import ROWS as DOTS
from ztorch.ir.library_convolutions import ROWS as LIBRARY_CALLS
from ztorch.ir.ring_opcodes import ROWS as RINGS

Via = Callable[..., Any]


class Opcode(NamedTuple):
    """One row."""

    name: str
    arity: int  # operands, without the mask of a memory access
    doc: str
    meaning: Callable[..., Any] | None = None  # on NumPy arrays; None: not a scalar opcode
    kinds: str = "fsu"  # of dtypes taken: float, signed, unsigned, bool
    result: str = "same"  # dtype: `same`, `bool`, `attr` (the instruction names it), `none` (token)
    grad: Callable[..., tuple] | None = None
    via: Via | None = None
    via_int: Via | None = None  # on integers, in place of `via`
    via_instr: Via | None = None  # of a builder and the instruction, where attributes count
    cost: int = 1  # rough number of issue slots, for decisions about recomputing
    attrs: tuple[str, ...] = ()
    raw: bool = False  # rewritings alone emit it: machines may trap or differ
    words: bool = False  # operands are words of several numbers, so there is no op of tensors
    wraps: bool = False  # on integers: a wider register would not hold the same result
    by_dtype: bool = False  # targets may have it on some dtypes only
    variadic: bool = False  # takes more operands than `arity`

    def rewriting(self, operand: DType) -> Via | None:
        """The rewriting of the opcode on operands of a dtype; None if there is none."""
        return self.via_int if self.via_int and operand.is_int else self.via


OPCODES: dict[str, Opcode] = {}


def _row(name: str, arity: int, doc: str, meaning: Callable[..., Any] | None = None,
         **more: Any) -> None:
    OPCODES[name] = Opcode(name, arity, doc, meaning, **more)


# -- arithmetic ------------------------------------------------------------------------------
_row("add", 2, "a + b; integers wrap", np.add, wraps=True,
     grad=lambda o, g, y, a, b: (g, g))
_row("sub", 2, "a - b; integers wrap", np.subtract, wraps=True,
     grad=lambda o, g, y, a, b: (g, -g))
_row("mul", 2, "a * b; integers wrap", np.multiply, wraps=True,
     grad=lambda o, g, y, a, b: (g * b, g * a))
_row("div", 2, "a / b; integers truncate towards zero", meanings.divide, via_int=safe.div, cost=6,
     grad=lambda o, g, y, a, b: (g / b, -(g * y / b)))
_row("rem", 2, "a - trunc(a / b) * b", meanings.remainder, via=remainders.rem,
     via_int=safe.rem, cost=20,
     grad=lambda o, g, y, a, b: (g, -(g * o.trunc(a / b))))
_row("fma", 3, "a * b + c with one rounding", meanings.fma, kinds="f", via=poly.fma,
     grad=lambda o, g, y, a, b, c: (g * b, g * a, g))
_row("neg", 1, "-a; integers wrap", np.negative, kinds="fs", wraps=True,
     grad=lambda o, g, y, a: (-g,))
_row("abs", 1, "|a|", np.abs, kinds="fs", via_int=safe.absolute, wraps=True,
     grad=lambda o, g, y, a: (g * o.sign(a),))
_row("min", 2, "the smaller; NaN if either is NaN", np.minimum, via=safe.minimum,
     grad=lambda o, g, y, a, b: _split(o, g, a < b, b < a))
_row("max", 2, "the larger; NaN if either is NaN", np.maximum, via=safe.maximum,
     grad=lambda o, g, y, a, b: _split(o, g, b < a, a < b))
_row("mulhi", 2, "the upper half of the double-width product", meanings.mulhi, kinds="u",
     via=safe.mulhi, cost=3, wraps=True)
_row("round", 1, "nearest whole number, ties to even", np.rint, kinds="f", via=poly.nearest,
     grad=lambda o, g, y, a: (None,))
_row("floor", 1, "largest whole number not above a", np.floor, kinds="f", via=poly.floor,
     grad=lambda o, g, y, a: (None,))
_row("ceil", 1, "smallest whole number not below a", np.ceil, kinds="f", via=poly.ceil,
     grad=lambda o, g, y, a: (None,))
_row("trunc", 1, "a without its fraction", np.trunc, kinds="f", via=poly.trunc,
     grad=lambda o, g, y, a: (None,))
_row("sqrt", 1, "square root", np.sqrt, kinds="f", cost=10,
     grad=lambda o, g, y, a: (g * 0.5 / y,))
_row("rsqrt", 1, "1 / sqrt(a)", lambda a: 1 / np.sqrt(a), kinds="f", via=poly.rsqrt, cost=16,
     grad=lambda o, g, y, a: (g * -0.5 * y / a,))

# -- functions: native where a target has the word, else polynomials of the IR ------------------
_row("exp", 1, "e ** a", np.exp, kinds="f", via=poly.exp, cost=14,
     grad=lambda o, g, y, a: (g * y,))
_row("exp2", 1, "2 ** a", np.exp2, kinds="f", via=poly.exp2, cost=14,
     grad=lambda o, g, y, a: (g * y * 0.6931471805599453,))
_row("expm1", 1, "e ** a - 1, accurate near zero", np.expm1, kinds="f", via=poly.expm1, cost=20,
     grad=lambda o, g, y, a: (g * (y + 1.0),))
_row("log", 1, "natural logarithm", np.log, kinds="f", via=poly.log, cost=18,
     grad=lambda o, g, y, a: (g / a,))
_row("log2", 1, "base-2 logarithm", np.log2, kinds="f", via=poly.log2, cost=18,
     grad=lambda o, g, y, a: (g / (a * 0.6931471805599453),))
_row("log1p", 1, "log(1 + a), accurate near zero", np.log1p, kinds="f", via=poly.log1p, cost=24,
     grad=lambda o, g, y, a: (g / (a + 1.0),))
_row("tanh", 1, "hyperbolic tangent", np.tanh, kinds="f", via=poly.tanh, cost=20,
     grad=lambda o, g, y, a: (g * (1.0 - y * y),))
_row("erf", 1, "Gauss error function", meanings.erf, kinds="f", via=poly.erf, cost=24,
     grad=lambda o, g, y, a: (g * (1.1283791670955126 * o.exp(-(a * a))),))
_row("sin", 1, "sine", np.sin, kinds="f", via=poly.sin, cost=24,
     grad=lambda o, g, y, a: (g * o.cos(a),))
_row("cos", 1, "cosine", np.cos, kinds="f", via=poly.cos, cost=24,
     grad=lambda o, g, y, a: (-(g * o.sin(a)),))
_row("atan", 1, "arctangent", np.arctan, kinds="f", via=poly.atan, cost=34,
     grad=lambda o, g, y, a: (g / (a * a + 1.0),))
_row("pow", 2, "a ** b", np.power, kinds="f", via=poly.power, cost=50,
     grad=lambda o, g, y, a, b: (
         g * b * o.power(a, o.where(o.equal(b, 0.0), b, b - 1.0)),  # a ** 0 is 1, also of 0
         g * y * o.log(o.where(a > 0.0, a, o.ones_like(a)))))

# -- comparison and choice -----------------------------------------------------------------------
_row("lt", 2, "a < b", np.less, result="bool", grad=lambda o, g, y, a, b: (None, None))
_row("le", 2, "a <= b", np.less_equal, result="bool", grad=lambda o, g, y, a, b: (None, None))
_row("gt", 2, "a > b", np.greater, result="bool", grad=lambda o, g, y, a, b: (None, None))
_row("ge", 2, "a >= b", np.greater_equal, result="bool", grad=lambda o, g, y, a, b: (None, None))
_row("eq", 2, "a == b", np.equal, kinds="fsub", result="bool",
     grad=lambda o, g, y, a, b: (None, None))
_row("ne", 2, "a != b", np.not_equal, kinds="fsub", result="bool",
     grad=lambda o, g, y, a, b: (None, None))
_row("select", 3, "a where c, else b", np.where, kinds="fsub",
     grad=lambda o, g, y, c, a, b: (
         None, o.where(c, g, o.zeros_like(g)), o.where(c, o.zeros_like(g), g)))

# -- bits ------------------------------------------------------------------------------------------
_row("and", 2, "bitwise or logical and", np.bitwise_and, kinds="sub",
     grad=lambda o, g, y, a, b: (None, None))
_row("or", 2, "bitwise or logical or", np.bitwise_or, kinds="sub",
     grad=lambda o, g, y, a, b: (None, None))
_row("xor", 2, "bitwise or logical exclusive or", np.bitwise_xor, kinds="sub",
     grad=lambda o, g, y, a, b: (None, None))
_row("not", 1, "bitwise or logical not", np.invert, kinds="sub", wraps=True,
     grad=lambda o, g, y, a: (None,))
_row("shl", 2, "a << b, b below the width", np.left_shift, kinds="su", wraps=True,
     grad=lambda o, g, y, a, b: (None, None))
_row("shr", 2, "a >> b, arithmetic on signed, b below the width", np.right_shift, kinds="su",
     grad=lambda o, g, y, a, b: (None, None))
_row("cast", 1, "converted to another dtype", meanings.cast, kinds="fsub", result="attr",
     via=safe.cast,
     grad=lambda o, g, y, a, dtype: (
         o.cast(g, a.dtype) if a.dtype.is_float and dtype.is_float else None,))
_row("bitcast", 1, "the same bits read as another dtype", meanings.bitcast, kinds="fsu",
     result="attr", grad=lambda o, g, y, a, dtype: (None,))

# -- raw: the machine's own instructions ---------------------------------------------------------
_row("raw_div", 2, "a / b where that is defined", meanings.raw_divide, kinds="su", raw=True)
_row("raw_rem", 2, "a rem b where raw_div is defined", meanings.raw_remainder, kinds="su",
     via=safe.raw_rem, raw=True)
_row("raw_cast", 1, "float to an integer that is in range, towards zero", meanings.raw_cast,
     kinds="f", result="attr", raw=True)
_row("raw_exp2", 1, "2 ** a to 22 bits, and 0 where that is less than 2 ** -126",
     meanings.raw_exp2, kinds="f", via=poly.exp2, cost=2, raw=True)
_row("raw_rcp", 1, "1 / a to 22 bits, for a from 2 ** -126 to 2 ** 126", meanings.raw_reciprocal,
     kinds="f", via=lambda b, a: b.div(1.0, a), cost=2, raw=True)
_row("raw_exponent", 1, "k of a = m * 2 ** k, m from 3/4 to 3/2; log(a) where that is not finite",
     meanings.exponent, kinds="f", via=poly.exponent, cost=8, raw=True)
_row("raw_significand", 1, "m of a = m * 2 ** k, m from 3/4 to 3/2; 1 of 0 and inf, any if a < 0",
     meanings.significand, kinds="f", via=poly.significand, cost=6, raw=True)

# -- lanes -----------------------------------------------------------------------------------------
_row("splat", 1, "a scalar in every lane", kinds="fsub")
_row("iota", 0, "0, 1, 2, ... across lanes", kinds="su", result="attr")
_row("extract", 1, "one lane", kinds="fsub", attrs=("lane",))
_row("join", 2, "scalars as the lanes of a vector of 2 or 4", kinds="fsub", variadic=True)
_row("shuffle", 2, "lanes picked from two vectors", kinds="fsub", attrs=("perm",))

# -- variables, memory, structure ------------------------------------------------------------------
_row("get", 1, "snapshot of a variable", kinds="fsub")
_row("set", 2, "assign a variable", kinds="fsub", result="none")
_row("load", 1, "consecutive elements (index[, mask])", kinds="fsub", result="attr",
     attrs=("mem", "off", "align"), cost=2)
_row("store", 2, "write consecutive elements (index, x[, mask])", kinds="fsub", result="none",
     attrs=("mem", "off", "align"))
_row("gather", 1, "one element a lane (indices[, mask])", kinds="fsub", result="attr",
     attrs=("mem", "off", "align"), cost=16)
_row("scatter", 2, "write one element a lane (indices, x[, mask])", kinds="fsub", result="none",
     attrs=("mem", "off", "align"), cost=16)
_row("prefetch", 1, "prefetch the cache line of an element; changes no value",
     kinds="fsub", result="none", attrs=("mem", "off", "cache"))
_row("loop", 3, "counted loop (start, stop, step)", kinds="su", result="attr", attrs=("kind",))
_row("end_loop", 4, "end of a loop (counter, start, stop, step)", kinds="su", result="none")
_row("while", 2, "ends the innermost loop unless some lane of x holds (counter, x)", kinds="b",
     result="none", attrs=("rare",))
_row("if", 1, "runs where the condition holds", kinds="b", result="none", attrs=("els",))
_row("else", 1, "splits an if", kinds="b", result="none")
_row("end_if", 1, "end of an if", kinds="b", result="none", attrs=("els",))

# -- threads ---------------------------------------------------------------------------------------
_row("worker", 0, "number of this CPU worker", kinds="su", result="attr", attrs=("axis",))
_row("workers", 0, "how many CPU workers run", kinds="su", result="attr", attrs=("axis",))
_row("grid_id", 0, "number of this workgroup", kinds="su", result="attr", attrs=("axis",))
_row("block_id", 0, "number of this thread in it", kinds="su", result="attr", attrs=("axis",))
_row("barrier", 0, "a barrier of the threads of a workgroup", result="none")
_row("shuffle_xor", 1, "the value of a neighbor in the subgroup", attrs=("mask",))

# -- atomic updates of an element, which return the old one ---------------------------------------
_row("atomic_add", 2, "adds x to an element (index, x)", attrs=("mem", "off"), by_dtype=True,
     via_instr=atomics.by_exchange, cost=20)
_row("atomic_min", 2, "an element becomes the smaller of it and x (index, x)",
     attrs=("mem", "off"), by_dtype=True, via_instr=atomics.by_exchange, cost=20)
_row("atomic_max", 2, "an element becomes the larger of it and x (index, x)",
     attrs=("mem", "off"), by_dtype=True, via_instr=atomics.by_exchange, cost=20)
_row("atomic_exchange", 2, "an element becomes x (index, x)", attrs=("mem", "off"),
     by_dtype=True, via_instr=atomics.by_exchange, cost=20)
_row("atomic_cas", 3, "an element becomes x if its bits are those of the expected number (index, "
     "expected, x)", attrs=("mem", "off"), by_dtype=True, cost=20)

# -- asynchronous copies -------------------------------------------------------------------------
_row("copy_async", 3, "start to copy contiguous elements of a read-only global memory to shared "
     "memory; zeros if not inside (target index, source index, inside)", kinds="fsu",
     result="none", attrs=("mem", "off", "align", "source", "source_off", "elements"), cost=2,
     via_instr=copies.at_once)
_row("copies_commit", 0, "end a group of the copies that this thread has started", result="none",
     via_instr=copies.nothing)
_row("copies_wait", 0, "wait until all groups of this thread but the last `pending` are complete",
     result="none", attrs=("pending",), via_instr=copies.nothing)

# -- matrices that a subgroup holds together -----------------------------------------------------
# Element (i, j) is at index + off + i * pitch + j; if `transposed`, at index + off + i + j * pitch.
_row("mma_load", 1, "a matrix from memory, rounded to its shape's precision (index)", kinds="f",
     result="attr", attrs=("mem", "off", "align", "pitch", "transposed"), cost=8)
_row("mma", 3, "a @ b + c on whole matrices; order and rounding of the sum are the machine's",
     kinds="f", cost=8)
_row("mma_store", 2, "a matrix c into memory (index, c)", kinds="f", result="none",
     attrs=("mem", "off", "align", "pitch", "transposed"), cost=8)
_row("mma_join", 1, "elements of a thread as its part of a matrix a or c of a known layout, "
     "rounded to its dtype", kinds="f", result="attr", variadic=True)

# -- asynchronous products -------------------------------------------------------------------------
# Four neighboring subgroups multiply a, of which each has m rows, by b, which has as many columns
# as all variables c. Both are in swizzled memories, in lines of 128 bytes. Lines of a run along k,
# or along its columns if a is `transposed`. Lines of b run along its rows, and the next 128 bytes
# of a row are `panel` elements further; with `source_transposed` lines run along k. If `fresh`,
# variables begin at zero. Lines of float32 run along k; they are truncated to the mantissa bits.
# Where a is split, the rest of b is `parts` elements behind its leading bits (`parts_with_one`).
_row("mma_async", 2, "start to add a @ b to matrices, which no thread may access before it has "
     "waited (index of a, index of b, variables c)", kinds="fsu", result="none", variadic=True,
     attrs=("mem", "off", "transposed", "source", "source_off", "source_transposed", "panel",
            "fresh"), cost=64, via_instr=product_rewritings.at_once)
_row("mma_held_async", 2, "the same with a in registers, which must not change before the wait; "
     "the memory is that of b (index of b, a, variables c)", kinds="fsu", result="none",
     variadic=True, attrs=("mem", "off", "transposed", "panel", "parts", "fresh"), cost=64,
     via_instr=product_rewritings.held_at_once)
_row("mma_fence", 0, "assignments of this thread to matrices are visible to asynchronous products",
     result="none", via_instr=copies.nothing)
_row("shared_fence", 0, "writes of this thread to shared memory are visible to asynchronous "
     "products, after a barrier also to those of others", result="none", via_instr=copies.nothing)
_row("mma_commit", 0, "end a group of the asynchronous products that this thread has started",
     result="none", via_instr=copies.nothing)
_row("mma_wait", 0, "wait until all groups of products of this thread but the last `pending` are "
     "complete", result="none", attrs=("pending",), via_instr=copies.nothing)

for _name, (_arity, _doc, _attrs, _more) in {**RINGS, **DOTS, **LIBRARY_CALLS}.items():
    _row(_name, _arity, _doc, attrs=_attrs, **{"result": "none", **_more})


def _split(o: Any, g: Any, first: Any, second: Any) -> tuple:
    """The gradient of min and max: all to the winner, half to each of equals."""
    zero, half = o.zeros_like(g), g * 0.5
    return (o.where(first, g, o.where(second, zero, half)),
            o.where(second, g, o.where(first, zero, half)))


def identity(opcode: str, d: DType) -> Any:
    """The number that changes nothing under the combiner."""
    if opcode in ("add", "or", "xor"):
        return 0
    if opcode == "mul":
        return 1
    if opcode == "and":
        return -1
    low, high = (-math.inf, math.inf) if d.is_float else (
        np.iinfo(d.numpy).min, np.iinfo(d.numpy).max)
    return low if opcode == "max" else high


COMPUTING = tuple(n for n, row in OPCODES.items() if row.meaning is not None)
SCALAR = tuple(n for n in COMPUTING if not (OPCODES[n].raw or OPCODES[n].words))
ATOMICS = tuple(n for n in OPCODES if n.startswith("atomic_"))
ARITHMETIC = frozenset(COMPUTING) - {"bitcast", "select"}  # these only move bits
PURE = frozenset(COMPUTING) | {
    "splat", "iota", "extract", "join", "shuffle", "worker", "workers", "grid_id", "block_id"}
