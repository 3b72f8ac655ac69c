"""Atomic updates: the threads one after the other, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machines.ptx.parse import BITS, Address, Instruction, PtxError, Register
from tests.machines.ptx.words import DTYPE

KINDS = {"add": ("u32", "u64", "f32", "f64"), "min": ("s32", "u32", "s64", "u64"), "max": ("s32", "u32", "s64", "u64"),
         "exch": ("b32", "b64"), "cas": ("b32", "b64")}
NEWS: dict[str, Callable[..., Any]] = {"add": lambda old, x: old + x, "min": min, "max": max,
                                       "exch": lambda old, x: x,
                                       "cas": lambda old, expected, x: x if old == expected else old}


def atom(machine: Any, i: Instruction) -> Callable[[np.ndarray | None], None]:
    _, space, how, kind = i.opcode
    d, at, *xs = i.operands
    if space not in ("shared", "global") or kind not in KINDS.get(how, ()) or len(xs) != 1 + (how == "cas"):
        raise PtxError(f"{i.text}: unknown")
    if not isinstance(at, Address) or not isinstance(d, Register) or d.bits != BITS[kind]:
        raise PtxError(f"{i.text}: operands")
    place, typed = machine.places_of(i, at), np.dtype(DTYPE[kind])
    reads = [machine.source(x, BITS[kind], i.text) for x in xs]

    def update(live: np.ndarray | None) -> None:
        data, elements = place(live)
        who = np.arange(machine.threads) if live is None else np.flatnonzero(live)
        elements = np.broadcast_to(elements, who.shape)
        operands = [np.broadcast_to(read(), machine.threads)[who].view(typed) for read in reads]
        held, old = data.view(typed), np.zeros(machine.threads, typed)
        with np.errstate(over="ignore"):
            for k, (thread, place_of) in enumerate(zip(who, elements, strict=True)):
                old[thread] = held[place_of]
                held[place_of] = NEWS[how](held[place_of], *(x[k] for x in operands))
        machine.put(d, old.view(data.dtype), live)
    return update
