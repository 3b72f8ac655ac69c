"""A simulator of rings: the threads of a cluster that arrive at barriers of phases, expect bytes, bring them and wait,
read from the kernel itself, so that the proof holds for the code that runs. Nothing else of the kernel is executed.

That a ring comes to its end for n tiles shows the same for fewer: no tile waits for an event of a later
one, which `played` checks for each wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ztorch.ir.kernel import Instr, Kernel, matching

Event = tuple[str, str, int, int]  # opcode, memory of barriers, index, and parity, count, bytes or workgroups
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
        if i.opcode.startswith("mbarrier_") or i.opcode in (*SCOPES, "copy_tile") or sets or i.dest.id in needed:
            kept.append(i)
            needed.update(a.id for a in (i.args[1:2] if i.opcode == "copy_tile" else i.args))
    return kept[::-1]


class Thread:
    """A thread of a cluster. `tile` counts the trips of its outermost serial loop."""

    def __init__(self, group: int, number: int):
        self.group, self.number, self.tile = group, number, 0


def events(kernel: Kernel) -> Callable[[Thread], Iterator[Event]]:
    """What a thread does at barriers, as a generator in Python, whose numbers are plain integers."""
    scope: dict[str, Any] = {}
    exec("\n".join(["def run(thread):", *_lines(kernel), " if False:", "  yield"]), scope)
    return scope["run"]


def _lines(kernel: Kernel) -> Iterator[str]:
    """The body of this function: a line for most instructions, indented as deep as its scope."""
    serial: list[bool] = []  # of the loops around
    deep = " "
    body = skeleton(kernel)
    opened = {e: body[s] for s, e in matching(body)}
    for k, i in enumerate(body):
        args = [f"{a.number}" if a.is_const else f"v{a.id}" for a in i.args]
        if i.opcode == "loop":
            serial.append(i.attrs["kind"] == "serial")
            alone = "[thread.group]" if i.attrs["kind"] == "grid" else "[thread.number]"
            yield f"{deep}for v{i.dest.id} in {'range({}, {}, {})'.format(*args) if serial[-1] else alone}:"
            deep += " "
        elif i.opcode == "if":
            yield f"{deep}if {args[0]}:"
            deep += " "
            yield f"{deep}pass"
        elif i.opcode == "else":
            yield f"{deep[1:]}else:"
            yield f"{deep}pass"
        elif i.opcode in ("end_loop", "end_if"):
            if opened[k].opcode == "loop" and serial.pop() and True not in serial:
                yield f"{deep}thread.tile += 1"
            deep = deep[1:]
        elif i.opcode == "set":
            yield f"{deep}{args[0]} = {args[1]}"
        elif i.opcode == "get":
            yield f"{deep}v{i.dest.id} = {args[0]}"
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
    done: int = 0
    latest: int = 0  # tile of those who have come in this phase
    ended_by: int = 0  # the same of the phase before


def played(kernel: Kernel, last_first: bool = False, ahead: int = 0) -> str:
    """Runs the first cluster of a kernel; the error, or None. Of threads that can go on the first does,
    as far as it can, or the last. Some threads may count their tiles from the one `ahead` on."""
    state: dict[tuple[int, str, int], Barrier] = {}
    start = events(kernel)
    threads = [Thread(group, number) for group in range(kernel.cluster) for number in range(0, kernel.workgroup[0], 128)]
    left = {t: (run := start(t), next(run, None)) for t in threads}
    while left:
        for t in list(left)[::-1] if last_first else list(left):
            run, event = left[t]
            before = event
            while event is not None and (said := _happens(t, event, state, ahead)) is not None:
                if said:
                    return said
                event = next(run, None)
            left[t] = run, event
            if event is None:
                del left[t]
            if event is not before:
                break
        else:
            return "deadlock: " + ", ".join(f"{e[1]}[{e[2]}]" for _, e in left.values() if e)
    open_phases = [key for key, b in state.items() if b.pending != b.count or b.lacking]
    return f"a phase is left open: {open_phases}" if open_phases else ""


def _happens(t: Thread, event: Event, state: dict[tuple[int, str, int], Barrier], ahead: int) -> str | None:
    """None if a thread has to wait for it; else the error, or None."""
    action, mem, index, more = event
    if action == "mbarrier_init":
        state[t.group, mem, index] = Barrier(more, more)
        return ""
    groups = [more & 255] if action == "bring" else range(more) if action == "mbarrier_arrive" and more > 1 else [t.group]
    if any((g, mem, index) not in state for g in groups):
        return None
    for b in [state[g, mem, index] for g in groups]:
        if action == "mbarrier_wait":
            if b.done & 1 == more:
                return None
            if b.done and b.ended_by > t.tile + ahead:
                return f"{mem}[{index}] is waited for in tile {t.tile}, and comes in tile {b.ended_by}"
            continue
        b.pending -= action != "bring"
        b.lacking += more if action == "mbarrier_expect" else -(more >> 8) if action == "bring" else 0
        b.latest = max(b.latest, t.tile)
        if b.pending < 0 or (b.pending == 0 and b.lacking < 0):
            return f"too much comes at {mem}[{index}]"
        if b.pending == 0 and b.lacking == 0:
            b.pending, b.done, b.ended_by, b.latest = b.count, b.done + 1, b.latest, 0
    return ""
