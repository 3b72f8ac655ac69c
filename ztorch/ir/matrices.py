"""What `mma` and its loads and stores mean in NumPy.

A subgroup holds a matrix row by row: each thread has as many elements as it has lanes. Machines
have layouts of their own, which no kernel can see; so the race detector takes every access of a
matrix for one of a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import from_storage, to_storage
from ztorch.ir.kernel import Instr, Operand
from ztorch.ir.lockstep import Lockstep, Watched

Step = Callable[[], None]


def rounded(x: np.ndarray, kept: int) -> np.ndarray:
    """float32 values with so many bits of their mantissa: the nearest, ties away from zero.

    >>> rounded(np.array([1 + 2**-11, 1 + 2**-12, -np.inf], np.float32), 10).tolist()
    [1.0009765625, 1.0, -inf]
    """
    if not kept:
        return x
    gone = 23 - kept
    bits = np.asarray(x, np.float32).view(np.uint32)
    near = (bits + np.uint32(1 << (gone - 1))) & np.uint32(-1 << gone & 0xFFFFFFFF)
    return np.where(np.isnan(x), x, near.view(np.float32))


def load(m: Lockstep, at: int, instr: Instr, store: Watched, index: int) -> Step:
    d = instr.dest
    reach = _Reach(m, at, instr, d)
    assert d.fragment is not None
    kept = 0 if d.fragment.role == "c" else d.fragment.shape.mantissa_bits

    def step() -> None:
        places, _ = reach(store, index, "read")
        m.regs[d.id] = rounded(from_storage(d.dtype, store.data[places]), kept)
    return step


def store(m: Lockstep, at: int, instr: Instr, store: Watched, index: int, value: int) -> Step:
    c = instr.args[1]
    reach = _Reach(m, at, instr, c)

    def step() -> None:
        places, live = reach(store, index, "write")
        x = np.broadcast_to(to_storage(c.dtype, m.regs[value]), places.shape)
        if live is not None:
            live = np.broadcast_to(live, places.shape)
            places, x = places[live], x[live]
        store.data[places] = x
    return step


def multiply(m: Lockstep, at: int, instr: Instr, a: int, b: int, c: int) -> Step:
    """Products and sums in float64, and one rounding: what machines come near to, each in an
    order of its own."""
    d = instr.dest
    parts = [(key, x) for key, x in zip((a, b, c), instr.args, strict=True)]
    for _, x in parts:
        _whole(m, at, x)

    def step() -> None:
        left, right, total = (_matrix(m, at, key, x) for key, x in parts)
        out = np.matmul(left, right) + total
        m.regs[d.id] = out.astype(d.dtype.working).reshape(m.threads, d.lanes)
    return step


def _matrix(m: Lockstep, at: int, key: int, x: Operand) -> np.ndarray:
    """The matrices of all subgroups."""
    assert x.fragment is not None
    return m.neighbours(at, m.regs[key], x.lanes).astype(np.float64).reshape(-1, *x.fragment.extent)


def _whole(m: Lockstep, at: int, x: Operand) -> None:
    assert x.fragment is not None
    if x.lanes * m.subgroup != x.fragment.size:
        raise m.fail(at, f"{x.lanes} elements a thread, but {m.subgroup} threads a subgroup: no "
                         f"matrix of {x.fragment.size}")


class _Reach:
    """Where the elements of a matrix lie."""

    def __init__(self, m: Lockstep, at: int, instr: Instr, x: Operand):
        _whole(m, at, x)
        assert x.fragment is not None
        self.m, self.at, self.lanes = m, at, x.lanes
        rows, columns = np.indices(x.fragment.extent)
        if instr.attrs["turned"]:
            rows, columns = columns, rows
        offsets = instr.attrs["off"] + rows * instr.attrs["pitch"] + columns
        self.offsets = offsets.reshape(m.subgroup, x.lanes)

    def __call__(self, store: Watched, index: int, how: str,
                 ) -> tuple[np.ndarray, np.ndarray | None]:
        m = self.m
        first = m.neighbours(self.at, m.regs[index].astype(np.int64), 1)
        chosen = m.present().reshape(-1, m.subgroup, 1)
        if ((first != first[:, :1]) & chosen).any():
            raise m.fail(self.at, "the index differs between the threads of a subgroup")
        places, live = m.reach(
            self.at, store, (first + self.offsets).reshape(m.threads, self.lanes), None)
        if store.races is not None or store.known is not None:
            m.shifts += m.threads  # a thread that nobody else is
            m.touch(self.at, store, how, places, live, m.number // m.subgroup + m.shifts)
        return places, live
