"""A simulator of rings: the threads of a cluster, or of all workgroups where they signal to one another, that arrive at barriers of phases, expect bytes, bring them and wait,
read from the kernel itself, so that the proof holds for the code that runs. Nothing else of the kernel is executed.

It plays a ring of few tiles, and those of more follow. Between two moments of a run in which all barriers are in one
state, each thread has come some events further. If in the kernel of more tiles each thread has these events once more
(`pumped`), its run is the same with this part twice: it comes to its end, too. So a few runs stand for every
number of tiles whose kernel has the events that `pumped` tells.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ztorch.ir.kernel import Instr, Kernel, launch_grid, matching

Key = tuple[int, str, int]  # a workgroup, a memory of barriers and an index
SAME, CHANGED = "", "others may go on"  # what an event does to its barriers, besides errors
Event = tuple[str, str, int, int]  # opcode, memory of barriers, index, and parity, count, bytes or workgroups
SIGNALS = ("grid_signal", "grid_wait")
TEAM = "team"  # in place of a memory: the barrier of those that multiply
SCOPES = ("loop", "end_loop", "if", "else", "end_if")
PLAIN = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} // {}", "rem": "{} % {}", "eq": "{} == {}",
         "lt": "{} < {}", "ge": "{} >= {}", "gt": "{} > {}", "min": "min({}, {})", "max": "max({}, {})", "and": "{} & {}",
         "select": "{1} if {0} else {2}"}


def skeleton(kernel: Kernel) -> list[Instr]:
    """The body without the parts that no barrier depends on."""
    body = _needed(kernel, set())
    while len(body) < len(body := _needed(kernel, {i.args[0].id for i in body if i.opcode == "get"})):
        pass  # more variables
    while True:  # loops and ifs in which nothing is left
        empty = {k for s, e in matching(body) if e == s + 1 for k in (s, e)}
        if not empty:
            return body
        body = [i for k, i in enumerate(body) if k not in empty]


def _needed(kernel: Kernel, variables: set[int]) -> list[Instr]:
    """What barriers and some variables depend on, but for other variables that it reads."""
    kept: list[Instr] = []
    needed: set[int] = set()
    for i in reversed(kernel.body):
        sets = i.opcode == "set" and i.args[0].id in variables
        meets = i.opcode in SIGNALS or (i.opcode == "team_barrier" and signals(kernel))
        if meets or i.opcode.startswith("mbarrier_") or i.opcode in (*SCOPES, "copy_tile") or sets or i.dest.id in needed:
            kept.append(i)
            needed.update(a.id for a in (i.args[1:2] if i.opcode == "copy_tile" else i.args))
    return kept[::-1]


def signals(kernel: Kernel) -> bool:
    """Whether workgroups signal to one another."""
    return not kernel.opcodes().isdisjoint(SIGNALS)


class Thread(NamedTuple):
    """A thread of a cluster."""

    group: int
    number: int


Sequence = tuple[Thread, list[Event]]  # what a thread does
# In a run: how many events each thread has behind it, and the state of all barriers.
Moment = tuple[tuple[int, ...], frozenset]
Cut = tuple[tuple[int, ...], tuple[int, ...]]  # of each thread, where events begin and end that may be repeated


def sequences(kernel: Kernel) -> list[Sequence]:
    """The events of a thread of each warp group of the first cluster, or of all clusters that signal."""
    run, groups = _events(kernel), launch_grid(kernel)[0] if signals(kernel) else kernel.cluster
    threads = [Thread(group, number) for group in range(groups) for number in range(0, kernel.workgroup[0], 128)]
    return [(t, [*run(t)]) for t in threads]


def _events(kernel: Kernel) -> Callable[[Thread], Iterator[Event]]:
    """What a thread does at barriers, as a generator in Python, whose numbers are plain integers."""
    scope: dict[str, Any] = {}
    exec("\n".join(["def run(thread):", *_lines(kernel), " if False:", "  yield"]), scope)
    return scope["run"]


def _lines(kernel: Kernel) -> Iterator[str]:
    """The body of this function: a line for most instructions, indented as deep as its scope."""
    deep, teams = " ", kernel.workgroup[0] // 128 - 1
    if signals(kernel):
        yield f" yield 'mbarrier_init', {TEAM!r}, 0, {teams}"
    yield " met = 0"
    for i in skeleton(kernel):
        args = [f"{a.number}" if a.is_const else f"v{a.id}" for a in i.args]
        if i.opcode == "loop":
            alone = {"grid": "[thread.group]", "block": "[thread.number]"}
            trips = alone.get(i.attrs["kind"], "range({}, {}, {})".format(*args))
            yield f"{deep}for v{i.dest.id} in {trips}:"
            deep += " "
        elif i.opcode == "if":
            yield f"{deep}if {args[0]}:"
            deep += " "
            yield f"{deep}pass"
        elif i.opcode == "else":
            yield f"{deep[1:]}else:"
            yield f"{deep}pass"
        elif i.opcode in ("end_loop", "end_if"):
            deep = deep[1:]
        elif i.opcode == "set":
            yield f"{deep}{args[0]} = {args[1]}"
        elif i.opcode == "get":
            yield f"{deep}v{i.dest.id} = {args[0]}"
        elif i.opcode == "team_barrier":
            yield f"{deep}yield 'mbarrier_arrive', {TEAM!r}, 0, 1"
            yield f"{deep}yield 'mbarrier_wait', {TEAM!r}, 0, met"
            yield f"{deep}met = 1 - met"
        elif i.opcode in SIGNALS:
            yield f"{deep}yield {i.opcode!r}, {i.attrs['mem']!r}, {args[0]} + {i.attrs['off']}, 0"
        elif i.opcode == "copy_tile":
            size = math.prod(i.attrs["box"]) * kernel.memory(i.attrs["mem"]).dtype.bytes
            cluster, apart = i.attrs["cluster"], i.attrs["apart"]
            first = f"thread.group // {cluster * apart} * {cluster * apart} + thread.group % {apart}"
            yield f"{deep}for to in range({cluster}):"
            to = f"{first} + to * {apart}" if cluster > 1 else "thread.group"
            yield f"{deep} yield 'bring', {i.attrs['barriers']!r}, {args[1]}, {size << 8} | {to}"
        elif i.opcode.startswith("mbarrier_"):
            if args:
                more = args[1] if len(args) > 1 else next(i.attrs[k] for k in ("count", "bytes", "cluster") if k in i.attrs)
                yield f"{deep}yield {i.opcode!r}, {i.attrs['mem']!r}, {args[0]} + {i.attrs['off']}, {more}"
        else:
            yield f"{deep}v{i.dest.id} = {PLAIN[i.opcode].format(*args)}"


@dataclass
class Barrier:
    count: int
    pending: int
    lacking: int = 0  # bytes
    parity: int = 0  # of the phases that have ended


def played(kernel: Kernel, last_first: bool = False) -> str:
    """The error in a run of the first cluster of a kernel, or nothing."""
    return play(sequences(kernel), last_first, remembered=False)[0]


def play(threads: list[Sequence], last_first: bool = False, remembered: bool = True) -> tuple[str, list[Moment]]:
    """Runs threads, always the first that can go on, or the last: the error, or nothing, and the moments at which
    another thread goes on, if they are to be remembered."""
    barriers: dict[Key, Barrier] = {}
    behind, moments, latest = [0] * len(threads), list[Moment](), -1
    order = -1 if last_first else 1
    ready = [order * k for k in range(len(threads))]  # a heap of those that may go on
    waiting: dict[tuple[str, int], list[int]] = {}  # the others, by memory and index of a barrier
    met: dict[int, dict[Event, list[Barrier]]] = {t.group: {} for t, _ in threads}  # the barriers of events
    heapq.heapify(ready)
    while ready:
        k = order * ready[0]
        (thread, events), first = threads[k], behind[k]
        known = met[thread.group]
        before = tuple(behind), frozenset((key, b.pending, b.lacking, b.parity) for key, b in barriers.items()) if (
            remembered and k != latest) else frozenset()
        for at in range(first, len(events)):
            event = events[at]
            held = known.get(event) or known.setdefault(event, _held(thread, event, barriers))
            happens = _happens(event, held) if held else None
            if happens is None:
                waiting.setdefault(event[1:3], []).append(heapq.heappop(ready))
                known.pop(event) if not held else None
                break
            if happens not in (SAME, CHANGED):
                return happens, moments
            behind[k] = at + 1
            if happens is CHANGED and event[1:3] in waiting:
                for other in waiting.pop(event[1:3]):
                    heapq.heappush(ready, other)
                if ready[0] != order * k:
                    break
        else:
            heapq.heappop(ready)
        if behind[k] > first:
            if remembered and k != latest:
                moments.append(before)
            latest = k
    left = [k for k, (_, events) in enumerate(threads) if behind[k] < len(events)]
    if left:
        ahead = [threads[k][1][behind[k]] for k in left]
        return "deadlock: " + ", ".join(f"{mem}[{index}]" for _, mem, index, _ in ahead), moments
    open_phases = [key for key, b in barriers.items() if b.pending != b.count or b.lacking]
    return f"a phase is left open: {open_phases}" if open_phases else "", moments


def _held(t: Thread, event: Event, barriers: dict[Key, Barrier]) -> list[Barrier]:
    """The barriers of an event; none if one of them is not there yet."""
    action, mem, index, more = event
    if action in SIGNALS:
        return [barriers.setdefault((-1, mem, index), Barrier(1, 1))]
    if action == "mbarrier_init":
        return [barriers.setdefault((t.group, mem, index), Barrier(more, more))]
    own = t.group // max(1, more) * more  # the first workgroup of its cluster
    groups = [more & 255] if action == "bring" else range(own, own + more) if action == "mbarrier_arrive" and more > 1 else [t.group]
    held = [barriers.get((g, mem, index)) for g in groups]
    return [b for b in held if b] if all(held) else []


def _happens(event: Event, held: list[Barrier]) -> str | None:
    """None if it has to wait; SAME or CHANGED, whether others may go on then; else the error."""
    action, mem, index, more = event
    if action == "mbarrier_wait":
        return None if held[0].parity == more else SAME
    if action == "mbarrier_init":
        return CHANGED
    if action in SIGNALS:
        [b] = held
        if action == "grid_wait" and b.pending:
            return None
        if action == "grid_signal" and not b.pending:
            return f"{mem}[{index}] is signaled twice"
        b.pending = 1 - b.pending
        return CHANGED
    result = SAME
    for b in held:
        b.pending -= action != "bring"
        b.lacking += more if action == "mbarrier_expect" else -(more >> 8) if action == "bring" else 0
        if b.pending < 0 or (b.pending == 0 and b.lacking < 0):
            return f"too much comes at {mem}[{index}]"
        if b.pending == 0 and b.lacking == 0:
            b.pending, b.parity, result = b.count, 1 - b.parity, CHANGED
    return result


def cuts(moments: list[Moment], growth: list[int], loops: int) -> list[Cut]:
    """Where a run last repeats itself in each of some loops of equal length that follow one another: between two moments
    with one state of all barriers each thread has done an equal share of the events by which it grows. Fewer if
    there are none."""
    lengths, share, repeated = moments[-1][0], [n // loops for n in growth], list[Cut]()
    for loop in range(loops):
        seen, latest = set[Moment](), list[Cut]()
        for behind, state in moments:
            if all(loop * n <= b * loops <= (loop + 1) * n for b, n in zip(behind, lengths, strict=True)):
                earlier = tuple(b - n for b, n in zip(behind, share, strict=True))
                if (earlier, state) in seen:
                    latest = [(earlier, behind)]
                seen.add((behind, state))
        repeated += latest
    return repeated


def pumped(threads: list[Sequence], where: list[Cut], more: int) -> list[Sequence]:
    """The events of threads, those of each cut so many times more."""
    longer = []
    for k, (thread, events) in enumerate(threads):
        parts, last = list[Event](), 0
        for first, end in where:
            parts += events[last:end[k]] + events[first[k]:end[k]] * more
            last = end[k]
        longer.append((thread, parts + events[last:]))
    return longer
