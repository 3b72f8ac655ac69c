"""Recordings of CUDA and HIP devices: graphs of launches, alone or between copies of a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ztorch.backends.handles import DeviceModule, Launch
from ztorch.errors import DeviceError
from ztorch.machines.gpus import EARLY_EDGES

# Bytes of a call up to which its copies are part of the graph. On an H200 a call of a small model
# took 50 us with copies of their own, and a graph with both copies takes 20 where nothing else is
# done. The copies then wait for the launches of earlier calls; so many bytes take some 5 us.
JOINED_BYTES = 256 * 1024


class Transfer(NamedTuple):
    """A copy between the host and the device."""

    target: int
    source: int
    nbytes: int
    kind: str  # HtoD or DtoH


class GraphCalls(Protocol):
    """The calls of a device that make graphs. It is current while they are made."""

    early: bool  # whether launches may begin before those that they depend on have ended

    @property
    def lost(self) -> bool: ...

    def _call(self, name: str, *args: Any) -> Any: ...

    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]: ...

    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any: ...

    def _early_edges(self, graph: Any, sources: list[Any], targets: list[Any]) -> None: ...


class Joined(NamedTuple):
    """A graph with the copies of a call in it. It keeps the blocks, so no others get their ids."""

    graph: Any
    data_in: np.ndarray
    data_out: np.ndarray


class GpuGraph:
    """The launches of a recording, to be replayed alone, or with a copy before and one behind them.

    Each launch waits for those before its barrier, and for no others. Where the device can, it is
    put in place before they end, and its kernel waits for their results.
    """

    def __init__(self, device: GraphCalls, module: DeviceModule, launches: tuple[Launch, ...]):
        self._device = device
        self._module = module
        self._launches = launches
        self.alone = self._instance(None, None)
        self._joined: dict[tuple[int, int, int, int], Joined] = {}

    def joined(self, inputs: int, data_in: np.ndarray, outputs: int, data_out: np.ndarray,
               possible: Callable[[np.ndarray, np.ndarray], bool]) -> Any:
        """The graph with the copies of a call in it, where they are `possible`, else None. It is
        made once, as a call always has the same blocks."""
        key = (id(data_in), id(data_out), inputs, outputs)
        known = self._joined.get(key)
        if known is None:
            if not possible(data_in, data_out):
                return None
            before = Transfer(inputs, data_in.ctypes.data, data_in.nbytes, "HtoD")
            behind = Transfer(data_out.ctypes.data, outputs, data_out.nbytes, "DtoH")
            graph = self._instance(before if before.nbytes else None,
                                   behind if behind.nbytes else None)
            known = self._joined[key] = Joined(graph, data_in, data_out)
        return known.graph

    @property
    def instances(self) -> list[Any]:
        """All graphs that the driver has of it."""
        return [self.alone, *(known.graph for known in self._joined.values())]

    def _instance(self, before: Transfer | None, behind: Transfer | None) -> Any:
        """Where the driver refuses launches that start early, all wait for those before them."""
        device = self._device
        try:
            return self._built(before, behind, device.early)
        except DeviceError as error:
            if not device.early or device.lost:
                raise
            graph = self._built(before, behind, False)
            device.early = False
            warnings.warn(f"launches do not start early, which takes longer: {error}", stacklevel=2)
            return graph

    def _built(self, before: Transfer | None, behind: Transfer | None, may_be_early: bool) -> Any:
        device = self._device
        graph = device._call("GraphCreate", 0)
        try:
            done = [device._copy_node(graph, [], before)] if before else []
            kernels = may_be_early and not before  # whether all of `done` are kernels
            for wave in self._waves():
                early = (kernels and len(done) * len(wave) <= EARLY_EDGES and all(
                    launch.entry in self._module.handle.early for launch in wave))
                if not early and len(done) > 1:
                    done = [self._join(graph, done)]
                after, nodes = [] if early else done, []
                for launch in wave:
                    node, _alive = device._node(self._module, launch)
                    nodes.append(device._call("GraphAddKernelNode", graph, after, len(after), node))
                if early and done:
                    device._early_edges(graph, done * len(nodes),
                                        [node for node in nodes for _ in done])
                done, kernels = nodes, may_be_early
            if behind:
                device._copy_node(graph, [self._join(graph, done)], behind)
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

    def _join(self, graph: Any, nodes: list[Any]) -> Any:
        """One node that is done when all of these are."""
        if len(nodes) == 1:
            return nodes[0]
        return self._device._call("GraphAddEmptyNode", graph, nodes, len(nodes))
