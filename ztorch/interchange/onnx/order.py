"""Checks that each node of a file only reads results of earlier nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ztorch.errors import ArtifactError
from ztorch.interchange.onnx.contents import NodeSpec


def need_order(path: str, nodes: Sequence[NodeSpec], known: Collection[str]) -> None:
    """Raises an ArtifactError for the first node with an undefined operand: one that no node
    computes, that a later node computes, or that depends on the node itself.

    Args:
        path: The file, for the error.
        nodes: Its nodes, in the order of the file.
        known: The names of inputs and initializers.
    """
    givers = {name: spec for spec in nodes for name in spec.outputs if name}
    ready = set(known)
    for spec in nodes:
        for name in spec.reads:
            if not name or name in ready:
                continue
            if name not in givers:
                raise ArtifactError(f"{path}: node {spec} reads {name!r}, which nothing gives; "
                                    "export the model again")
            cycle = _cycle(spec, givers)
            if cycle:
                names = " -> ".join(map(str, cycle))
                raise ArtifactError(f"{path}: node {spec} depends on its own result: {names}; no "
                                    "model can be computed that way")
            raise ArtifactError(f"{path}: node {spec} reads {name!r}, which only a later node "
                                f"gives, {givers[name]}; nodes must be in the order in which they "
                                "are computed")
        ready.update(name for name in spec.outputs if name)


def _cycle(start: NodeSpec, givers: Mapping[str, NodeSpec]) -> list[NodeSpec]:
    """A cycle of nodes through one node, each of which reads a result of the previous one; empty if
    there is none."""
    came_from: dict[int, tuple[NodeSpec, NodeSpec | None]] = {id(start): (start, None)}
    waiting = [start]
    while waiting:
        spec = waiting.pop()
        for name in spec.reads:
            giver = givers.get(name)
            if giver is start:
                path: list[NodeSpec] = [start]
                reader: NodeSpec | None = spec
                while reader is not None:
                    path.append(reader)
                    reader = came_from[id(reader)][1]
                return path
            if giver is not None and id(giver) not in came_from:
                came_from[id(giver)] = giver, spec
                waiting.append(giver)
    return []
