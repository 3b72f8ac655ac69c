"""Recordings of CUDA and HIP devices: graphs of launches, alone or between copies of a call."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ztorch.backends.handles import DeviceModule, Launch

# Bytes of a call up to which its copies are part of the graph: one call of the driver in place of
# five, 20 us in place of 50 for a small model on an H200. The copies then wait for the launches of
# earlier calls, which costs what the copies take, 5 us.
JOINED_BYTES = 256 * 1024


class Transfer(NamedTuple):
    """A copy between the host and the device."""

    target: int
    source: int
    nbytes: int
    kind: str  # HtoD or DtoH


class GraphCalls(Protocol):
    """The calls of a device that make graphs. It is current while they are made."""

    def _call(self, name: str, *args: Any) -> Any: ...

    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]: ...

    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any: ...


class GpuGraph:
    """The launches of a recording, to be replayed alone, or with a copy before and one behind them.

    Each launch waits for those before its barrier, and for no others.
    """

    def __init__(self, device: GraphCalls, module: DeviceModule, launches: tuple[Launch, ...]):
        self._device = device
        self._module = module
        self._launches = launches
        self.alone = self._instance(None, None)
        self._between: dict[tuple[Transfer | None, Transfer | None], Any] = {}

    def between(self, before: Transfer | None, behind: Transfer | None) -> Any:
        """The driver's graph with these copies; made once, as a call always has the same."""
        known = self._between.get((before, behind))
        if known is None:
            known = self._between[before, behind] = self._instance(before, behind)
        return known

    @property
    def instances(self) -> list[Any]:
        """All graphs that the driver has of it."""
        return [self.alone, *self._between.values()]

    def _instance(self, before: Transfer | None, behind: Transfer | None) -> Any:
        device = self._device
        graph = device._call("GraphCreate", 0)
        try:
            done: list[Any] = [device._copy_node(graph, [], before)] if before else []
            since: list[Any] = []
            for launch in self._launches:
                if launch.barrier and since:
                    done, since = [self._join(graph, since)], []
                node, _alive = device._node(self._module, launch)
                since.append(device._call("GraphAddKernelNode", graph, done, len(done), node))
            if behind:
                device._copy_node(graph, [self._join(graph, since)], behind)
            return device._call("GraphInstantiate", graph, 0)
        finally:
            device._call("GraphDestroy", graph)

    def _join(self, graph: Any, nodes: list[Any]) -> Any:
        """One node that is done when all of these are."""
        if len(nodes) == 1:
            return nodes[0]
        return self._device._call("GraphAddEmptyNode", graph, nodes, len(nodes))
