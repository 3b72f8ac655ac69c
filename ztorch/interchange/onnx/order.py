"""Checks that each node of a file only reads results of earlier nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ztorch.errors import ArtifactError
from ztorch.interchange.onnx.contents import NodeSpec


def need_order(path: str, nodes: Sequence[NodeSpec], defined: Collection[str]) -> None:
    """Raises an ArtifactError for the first node with an undefined operand: one that no node
    computes, that a later node computes, or that depends on the node itself.

    Args:
        path: The file, for error messages.
        nodes: Its nodes, in the order of the file.
        defined: The names of inputs and initializers.
    """
    producers = {name: spec for spec in nodes for name in spec.outputs if name}
    ready = set(defined)
    for spec in nodes:
        for name in spec.reads:
            if not name or name in ready:
                continue
            if name not in producers:
                raise ArtifactError(f"{path}: node {spec} reads {name!r}, which nothing defines; "
                                    "export the model again")
            cycle = _cycle(spec, producers)
            if cycle:
                names = " -> ".join(map(str, cycle))
                raise ArtifactError(f"{path}: node {spec} depends on its own result: {names}; "
                                    "export the model again")
            raise ArtifactError(f"{path}: node {spec} reads {name!r}, which only a later node "
                                f"computes, {producers[name]}; nodes must come in the order of "
                                "computation")
        ready.update(name for name in spec.outputs if name)


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
