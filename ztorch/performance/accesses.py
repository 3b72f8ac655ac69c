"""The cost of one access to memory by the threads of a subgroup together.

Addresses are in bytes, one row for each subgroup and one column for each of its threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ztorch.ir.kernel import Fragment

SECTOR = 32  # bytes of the smallest transfer from memory and caches
LINE = 128  # bytes that a unit reads from its cache, or from shared memory, in a cycle
BANK = 4  # bytes of a word of a shared memory bank
BANKS = LINE // BANK  # banks of shared memory: each delivers one word in a cycle


@dataclass
class AccessCost:
    """One access of a kernel, by all subgroups of a workgroup and in all trips of its loops."""

    mem: str  # name of the memory
    space: str  # global, shared or local
    opcode: str  # load, store, ...
    requests: float = 0.0  # subgroups that made it
    lines: float = 0.0  # of 128 bytes that they touched in global memory
    sectors: float = 0.0  # of 32 bytes that they touched in global memory
    wavefronts: float = 0.0  # cycles for which they occupied shared memory
    least_wavefronts: float = 0.0  # the same without bank conflicts

    @property
    def transactions(self) -> float:
        """Lines that one request touches."""
        return self.lines / self.requests if self.requests else 0.0

    @property
    def conflicts(self) -> float:
        """How many times longer shared memory is occupied than without conflicts of banks."""
        return self.wavefronts / self.least_wavefronts if self.least_wavefronts else 1.0


def sectors_touched(addresses: np.ndarray, size: int,
                    active: np.ndarray) -> tuple[np.ndarray, int, int]:
    """The sectors that active threads touch with `size` bytes each, without duplicates; and the
    numbers of sectors and of lines, added up over subgroups.

    >>> threads = np.arange(32)[None] * 4
    >>> sectors_touched(threads, 4, threads >= 0)
    (array([0, 1, 2, 3]), 4, 1)
    >>> sectors_touched(threads * 32, 4, threads >= 0)[1:]
    (32, 32)
    """
    ends = np.concatenate([addresses // SECTOR, (addresses + size - 1) // SECTOR], axis=1)
    ends = np.sort(np.where(np.concatenate([active, active], axis=1), ends, -1), axis=1)
    lines = np.where(ends >= 0, ends // (LINE // SECTOR), -1)
    new_line = lines >= 0
    new_sector = new_line.copy()
    new_line[:, 1:] &= lines[:, 1:] != lines[:, :-1]
    new_sector[:, 1:] &= ends[:, 1:] != ends[:, :-1]
    return np.unique(ends[new_sector]), int(new_sector.sum()), int(new_line.sum())


def bank_wavefronts(addresses: np.ndarray, size: int, active: np.ndarray) -> tuple[int, int]:
    """Cycles for which accesses occupy shared memory, and how many without bank conflicts.

    In each cycle, shared memory serves as many threads as access 128 bytes; twice as many if each
    of them accesses the same bytes as the thread next to it, or the one after that. A bank delivers
    one word of 4 bytes in a cycle, to all threads that access this word.

    >>> threads = np.arange(32)[None]
    >>> bank_wavefronts(threads * 4, 4, threads >= 0)
    (1, 1)
    >>> bank_wavefronts(threads * 128, 4, threads >= 0)
    (32, 1)
    >>> bank_wavefronts(threads * 132, 4, threads >= 0)  # padded by one word
    (1, 1)
    """
    threads_per_cycle = min(addresses.shape[1], LINE // max(size, BANK))
    threads = np.arange(addresses.shape[1])
    if threads_per_cycle < len(threads) and any(
            (addresses[:, threads ^ distance] == addresses).all() for distance in (1, 2)):
        threads_per_cycle *= 2
    words_per_thread = max(1, size // BANK)
    rows = addresses.reshape(-1, threads_per_cycle)
    live = active.reshape(-1, threads_per_cycle).repeat(words_per_thread, axis=1)
    words = (rows[:, :, None] // BANK + np.arange(words_per_thread)).reshape(len(rows), -1)
    words = np.sort(np.where(live, words, -1), axis=1)
    first = np.ones_like(words, bool)
    first[:, 1:] = words[:, 1:] != words[:, :-1]
    counts = np.zeros((len(rows), BANKS), np.int64)  # different words of each bank
    row, column = np.nonzero(first & (words >= 0))
    np.add.at(counts, (row, words[row, column] % BANKS), 1)
    cycles = counts.max(axis=1)
    return int(cycles.sum()), int((cycles > 0).sum())


def matrix_offsets(fragment: Fragment, pitch: int, transposed: bool,
                   whole_rows: bool, pairs: int = 0) -> tuple[np.ndarray, int]:
    """The byte offsets at which the threads of a subgroup of 32 access a matrix in memory (a row
    for each wavefront), and the size of each access in bytes, for the layouts of NVIDIA's GPUs.

    Args:
        fragment: Which matrix of a product it is.
        pitch: The distance of its rows in memory, in elements.
        transposed: Whether it is stored transposed.
        whole_rows: Whether one instruction loads 16 bytes of each of 8 rows.
        pairs: The size of an element in memory in bytes, if a thread stores two neighbors at once.
            Default: `0`, if it stores one at a time.

    >>> from ztorch.dtypes import f16, f32
    >>> from ztorch.ir.kernel import MmaShape
    >>> a = Fragment("a", MmaShape(16, 8, 16, f16, f32))
    >>> offsets, size = matrix_offsets(a, 40, False, True)
    >>> offsets.shape, size, offsets[0, :3].tolist()
    ((4, 8), 16, [0, 80, 160])
    """
    size, (rows, columns) = fragment.dtype.bytes, fragment.extent
    if transposed:
        rows, columns = columns, rows
    if whole_rows:
        starts = [(r + np.arange(8)) * pitch * size + c
                  for r in range(0, rows, 8) for c in range(0, columns * size, 16)]
        return np.array(starts), 16
    lane = np.arange(32)
    if pairs:
        near = lane // 4 * pitch + lane % 4 * 2
        return np.array([(r * pitch + c + near) * pairs
                         for r in range(0, rows, 8) for c in range(0, columns, 8)]), 2 * pairs
    along = BANK // size if fragment.role != "c" else 2  # adjacent elements of one thread
    eights, fours = lane // 4, lane % 4 * along
    across = 4 * along
    if transposed != (fragment.role == "b"):  # groups of eight threads read along rows
        starts = [((r + fours + n) * pitch + c + eights) * size
                  for r in range(0, rows, across) for c in range(0, columns, 8)
                  for n in range(along)]
    else:
        starts = [((r + eights) * pitch + c + fours + n) * size
                  for r in range(0, rows, 8) for c in range(0, columns, across)
                  for n in range(along)]
    return np.array(starts), size
