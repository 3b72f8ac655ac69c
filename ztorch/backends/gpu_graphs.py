"""Recordings of CUDA and HIP devices: graphs of launches, with or without the copies of a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ztorch.backends.handles import DeviceModule, Launch
from ztorch.errors import DeviceError
from ztorch.machines.gpus import EARLY_EDGES

# Up to this many bytes, the copies of a call are nodes of its graph. On an H200 a call of a small
# model takes 20 us that way and 50 us with separate copies. Copies in the graph wait for the
# launches of earlier calls, which costs the time of the copy: about 5 us for this many bytes.
GRAPH_COPY_BYTES = 256 * 1024


class Transfer(NamedTuple):
    """A copy between the host and the device."""

    target: int
    source: int
    nbytes: int
    kind: str  # HtoD (host to device) or DtoH


class GraphCalls(Protocol):
    """The methods of a device that build graphs. The device must be current."""

    early: bool  # whether launches may begin before those that they depend on have ended

    @property
    def lost(self) -> bool: ...

    def _call(self, name: str, *args: Any) -> Any: ...

    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]: ...

    def _call_node(self, graph: Any, before: list[Any], module: DeviceModule, launch: Launch,
                   place: int) -> Any: ...

    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any: ...

    def _early_edges(self, graph: Any, sources: list[Any], targets: list[Any]) -> None: ...

    def _run_at_once(self, node: Any, module: DeviceModule, launch: Launch) -> None: ...


class GraphWithCopies(NamedTuple):
    """A graph with the copies of a call. It keeps the blocks alive, so their ids stay unique."""

    graph: Any
    data_in: np.ndarray
    data_out: np.ndarray


class GpuGraph:
    """The launches of a recording, replayed alone, or with a copy before and after them.

    Each launch waits only for those before its barrier. If the device supports it, the launch
    starts before they end, and its kernel waits for their results.
    """

    def __init__(self, device: GraphCalls, module: DeviceModule, launches: tuple[Launch, ...]):
        self._device = device
        self._module = module
        self._launches = launches
        self.launches_only = self._instance(None, None)
        self._with_copies: dict[tuple[int, int, int, int], GraphWithCopies] = {}

    def with_copies(self, inputs: int, data_in: np.ndarray, outputs: int, data_out: np.ndarray,
                    possible: Callable[[np.ndarray, np.ndarray], bool]) -> Any:
        """The graph with the copies of a call; None if these are not `possible`. It is built once,
        since the calls of a program use the same blocks."""
        key = (id(data_in), id(data_out), inputs, outputs)
        cached = self._with_copies.get(key)
        if cached is None:
            if not possible(data_in, data_out):
                return None
            before = Transfer(inputs, data_in.ctypes.data, data_in.nbytes, "HtoD")
            after = Transfer(data_out.ctypes.data, outputs, data_out.nbytes, "DtoH")
            graph = self._instance(before if before.nbytes else None,
                                   after if after.nbytes else None)
            cached = self._with_copies[key] = GraphWithCopies(graph, data_in, data_out)
        return cached.graph

    @property
    def instances(self) -> list[Any]:
        """All executable graphs of this recording."""
        return [self.launches_only, *(cached.graph for cached in self._with_copies.values())]

    def _instance(self, before: Transfer | None, after: Transfer | None) -> Any:
        """An executable graph. If the driver refuses launches that start early, none does."""
        device = self._device
        try:
            return self._build(before, after, device.early)
        except DeviceError as error:
            if not device.early or device.lost:
                raise
            graph = self._build(before, after, False)
            device.early = False
            warnings.warn(f"launches do not start early, which takes longer: {error}", stacklevel=2)
            return graph

    def _build(self, before: Transfer | None, after: Transfer | None, may_be_early: bool) -> Any:
        device = self._device
        graph = device._call("GraphCreate", 0)
        try:
            done = [device._copy_node(graph, [], before)] if before else []
            # Whether launches may start before all of `done` end: these are kernels, and none is
            # cooperative, behind which drivers may refuse it.
            kernels = may_be_early and not before
            for wave in self._waves():
                early = (kernels and len(done) * len(wave) <= EARLY_EDGES and all(
                    launch.entry in self._module.handle.early for launch in wave))
                if not early and len(done) > 1:
                    done = [self._join_node(graph, done)]
                sources, nodes = [] if early else done, []
                handle = self._module.handle
                calls, meeting = 0, any(n.entry in handle.meeting for n in wave)
                for launch in wave:
                    if launch.entry in handle.calls:
                        nodes.append(device._call_node(graph, sources, self._module, launch, calls))
                        calls += 1
                        continue
                    node, _alive = device._node(self._module, launch)
                    nodes.append(device._call("GraphAddKernelNode", graph, sources, len(sources),
                                              node))
                    if launch.entry in handle.meeting:
                        device._run_at_once(nodes[-1], self._module, launch)
                if early and done:
                    device._early_edges(graph, done * len(nodes),
                                        [node for node in nodes for _ in done])
                done, kernels = nodes, may_be_early and not calls and not meeting
            if after:
                device._copy_node(graph, [self._join_node(graph, done)], after)
            return device._call("GraphInstantiate", graph, 0)
        finally:
            device._call("GraphDestroy", graph)

    def _waves(self) -> list[list[Launch]]:
        """The launches between one barrier and the next."""
        waves: list[list[Launch]] = []
        for launch in self._launches:
            if launch.barrier or not waves:
                waves.append([])
            waves[-1].append(launch)
        return waves

    def _join_node(self, graph: Any, nodes: list[Any]) -> Any:
        """A node that is done when all of these are."""
        if len(nodes) == 1:
            return nodes[0]
        return self._device._call("GraphAddEmptyNode", graph, nodes, len(nodes))
