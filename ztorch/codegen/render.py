"""Renders kernels as text, one macro call per instruction.

The text of an instruction depends on its opcode, dtypes, lanes, constants and attributes; register
numbers are only inserted into it. So the renderer calls the macro once for each combination of
these, with marks in place of the numbers, and replaces the marks for each instruction. That is
several times faster than a macro call for each instruction.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace
from typing import Any

from ztorch.abi import align_up
from ztorch.codegen.spelling import Literal, Spelling, VectorType
from ztorch.codegen.targets import Target
from ztorch.codegen.templates import WORDS, forms, macros, module_text
from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.ir.kernel import SWIZZLE_REPEAT, Instr, Kernel, Memory, Operand, constant
from ztorch.ir.opcodes import ARITHMETIC, OPCODES
from ztorch.ir.tile_maps import TileMap, map_of, tile_maps

# A mark is the position of an operand, T for a tensor map, or the letter of an attribute.
_MARK = re.compile("\x01([0-9MOSPRQABCT]+)\x02")
# Attributes that name memories, and those that are constant offsets.
_MEMORY_MARKS = {"mem": "M", "source": "S", "right": "R", "bias": "A", "barriers": "B"}
_OFFSET_MARKS = {"off": "O", "source_off": "P", "right_off": "Q", "bias_off": "C"}
_ATTR_OF_MARK = {mark: name for name, mark in (_MEMORY_MARKS | _OFFSET_MARKS).items()}
MAX_CACHED_TEXTS = 1 << 11  # cached texts of instructions, per target
SHARED_ALIGN = 16  # alignment of shared memories in bytes: the widest access
_SPACES = {"memories": "global", "locals": "local", "shared": "shared"}  # by their names in frames


class Renderer:
    """Renders kernels for one target."""

    def __init__(self, target: Target):
        self.target = target
        self.words = macros(target, "instr", WORDS)
        self.spelling = Spelling(target)
        self._macro_of: dict[tuple[str, DType, DType], Any] = {}
        self._texts: dict[tuple, tuple[str, list[int | str]]] = {}
        self._supported: dict[tuple, bool] = {}

    def word(self, instr: Instr) -> Any:
        """The most specific macro for an instruction; None if the target has none."""
        key = instr.opcode, instr.dest.dtype, (instr.dest, *instr.args)[-1].dtype
        if key not in self._macro_of:
            dtypes = [self.spelling.register_dtype(d) for d in key[1:]]
            names = [f for f in forms(instr.opcode, *dtypes) if f in self.words]
            self._macro_of[key] = self.words[names[0]] if names else None
        return self._macro_of[key]

    def supports(self, instr: Instr) -> bool:
        """Whether the target can render this instruction; depends only on its opcode and types."""
        key = (instr.opcode, *[o.type for o in (instr.dest, *instr.args)])
        supported = self._supported.get(key)
        if supported is None:
            supported = self._supported[key] = self._can_render(instr)
        return supported

    def _can_render(self, instr: Instr) -> bool:
        if self.word(instr) is None:
            return False
        if not self._has_dtypes(instr) or not self._has_fragments(instr):
            return False
        missing = self.target.missing_opcodes
        return instr.opcode not in missing and (instr.opcode, instr.dest.dtype.name) not in missing

    def _has_dtypes(self, instr: Instr) -> bool:
        """Whether the target can compute with the instruction's dtypes.

        It cannot compute with a dtype that it only stores, or wrap integers that it holds in wider
        registers.
        """
        if instr.opcode not in ARITHMETIC:
            return True
        if OPCODES[instr.opcode].wraps and instr.dest.dtype.name in self.spelling.widened:
            return False
        dtypes = {o.dtype.name for o in (instr.dest, *instr.args)}
        small = dtypes & set(self.target.stored_dtypes)
        if instr.opcode == "cast":
            return not small or (
                dtypes - small == {"f32"} and small <= set(self.target.converted_dtypes))
        return not small

    def _has_fragments(self, instr: Instr) -> bool:
        """Whether the target supports the shapes and layouts of the matrix fragments."""
        grid = self.target.limits.grid
        return all(grid is not None and o.fragment.shape in grid.mma_shapes
                   and o.fragment.layout in ("", grid.mma_layout)
                   and o.lanes * grid.subgroup == o.fragment.size
                   for o in (instr.dest, *instr.args) if o.fragment is not None)

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        """The data of a kernel for the frame's template: its body as text, and its declarations."""
        memories = {m.name: (str(k), m) for k, m in enumerate(kernel.memories)}
        maps = tile_maps(kernel)
        lines = [self._line(i, memories, maps, kernel.cluster) for i in kernel.body]
        counters = [i.dest for i in kernel.body if i.opcode == "loop"]
        body, above = _split("\n".join(lines))
        registers = {"values": self._values(kernel)} if self.target.declares_registers else {}
        return {
            **registers,
            "body": body,
            "above": above,
            "workgroup": kernel.workgroup,
            "cluster": kernel.cluster,
            "meets": bool({"grid_barrier", "grid_wait"} & kernel.opcodes()),
            "maps": _maps(kernel, maps),
            "resident_groups": self._resident_groups(kernel),
            "dynamic_shared": self._dynamic_shared(kernel),
            "shared_offsets": shared_offsets(kernel)[0],
            "constants": self._constants(kernel),
            "vectors": self._vectors(kernel),
            "variables": [self.spelling.operand(v, str(v.id)) for v in kernel.variables],
            "counters": [self.spelling.operand(c, str(c.id)) for c in counters],
            **{name: [self.spelling.memory(m, k) for k, m in memories.values() if m.space == space]
               for name, space in _SPACES.items()},
        }

    def frame(self, **data: Any) -> str:
        """The text of the whole module."""
        return module_text(self.target, **data)

    def _resident_groups(self, kernel: Kernel) -> int:
        """The number of workgroups per compute unit that must have enough registers; 0: any. A
        kernel that reallocates registers needs a number: else ptxas may leave that out (C7508)."""
        grid = self.target.limits.grid
        if grid is None:
            return 0
        resident = min(grid.resident_threads, kernel.resident_threads or grid.resident_threads)
        groups = resident // max(grid.subgroup, math.prod(kernel.workgroup))
        shared = shared_offsets(kernel)[1]
        unit = grid.shared_unit_bytes
        groups = min(groups, unit // shared) if shared and unit else groups
        return groups if groups > 1 or "thread_registers" in kernel.opcodes() else 0

    def _dynamic_shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory that launches must request; 0 if the kernel declares its own."""
        grid, (_, total) = self.target.limits.grid, shared_offsets(kernel)
        return total if grid is not None and total > grid.declared_shared_bytes else 0

    def _constants(self, kernel: Kernel) -> list[Literal]:
        """The constants of a kernel and the constant parts of its offsets, each once."""
        constants: dict[tuple, Operand] = {}  # by dtype, value and fragment, not by lanes
        for i in kernel.body:
            for a in i.args:
                if a.is_const and (a.dtype, a.bits, a.fragment) not in constants:
                    constants[a.dtype, a.bits, a.fragment] = replace(a, lanes=1)
            if i.attrs.get("off"):
                o = constant(i.attrs["off"], kernel.index)
                constants.setdefault((o.dtype, o.bits, None), o)
        return [self.spelling.constant(o) for o in constants.values()]

    def _values(self, kernel: Kernel) -> dict[str, list[str]]:
        """The register numbers of each type, one per lane, for languages that declare registers."""
        numbers: dict[str, list[str]] = {}
        registers: dict[tuple, tuple[str, int]] = {}  # their type and number, by operand type
        for i in kernel.body:
            o = i.dest
            if o.kind == "value":
                if o.type not in registers:
                    registers[o.type] = self.spelling.registers(self.spelling.as_stored(o))
                t, count = registers[o.type]
                names = [f"{o.id}_{k}" for k in range(count)] if o.lanes > 1 else [str(o.id)]
                numbers.setdefault(t, []).extend(names)
        return numbers

    def _vectors(self, kernel: Kernel) -> list[VectorType]:
        """The vector types of a kernel, each once."""
        vectors = {(o.dtype, o.lanes): None for i in kernel.body for o in (i.dest, *i.args)
                   if o.lanes > 1 and o.fragment is None}
        vectors |= {(m.dtype, m.vec): None for m in kernel.memories if m.vec > 1}
        spelled = {(self.spelling.register_dtype(d), n): None for d, n in vectors}
        types = {self.spelling.type(d, n): n for d, n in spelled}
        return [VectorType(t, e, n) for (t, e), n in types.items()]

    def _line(self, instr: Instr, memories: dict[str, tuple[str, Memory]],
              maps: tuple[TileMap, ...], cluster: int) -> str:
        """The text of an instruction, from the cached text with its marks replaced."""
        operands = (instr.dest, *instr.args)
        attrs = instr.attrs
        key: tuple = (instr.opcode, *[(o.dtype, o.lanes, o.kind, o.bits, o.fragment)
                                      for o in operands])
        if attrs:
            key += tuple([(k, bool(v) if k in _OFFSET_MARKS else v)
                          for k, v in attrs.items() if k not in _MEMORY_MARKS])
        for name in _MEMORY_MARKS:
            if attrs.get(name):
                m = memories[attrs[name]][1]
                key += m.dtype, m.space, m.access, m.vec, m.atomic, m.swizzled, m.streamed, m.is_far
        if instr.opcode == "copy_tile":
            key += (attrs["cluster"] == cluster,)
        rendered = self._texts.get(key)
        if rendered is None:
            if len(self._texts) >= MAX_CACHED_TEXTS:  # constants are part of the key
                self._texts.clear()
            rendered = self._texts[key] = self._render(instr, memories, cluster)
        text, marks = rendered
        numbers: list[str | int] = []
        for mark in marks:
            if isinstance(mark, int):
                numbers.append(operands[mark].id)
            elif mark == "T":
                numbers.append(maps.index(map_of(instr)))
            elif (name := _ATTR_OF_MARK[mark]) in _MEMORY_MARKS:
                numbers.append(memories[attrs[name]][0])
            else:
                numbers.append(self.spelling.offset(attrs[name], instr.args[0].dtype.bits))
        return text % tuple(numbers)

    def _render(self, instr: Instr, memories: dict[str, tuple[str, Memory]],
                cluster: int) -> tuple[str, list[int | str]]:
        """Calls the macro; returns the text with %s for each mark, and the marks in order."""
        word = self.word(instr)
        if word is None:
            raise Unsupported(f"target {self.target.name} has no macro for {instr.opcode} "
                              f"on {instr.dest.dtype}")
        views = [self.spelling.operand(o, f"\x01{k}\x02")
                 for k, o in enumerate((instr.dest, *instr.args))]
        attrs = dict(instr.attrs)
        for name, mark in _MEMORY_MARKS.items():
            if attrs.get(name):
                attrs[name] = self.spelling.memory(memories[attrs[name]][1], f"\x01{mark}\x02")
        for name, mark in _OFFSET_MARKS.items():
            if attrs.get(name):
                attrs[name] = f"\x01{mark}\x02"
        if instr.opcode == "copy_tile":
            attrs |= {"map": "\x01T\x02", "whole": attrs["cluster"] == cluster}
        text = str(word(*views, **attrs)).strip("\n")
        parts = _MARK.split("  " + text if not text.startswith("L") else text)
        return ("%s".join(part.replace("%", "%%") for part in parts[::2]),
                [int(mark) if mark.isdigit() else mark for mark in parts[1::2]])


def shared_offsets(kernel: Kernel) -> tuple[list[int], int]:
    """The byte offset of each shared memory in one block, and the bytes of the block."""
    offsets, total = [], 0
    for m in kernel.memories:
        if m.space == "shared":
            start = align_up(total, SWIZZLE_REPEAT if m.swizzled else SHARED_ALIGN)
            offsets.append(start)
            total = start + m.size * m.dtype.bytes
    return offsets, align_up(total, SHARED_ALIGN)


def _maps(kernel: Kernel, maps: tuple[TileMap, ...]) -> list[tuple]:
    """A row for each tensor map: the number of its memory among the kernel's parameters, dtype,
    byte offset, extents, strides in bytes of all axes but the first, and box."""
    named = [m.name for m in kernel.memories if m.space == "global"]
    rows = []
    for m in maps:
        d = kernel.memory(m.memory).dtype
        rows.append((named.index(m.memory), d.name, m.first * d.bytes, m.extents,
                     tuple(p * d.bytes for p in m.pitches[1:]), m.box))
    return rows


def _split(text: str) -> tuple[str, dict[str, list[str]]]:
    """The text without its lines `^section line`, and the distinct lines of each section."""
    if "^" not in text:
        return text, {}
    body: list[str] = []
    above: dict[str, dict[str, None]] = {}
    for line in text.split("\n"):
        if line.lstrip().startswith("^"):
            section, _, rest = line.lstrip()[1:].partition(" ")
            above.setdefault(section, {})[rest] = None
        else:
            body.append(line)
    return "\n".join(body), {section: list(lines) for section, lines in above.items()}


@functools.cache
def renderer(target: Target) -> Renderer:
    """The renderer of a target, with its cache of rendered instructions."""
    return Renderer(target)
