"""One error for all nodes of a file that cannot be imported."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ztorch.errors import Unsupported
from ztorch.interchange.onnx.contents import NodeSpec
from ztorch.interchange.onnx.node import NeedsNumbers

IN_LINE = 8  # names before the reason; more are a paragraph below it
RUN = 4  # names that count up, from which on a run is written by its ends
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
        super().__init__(f"{faults[0].node} inside of it: {faults[0].error}")
        self.faults = [f for fault in faults for f in all_of(fault)]
        for fault in self.faults:
            fault.error.args = (f"inside of {outer}: {fault.error}",)


def all_of(fault: UnsupportedNode) -> Sequence[UnsupportedNode]:
    """The nodes inside of a node that cannot be imported; where there are none, itself."""
    return fault.error.faults if isinstance(fault.error, NodesInside) else [fault]


def unsupported(path: str, faults: Sequence[UnsupportedNode], count: int, way_out: str = "",
                kind: str = "nodes") -> Unsupported:
    """One error for all nodes that cannot be imported, each named once. Nodes of one op and reason
    share a line; names that count up are a run: 'n0', 'n3' to 'n2997' (1000).

    Args:
        path: The file.
        faults: The nodes, at least one.
        count: How many nodes the file has in all.
        way_out: An alternative for the user.
        kind: The file's name for its nodes.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        alike.setdefault((fault.node.op, str(fault.error)), []).append(fault.node.shown)
    lines = [f"{path}: {len(faults)} of {count} {kind} cannot be imported:"]
    for (op, reason), names in alike.items():
        if len(names) <= IN_LINE:
            lines.append(f"  {op} {', '.join(map(repr, names))}: {reason}")
            continue
        lines.append(f"  {op}, {len(names)} {kind}: {reason}")
        lines += textwrap.wrap(", ".join(_runs(names)), _WIDTH, initial_indent="    ",
                               subsequent_indent="    ", break_long_words=False,
                               break_on_hyphens=False)
    return error_for("\n".join([*lines, *filter(None, [way_out])]), faults)


def error_for(message: str, faults: Sequence[UnsupportedNode]) -> Unsupported:
    """The error with this message, which knows the inputs whose numbers the nodes need."""
    errors = [f.error for fault in faults for f in all_of(fault)]
    needed = [name for error in errors if isinstance(error, NeedsNumbers) for name in error.inputs]
    return NeedsNumbers(message, tuple(dict.fromkeys(needed))) if needed else Unsupported(message)


def outputs_without(nodes: Sequence[NodeSpec], faulty: Collection[str],
                    outputs: Sequence[str]) -> str:
    """Which outputs leave out nodes that cannot be imported.

    Args:
        nodes: All nodes, in order.
        faulty: The results of nodes that cannot be imported.
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
    """Names in quotes; some that differ in one number only, which counts up evenly, by the first,
    the second where they leave numbers out, and the last."""
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
    """Which number of a name the next one has increased, and by how much; None where they differ
    in more than one number."""
    texts, numbers = _NUMBER.split(before), _NUMBER.findall(before)
    others = _NUMBER.findall(after)
    changed = [k for k, pair in enumerate(zip(numbers, others, strict=False)) if pair[0] != pair[1]]
    if texts != _NUMBER.split(after) or len(changed) != 1:
        return None
    [k] = changed
    step = int(others[k]) - int(numbers[k])
    return (k, step) if step > 0 and str(int(others[k])) == others[k] else None
