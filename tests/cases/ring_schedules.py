"""A simulator of rings: the threads of a cluster that arrive at barriers of phases, expect bytes, bring them and wait,
read from the kernel itself, so that the proof holds for the code that runs. Nothing else of the kernel is executed.

That a ring comes to its end for n tiles shows the same for fewer: no tile waits for an event of a later
one, which `played` checks for each wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ztorch.ir.kernel import Instr, Kernel, branches, matching

Event = tuple[str, str, int, int]  # opcode, memory of barriers, index, and parity, count, bytes or workgroups
SCOPES = ("loop", "end_loop", "if", "else", "end_if")
PLAIN = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a // b,
         "rem": lambda a, b: a % b, "eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b,
         "gt": lambda a, b: a > b, "min": min, "max": max, "and": lambda a, b: a & b, "select": lambda c, a, b: a if c else b}


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
    """One thread, in plain integers. `tile` counts the trips of its outermost serial loop."""

    def __init__(self, kernel: Kernel, body: list[Instr], group: int, number: int):
        self.kernel, self.body, self.group, self.number = kernel, body, group, number
        self.ends, self.values, self.tile, self.depth = dict(matching(body)), {}, 0, 0

    def of(self, a: Any) -> Any:
        return a.number if a.is_const else self.values[a.id]

    def run(self, at: int, stop: int) -> Iterator[Event]:
        while at < stop:
            i = self.body[at]
            if i.opcode == "loop":
                yield from self.loop(at, i)
            elif i.opcode == "if":
                middle = branches(self.body, at, self.ends[at])
                yield from self.run(at + 1, middle) if self.of(i.args[0]) else self.run(middle + 1, self.ends[at])
            elif i.opcode == "set":
                self.values[i.args[0].id] = self.of(i.args[1])
            elif i.opcode == "get":
                self.values[i.dest.id] = self.values[i.args[0].id]
            elif i.opcode == "copy_tile":
                size = math.prod(i.attrs["box"]) * self.kernel.memory(i.attrs["mem"]).dtype.bytes
                cluster, apart = i.attrs["cluster"], i.attrs["apart"]
                first = self.group // (cluster * apart) * cluster * apart + self.group % apart
                for to in range(first, first + cluster * apart, apart) if cluster > 1 else [self.group]:
                    yield "bring", i.attrs["barriers"], self.of(i.args[1]), size << 8 | to
            elif i.opcode.startswith("mbarrier_"):
                if i.args:
                    more = self.of(i.args[1]) if len(i.args) > 1 else next(
                        i.attrs[k] for k in ("count", "bytes", "cluster") if k in i.attrs)
                    yield i.opcode, i.attrs["mem"], self.of(i.args[0]) + i.attrs["off"], more
            else:
                self.values[i.dest.id] = PLAIN[i.opcode](*map(self.of, i.args))
            at = self.ends.get(at, at) + 1

    def loop(self, at: int, i: Instr) -> Iterator[Event]:
        start, stop, step = map(self.of, i.args)
        serial = i.attrs["kind"] == "serial"
        if not serial:
            start = self.group if i.attrs["kind"] == "grid" else self.number
            stop = start + 1
        self.depth += serial
        for n in range(start, stop, step):
            self.values[i.dest.id] = n
            yield from self.run(at + 1, self.ends[at])
            self.tile += serial and self.depth == 1
        self.depth -= serial


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
    body, state = skeleton(kernel), {}
    threads = [Thread(kernel, body, group, number) for group in range(kernel.cluster)
               for number in range(0, kernel.workgroup[0], 128)]
    left = {t: (run := t.run(0, len(body)), next(run, None)) for t in threads}
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
