"""One kernel of all cheap opcodes on 32-bit numbers, masks, loops and atomic updates. A machine runs it in
milliseconds, where a kernel for each opcode takes a second."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tests.cases.opcodes import Buffers, edges, opcodes_of
from ztorch.dtypes import DType, f32, i8, i16, i32, u8, u16, u32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand
from ztorch.ir.opcodes import OPCODES

DTYPES = (f32, i32, u32)
COSTLIEST = 6  # of the opcodes: others are made of many, or are calls
TO = {"cast": (*DTYPES, i8, u8, i16, u16), "bitcast": DTYPES}


def mixed_kernel(kind: str, without: Collection[str] = (), exchanged: Collection[DType] = (i32, u32)
                 ) -> tuple[Kernel, Buffers]:
    """The kernel, and its buffers.

    Args:
        kind: "block": threads, which meet and update memory atomically; "serial": a loop.
        without: Opcodes on floats that the machine computes in its own way.
        exchanged: Dtypes that are updated atomically.
    """
    n = len(edges(f32))
    cases = [(opcode, d, to) for d in DTYPES for opcode in opcodes_of(d)
             if OPCODES[opcode].cost <= COSTLIEST and not (d is f32 and opcode in without)
             for to in TO.get(opcode, (None,)) if to is not d]
    places = {"y": len(cases) + 3, "k": len(cases) + 7}
    b = Builder("mixed", i32)
    for d in DTYPES:
        b.memory(f"x_{d.name}", d, n)
    b.memory("y", f32, n * places["y"], access="w")
    b.memory("k", i32, n * places["k"], access="w")
    for d in exchanged if kind == "block" else ():
        b.memory(f"z_{d.name}", d, 9 + n, access="rw")
    b.memory("kept", f32, n, "shared" if kind == "block" else "local", "rw")
    made = {"y": 0, "k": 0}  # results so far

    def keep(i: Operand, x: Operand, mask: Operand | None = None) -> None:
        if x.dtype is not f32:
            x = b.bitcast(x, dtype=i32) if x.dtype is u32 else x if x.dtype is i32 else b.cast(x, dtype=i32)
        name = "y" if x.dtype is f32 else "k"
        b.store(name, i, x, off=made[name] * n, mask=mask)
        made[name] += 1

    b.workgroup = (n, 1, 1) if kind == "block" else (1, 1, 1)
    with b.loop(0, n, kind=kind) as i:
        values = {}
        for d in DTYPES:
            x = b.load(f"x_{d.name}", i)
            other = b.load(f"x_{d.name}", b.rem(b.add(b.mul(i, 11), 3), n))
            values[d] = x, other, b.and_(other, 31) if d.is_int else other
        for opcode, d, to in cases:
            x, other, few = values[d]
            args = (b.lt(x, other), other, x) if opcode == "select" else (
                x, few if opcode in ("shl", "shr") else other)[:OPCODES[opcode].arity]
            keep(i, b.emit(opcode, *args, **({} if to is None else {"dtype": to})))
        inside = b.lt(i, n // 2)
        keep(i, b.load("x_i32", b.mul(i, 2), mask=inside), mask=b.ne(b.rem(i, 3), 0))
        total = b.var(i32, 1, 0)
        with b.loop(0, b.rem(i, 4)) as j, b.if_(b.ne(j, 1)):  # at times of no iteration
            b.set(total, b.add(b.get(total), b.add(j, 5)))
        with b.loop(2, 2):  # of no iteration, as is known while compiling
            b.set(total, 77)
        with b.loop(1, 3) as j:
            b.set(total, b.mul(b.get(total), j))
        keep(i, b.get(total))
        if kind == "block":
            b.store("kept", i, values[f32][0])
            b.barrier()
            keep(i, b.load("kept", b.sub(n - 1, i)))
            for d in exchanged:
                x, other, _ = values[d]
                if d is f32:  # whose sums depend on the order, unless they are exact
                    b.atomic("add", "z_f32", b.rem(i, 3), b.cast(i, dtype=f32))
                    keep(i, b.atomic("exchange", "z_f32", i, other, off=9))
                    continue
                for at, update in enumerate(("add", "min", "max")):
                    b.atomic(update, f"z_{d.name}", b.rem(i, 3), x, off=3 * at)
                keep(i, b.atomic("exchange", f"z_{d.name}", i, other, off=9))
                keep(i, b.atomic("cas", f"z_{d.name}", i, b.select(inside, other, x), b.const(77, d), off=9))
    kernel = b.kernel()
    buffers = {m.name: np.zeros(m.size, m.dtype.numpy) for m in kernel.memories if m.space == "global"}
    for d in DTYPES:
        buffers[f"x_{d.name}"][:] = np.array((edges(d) * 3)[:n], d.numpy)
    for d in exchanged if kind == "block" else ():
        buffers[f"z_{d.name}"][:] = 50
    return kernel, buffers
