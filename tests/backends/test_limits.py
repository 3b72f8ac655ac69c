"""A kernel that asks more of a device than it has is an error while compiling, which names the layer, the limit and a
way out; a limit that can be met is met."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.parity import DEFAULT, Job, agree, interpreted
from ztorch import Sequential, ops, settings
from ztorch import layers as L
from ztorch.backends import registry
from ztorch.backends.drivers import dummy
from ztorch.codegen.targets import TARGETS
from ztorch.compile.device_code import device_code
from ztorch.compile.pipeline import compile_functions, declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.dtypes import f32
from ztorch.errors import DeviceError, OutOfMemory, Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host import processor
from ztorch.ir.limits import GridLimits, Limits
from ztorch.layers.weight import Weight
from ztorch.lower.params import Params
from ztorch.lower.plan import lower

ON_GRIDS = [n for n, t in TARGETS.items() if t.limits.grid is not None and t.backend != "dummy"]


def functions() -> dict[str, Graph]:
    model = Sequential([L.Input((20,)), L.Dense(30, activation="relu", name="wide"),
                        L.LayerNormalization(name="norm"), L.Dense(4, name="last")])
    return model.trace(8, loss="mse", optimizer="adam").functions


@pytest.mark.parametrize(("limit", "says"), [
    ({"max_buffers": 2}, r"layer wide: kernel k0_wide_\w+ needs 3 buffers, but {} allows 2; compile "
     "with fewer inputs to one layer"),
    ({"max_buffer_bytes": 1000}, r"layer wide: kernel k0_wide_\w+ needs 2,400 bytes in one buffer, but {} "
     "allows 1,000; make the layer smaller, or compile for another device, such as "
     "cpu"),
    ({"shared_bytes": 600}, "layer wide: a matrix product needs 64 threads and 896 bytes that they share; "
     r"this device has \d+ and 600; compile for another device, such as cpu"),
    ({"threads": 16}, r"layer wide: a matrix product needs 64 threads and 896 bytes .* this device "
                      r"has 16 and \d+; compile for another device, such as cpu"),
], ids=["max_buffers", "max_buffer_bytes", "shared_bytes", "threads"])
@pytest.mark.parametrize("name", [n for n in ON_GRIDS if n in ("opencl", "vulkan", "webgpu")])
def test_beyond_a_limit(name: str, limit: dict[str, int], says: str) -> None:
    with pytest.raises(Unsupported, match=says.format(name)):
        compile_functions(functions(), TARGETS[name].on_device(limit), "m")


def test_a_batch_that_is_too_large() -> None:
    """The memory of a batch depends on its size, that of the weights does not."""
    model = Sequential([L.Input((20,)), L.Dense(30, name="wide")])
    with pytest.raises(Unsupported, match=r"layer wide: .* needs 76,800 bytes in one buffer, but vulkan "
                                          "allows 4,000; compile with a smaller batch_size"):
        compile_functions(model.trace(640).functions, TARGETS["vulkan"].on_device({"max_buffer_bytes": 4000}), "m")


@pytest.mark.parametrize("kept", [False, True], ids=["compiled", "from the cache"])
def test_weights_are_drawn_for_programs_that_fit(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is too large is refused beforehand: by its layers, its device, or this machine."""
    def model() -> Sequential:
        return Sequential([L.Input((20,)), L.Dense(30, name="wide")], name="m")

    with settings.using(cache=str(tmp_path) if kept else None):
        if kept:
            model().compile("dummy", batch_size=4)
        with monkeypatch.context() as patch:
            def never(weight: Weight) -> np.ndarray:
                raise AssertionError(f"{weight.path} is drawn")

            patch.setattr(Weight, "value", property(never))
            with pytest.raises(Unsupported, match="layer wide"):
                compile_functions(model().trace(4).functions, TARGETS["vulkan"].on_device({"max_buffer_bytes": 1000}), "m")
            gc.collect()  # programs of earlier tests, which would free memory later
            patch.setattr(dummy, "MEMORY", registry.open_device("dummy").allocated + 2000)
            with pytest.raises(OutOfMemory, match=r"program 'm' needs [\d,]{5} bytes of dummy:0, and 2,000 of [\d,]+ are "
                                                  r"free: 2,[\d]+ are for its weights"):
                model().compile("dummy", batch_size=40)
            patch.undo()
            patch.setattr(processor, "memory_bytes", lambda: 1 << 29)
            patch.setattr(Weight, "value", property(never))
            with pytest.raises(DeviceError, match=r"program 'm' needs 0\.[89] GiB of memory; this machine has"):
                model().compile("cpu", batch_size=1 << 22)
        assert model().compile("dummy", batch_size=4).predict(np.zeros((4, 20), np.float32)).shape == (4, 30)


def test_shared_memory_of_a_real_kernel() -> None:
    """Should lowering ask for more than there is, the driver is not the one to find out."""
    x = leaf("input", "x", (64, 64), f32)
    target = TARGETS["opencl"]
    plan = lower("op", Graph({"y": ops.matmul(x, x)}), target.limits, Params(target.limits))
    with pytest.raises(Unsupported, match=r"needs [\d,]+ bytes of shared memory, but opencl allows "
                                          "100; use a smaller layer"):
        device_code({"op": plan}, target.on_device({"shared_bytes": 100}), Watch())


@pytest.mark.parametrize("grid", [
    GridLimits(max_groups=2), GridLimits(threads=64), GridLimits(shared_bytes=1024), GridLimits(threads=64, shared_bytes=1024, max_groups=1)],
    ids=["groups", "threads", "shared", "all"])
def test_within_a_limit(grid: GridLimits) -> None:
    """Fewer workgroups take several turns, smaller ones smaller tiles: slower, not wrong."""
    rng = np.random.default_rng(0)
    a, b = leaf("input", "a", (33, 50), f32), leaf("input", "b", (50, 41), f32)
    y = ops.softmax(ops.matmul(a, b))
    job = Job(Graph({"y": y, "sum": ops.sum(y * 2.0, axis=0)}),
              {a: rng.normal(size=(33, 50)), b: rng.normal(size=(50, 41))})
    agree(job, interpreted(job, Limits(0, 16, False, grid=grid)), terms=50)


@pytest.mark.parametrize("memories", [4, 5, 6, 8])
def test_few_buffers_divide_kernels(memories: int) -> None:
    """One kernel becomes several where it would name more buffers than one may, and no more
    than that; the results stay."""
    rng = np.random.default_rng(1)
    few = Limits(0, 16, False, grid=GridLimits(max_buffers=memories))
    plenty = Limits(0, 16, False, grid=GridLimits())
    counts = {}
    for name, graph in functions().items():
        for limits in (few, plenty):
            plan = lower(name, graph, limits, Params(limits))
            counts[name, limits is few] = len(plan.steps)
            named = [sum(m.space == "global" for m in s.kernel.memories) for s in plan.steps]
            assert max(named) <= memories or limits is plenty, [s.kernel.name for s in plan.steps]
            if name == "train" and limits is plenty:
                assert max(named) > memories  # else this tests nothing
    assert counts["train", False] < counts["train", True]
    a, b, c, d, e = (leaf("input", n, (6, 10), f32) for n in "abcde")
    z = ops.sum(a * b + c * d, axis=-1, keepdims=True)
    y = ops.tanh(a + z) * (e - d)
    feeds = {v: rng.normal(size=(6, 10)) for v in (a, b, c, d, e)}
    job = Job(Graph({"y": y, "z": z, "more": ops.exp(y) + c}), feeds)
    agree(job, interpreted(job, few), terms=10)


@pytest.mark.parametrize("name", ON_GRIDS)
def test_what_a_device_says_counts(name: str) -> None:
    """No kernel has more threads or shared memory than the row or the device allows."""
    target = TARGETS[name].on_device({"threads": 64, "shared_bytes": 2048})
    graphs = simplify(functions(), DEFAULT, Watch())
    plans = plan_functions(graphs, target, declare_states(graphs, target), Watch(),
                           prepare_once=False)
    kernels = {s.kernel.name: s.kernel for plan in plans.values() for s in plan.steps}
    assert len(kernels) > 5
    for k in kernels.values():
        assert np.prod(k.workgroup) <= 64, k.name
        assert sum(m.size * m.dtype.bytes for m in k.memories if m.space == "shared") <= 2048, k.name



@pytest.mark.parametrize(("name", "elements", "fits"), [
    ("cuda:sm_90", 1 << 30, True), ("rocm:gfx942", 1 << 30, True), ("cuda:sm_90", 1 << 31, False),
    ("opencl", 1 << 30, False)])
def test_addresses_of_64_bits_reach_beyond_indices_of_32(name: str, elements: int, fits: bool) -> None:
    """There 2 GiB is not a limit of bytes; but elements are counted in 31 bits."""
    graph = Graph({"y": ops.exp(leaf("input", "x", (elements,), f32))})
    if fits:
        assert compile_functions({"f": graph}, TARGETS[name], "m").code
        return
    with pytest.raises(Unsupported, match=r"(bytes|elements) in one buffer"):
        compile_functions({"f": graph}, TARGETS[name], "m")


def test_indices_of_32_bits_do_not_wrap() -> None:
    """A sum of more elements than they count, which no buffer holds: a loop to zero, or wrong quotients."""
    def total(n: int, turned: bool = False) -> Graph:
        table = ops.tanh(leaf("input", "x", (n, 1), f32) * leaf("input", "y", (1, n), f32))
        return Graph({"y": ops.sum(ops.flip(ops.reshape(table, (n * n,)), 0) if turned else table)})

    for graph in (total(1 << 19), total(70_001, turned=True)):
        with pytest.raises(Unsupported, match=r"kernel k0_\w+ counts to [\d,]+, but indices of this device have 32 bits"):
            compile_functions({"f": graph}, TARGETS["opencl"], "m")
    assert compile_functions({"f": total(1 << 17)}, TARGETS["opencl"], "m").code
