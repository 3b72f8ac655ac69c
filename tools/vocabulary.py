"""Writes docs/ops.md: every op with its formula, shapes, dtypes, gradient and cost.

    python -m tools.vocabulary > docs/ops.md
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, f64, i32, u32
from ztorch.errors import ZtorchError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import REGISTRY, Public, Sample, leaf
from ztorch.graph.value import Value, topological
from ztorch.ir.opcodes import OPCODES
from ztorch.ops import signature
from ztorch.ops.complex_values import complex_names

HEAD = """# Ops

Every op of `zt.ops`, by subject. `python -m tools.vocabulary > docs/ops.md` writes this page.

An op on [tensors](guides/arrays.md) returns tensors. On NumPy arrays, objects with `__array__` or
`__dlpack__`, numbers and lists it returns NumPy arrays. Inside a model it takes symbolic tensors,
and is fused and differentiated. It always runs as compiled code, and the same arguments give the
same bits for any number of threads.

`scan`, `while_loop`, `cond` and `checkpoint` take functions, so they are not in these tables:
[Loops and branches](guides/arrays.md#loops-and-branches).

*Dtypes* are those of the tests: f float (16-bit floats are computed in float32), s signed
integer, u unsigned integer, b bool. *Gradient* is the formula for each argument if the table of
opcodes has one (g is the gradient of the result y), else whether there is one. *Example*, *FLOPs*
and *bytes* belong to the op's first sample in float64. FLOPs count one operation for each element
and opcode, comparisons and choices included, and 2mnk for a product; bytes are those of arguments
and results.
"""


COMPLEX = """\
`complex`, `polar`, `view_as_complex` and `view_as_real` convert between real and complex tensors.
For complex tensors and arrays, `fft` and its relatives take NumPy's arguments. An op that is not
in this list raises `Unsupported`:"""
TITLES = {  # of the sections for files whose names do not say it
    "blas": "BLAS", "crossentropies": "Cross-entropies", "ctc": "CTC", "eigen": "Eigenvalues",
    "keras_convolution": "Convolution with Keras' arguments", "linear_pieces": "Piecewise linear",
    "measures": "Statistics and distances", "network_names": "Networks with Keras' arguments",
    "odd_numbers": "Parts of numbers", "products": "Products of vectors",
    "rowwise": "Softmax and other functions of rows", "singular": "Singular values",
    "update": "Optimizer steps", "without_nans": "Without NaN"}
COLUMNS = ("op", "result", "dtypes", "gradient", "example", "FLOPs", "bytes")
# Gradients of ops that no sample can describe.
_UNSAMPLED = {"slice_by": "yes", "einsum": "yes", "dropout": "yes"}
_EXAMPLES = {"f": f64, "s": i32, "u": u32, "b": boolean}


def vocabulary() -> str:
    """The page."""
    families: dict[str, list[Public]] = defaultdict(list)
    for name in sorted(REGISTRY):
        public = REGISTRY[name]
        families[public.call.__module__.rpartition(".")[2]].append(public)
    lines = [HEAD]
    for family in sorted(families):
        title = TITLES.get(family, family.replace("_", " ").capitalize())
        lines += [f"## {title}", "", "| " + " | ".join(COLUMNS) + " |",
                  "| --- " * len(COLUMNS) + "|"]
        lines += [_row(public) for public in families[family]]
        lines.append("")
    names = ", ".join(f"`{name}`" for name in complex_names())
    lines += ["## Complex numbers", "", f"{COMPLEX} {names}.", ""]
    return "\n".join(lines)


def _row(public: Public) -> str:
    sample = next(iter(public.samples), None)
    cells = [f"`{public.name}{_arguments(public)}`", _summary(public), _kinds(public)]
    if sample is None:
        cells += [_gradient(public, []), "", "", ""]
    else:
        leaves = _leaves(public, sample)
        result = public.call(*public.grouped(leaves), **sample.attrs)
        results = [result] if isinstance(result, Value) else list(result)
        cells += [_gradient(public, leaves), _example(leaves, results), f"{_flops(results):,}",
                  f"{sum(v.nbytes for v in [*leaves, *results]):,}"]
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _arguments(public: Public) -> str:
    parameters = [p.replace(annotation=inspect.Parameter.empty)
                  for p in signature(public.name)[0].parameters.values()
                  if p.kind is not inspect.Parameter.POSITIONAL_ONLY]
    named = str(inspect.Signature(parameters))[1:-1]
    bare = ", ".join(p.name for p in signature(public.name)[0].parameters.values()
                     if p.kind is inspect.Parameter.POSITIONAL_ONLY)
    return f"({named or bare})"


def _summary(public: Public) -> str:
    """The first paragraph of the docstring, and the op's other names."""
    first = " ".join(inspect.cleandoc(public.call.__doc__ or "").split("\n\n")[0].split())
    first = first.removesuffix("; element by element, with broadcasting.")
    also = ", ".join(f"`{alias}`" for alias in public.aliases)
    return f"{first.removesuffix('.')}. Also {also}" if also else first


def _kinds(public: Public) -> str:
    row = OPCODES.get(public.primitive.opcode) if public.primitive and (
        public.primitive.kind == "map") else None
    if row is not None:
        return row.kinds
    kinds = {kind for s in public.samples for kind in s.dtypes}
    return "".join(k for k in "fsub" if k in kinds)


def _leaves(public: Public, sample: Sample) -> list[Value]:
    out = []
    for k, shape in enumerate(sample.shapes):
        array = isinstance(shape, np.ndarray)
        kind = "b" if public.name == "where" and k == 0 else sample.dtypes[0]
        d: DType = dtype(shape.dtype) if array else dtype(_EXAMPLES[kind])
        out.append(leaf("input", f"x{k}", np.shape(shape) if array else shape, d))
    return out


def _example(leaves: list[Value], results: list[Value]) -> str:
    def shown(values: list[Value]) -> str:
        return ", ".join(f"{v.dtype!r}{list(v.shape)}" for v in values)

    return f"{shown(leaves)} → {shown(results)}" if leaves else shown(results)


def _flops(results: list[Value]) -> int:
    total = 0
    for v in topological(results):
        if v.op.kind == "contract":
            total += 2 * v.size * v.args[0].shape[-1]
        elif v.op.kind == "reduce":
            total += v.args[0].size
        elif v.op.kind == "map" and not v.op.movement and v.args:
            total += v.size
    return total


# -- gradients as formulas -------------------------------------------------------------------------


class _Formula:
    """A formula as text: operators on it make longer formulas."""

    def __init__(self, text: str, level: int = 9):
        self.text, self.level = text, level  # level: how tightly its last operator binds

    def at(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"

    def __neg__(self) -> _Formula:
        return _Formula(f"-{self.at(3)}", 2)


def _binary(symbol: str, level: int) -> Any:
    def forward(a: _Formula, b: Any) -> _Formula:
        return _Formula(f"{a.at(level)} {symbol} {_formula(b).at(level + 1)}", level)

    def backward(a: _Formula, b: Any) -> _Formula:
        return forward(_formula(b), a)

    return forward, backward


for _python, _symbol, _level in (("add", "+", 1), ("sub", "-", 1), ("mul", "*", 2),
                                 ("truediv", "/", 2), ("pow", "**", 4), ("lt", "<", 0),
                                 ("gt", ">", 0)):
    _forward, _backward = _binary(_symbol, _level)
    setattr(_Formula, f"__{_python}__", _forward)
    setattr(_Formula, f"__r{_python}__", _backward)


def _formula(x: Any) -> _Formula:
    if isinstance(x, _Formula):
        return x
    return _Formula(f"{x:.4g}" if isinstance(x, float) else str(x))


class _Functions:
    """Takes the place of the ops when a gradient is written as a formula."""

    def __getattr__(self, op: str) -> Any:
        def call(*args: Any, **attrs: Any) -> _Formula:
            if op in ("zeros_like", "ones_like"):
                return _Formula("0" if op == "zeros_like" else "1")
            return _Formula(f"{op}({', '.join(_formula(a).text for a in args)})")

        return call


def _gradient(public: Public, leaves: list[Value]) -> str:
    row = OPCODES.get(public.primitive.opcode) if public.primitive and (
        public.primitive.kind == "map") else None
    if row is not None and row.result != "attr":
        if row.grad is None:
            return "no"
        names = [_Formula(n) for n in ("abc" if row.name != "select" else "cab")[:row.arity]]
        parts = row.grad(_Functions(), _Formula("g"), _Formula("y"), *names)
        if all(p is None for p in parts):
            return "no"
        return "`" + ", ".join("-" if p is None else p.text for p in parts) + "`"
    sample = next(iter(public.samples), None)
    if sample is None:
        return _UNSAMPLED.get(public.name, "no")
    result = public.call(*public.grouped(leaves), **sample.attrs)
    y = result if isinstance(result, Value) else result[0]
    wrt = [v for v in leaves if v.dtype.is_float]
    if not y.dtype.is_float or not wrt:
        return "no"
    try:
        gradients(y, wrt)
    except ZtorchError:
        return "no"
    return "yes"


if __name__ == "__main__":
    print(vocabulary(), end="")
