"""Attention as one kernel on machines of workgroups: the results of its ops, and no scores in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.attention import job, off
from tests.cases.available import PLAYED, device
from tests.cases.device_programs import Module
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import GROUPS, Job, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import ptx
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32, from_storage
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.rewrites import attention as attention_module


@pytest.fixture(autouse=True)
def small_scores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention of a few rows is one kernel, too."""
    monkeypatch.setattr(attention_module, "ATTENTION_SHARE", 0)


SM_80 = TARGETS["cuda:sm_80"].without_tensor_cores().limits
# Heads, those of keys, queries, keys, size of a head, shape of the mask, causal, dtype.
CASES = {
    "plain": (2, 2, 17, 40, 6, (), False, "float32"),
    "causal": (2, 1, 150, 150, 4, (), True, "float32"),
    "masked, in groups": (4, 2, 33, 70, 8, (2, 1, 1, 70), True, "bfloat16"),
    "rows that see nothing": (2, 1, 40, 33, 8, (40, 33), True, "float16"),
}


def case(name: str) -> Job:
    return job(*CASES[name])


@pytest.mark.parametrize("limits", [GROUPS, SM_80], ids=["groups", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, limits: Limits) -> None:
    """No buffer but inputs and the result."""
    one = case(name)
    plan = plan_of(one.alone("j"), limits)[0]
    assert [s.schedule.kind for s in plan.steps] == ["grid_attention"] and not plan.buffers
    assert off(one, interpreted(one, limits)[0]) < 12


@pytest.mark.parametrize("name", ["masked, in groups", "causal"])
@pytest.mark.parametrize("backend", PLAYED)
def test_on_devices(backend: str, name: str) -> None:
    device(backend)
    one = case(name)
    assert off(one, Module([one], backend).run(0)[0]) < 12


@pytest.mark.parametrize("name", ["plain", "causal"])
def test_through_ptx(name: str) -> None:
    """The kernel that a GPU runs, with its barriers and shuffles."""
    one = case(name)
    [step] = plan_of(one.alone("j"), SM_80)[0].steps
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_80")))
    [root] = one.graph.roots
    assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 12


@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90a", "sm_100"])
def test_nothing_spills(chip: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
    for size, dtype in ((64, "float32"), (128, "float32"), (128, "float16")):
        q, k, v = (leaf("input", n, (1, 2, 256, size), dtype) for n in "qkv")
        graph = Graph({"y": ops.attention(q, k, v, causal=True)})
        [step] = plan_of(graph, TARGETS[f"cuda:{chip}"].without_tensor_cores().limits)[0].steps
        log = ptx.cubin(rendered([step.kernel], chip), chip)[1]
        [[registers, spilled, _]] = ptx.kernel_resources(log).values()
        assert spilled == 0 and registers <= 255, (size, dtype, registers)


def test_only_softmax_of_scores_without_other_readers() -> None:
    q, k, v = (leaf("input", n, (2, 32, 8), f32) for n in "qkv")
    weights = ops.attention_weights(q, k)
    for roots, actual in (({"y": ops.matmul(weights, v)}, True),
                          ({"y": ops.matmul(weights, v), "w": weights}, False),
                          ({"y": ops.matmul(ops.sigmoid(ops.matmul(q, ops.transpose(k, (0, 2, 1)))), v)}, False),
                          ({"y": ops.attention(q[:, :15], k, v)}, False)):
        [*kinds] = (s.schedule.kind for s in plan_of(Graph(roots), SM_80)[0].steps)
        assert (kinds == ["grid_attention"]) == actual, roots


def test_scores_without_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 4,096 positions take half of WebGPU's limit on a buffer."""
    monkeypatch.undo()
    for positions, kernels in ((4096, 1), (2048, 3)):
        q, k, v = (leaf("input", n, (1, positions, 16), f32) for n in "qkv")
        steps = plan_of(Graph({"y": ops.attention(q, k, v)}), TARGETS["webgpu"].limits)[0].steps
        assert len(steps) == kernels


def test_masked_columns_are_skipped() -> None:
    """Not even at values that are not numbers."""
    one = case("causal")
    v = next(x for x in one.feeds if x.attrs["name"] == "v")
    one.feeds[v][..., 130:, :] = np.nan
    got = interpreted(one, GROUPS)[0]
    assert np.isfinite(got[..., :96, :]).all() and np.isnan(got[..., 130:, :]).all()
