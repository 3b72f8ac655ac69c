"""Kernels that start before those that they depend on: what is before their wait touches no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tests.machines.ptx.parse import Entry, Instruction, PtxError

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

WAIT, TRIGGER = ("griddepcontrol", "wait"), ("griddepcontrol", "launch_dependents")


def waits(entry: Entry) -> bool:
    """Whether a kernel may start early."""
    return any(i.opcode == WAIT for i in entry.code)


class NotYet:
    """Global memory before the wait."""

    def __init__(self, entry: Entry):
        self.name = entry.name

    def reach(self, *_: Any) -> NoReturn:
        raise PtxError(f"{self.name}: global memory is touched before the kernels before it are done")

    holding = reach


def griddepcontrol(m: Machine, i: Instruction) -> Callable[[np.ndarray | None], None]:
    if i.opcode not in (WAIT, TRIGGER) or i.operands or i.guard:
        raise PtxError(f"{i.text}: unknown")

    def wait(live: np.ndarray | None) -> None:
        if live is not None:
            raise PtxError(f"{m.entry.name}: {i.text}: not all threads reach it")
        m.memory = m.complete

    def trigger(live: np.ndarray | None) -> None:
        """Early kernels behind this one would not wait for those before it."""
        if isinstance(m.memory, NotYet):
            raise PtxError(f"{m.entry.name}: {i.text}: before the wait")

    return wait if i.opcode == WAIT else trigger
