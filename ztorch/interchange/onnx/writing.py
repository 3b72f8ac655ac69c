"""Writes the values of a graph as nodes, each after its inputs."""

from __future__ import annotations

from dataclasses import replace

from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.interchange.onnx.protobuf import Row, Subgraph
from ztorch.interchange.onnx.selection import PendingWrite, WriteSelector
from ztorch.interchange.onnx.writer import Writer


def write_values(writer: Writer, selector: WriteSelector, roots: list[Value]) -> None:
    """Writes every value that the roots need, each after its inputs."""
    pending: dict[Value, PendingWrite] = {}
    problems: dict[str, None] = {}
    stack = [(v, False) for v in reversed(roots)]
    while stack:
        v, ready = stack.pop()
        if ready:
            if not problems:
                writer.layer = v.layer
                pending[v].write(writer)
            continue
        if v in pending or v in writer.tensors:
            continue
        write = selector.pending(v)
        if write is None:
            location = f" in layer {v.layer!r}" if v.layer else ""
            problems[f"  {v.op.name}{location}: ONNX has no such op"] = None
            write = PendingWrite(v.args, lambda w: None)
        pending[v] = write
        stack.append((v, True))
        stack.extend((a, False) for a in reversed(write.needs))
    if problems:
        raise Unsupported("some ops cannot be written to ONNX:\n" + "\n".join(problems))


def name_output(writer: Writer, v: Value, name: str) -> None:
    """Renames the tensor that holds v to an output, in all nodes; adds an Identity node if the
    tensor is an input or another output."""
    tensor = writer.name(v)
    is_result = any(tensor in outputs for _, _, _, outputs, _ in writer.nodes)
    if is_result and tensor not in writer.outputs_named:
        writer.nodes[:] = [_renamed(row, tensor, name) for row in writer.nodes]
        writer.outputs_named.add(name)
        writer.tensors[v] = [replace(t, name=name) if t.name == tensor else t
                             for t in writer.tensors[v]]
    else:
        writer.nodes.append(("Identity", f"{name}/Identity", [tensor], [name], {}))


def _renamed(row: Row, tensor: str, name: str) -> Row:
    op, label, inputs, outputs, attrs = row
    attrs = {key: replace(a, nodes=[_renamed(inner, tensor, name) for inner in a.nodes])
             if isinstance(a, Subgraph) else a for key, a in attrs.items()}
    return (op, label, [name if i == tensor else i for i in inputs],
            [name if o == tensor else o for o in outputs], attrs)
