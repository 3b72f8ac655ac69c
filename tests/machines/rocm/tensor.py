"""The instructions by which a wave multiplies matrices: in which lane's registers each element lies.

Written from what AMD publishes (the formulas of its Matrix Instruction Calculator, the notes of its
laboratory on CDNA, GPUOpen's samples for RDNA), from coordinates to registers: the templates go the
other way round, and share nothing with it. `workgroups.c` computes with these tables.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

Places = Callable[[int, int], Iterable[tuple[int, int]]]  # coordinates -> lanes, and places in them
NUMBERS = ("f16", "bf16", "f32", "f64", "xf32")  # as workgroups.c counts them


@dataclass(frozen=True)
class Matrix:
    """Where the elements of a matrix of `rows` by `columns` are, `count` in each lane."""

    rows: int
    columns: int
    count: int
    places: Places

    def table(self, wave: int) -> np.ndarray:
        """The element, counted row by row, that each lane has at each place."""
        table = np.full((wave, self.count), -1, np.int32)
        for i in range(self.rows):
            for j in range(self.columns):
                for lane, at in self.places(i, j):
                    assert table[lane, at] == -1, f"two elements in lane {lane} at {at}"
                    table[lane, at] = i * self.columns + j
        assert (table >= 0).all(), "a register without a meaning"
        return table


@dataclass(frozen=True)
class Instruction:
    """`of` names the numbers of a and b, `parameters` are the types that LLVM's intrinsic takes."""

    wave: int
    of: str
    parameters: tuple[str, str, str]
    a: Matrix
    b: Matrix
    c: Matrix


def _mfma(of: str, k: int, element: str) -> Instruction:
    each = k * 16 // 64  # elements of a line in a lane, before the next 16 lanes take over
    wide = of == "f64"

    def place_of_a(i: int, k: int) -> list[tuple[int, int]]:
        return [(16 * (k // each) + i, k % each)]

    def place_of_b(k: int, j: int) -> list[tuple[int, int]]:
        return [(16 * (k // each) + j, k % each)]

    def place_of_c(i: int, j: int) -> list[tuple[int, int]]:
        return [(16 * (i % 4) + j, i // 4) if wide else (16 * (i // 4) + j, i % 4)]

    operand = element if each == 1 else f"<{each} x {element}>"
    return Instruction(64, of, (operand, operand, "<4 x double>" if wide else "<4 x float>"),
                       Matrix(16, k, each, place_of_a), Matrix(k, 16, each, place_of_b),
                       Matrix(16, 16, 4, place_of_c))


def _wmma11(of: str, element: str) -> Instruction:
    """Lanes 16 to 31 repeat the elements of lanes 0 to 15 of a and b."""
    return Instruction(
        32, of, (f"<16 x {element}>", f"<16 x {element}>", "<8 x float>"),
        Matrix(16, 16, 16, lambda i, k: [(i, k), (i + 16, k)]),
        Matrix(16, 16, 16, lambda k, j: [(j, k), (j + 16, k)]),
        Matrix(16, 16, 8, lambda i, j: [(16 * (i % 2) + j, i // 2)]))


def _wmma12(of: str, element: str) -> Instruction:
    return Instruction(
        32, of, (f"<8 x {element}>", f"<8 x {element}>", "<8 x float>"),
        Matrix(16, 16, 8, lambda i, k: [(16 * (k // 8) + i, k % 8)]),
        Matrix(16, 16, 8, lambda k, j: [(16 * (k // 8) + j, k % 8)]),
        Matrix(16, 16, 8, lambda i, j: [(16 * (i // 8) + j, i % 8)]))


INSTRUCTIONS = {
    "mfma.f32.16x16x16f16": _mfma("f16", 16, "half"),
    "mfma.f32.16x16x16bf16.1k": _mfma("bf16", 16, "i16"),
    "mfma.f32.16x16x4f32": _mfma("f32", 4, "float"),
    "mfma.f32.16x16x8.xf32": _mfma("xf32", 8, "float"),
    "mfma.f64.16x16x4f64": _mfma("f64", 4, "double"),
    "wmma.f32.16x16x16.f16.v8f32.v16f16": _wmma11("f16", "half"),
    "wmma.f32.16x16x16.bf16.v8f32.v16i16": _wmma11("bf16", "i16"),
    "wmma.f32.16x16x16.f16.v8f32.v8f16": _wmma12("f16", "half"),
    "wmma.f32.16x16x16.bf16.v8f32.v8i16": _wmma12("bf16", "i16"),
}
NAMES = tuple(INSTRUCTIONS)


# -- on the CPU ------------------------------------------------------------------------------------


class _Row(ctypes.Structure):
    """An instruction as workgroups.c has it."""

    _fields_ = [(n, ctypes.c_int) for n in ("wave", "of", "k", "given", "got")] + [
        (n, ctypes.POINTER(ctypes.c_int32)) for n in "abc"]


def _rows() -> tuple[ctypes.Array, list[np.ndarray]]:
    kept, rows = [], (_Row * len(NAMES))()
    for row, i in zip(rows, INSTRUCTIONS.values(), strict=True):
        tables = [m.table(i.wave) for m in (i.a, i.b, i.c)]
        kept += tables
        row.wave, row.of, row.k = i.wave, NUMBERS.index(i.of), i.a.columns
        row.given, row.got = i.a.count, i.c.count
        row.a, row.b, row.c = (t.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)) for t in tables)
    return rows, kept


ROWS, _TABLES = _rows()
CALL = re.compile(r"^  (%[\w.]+) = call (<[^>]*>) @llvm\.amdgcn\.((?:mfma|wmma)\.[\w.]+)\((.*)\)$", re.M)
ARGUMENT = re.compile(r"(<[^>]*>|\w+) (%?[\w.]+)")


def hosted(text: str) -> str:
    """The text with calls of a function of workgroups.c in place of these instructions: operands and
    result pass through memory, since processors have no registers like these."""
    def call(match: re.Match) -> str:
        result, t, name, given = match.groups()
        i = INSTRUCTIONS[name]
        arguments = ARGUMENT.findall(given)
        assert tuple(t for t, _ in arguments[:3]) == i.parameters and t == i.parameters[2], match[0]
        assert all(a == ("i32", "0") for a in arguments[3:]), match[0]
        assert len(arguments) == (6 if name.startswith("mfma") else 3), match[0]
        lines = [f"store {t} {r}, ptr @zt_{n}" for n, (t, r) in zip("abc", arguments, strict=False)]
        return "\n  ".join(["", *lines, f"call void @zt_matrix(i32 {NAMES.index(name)}, ptr @zt_a, "
                            "ptr @zt_b, ptr @zt_c)", f"{result} = load {t}, ptr @zt_c"])

    changed = CALL.sub(call, text)
    if changed == text:
        return text
    held = [f"@zt_{n} = internal global [64 x i8] zeroinitializer, align 64" for n in "abc"]
    return "\n".join([changed, *held, "declare void @zt_matrix(i32, ptr, ptr, ptr)"])
