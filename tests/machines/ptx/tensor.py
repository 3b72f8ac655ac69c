"""The instructions by which the 32 threads of a warp work on matrices, with the layouts that PTX
documents: which thread has which element in which of its registers.

Written from the tables of the PTX ISA (section on mma.m16n8k16 and m16n8k8, and ldmatrix), element
by element: nothing is shared with the templates, or with how the interpreter of the IR does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.machines.ptx.parse import Address, Instruction, Pack, PtxError, Register
from ztorch.dtypes import bf16, from_storage

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

WARP = 32
Work = Callable[[np.ndarray | None], None]
SHAPES = {"f16": (16, 8, 16), "bf16": (16, 8, 16), "tf32": (16, 8, 8)}


def place_of_a(kind: str, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of a thread."""
    group, inside = lane >> 2, lane % 4
    if kind == "tf32":
        return (group if i in (0, 2) else group + 8), (inside if i < 2 else inside + 4)
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, inside * 2 + (i & 1) + (8 if i >= 4 else 0)


def place_of_b(kind: str, lane: int, i: int) -> tuple[int, int]:
    group, inside = lane >> 2, lane % 4
    if kind == "tf32":
        return (inside if i == 0 else inside + 4), group
    return inside * 2 + (i & 1) + (8 if i >= 2 else 0), group


def place_of_c(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1)


def _table(places: Callable[[int, int], tuple[int, int]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, by lane and element."""
    table = np.array([[places(lane, i) for i in range(count)] for lane in range(WARP)])
    assert len({tuple(p) for p in table.reshape(-1, 2)}) == WARP * count
    return table[..., 0], table[..., 1]


def whole_warps(m: Machine, live: np.ndarray | None, text: str) -> None:
    if m.size % WARP:
        raise PtxError(f"{m.entry.name}: {text} in a block of {m.size} threads")
    if live is not None:
        some = live.reshape(-1, WARP)
        if (some.any(1) != some.all(1)).any():
            raise PtxError(f"{m.entry.name}: {text}: not all of a warp get here")


def _pack(m: Machine, o: Any, count: int, text: str) -> tuple[Register, ...]:
    if not isinstance(o, Pack) or len(o.parts) != count or any(p.bits != 32 for p in o.parts):
        raise PtxError(f"{text}: {o} is not {count} registers of 32 bits")
    return o.parts


def mma(m: Machine, i: Instruction) -> Work:
    result = re.fullmatch(r"mma\.sync\.aligned\.m(\d+)n(\d+)k(\d+)\.row\.col\.f32\.(\w+)\.(\w+)\.f32",
                          ".".join(i.opcode))
    if not result or result[4] != result[5] or SHAPES.get(result[4]) != tuple(map(int, result.groups()[:3])):
        raise PtxError(f"{i.text}: unknown")
    kind, (rows, columns, depth) = result[4], SHAPES[result[4]]
    each = 1 if kind == "tf32" else 2  # elements a register
    of_a, of_b = rows * depth // WARP, depth * columns // WARP
    d, a, b, c = i.operands
    outs = _pack(m, d, 4, i.text)
    reads = [[m.source(r, 32, i.text) for r in _pack(m, o, n, i.text)]
             for o, n in ((a, of_a // each), (b, of_b // each), (c, 4))]
    at_a = _table(lambda lane, e: place_of_a(kind, lane, e), of_a)
    at_b = _table(lambda lane, e: place_of_b(kind, lane, e), of_b)
    at_c = _table(place_of_c, 4)

    def held(which: int) -> np.ndarray:
        """The registers, by warp, lane and number."""
        columns = [np.broadcast_to(r(), m.threads) for r in reads[which]]
        return np.ascontiguousarray(np.stack(columns, axis=1).reshape(-1, WARP, len(columns)))

    def numbers(which: int, live: np.ndarray) -> np.ndarray:
        raw = held(which)
        if kind == "tf32":
            odd = (raw & np.uint32(0x1FFF) != 0) & ~np.isnan(raw.view(np.float32))
            if odd[live].any():
                raise PtxError(f"{m.entry.name}: {i.text}: a float32 that was not rounded to tf32")
            return raw.view(np.float32).astype(np.float64)
        halves = raw.view(np.uint16)
        return (from_storage(bf16, halves) if kind == "bf16" else halves.view(np.float16)).astype(np.float64)

    def work(live: np.ndarray | None) -> None:
        whole_warps(m, live, i.text)
        awake = np.ones(m.threads // WARP, bool) if live is None else live.reshape(-1, WARP)[:, 0]
        left, right = np.zeros((len(awake), rows, depth)), np.zeros((len(awake), depth, columns))
        total = np.zeros((len(awake), rows, columns))
        left[:, at_a[0], at_a[1]] = numbers(0, awake)
        right[:, at_b[0], at_b[1]] = numbers(1, awake)
        total[:, at_c[0], at_c[1]] = held(2).view(np.float32)
        out = (left @ right + total).astype(np.float32)[:, at_c[0], at_c[1]].reshape(-1, 4)
        for k, r in enumerate(outs):
            m.put(r, np.ascontiguousarray(out[:, k]).view(np.uint32), live)
    return work


def ldmatrix(m: Machine, i: Instruction) -> Work:
    """Matrices of 8 rows of 16 bytes: lanes 8 j to 8 j + 7 say where the rows of the j-th are, and
    thread t gets of each the elements 2 (t % 4) and the next of row t / 4; with .trans of column
    t / 4."""
    result = re.fullmatch(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16", ".".join(i.opcode))
    if not result:
        raise PtxError(f"{i.text}: unknown")
    count = int(result[1])
    d, at = i.operands
    outs = _pack(m, d, count, i.text)
    if not isinstance(at, Address) or not isinstance(at.base, Register):
        raise PtxError(i.text)
    base, offset = m.source(at.base, 32, i.text), np.uint32(at.offset)
    lane = np.arange(WARP)

    def work(live: np.ndarray | None) -> None:
        whole_warps(m, live, i.text)
        firsts = np.broadcast_to(base() + offset, m.threads).reshape(-1, WARP)
        for j in range(count):
            rows = firsts[:, 8 * j:8 * j + 8]
            awake = slice(None) if live is None else live.reshape(-1, WARP)[:, 0]
            if (rows[awake] % 16).any():
                raise PtxError(f"{m.entry.name}: {i.text}: a row that is not aligned to 16 bytes")
            halves = []
            for k in range(2):
                row, column = lane // 4, 2 * (lane % 4) + k
                if result[2]:
                    row, column = column, row
                address = (rows[:, row] + 2 * column.astype(np.uint32)).reshape(-1)
                chosen = address if live is None else address[live]
                data, elements = m.inside("shared", chosen, live, 2, "ld", np.dtype(np.uint16))
                got = np.zeros(m.threads, np.uint32)
                got[slice(None) if live is None else live] = data[elements]
                halves.append(got)
            m.put(outs[j], halves[0] | halves[1] << np.uint32(16), live)
    return work
