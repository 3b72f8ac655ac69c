"""Chains: runs of small kernels that depend on one another, in one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.cases.device_programs import all_agree
from tests.cases.grouping import together
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda
from tests.parity import Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.explained import planned_kernels
from ztorch.compile.parameters import initial_parameters
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import f32
from ztorch.errors import DeviceError, InterpretError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel, launch_grid
from ztorch.lower import chains
from ztorch.lower.chains import Meeting
from ztorch.lower.grid.chain_kernels import COUNTER, chain_kernel
from ztorch.runtime.start import start
from ztorch.tune.tuner import kernel_works

WAYS = {"workgroup": Meeting(1, 0, False), "cluster": Meeting(4, 600, True), "launch": Meeting(4, 2000, False)}
BARRIERS = {"workgroup": "barrier", "cluster": "cluster_barrier", "launch": "grid_barrier"}
HOPPER, AMPERE = (TARGETS[f"cuda:{chip}"].limits for chip in ("sm_90a", "sm_80"))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Chains wherever they are possible, in one way."""
    monkeypatch.setattr(chains, "_ways", lambda grid: [WAYS[request.param]])
    monkeypatch.setattr(chains, "CHAIN_GAP", 1e9)
    return request.param


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


def job(make: Callable[..., Graph], *shapes: tuple[int, ...]) -> Job:
    """A graph of inputs of these shapes, with numbers."""
    random = np.random.default_rng(len(shapes))
    values = [leaf("input", f"x{k}", shape, f32) for k, shape in enumerate(shapes)]
    return Job(make(*values), {v: (random.normal(size=v.shape) / 4).astype(np.float32) for v in values})


def perceptron(x: Value, *weights: Value) -> Graph:
    """Dense layers and a softmax."""
    for k, (w, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        x = ops.matmul(x, w) + bias
        x = ops.relu(x) if 2 * k + 2 < len(weights) else ops.softmax(x)
    return Graph({"y": x})


def layers(*sizes: int) -> list[tuple[int, ...]]:
    """The shapes of a row and of the weights of such layers."""
    return [(1, sizes[0]), *(s for n, m in pairwise(sizes) for s in ((n, m), (m,)))]


def normed(x: Value, w: Value) -> Graph:
    """Rows that are normalized, and two values made of them."""
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    y = centered / ops.sqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + 1e-3)
    total = ops.sum(y * w, axis=0, keepdims=True)
    return Graph({"y": ops.softmax(total), "z": ops.sum(ops.exp(y) * ops.max(total), axis=-1)})


def slopes(x: Value, w: Value, v: Value) -> Graph:
    """A prediction and the gradients of its loss."""
    y = ops.softmax(ops.matmul(ops.tanh(ops.matmul(x, w)), v))
    loss = ops.sum(ops.square(y))
    return Graph({"y": y, **{f"g{k}": g for k, g in enumerate(gradients(loss, [x, w, v]))}})


JOBS = {
    "layers": job(perceptron, *layers(150, 136, 72, 10)),
    "layers of odd sizes": job(perceptron, *layers(37, 61, 5, 3, 2)),
    "more results than threads": job(perceptron, *layers(8, 700, 4)),
    "a few rows": job(perceptron, (3, 60), *layers(60, 44, 21, 6)[1:]),
    "norms": job(normed, (3, 90), (1, 90)),
    "gradients": job(slopes, (1, 40), (40, 24), (24, 6)),
}


@pytest.mark.parametrize("name", JOBS)
def test_chains_compute_what_their_kernels_do(name: str, way: str) -> None:
    for limits in (HOPPER, AMPERE):
        for backwards in (False, True):
            agree(JOBS[name], interpreted(JOBS[name], limits, backwards=backwards))


@pytest.mark.parametrize("name", JOBS)
def test_chains_in_ptx(name: str, way: str, fake: FakeCuda) -> None:
    all_agree("cuda", [JOBS[name]])
    if way == "launch" and name == "layers":  # the driver is asked to run all workgroups at once
        assert "cuGraphKernelNodeSetAttribute" in fake.calls


def test_a_chain_for_a_larger_gpu_says_so(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
    """The pretended GPU runs 32 workgroups of 256 threads at once; that of the artifact ran 64."""
    monkeypatch.setattr(chains, "CHAIN_GAP", 1e9)
    one = job(perceptron, *layers(300, 512, 10))
    for groups in (32, 64):
        monkeypatch.setattr(chains, "_ways", lambda grid, n=groups: [Meeting(n, 2000, False)])
        made = compile_functions({"f": one.graph}, TARGETS["cuda:sm_90a"], "m")
        assert [launch_grid(s.kernel)[0] for s in made.plans["f"].steps] == [groups]
        program = start(made.spec, made.code, initial_parameters(
            made.spec, made.placed.states, [data for _, data in made.placed.constants]))
        if groups == 32:
            call = program.bind("f")
            for v, x in one.feeds.items():
                call.inputs[v.attrs["name"]][...] = x
            call()
            np.testing.assert_allclose(call.outputs["y"], one.oracle()[0], rtol=1e-4, atol=1e-6)
            continue
        with pytest.raises(DeviceError, match=r"the 64 workgroups of k0_to_k\w+ wait .* GPU runs 32 at once; compile"):
            program.bind("f")()


def chain_of(name: str, limits: object = HOPPER) -> Kernel:
    [step] = plan_of(JOBS[name].alone("j"), limits)[0].steps
    return step.kernel


def test_a_prediction_is_one_launch(way: str) -> None:
    kernel = chain_of("layers")
    groups = 1 if way == "workgroup" else 4
    assert launch_grid(kernel)[0] == groups
    assert kernel.cluster == (groups if way == "cluster" else 1)
    met = [i.opcode for i in kernel.body if i.opcode in set(BARRIERS.values()) - {"barrier"}]
    # The last two stages have one workgroup each, so its own barrier is enough.
    assert met == ([] if way == "workgroup" else [BARRIERS[way]] * 2)
    assert (COUNTER in {m.name for m in kernel.memories}) == (way == "launch")


@pytest.mark.parametrize("way", ["cluster", "launch"], indirect=True)
def test_weights_are_loaded_before_the_first_barrier(way: str) -> None:
    plan, _ = plan_of(JOBS["layers"].alone("j"), HOPPER)
    [step] = plan.steps
    names = [m.name for m in step.kernel.memories if m.space == "global"]
    weights = {n for n, p in zip(names, step.locations, strict=True) if p.space == "inputs"}
    opcodes = [i.opcode for i in step.kernel.body]
    behind = step.kernel.body[opcodes.index(BARRIERS[way]):]
    loads = [i.attrs["mem"] for i in behind if i.opcode == "load" and i.attrs["mem"] in names]
    assert loads and not weights & set(loads)


@together()
@pytest.mark.parametrize("kind", ["cluster", "launch"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_barrier_is_found(kind: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_ways", lambda grid: [WAYS[kind]])
    monkeypatch.setattr(chains, "CHAIN_GAP", 1e9)

    def faulty(*args: object) -> Kernel:
        kernel = chain_kernel(*args)  # type: ignore[arg-type]
        at = [k for k, i in enumerate(kernel.body) if i.opcode == BARRIERS[kind]][number]
        return replace(kernel, body=kernel.body[:at] + kernel.body[at + 1:])

    monkeypatch.setattr(chains, "chain_kernel", faulty)
    with pytest.raises(InterpretError, match=r"kernel k0_to_k3\w*, instruction \d+ \((load|store)\): race on "):
        interpreted(JOBS["layers"], HOPPER)


def test_a_schedule_of_the_user_keeps_a_kernel_apart() -> None:
    graph = JOBS["layers"].alone("j")
    [one] = plan_of(graph, HOPPER)[0].steps
    assert "_to_" in one.kernel.name
    steps = plan_of(graph, HOPPER, schedules={
        "k1_sum_where_f32": "grid_rows team(rows=32, ways=8) width(1) turns(held=0)"})[0].steps
    assert [s.kernel.name.partition("_sum")[0] for s in steps] == ["k0", "k1", "k2_to_k3"]


@pytest.mark.parametrize("name", ["cuda:sm_75", "rocm:gfx942", "vulkan", "webgpu"])
def test_targets_without_barriers_of_a_launch_have_several_launches(name: str) -> None:
    steps = plan_of(JOBS["layers"].alone("j"), TARGETS[name].limits)[0].steps
    assert len(steps) >= 4 and not any("_to_" in s.kernel.name for s in steps)


def test_kernels_that_run_beside_others_are_in_no_chain(way: str) -> None:
    """A sum runs beside a product, in one launch. The two kernels that need both are a chain."""
    def make(x: Value, y: Value) -> Graph:
        return Graph({"y": ops.softmax(ops.sum(ops.exp(y), axis=0) * ops.sum(ops.matmul(x, x), axis=0))})

    both = job(make, (32, 32), (8, 32))
    steps = plan_of(both.alone("j"), HOPPER)[0].steps
    assert [[part.key.partition("_")[2][:3] for part in s.parts] for s in steps] == [["sum", "mat"], ["sum", "max"]]
    assert [s.in_turn for s in steps] == [s.barrier for s in steps] == [False, True]
    agree(both, interpreted(both, HOPPER, backwards=True))


def test_kernels_of_a_chain_are_found_by_their_keys() -> None:
    """By the tuner, by explanations and by schedules that users give; a kernel with one leaves its chain."""
    target = TARGETS["cuda:sm_90a"]
    graph = JOBS["layers"].alone("j")
    [step] = plan_of(graph, target.limits)[0].steps
    assert step.in_turn and len(step.parts) >= 4
    planned = planned_kernels({"f": graph}, target)["f"]
    assert [p.step.key.partition("/")[2] for p in planned] == [part.key.partition("/")[2] for part in step.parts]
    assert {w.kernel.key for w in kernel_works({"f": graph}, target)} <= {p.step.key for p in planned} != set()
    last = planned[-1].step
    compiled = compile_functions({"f": graph}, target, "chain", schedules={last.key: last.schedule})
    assert len(compiled.plans["f"].steps) > 1
