"""Gathers of adjacent elements as one load for each lane.

A processor gathers a lane at a time, as slowly as it would load single elements. Where lanes read
four elements in a row, as from a table of polynomials, it loads each lane's row at once; shuffles
turn the rows into columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ztorch.dtypes import f32, f64, i32, i64, u32, u64
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import OPENING, Instr, Kernel, Operand
from ztorch.ir.limits import Limits
from ztorch.ir.rewrite import next_id
from ztorch.lower.tuning import GATHERED_ROW

ROW = GATHERED_ROW
_WORDS = {f32, f64, i32, i64, u32, u64}  # narrower elements are not gathered in their own dtype
_SCOPES = {*OPENING, *OPENING.values(), "else", "while"}  # opcodes after which others may not run
_Place = tuple[str, int]  # a memory, and the operand that holds the indices


def gathers_as_rows(kernel: Kernel, limits: Limits) -> Kernel:
    """The kernel with a load for each lane in place of four gathers of adjacent elements.

    Args:
        kernel: The kernel.
        limits: Those of the processor.

    Examples:
        >>> from ztorch.dtypes import f32, i64
        >>> b = Builder("rows")
        >>> _ = b.memory("x", f32, 64)
        >>> at = b.mul(b.iota(dtype=i64, lanes=4), 5)
        >>> _ = [b.load("x", at, off=k) for k in range(4)]
        >>> limits = Limits(vector_bits=128, vector_registers=16, fma=False)
        >>> [i.opcode for i in gathers_as_rows(b.kernel(), limits).body].count("load")
        4
    """
    columns = _columns(kernel)
    if not columns:
        return kernel
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    b.memories = {m.name: m for m in kernel.memories}
    done: set[int] = set()
    for i in kernel.body:
        if i.dest.id not in columns:
            b.body.append(i)
        elif i.dest.id not in done:
            row = columns[i.dest.id]
            done.update(gather.dest.id for gather in row)
            _add(b, row, limits.lanes(i.dest.dtype))
        b.forget()  # this instruction may be out of scope at the next one
    return replace(kernel, body=tuple(b.body))


def _columns(kernel: Kernel) -> dict[int, list[Instr]]:
    """By the result of each gather that is part of a row: the gathers of the row, in order."""
    stored = {m.name: m.dtype for m in kernel.memories if (m.access, m.space) == ("r", "global")}
    columns: dict[int, list[Instr]] = {}
    places: dict[_Place, dict[int, Instr]] = {}  # by place: its gathers, by offset
    for i in kernel.body:
        if i.opcode in _SCOPES:
            places = {}
        elif i.opcode == "gather" and len(i.args) == 1 and i.dest.lanes % ROW == 0 and (
                stored.get(i.attrs["mem"]) == i.dest.dtype and i.dest.dtype in _WORDS):
            own = places.setdefault((i.attrs["mem"], i.args[0].id), {})
            own[i.attrs["off"]] = i
            if (row := _row_of(own, i.attrs["off"])):
                columns |= {gather.dest.id: row for gather in row}
                for gather in row:
                    del own[gather.attrs["off"]]
    return columns


def _row_of(gathers: dict[int, Instr], offset: int) -> list[Instr]:
    """A row that the gather at an offset completes; an empty list if there is none."""
    for first in range(offset - ROW + 1, offset + 1):
        if all(first + k in gathers for k in range(ROW)):
            return [gathers[first + k] for k in range(ROW)]
    return []


def _add(b: Builder, row: Sequence[Instr], width: int) -> None:
    """Adds the loads of a row and the shuffles that give its columns.

    Args:
        b: The builder.
        row: The gathers.
        width: The lanes of a register.
    """
    at, mem, first = row[0].args[0], row[0].attrs["mem"], row[0].attrs["off"]
    part, before = max(ROW, min(width, at.lanes)), len(b.body)
    parts: list[list[Operand]] = [[] for _ in range(ROW)]  # of each column
    for start in range(0, at.lanes, part):
        rows = [b.load(mem, b.extract(at, start + k), first, ROW) for k in range(part)]
        for column, values in zip(parts, _transposed(b, rows), strict=True):
            column.append(values)
    joined = {_joined(b, column).id: gather.dest for gather, column in zip(row, parts, strict=True)}
    b.body[before:] = [replace(i, dest=joined.get(i.dest.id, i.dest)) for i in b.body[before:]]


def _transposed(b: Builder, rows: Sequence[Operand]) -> list[Operand]:
    """The columns of rows, for a multiple of as many rows. Only rows that far apart share a
    register, so that the shuffles stay within a quarter of it."""
    r0, r1, r2, r3 = (_joined(b, rows[k::ROW]) for k in range(ROW))
    pairs = [(_zipped(b, r0, r2, half), _zipped(b, r1, r3, half)) for half in (0, 2)]
    return [_zipped(b, even, odd, half) for even, odd in pairs for half in (0, 2)]


def _zipped(b: Builder, x: Operand, y: Operand, half: int = 0) -> Operand:
    """Of every four elements of two vectors, two in turns: the first two, or those from `half`."""
    perm = [k + half + n + side for k in range(0, x.lanes, ROW) for n in range(2)
            for side in (0, x.lanes)]
    return b.shuffle(x, y, perm=tuple(perm))


def _joined(b: Builder, parts: Sequence[Operand]) -> Operand:
    """One vector of parts whose count is a power of two."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [b.shuffle(x, y, perm=tuple(range(2 * x.lanes)))
                 for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
