"""One error for all nodes of a file that cannot be imported."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ztorch.errors import Unsupported
from ztorch.interchange.onnx.contents import NodeSpec
from ztorch.interchange.onnx.node import NeedsNumbers

IN_LINE = 8  # names in front of the reason; more names become a paragraph below it
RUN = 4  # names in sequence that are shortened to the first and the last
_WIDTH = 100  # characters of a line of names
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that cannot be imported."""

    node: NodeSpec
    error: Unsupported


class NodesInside(Unsupported):
    """Nodes of a graph within a graph that cannot be imported."""

    def __init__(self, outer: NodeSpec, faults: Sequence[UnsupportedNode]):
        super().__init__(f"{faults[0].node} inside it: {faults[0].error}")
        self.faults = [f for fault in faults for f in all_of(fault)]
        for fault in self.faults:
            fault.error.args = (f"inside {outer}: {fault.error}",)


def all_of(fault: UnsupportedNode) -> Sequence[UnsupportedNode]:
    """The nodes inside a node that cannot be imported; the node itself if there are none."""
    return fault.error.faults if isinstance(fault.error, NodesInside) else [fault]


def unsupported(path: str, faults: Sequence[UnsupportedNode], count: int, hint: str = "",
                kind: str = "nodes") -> Unsupported:
    """One error for all nodes that cannot be imported, each named once.

    Nodes of the same op and reason share a line. Numbered names are shortened:
    'n0', 'n3' to 'n2997' (1000).

    Args:
        path: The file.
        faults: The nodes, at least one.
        count: How many nodes the file has in all.
        hint: A last line that tells the user what to do. Default: `""`.
        kind: What the file calls its nodes. Default: `"nodes"`.
    """
    names_by_reason: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        key = (fault.node.op, str(fault.error))
        names_by_reason.setdefault(key, []).append(fault.node.display_name)
    lines = [f"{path}: {len(faults)} of {count} {kind} cannot be imported:"]
    for (op, reason), names in names_by_reason.items():
        if len(names) <= IN_LINE:
            lines.append(f"  {op} {', '.join(map(repr, names))}: {reason}")
            continue
        lines.append(f"  {op}, {len(names)} {kind}: {reason}")
        lines += textwrap.wrap(", ".join(_runs(names)), _WIDTH, initial_indent="    ",
                               subsequent_indent="    ", break_long_words=False,
                               break_on_hyphens=False)
    return error_for("\n".join([*lines, *filter(None, [hint])]), faults)


def error_for(message: str, faults: Sequence[UnsupportedNode]) -> Unsupported:
    """An error with this message; a NeedsNumbers if nodes need the numbers of some inputs."""
    errors = [f.error for fault in faults for f in all_of(fault)]
    needed = [name for error in errors if isinstance(error, NeedsNumbers) for name in error.inputs]
    return NeedsNumbers(message, tuple(dict.fromkeys(needed))) if needed else Unsupported(message)


def outputs_without(nodes: Sequence[NodeSpec], faulty: Collection[str],
                    outputs: Sequence[str]) -> str:
    """A hint that names the outputs which do not need the nodes that cannot be imported.

    Args:
        nodes: All nodes, in order.
        faulty: Names of the results of nodes that cannot be imported.
        outputs: The outputs of the file.
    """
    behind, reached, before = set(faulty), set[str](), ""
    for spec in nodes:
        if not behind.isdisjoint(spec.reads):
            behind.update(spec.outputs)
        elif not behind.isdisjoint(spec.outputs):
            before = before or next((name for name in spec.reads if name in reached), "")
        else:
            reached.update(spec.outputs)
    free = [name for name in outputs if name not in behind] or [before] * bool(before)
    return (f"outputs={free!r} leaves them out, if that part is enough" if free else
            "none of the file can be computed without them")


def _runs(names: Sequence[str]) -> Iterator[str]:
    """Names in quotes. A sequence of names that differ in one number, which grows by a constant,
    is its first and last name, with the second if the step is not 1."""
    start = 0
    while start < len(names):
        end = start + 1
        step = _step(names[start], names[end]) if end < len(names) else None
        while step and end < len(names) and _step(names[end - 1], names[end]) == step:
            end += 1
        if step is None or end - start < RUN:
            yield repr(names[start])
            start += 1
            continue
        first = names[start:start + 1 if step[1] == 1 else start + 2]
        yield f"{', '.join(map(repr, first))} to {names[end - 1]!r} ({end - start})"
        start = end


def _step(before: str, after: str) -> tuple[int, int] | None:
    """Which number in a name is larger in the next one, and by how much; None if the names differ
    in anything else."""
    texts, numbers = _NUMBER.split(before), _NUMBER.findall(before)
    next_numbers = _NUMBER.findall(after)
    changed = [k for k, (n, m) in enumerate(zip(numbers, next_numbers, strict=False)) if n != m]
    if texts != _NUMBER.split(after) or len(changed) != 1:
        return None
    [k] = changed
    step = int(next_numbers[k]) - int(numbers[k])
    return (k, step) if step > 0 and str(int(next_numbers[k])) == next_numbers[k] else None
