"""Which ops compile for each target: all samples of an op and their gradients are tried."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

import ztorch.ops  # noqa: F401 (fills the registry)
from tools.opcode_support import has
from ztorch.codegen.targets import Target
from ztorch.compile.device_code import within_limits
from ztorch.compile.kernels import Kernels
from ztorch.dtypes import ALL, DType, bf16, boolean, dtype, f16, f32, f64, i8, i32, i64, u8, u32
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, Public, Sample, leaf, public_ops
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.params import Params
from ztorch.lower.plan import Plan, lower

# The dtypes to try the samples of an op with, by kind.
SAMPLE_DTYPES = {"f": (f32, f64, f16, bf16), "s": (i32, i64, i8), "u": (u32, u8),
                 "b": (boolean,)}


def op_cells(targets: Sequence[Target],
             only: Container[str] | None = None) -> dict[str, list[str]]:
    """For each op, on each target: yes, or the dtypes that it cannot take."""
    able = [[d for d in ALL if has(t, d)] for t in targets]
    rows: dict[str, list[str]] = {}
    for public in sorted(public_ops(), key=lambda p: p.name):
        if only is not None and public.name not in only:
            continue
        answers: list[dict[DType, list[bool]]] = [{} for _ in targets]
        for d, graph in _graphs(public):
            plans: dict[Limits, Plan | None] = {}
            for k, t in enumerate(targets):
                if d in able[k]:
                    answers[k].setdefault(d, []).append(_compiles(graph, t, plans))
        if any(answers):
            rows[public.name] = [_answer(a) for a in answers]
    return rows


def _answer(results: Mapping[DType, Sequence[bool]]) -> str:
    no_sample = [repr(d) for d in ALL if d in results and not any(results[d])]
    partly = [repr(d) for d in ALL if d in results and any(results[d]) and not all(results[d])]
    parts = [f"not {' '.join(no_sample)}"] * bool(no_sample)
    parts += [f"{' '.join(partly)} in part"] * bool(partly)
    return "; ".join(parts) or "yes"


def _compiles(graph: Graph, target: Target, plans: dict[Limits, Plan | None]) -> bool:
    """Whether every kernel of a graph can be rendered for the target, within its limits. Targets
    with the same limits share plans."""
    try:
        if target.limits not in plans:
            plans[target.limits] = None
            plans[target.limits] = lower("op", graph, target.limits, Params(target.limits))
        plan, kernels = plans[target.limits], Kernels(target)
        for step in plan.steps if plan is not None else ():
            if target.limits.grid is not None:
                within_limits(step, target)
            kernels.number(step.kernel)
    except Unsupported:
        return False
    return plan is not None


def _graphs(public: Public) -> Iterator[tuple[DType, Graph]]:
    """Each sample and its gradient in the first dtype of each kind that it allows, and the first
    sample in the others."""
    first = True
    for sample in public.samples:
        for kind in sample.dtypes:
            for d in SAMPLE_DTYPES[kind] if first else SAMPLE_DTYPES[kind][:1]:
                yield from ((d, graph) for graph in _made(public, sample, d))
        first = False


def _made(public: Public, sample: Sample, d: DType) -> list[Graph]:
    """The graph of an op's results, and that of its gradient."""
    leaves = []
    for k, shape in enumerate(sample.shapes):
        array = isinstance(shape, np.ndarray)
        of = d if not array or shape.dtype.kind == "f" else dtype(shape.dtype)
        if public.name == "where" and k == 0:
            of = boolean
        leaves.append(leaf("input", f"x{k}", np.shape(shape) if array else shape, of))
    try:
        result = public.call(*public.grouped(leaves), **sample.attrs)
    except ZtorchError:  # an op's own rule, on every target alike
        return []
    results = [result] if isinstance(result, Value) else list(result)
    graphs = [Graph({f"y{k}": y for k, y in enumerate(results)})]
    wrt = [v for v in leaves if v.dtype is f32]
    if wrt and results[0].dtype.is_float:
        grads = gradients(OPS.sum(results[0]), wrt)
        graphs.append(Graph({f"d{k}": g for k, g in enumerate(grads)}))
    return graphs
