"""Products of matrices by a function of another library: a row of the table of opcodes, and its
meaning.

The function gets addresses in three memories, sizes, and the distance between neighboring rows of
each matrix, or between its columns where it is transposed. The order of its additions is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.dtypes import from_storage, to_storage

if TYPE_CHECKING:
    from ztorch.ir.kernel import Instr
    from ztorch.ir.lockstep import Lockstep, Watched

# Of each matrix: the attributes of its memory and offset, its distance between rows, whether it is
# transposed, and its rows and columns.
MATRICES = (("mem", "off", "pitch", "", "mn"),
            ("source", "source_off", "source_pitch", "source_transposed", "mk"),
            ("right", "right_off", "right_pitch", "right_transposed", "kn"))
MANTISSA_BITS = (23, 10)  # of float32 operands: those of libraries of devices
ROWS: dict[str, tuple[int, str, tuple[str, ...], dict[str, Any]]] = {
    "library_product": (3, "c = a @ b by a function of a library (index of c, of a, of b)", (
        "mem", "off", "pitch", "source", "source_off", "source_pitch", "source_transposed",
        "right", "right_off", "right_pitch", "right_transposed", "library", "m", "n", "k"),
        {"kinds": "f", "cost": 64})}


def lines_of(attrs: dict[str, Any], matrix: tuple[str, ...]) -> tuple[int, int, int]:
    """The contiguous lines of a matrix in memory, their length, and their distance."""
    _, _, pitch, transposed, sizes = matrix
    rows, columns = (attrs[size] for size in sizes)
    lines, length = (columns, rows) if transposed and attrs[transposed] else (rows, columns)
    return lines, length, attrs[pitch]


def multiply(m: Lockstep, at: int, instr: Instr, stores: tuple[Watched, ...],
             keys: tuple[int, ...]) -> Callable[[], None]:
    """Products and sums in float64, rounded once. Each thread that gets here calls the function."""
    attrs = instr.attrs
    places = []
    for matrix in MATRICES:
        lines, length, pitch = lines_of(attrs, matrix)
        places.append((np.arange(lines)[:, None] * pitch + np.arange(length)).reshape(1, -1)
                      + attrs[matrix[1]])

    def step() -> None:
        read = []
        for number in (1, 2, 0):
            store, matrix = stores[number], MATRICES[number]
            where, live = m.reach(at, store, m.regs[keys[number]] + places[number], None)
            if store.races is not None or store.known is not None:
                m.touch(at, store, "read" if number else "write", where, live)
            where = np.broadcast_to(where, (m.threads, where.shape[1]))
            if number:
                x = from_storage(store.spec.dtype, store.data[where]).astype(np.float64).reshape(
                    m.threads, *lines_of(attrs, matrix)[:2])
                read.append(x.swapaxes(1, 2) if attrs[matrix[3]] else x)
            else:
                result = to_storage(store.spec.dtype, np.matmul(*read)).reshape(m.threads, -1)
                active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
                store.data[where[active]] = result[active]
    return step
