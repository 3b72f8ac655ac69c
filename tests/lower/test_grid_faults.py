"""Faults put into the PTX of norms, reductions and an optimizer: the machine that runs it finds each, or a result is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, plan_of, stored
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import KernelStep

HOPPER = TARGETS["cuda:sm_90a"].limits
Outputs = dict[str, Value]


def softmax(x: Value) -> Outputs:
    return {"y": ops.softmax(x)}


def norm_gradient(x: Value, g: Value) -> Outputs:
    return {"y": gradients(ops.sum(ops.standardize(x) * g), [x])[0]}


def column_sums(x: Value) -> Outputs:
    return {"y": ops.sum(x, axis=0)}


def adam(w: Value, g: Value, m: Value, v: Value) -> Outputs:
    first, second = 0.9 * m + 0.1 * g, 0.999 * ops.square(v) + 0.001 * ops.square(g)
    return {"w": w - 0.01 * first / (ops.sqrt(second) + 1e-7), "m": first, "v": second}


CASES: dict[str, tuple[Callable[..., Outputs], tuple]] = {
    "softmax": (softmax, ((1, 1100),)), "norm_gradient": (norm_gradient, ((1, 1100), (1, 1100))),
    "column_sums": (column_sums, ((60, 40),)), "adam": (adam, ((1301,),) * 4)}


def without(text: str, pattern: str) -> Iterator[str]:
    """The text without each match, one at a time."""
    for m in re.finditer(pattern, text):
        yield text[:m.start()] + text[m.end():]


def changed(text: str, pattern: str, replacement: str) -> Iterator[str]:
    """The text with each match replaced, one at a time."""
    for m in re.finditer(pattern, text):
        yield text[:m.start()] + m.expand(replacement) + text[m.end():]


FAULTS: dict[str, Callable[[str], Iterator[str]]] = {
    # The last one stands before a use of shared memory that these kernels do not have.
    "a missing barrier": lambda text: iter([*without(text, r"bar\.sync \d;")][:-1]),
    "a thread's own value in place of another's": lambda text: changed(text, r"(shfl\S+ %v\d+, %v\d+, )\d+", r"\g<1>0"),
    "a result that is not stored": lambda text: without(text, r"st\.(global|shared)\S* \[[^]]*\], [^;]*;"),
    "another place in shared memory": lambda text: changed(text, r"(st\.shared\S* \[[^]]*)\]", r"\1+4]"),
    "another place in global memory": lambda text: changed(text, r"([ls][dt]\.global\S* (?:[^\[;]*)\[%a)", r"\1+16"),
    "no test of the last elements": lambda text: without(text, r"@!%v\d+ bra L\d+_end;"),
    "a wait behind the first load": lambda text: iter([re.sub(r"(griddepcontrol\.wait;\s*)(griddepcontrol\S+)([\s\S]*?ld\.global[^}]*\})",
                                                              r"\3 \1\2", text)]),
    "two buffers swapped": lambda text: iter([re.sub(r"\[p([01])\]", lambda m: f"[p{1 - int(m[1])}]", text)]),
}
EXCHANGES = {"a missing barrier", "another place in shared memory"}
SHUFFLES = {"a thread's own value in place of another's"}
TESTS = {"no test of the last elements"}
# A softmax may take a smaller number for the largest; elements that rows do not have count as nothing, tested or not.
LACKS = {"softmax": SHUFFLES | TESTS, "norm_gradient": TESTS, "column_sums": SHUFFLES, "adam": SHUFFLES | EXCHANGES}


def made(name: str) -> tuple[Job, KernelStep]:
    f, shapes = CASES[name]
    rng = np.random.default_rng(0)
    leaves = [leaf("input", f"x{k}", shape, f32) for k, shape in enumerate(shapes)]
    one = Job(Graph(f(*leaves)), {v: rng.normal(size=v.shape).astype(np.float32) for v in leaves})
    [step] = plan_of(one.alone("j"), HOPPER)[0].steps
    return one, step


def results(one: Job, step: KernelStep, text: str) -> dict[str, np.ndarray]:
    """What a text leaves in the buffers."""
    held = {}
    for m, place in zip((m for m in step.kernel.memories if m.space == "global"), step.locations, strict=True):
        held[m.name] = np.full(m.size, np.nan, m.dtype.numpy)
        if place.space == "inputs":
            v = one.alone("j").leaves("input")[place.offset]
            held[m.name][:] = stored(v.dtype, v.attrs["fed"]).reshape(-1)
    run(step.kernel, held, parse(text))
    return held


@together()
@pytest.mark.parametrize(("name", "fault"), [(n, f) for n in CASES for f in FAULTS if f not in LACKS[n]])
def test_a_fault_is_detected(name: str, fault: str) -> None:
    one, step = made(name)
    text = rendered([step.kernel], "sm_90a")
    want, broken = results(one, step, text), [*FAULTS[fault](text)]
    assert broken
    for other in broken:
        assert other != text
        with pytest.raises((PtxError, AssertionError)):
            for m, array in results(one, step, other).items():
                np.testing.assert_array_equal(array, want[m])
