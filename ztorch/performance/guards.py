"""How often the guards in a loop hold: conditions such as that of a prefetch, which is left out in
the last trips."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping

import numpy as np

from ztorch.ir.kernel import Instr, Kernel, branches
from ztorch.ir.opcodes import OPCODES
from ztorch.performance.thread_values import ThreadValues


def guard_shares(kernel: Kernel, values: ThreadValues, ends: Mapping[int, int], loop: int,
                 start: np.ndarray, step: np.ndarray, trips: int) -> dict[int, float]:
    """The share of the trips of a loop after the first in which each `if` directly inside it holds,
    for those that hold for all threads from the second trip until some later one.

    Args:
        kernel: The kernel of one thread.
        values: The values of its integers.
        ends: The end of each loop and `if`, by its position.
        loop: The position of the loop.
        start: The first value of the counter, for each thread.
        step: What is added to it after each trip.
        trips: The number of trips, at least two.
    """
    counter, shares = kernel.body[loop].dest, {}
    for at, needed in _conditions(kernel, ends, loop):
        def fails(trip: int, at: int = at, needed: list[Instr] = needed) -> bool:
            values.values[counter.id] = (start + trip * step)[:, None].astype(counter.dtype.numpy)
            for i in needed:
                values.step(i, np.ones(values.threads, bool))
            condition = values.of(kernel.body[at].args[0])
            return condition is not None and not condition.all()
        if fails(trips - 1) and not fails(1):
            holding = bisect.bisect_left(range(1, trips), True, key=fails)
            shares[at] = holding / (trips - 1)
    return shares


def _conditions(kernel: Kernel, ends: Mapping[int, int],
                loop: int) -> Iterator[tuple[int, list[Instr]]]:
    """The position of each `if` directly in a loop whose condition depends on the loop's counter
    alone, and the instructions that compute it in each trip."""
    body, made = kernel.body, dict[int, Instr]()
    at = loop + 1
    while at < ends[loop]:
        i = body[at]
        guards = i.opcode == "if" and branches(body, at, ends[at]) == ends[at]  # without an else
        if guards and (needed := _needed(i, made, body[loop].dest.id)):
            yield at, needed
        made[i.dest.id] = i
        at = ends.get(at, at) + 1


def _needed(guard: Instr, made: Mapping[int, Instr], counter: int) -> list[Instr]:
    """The instructions of a trip behind a condition, in their order; none if it does not depend on
    the counter, or depends on what cannot be computed again."""
    pending, needed, depends = [*guard.args], dict[int, Instr](), False
    while pending:
        operand = pending.pop()
        depends = depends or operand.id == counter
        i = made.get(operand.id)
        if operand.is_const or i is None or operand.id in needed:
            continue
        row = OPCODES.get(i.opcode)
        if row is None or row.meaning is None:
            return []
        needed[operand.id] = i
        pending += i.args
    return [i for number, i in made.items() if number in needed] if depends else []
