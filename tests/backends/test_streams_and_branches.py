"""The order that GPUs are left: a batch is copied while the step before it runs, and launches between two barriers
are branches of a graph. Each check fails where a wait or an edge is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.backends import pretended_rocm
from tests.backends.pretended_rocm import install as install_rocm  # noqa: F401  # a fixture
from tests.cases import doubled, pretended_cuda
from ztorch.backends import gpu, registry
from ztorch.backends.gpu import GpuDevice
from ztorch.backends.gpu_graphs import GpuGraph
from ztorch.backends.handles import Binding, DeviceBuffer, Launch

N = doubled.N


class Pretended(NamedTuple):
    """A device, its pretended driver, and launches that double one buffer into another."""

    device: GpuDevice
    fake: Any
    twice: Callable[..., Launch]
    module: Any


@pytest.fixture(params=["cuda", "rocm"])
def pretended(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
              install_rocm: Callable[..., Any]) -> Iterator[Pretended]:  # noqa: F811
    fake = (pretended_cuda.install(monkeypatch, shuffled=True) if request.param == "cuda"
            else install_rocm())
    device = registry.open_device(request.param)
    assert isinstance(device, GpuDevice)
    device.early = False  # its edges are those of every GPU
    module, [launch], _ = doubled.loaded(device)

    def twice(source: DeviceBuffer, target: DeviceBuffer, barrier: bool = True) -> Launch:
        return Launch(launch.entry, launch.grid, (Binding(source, 0, 4 * N, False),
                                                  Binding(target, 0, 4 * N, True)), barrier)

    yield Pretended(device, fake, twice, module)
    if request.param == "cuda":
        pretended_cuda.close(fake)
    pretended_rocm.close()


class Step:
    """A step with buffers of its own."""

    def __init__(self, p: Pretended, x: float):
        self.device = p.device
        self.inputs, self.outputs = (p.device.alloc(4 * N) for _ in range(2))
        self.recording = p.device.record(p.module, [p.twice(self.inputs, self.outputs)])
        self.x, self.y = np.full(N, x, np.float32), np.zeros(N, np.float32)
        p.device.pin(self.x)
        p.device.pin(self.y)

    def submit(self) -> Any:
        return self.device.submit(self.recording, self.inputs, self.x, self.outputs, self.y)


def submitted(p: Pretended) -> tuple[list[Step], list[Any], bool]:
    """Two steps, their tickets, and whether the second batch arrives by itself, before the first step runs."""
    steps = [Step(p, 3), Step(p, 5)]
    tickets = [step.submit() for step in steps]
    drain(p)
    early = [_contents(p, b) for b in (steps[1].inputs, steps[0].outputs)]
    return steps, tickets, early[0] == 5 and early[1] != 6 and not steps[0].y.any()


def drain(p: Pretended) -> None:
    """All that the stream of copies may do by itself."""
    queue = p.fake.streams[int(getattr(p.device._copies, "value", p.device._copies))]
    while p.device._copies is not p.device._queue and queue:
        queue.pop(0)()


def _contents(p: Pretended, buffer: DeviceBuffer) -> float:
    """The last number of a buffer at this time, whatever waits."""
    at = int(buffer.handle)
    raw = p.fake.buffers[at] if hasattr(p.fake, "buffers") else p.fake.bytes_at(at, 4 * N)
    return float(raw.view(np.float32)[N - 1])


@pytest.mark.parametrize("apart", [True, False], ids=["two streams", "one stream"])
def test_the_next_batch_is_copied_while_a_step_runs(apart: bool, pretended: Pretended,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """In one stream with the launches, copies would be right but late."""
    monkeypatch.setattr(gpu, "GRAPH_COPY_BYTES", 0)
    with monkeypatch.context() as patch:  # the device closes its own streams
        if not apart:
            patch.setattr(pretended.device, "_copies", pretended.device._queue)
        steps, tickets, early = submitted(pretended)
        assert early == apart
        for step, ticket, y in zip(steps, tickets, (6, 10), strict=True):
            pretended.device.finish(ticket)
            assert (step.y == y).all()


def test_a_launch_that_does_not_wait_for_its_copy_is_noticed(pretended: Pretended,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRAPH_COPY_BYTES", 0)
    call = pretended.device._call
    with monkeypatch.context() as patch:
        patch.setattr(pretended.device, "_call",
                      lambda name, *args: None if name == "StreamWaitEvent" else call(name, *args))
        step = Step(pretended, 3)
        pretended.device.finish(step.submit())
        assert not (step.y == 6).any()
        drain(pretended)


def branches(p: Pretended, patch: pytest.MonkeyPatch) -> tuple[list[tuple[str, list[Any], Any]], list[float]]:
    """The nodes of a graph of two chains side by side, each with the nodes before it; and both results."""
    call, nodes = p.device._call, list[tuple[str, list[Any], Any]]()

    def recorded(name: str, *args: Any) -> Any:
        result = call(name, *args)
        if name.startswith("GraphAdd"):
            nodes.append((name, [*args[1]], result))
        return result

    patch.setattr(p.device, "_call", recorded)
    a, b, c, d, e, f = (p.device.alloc(4 * N) for _ in range(6))
    for buffer, x in ((a, 1), (c, 10), (b, 0), (d, 0)):
        p.device.write(buffer, np.full(N, x, np.float32))
    p.device.run(p.device.record(p.module, [p.twice(a, b), p.twice(c, d, barrier=False), p.twice(b, e),
                                            p.twice(d, f, barrier=False)]))
    results = [np.empty(N, np.float32) for _ in range(2)]
    for buffer, out in zip((e, f), results, strict=True):
        p.device.read(buffer, out)
    return nodes, [float(out[N - 1]) for out in results]


def test_launches_between_barriers_are_branches(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both chains begin at once, and go on where both have ended."""
    [first, second, join, third, fourth], results = branches(pretended, monkeypatch)
    assert [n[0] for n in (first, second, third, fourth)] == ["GraphAddKernelNode"] * 4
    assert join[0] == "GraphAddEmptyNode" and join[1] == [first[2], second[2]]
    assert first[1] == second[1] == [] and third[1] == fourth[1] == [join[2]]
    assert results == [4, 40]


def test_a_missing_edge_is_noticed(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pretended driver runs the nodes in the last order that their edges allow."""
    monkeypatch.setattr(GpuGraph, "_join_node", lambda self, graph, nodes: nodes[-1])
    assert branches(pretended, monkeypatch)[1] == [0, 40]
