"""Predictions of kernels whose workgroups are divided among parts."""

from __future__ import annotations

import pytest

from models import digits_mlp
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.machines.gpus import gpu
from ztorch.performance.step import FunctionPrediction, predict_functions

X = leaf("input", "x", (64, 48), f32)
Y = leaf("input", "y", (33, 7), f32)
GRAPH = Graph({"rows": ops.sum(X, 1), "product": ops.matmul(Y, leaf("input", "m", (7, 9), f32)),
               "elements": ops.exp(Y)})


def predicted(graph: Graph, joined: bool, name: str = "H200") -> FunctionPrediction:
    of = target(gpu(name).targets[0]).on_device({"skips_branches": joined})
    return predict_functions({"f": graph}, of, gpu(name))["f"]


def test_parts_do_what_they_do_alone() -> None:
    [whole] = predicted(GRAPH, True).kernels
    alone = predicted(GRAPH, False).kernels
    assert len(alone) == 3 == len(whole.kernel.joined) and not alone[0].kernel.joined
    for part, other in zip(whole.kernel.joined, (k.kernel for k in alone), strict=True):
        assert part.groups in (other.groups, 1)  # fewer where more elements are in a workgroup
        assert part.flops == pytest.approx(other.flops, rel=0.1)
        assert other.seconds <= part.seconds < other.seconds * 1.05  # finding the part takes cycles
        assert part.registers == whole.kernel.registers
        assert part.shared_bytes == whole.kernel.shared_bytes
    for quantity in ("flops", "l2_bytes", "memory_bytes", "groups"):
        assert getattr(whole.kernel, quantity) == pytest.approx(sum(
            getattr(part, quantity) for part in whole.kernel.joined))
    assert whole.kernel.seconds == max(part.seconds for part in whole.kernel.joined)
    assert [p["kernel"] for p in whole.kernel.to_json()["joined"]] == [
        part.kernel.name for part in plan_of(GRAPH, target("cuda:sm_90a").limits)[0].steps[0].parts]


def test_parts_that_fill_the_gpu_take_turns() -> None:
    large = [leaf("input", f"x{k}", (1 << 22,), f32) for k in range(3)]
    graph = Graph({f"y{k}": ops.exp(x) for k, x in enumerate(large)})
    [whole] = predicted(graph, True).kernels
    assert whole.kernel.seconds == pytest.approx(sum(p.work_seconds for p in whole.kernel.joined))
    assert whole.kernel.seconds == pytest.approx(predicted(graph, False).seconds
                                                 - predicted(graph, False).gaps, rel=0.01)


@pytest.mark.parametrize("name", ["H200", "MI300X"])
def test_a_step_of_training_is_a_launch_for_each_wave(name: str) -> None:
    """And takes no longer than with a launch for each kernel."""
    graph = digits_mlp.build().trace(32, optimizer="adam", loss=digits_mlp.LOSS).functions["train"]
    whole, alone = predicted(graph, True, name), predicted(graph, False, name)
    assert whole.waves == whole.launches == alone.waves < alone.launches
    assert whole.seconds < alone.seconds * 1.01


def test_launches_with_the_same_code_have_their_own_parts() -> None:
    x = leaf("input", "x", (40, 40), f32)
    y = ops.softmax(ops.matmul(x, x))
    graph = Graph({f"{k}": v for k, v in enumerate((
        ops.exp(x), ops.sum(x, 0), ops.exp(y), ops.sum(y, 0)))})
    launches = [k.kernel for k in predicted(graph, True).kernels]
    names = [p.name for k in launches for p in (k.joined or (k,))]
    assert len(names) == len(set(names)) > len(launches) == len({k.name for k in launches})
