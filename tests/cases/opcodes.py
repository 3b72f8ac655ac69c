"""A kernel for each opcode on each dtype, on numbers at which opcodes go wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cases import oracle
from ztorch.dtypes import (
    ALL,
    DType,
    boolean,
    from_storage,
    i64,
    to_storage,
    u8,
)
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand
from ztorch.ir.opcodes import OPCODES, SCALAR


def edges(d: DType) -> list[Any]:
    """Numbers of a dtype at which opcodes go wrong."""
    if d.kind == "b":
        return [False, True]
    if d.is_int:
        low = -(1 << (d.bits - 1)) if d.kind == "s" else 0
        high = low + (1 << d.bits) - 1
        whole = (0, 1, 2, 3, 7, -1, -2, -7, 100, low, low + 1, high, high - 1, high // 2)
        return [n for n in whole if low <= n <= high]
    digits, largest = oracle.PRECISION[d.name]
    huge = math.ldexp(2.0 - math.ldexp(1.0, 1 - digits), largest)
    tiny = math.ldexp(1.0, 1 - largest)
    some = [0.0, 1.0, 0.5, 1.5, 2.5, 3.75, 1 / 3, 10.7, 100.0, huge, tiny,
            math.ldexp(tiny, -2), math.inf]
    return [oracle.rounded(d, s * x) for x in some for s in (1.0, -1.0)] + [math.nan]


def array(values: list[Any], d: DType) -> np.ndarray:
    """Python numbers as stored in memory; bool as u8."""
    if d.kind == "b":
        return np.array(values, np.uint8)
    return to_storage(d, np.array(values, d.working))


Buffers = dict[str, np.ndarray]


def sources(opcode: str, d: DType) -> list[DType]:
    return [boolean if opcode == "select" and k == 0 else d for k in range(OPCODES[opcode].arity)]


def results(opcode: str, d: DType) -> list[DType]:
    if opcode == "cast":
        return [r for r in ALL if r != d]
    if opcode == "bitcast":
        return [r for r in ALL if r.bits == d.bits and r != d and r.kind != "b"]
    return [boolean if OPCODES[opcode].result == "bool" else d]


def rows(opcode: str, d: DType) -> list[tuple]:
    """Numbers at the edges, in all combinations; operands that no target defines are left out."""
    columns = [edges(s) for s in sources(opcode, d)]
    result = list(itertools.product(*columns))
    if opcode in ("shl", "shr"):
        result = [r for r in result if 0 <= r[1] < d.bits]
    if opcode == "rem" and d.is_float:  # exact only for quotients that fit
        result = [r for r in result if math.isfinite(r[0]) and r[1] and abs(r[0] / r[1]) < 2**20]
    return result if len(result) < 250 else result[::len(result) // 250 | 1]


def stored(d: DType) -> DType:
    return u8 if d is boolean else d


def kernel_for(opcode: str, d: DType, lanes: int, index: DType = i64) -> tuple[Kernel, Buffers]:
    """The opcode on registers, and on a literal in place of its last operand."""
    chosen, of = rows(opcode, d), sources(opcode, d)
    n, buffers = len(chosen), {}
    b = Builder(f"{opcode}_{d!r}", index)
    for name, s, column in zip("abc", of, zip(*chosen, strict=True), strict=False):
        b.memory(name, stored(s), n)
        buffers[name] = array(list(column), s)
    literals = [r[-1] for r in chosen[::max(1, n // 4)]] if len(of) > 1 else []
    outs = [(f"y{k}_{at}", r) for k, r in enumerate(results(opcode, d))
            for at in range(1 + len(literals))]
    for name, r in outs:
        b.memory(name, stored(r), n, access="w")
        buffers[name] = np.zeros(n, stored(r).numpy)

    def vector(i: Operand | int, mask: Operand | None) -> None:
        xs = []
        for name, s in zip("abc", of, strict=False):
            x = b.load(name, i, lanes=lanes, mask=mask)
            xs.append(b.ne(x, 0) if s is boolean else x)
        for k, r in enumerate(results(opcode, d)):
            more = {"dtype": r} if OPCODES[opcode].result == "attr" else {}
            for at, last in enumerate([xs[-1], *(b.const(x, of[-1], lanes) for x in literals)]):
                y = b.emit(opcode, *xs[:-1], last, **more)
                b.store(f"y{k}_{at}", i, b.cast(y, dtype=u8) if r is boolean else y, mask=mask)

    with b.loop(0, n // lanes * lanes, lanes) as i:
        vector(i, None)
    if n % lanes:
        vector(n // lanes * lanes, b.lt(b.iota(lanes), n % lanes))
    return b.kernel(), buffers


def same(got: Buffers, want: Buffers, label: str, signless: bool = False) -> None:
    """The same bits; any NaN for any other, and where zeros of both signs meet, any zero."""
    for name, w in want.items():
        g = got[name]
        if signless and w.dtype == np.uint16:  # perhaps a bf16
            g, w = (np.where(x == 0x8000, 0, x) for x in (g, w))
        if w.dtype.kind == "f" and not signless:
            either = np.isnan(w) & np.isnan(g)
            g, w = (np.where(either, 0, x).astype(w.dtype) for x in (g, w))
            g, w = (x.view(f"u{x.itemsize}") for x in (g, w))
        np.testing.assert_array_equal(g, w, err_msg=f"{label}: {name}")


def numbers(kernel: Kernel, buffers: Buffers) -> Buffers:
    """Contents of buffers, bf16 as floats: their NaNs need not have the same bits."""
    return {m.name: from_storage(m.dtype, buffers[m.name]) for m in kernel.memories if m.space == "global"}


def opcodes_of(d: DType) -> Iterator[str]:
    for opcode in SCALAR:
        if d.kind in OPCODES[opcode].kinds and opcode != "fma" and results(opcode, d):
            yield opcode


def threaded(kernel: Kernel) -> Kernel:
    """The kernel with a thread for each trip of its only loop."""
    stop = next(i for i in kernel.body if i.opcode == "loop").args[1].number
    body = tuple(replace(i, attrs={"kind": "block"}) if i.opcode == "loop" else i
                 for i in kernel.body)
    return replace(kernel, body=body, workgroup=(stop, 1, 1))
