"""The NumPy definition of `mma`, `mma_load`, `mma_store` and `mma_join`.

Here a subgroup holds a matrix row by row, one element per lane of each thread, unless its fragment
names a layout. Machines use other layouts, which kernels do not know. So the race detector treats
each matrix access as that of a separate thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import from_storage, to_storage
from ztorch.ir.kernel import PART_BITS, Instr, Operand
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


def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Float32 as its leading bits, the same without infinities, and the rest. An infinite number is
    only in the first part: times another rest, which may be zero, it would give NaN.

    >>> [p.tolist() for p in parts(np.array([1 + 2**-12, np.inf], np.float32))]
    [[1.0, inf], [1.0, 0.0], [0.000244140625, 0.0]]
    """
    first, whole = truncated(x, PART_BITS), np.isinf(x)
    finite = np.where(whole, 0, first).astype(np.float32)
    rest = np.where(whole, 0, x).astype(np.float32) - finite
    return first, finite, truncated(rest, PART_BITS)


def parts_with_one(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, but 1 or -1 for what is infinite in the second part. The other operand has two
    parts in memory: 1 or -1 for what is infinite, and a rest that is infinite itself. So no part is
    zero that is multiplied by an infinite one.

    >>> [p.tolist() for p in parts_with_one(np.array([1 + 2**-12, -np.inf], np.float32))]
    [[1.0, -inf], [1.0, -1.0], [0.000244140625, 0.0]]
    """
    first, finite, rest = parts(x)
    return first, np.where(np.isinf(x), np.sign(x), finite).astype(np.float32), rest


def load(m: Lockstep, at: int, instr: Instr, store: Watched, index: int) -> Step:
    d = instr.dest
    reach = _Reach(m, at, instr, d)
    assert d.fragment is not None
    shape = d.fragment.shape
    mantissa = 0 if d.fragment.role == "c" or shape.split else shape.mantissa_bits

    def step() -> None:
        places, _ = reach(store, index, "read")
        if store.filled_by is not None:
            m.arrived(at, store, places, np.broadcast_to(m.present(), (m.threads, 1))[:, 0])
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
    """Products and sums in float64, rounded once; those of parts of operands, once for each part.
    Machines approximate this; each of them sums in its own order."""
    d = instr.dest
    assert d.fragment is not None
    fragments = list(zip((a, b, c), instr.args, strict=True))
    for _, x in fragments:
        _check_size(m, at, x)
    (rows, columns), shape = places(d.fragment), d.fragment.shape

    def step() -> None:
        left, right, result = (matrix_of(m, at, key, x) for key, x in fragments)
        pairs = [(left, right)]
        if shape.split:
            (first, finite, rest), (other, other_finite, other_rest) = (
                parts(x.astype(np.float32)) for x in (left, right))
            pairs = [(rest, other_finite), (finite, other_rest), (first, other)]
        for x, y in pairs:
            result = (np.matmul(x.astype(np.float64), y) + result).astype(d.dtype.working)
        elements = result[:, rows, columns]
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
