"""The NumPy definition of `mma`, `mma_load`, `mma_store` and `mma_join`.

Here a subgroup holds a matrix row by row, one element per lane of each thread, unless its fragment
names a layout. Machines use other layouts, which kernels do not know. So the race detector treats
each matrix access as that of a separate thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import from_storage, to_storage
from ztorch.ir.kernel import Instr, Operand
from ztorch.ir.layouts import places
from ztorch.ir.lockstep import Lockstep, Watched
from ztorch.ir.registers import conversion

Step = Callable[[], None]  # runs one instruction


def rounded(x: np.ndarray, mantissa: int) -> np.ndarray:
    """Round float32 to `mantissa` bits of mantissa (0: all): to nearest, ties away from zero.

    >>> rounded(np.array([1 + 2**-11, 1 + 2**-12, -np.inf], np.float32), 10).tolist()
    [1.0009765625, 1.0, -inf]
    """
    if not mantissa:
        return x
    dropped = 23 - mantissa
    bits = np.asarray(x, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(1 << (dropped - 1))) & np.uint32(-1 << dropped & 0xFFFFFFFF)
    return np.where(np.isnan(x), x, nearest.view(np.float32))


def truncated(x: np.ndarray, mantissa: int) -> np.ndarray:
    """Float32 truncated to the first `mantissa` bits of mantissa (0: all).

    >>> truncated(np.array([1 + 2**-10 + 2**-11, -np.inf], np.float32), 10).tolist()
    [1.0009765625, -inf]
    """
    if not mantissa:
        return x
    bits = np.asarray(x, np.float32).view(np.uint32) & np.uint32(-1 << 23 - mantissa & 0xFFFFFFFF)
    return np.where(np.isnan(x), x, bits.view(np.float32))


def load(m: Lockstep, at: int, instr: Instr, store: Watched, index: int) -> Step:
    d = instr.dest
    reach = _Reach(m, at, instr, d)
    assert d.fragment is not None
    mantissa = 0 if d.fragment.role == "c" else d.fragment.shape.mantissa_bits

    def step() -> None:
        places, _ = reach(store, index, "read")
        m.regs[d.id] = rounded(from_storage(d.dtype, store.data[places]), mantissa)
    return step


def store(m: Lockstep, at: int, instr: Instr, store: Watched, index: int, value: int) -> Step:
    c, stored = instr.args[1], store.spec.dtype
    reach, convert = _Reach(m, at, instr, c), conversion(c.dtype, stored)

    def step() -> None:
        places, live = reach(store, index, "write")
        elements = np.broadcast_to(to_storage(stored, convert(m.regs[value])), places.shape)
        if live is not None:
            live = np.broadcast_to(live, places.shape)
            places, elements = places[live], elements[live]
        store.data[places] = elements
    return step


def multiply(m: Lockstep, at: int, instr: Instr, a: int, b: int, c: int) -> Step:
    """Products and sums in float64, rounded once. Machines approximate this; each of them sums in
    its own order."""
    d = instr.dest
    assert d.fragment is not None
    fragments = list(zip((a, b, c), instr.args, strict=True))
    for _, x in fragments:
        _check_size(m, at, x)
    rows, columns = places(d.fragment)

    def step() -> None:
        left, right, total = (matrix_of(m, at, key, x) for key, x in fragments)
        result = np.matmul(left, right) + total
        elements = result[:, rows, columns].astype(d.dtype.working)
        m.regs[d.id] = elements.reshape(m.threads, d.lanes)
    return step


def join(m: Lockstep, instr: Instr, keys: list[int]) -> Step:
    d = instr.dest

    def step() -> None:
        x = np.concatenate(np.broadcast_arrays(*[m.regs[k] for k in keys]), axis=1)
        m.regs[d.id] = from_storage(d.dtype, to_storage(d.dtype, x))
    return step


def matrix_of(m: Lockstep, at: int, key: int, x: Operand) -> np.ndarray:
    """The matrices of all subgroups, as an array (subgroups, rows, columns) of float64."""
    assert x.fragment is not None
    elements = m.neighbors(at, m.regs[key], x.lanes).astype(np.float64)
    matrices = np.empty((len(elements), *x.fragment.extent))
    rows, columns = places(x.fragment)
    matrices[:, rows, columns] = elements.reshape(len(elements), -1)
    return matrices


def _check_size(m: Lockstep, at: int, x: Operand) -> None:
    """Check that a subgroup holds exactly one matrix."""
    assert x.fragment is not None
    if x.lanes * m.subgroup != x.fragment.size:
        raise m.fail(at, f"{x.lanes} elements a thread, but {m.subgroup} threads a subgroup: "
                         f"that is not a matrix of {x.fragment.size} elements")


class _Reach:
    """Computes and checks the positions of the elements of a matrix in memory."""

    def __init__(self, m: Lockstep, at: int, instr: Instr, x: Operand):
        _check_size(m, at, x)
        assert x.fragment is not None
        self.m, self.at, self.lanes = m, at, x.lanes
        rows, columns = places(x.fragment)
        if instr.attrs["transposed"]:
            rows, columns = columns, rows
        offsets = instr.attrs["off"] + rows * instr.attrs["pitch"] + columns
        self.offsets = offsets.reshape(m.subgroup, x.lanes)

    def __call__(self, store: Watched, index: int, kind: str,
                 ) -> tuple[np.ndarray, np.ndarray | None]:
        m = self.m
        first = m.neighbors(self.at, m.regs[index].astype(np.int64), 1)
        active = m.present().reshape(-1, m.subgroup, 1)
        if ((first != first[:, :1]) & active).any():
            raise m.fail(self.at, "the index differs between the threads of a subgroup")
        places, live = m.reach(
            self.at, store, (first + self.offsets).reshape(m.threads, self.lanes), None)
        if store.races is not None or store.known is not None:
            m.shifts += m.threads  # numbers that no thread has used before
            m.touch(self.at, store, kind, places, live, m.number // m.subgroup + m.shifts)
        return places, live
