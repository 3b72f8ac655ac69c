"""The order in which nodes of a file are computed: each after those whose results it reads."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from ztorch.errors import ArtifactError
from ztorch.interchange.onnx.contents import NodeSpec


def order_of(path: str, nodes: Sequence[NodeSpec], defined: Collection[str]) -> list[int]:
    """The numbers of the nodes in an order of computation, which is that of the file where it can
    be: some tools append nodes that earlier ones read, and ONNX Runtime takes their files.

    Raises an ArtifactError for an operand that no node computes, or that depends on its reader.

    Args:
        path: The file, for error messages.
        nodes: Its nodes, in the order of the file.
        defined: The names of inputs and initializers.
    """
    producers = {name: k for k, spec in enumerate(nodes) for name in spec.outputs if name}
    readers: list[list[int]] = [[] for _ in nodes]
    ready, missing = [], []
    for k, spec in enumerate(nodes):
        operands = {name for name in spec.reads if name and name not in defined}
        for name in spec.reads:
            if name in operands and name not in producers:
                raise ArtifactError(f"{path}: node {spec} reads {name!r}, which nothing defines; "
                                    "export the model again")
        missing.append(len(operands))
        for name in operands:
            readers[producers[name]].append(k)
        if not operands:
            ready.append(k)
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for k in readers[order[-1]]:
            missing[k] -= 1
            if not missing[k]:
                heapq.heappush(ready, k)
    if len(order) < len(nodes):
        makers = {name: nodes[k] for name, k in producers.items()}
        cycle = next(filter(None, (_cycle(nodes[k], makers) for k, m in enumerate(missing) if m)))
        names = " -> ".join(map(str, cycle))
        raise ArtifactError(f"{path}: node {cycle[0]} depends on its own result: {names}; "
                            "export the model again")
    return order


def _cycle(start: NodeSpec, producers: Mapping[str, NodeSpec]) -> list[NodeSpec]:
    """A cycle of nodes through one node, each of which reads a result of the previous one; empty if
    there is none."""
    readers: dict[int, tuple[NodeSpec, NodeSpec | None]] = {id(start): (start, None)}
    waiting = [start]
    while waiting:
        spec = waiting.pop()
        for name in spec.reads:
            producer = producers.get(name)
            if producer is start:
                path: list[NodeSpec] = [start]
                reader: NodeSpec | None = spec
                while reader is not None:
                    path.append(reader)
                    reader = readers[id(reader)][1]
                return path
            if producer is not None and id(producer) not in readers:
                readers[id(producer)] = producer, spec
                waiting.append(producer)
    return []
