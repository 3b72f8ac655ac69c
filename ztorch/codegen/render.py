"""Renders kernels as text with jinja2, which only this file imports: one macro per instruction.

The text of an instruction depends on its opcode, dtypes, lanes, constants and attributes. Register
numbers are only inserted. So the renderer calls the macro once for each combination of these, with
marks in place of the numbers, and later replaces the marks. This is several times faster than
calling the macro for each instruction.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Container
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

from ztorch.codegen.targets import Target
from ztorch.dtypes import ALL, DType, boolean, u16
from ztorch.errors import Unsupported, ZtorchError
from ztorch.host.assets import folder
from ztorch.ir.kernel import Fragment, Instr, Kernel, Memory, Operand, constant
from ztorch.ir.opcodes import ARITHMETIC, COMPUTING, OPCODES

_MARK = re.compile("\x01([0-9MO]+)\x02")  # an operand's position, M: memory, O: offset
_KINDS = {"f": "float", "s": "int", "u": "int", "b": "bool"}  # DType.kind -> name in macros


def forms(opcode: str, result: DType, operand: DType) -> tuple[str, ...]:
    """The names of the macros that can render an opcode, the most specific first.

    A macro can be for one dtype, for a kind of dtypes, or for all. That of a conversion can be for
    a pair.

    >>> from ztorch.dtypes import f32, i32
    >>> forms("max", f32, f32), forms("cast", i32, f32)[:2]
    (('max_f32', 'max_float', 'max'), ('cast_f32_to_i32', 'cast_float_to_int'))
    """
    if opcode not in COMPUTING:
        return (opcode,)
    kind = _KINDS[operand.kind]
    if OPCODES[opcode].result == "attr":
        pair = f"{operand.name}_to_{result.name}", f"{kind}_to_{_KINDS[result.kind]}"
        return (*(f"{opcode}_{p}" for p in pair), opcode)
    return f"{opcode}_{operand.name}", f"{opcode}_{kind}", opcode


WORDS = frozenset(form for opcode in OPCODES for result in ALL for operand in ALL
                  for form in forms(opcode, result, operand))
SPELLING = ("type", "suffix", "register", "memory", "literal", "spread", "offset", "widened")


@functools.lru_cache(maxsize=1)
def environment() -> Environment:
    """The Jinja environment. Undefined names and missing arguments are errors."""
    return Environment(
        loader=FileSystemLoader(folder("templates")), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)


@dataclass(frozen=True)
class OperandView:
    """An operand, as macros receive it."""

    r: str  # its text: a register or a literal
    t: str  # its type
    e: str  # the type of one lane
    p: str  # the type of a predicate with as many lanes
    id: str  # its number
    dtype: str  # name of its dtype
    lanes: int  # number of lanes
    k: str  # kind of its dtype: f, s, u or b
    bits: int  # of one lane
    c: Any  # the value of a constant, else None
    suffix: str  # the target's suffix for its dtype and lanes
    parts: tuple[str, ...]  # its registers: several for a matrix fragment
    fragment: Fragment | None  # the part of a matrix that it holds, if it does


@dataclass(frozen=True)
class MemoryView:
    """A memory, as macros receive it."""

    r: str  # its name in the text
    t: str  # the type of an element
    v: str  # the type of `vec` adjacent elements
    id: str  # its number
    dtype: str  # name of its dtype
    bytes: int  # of an element
    size: int  # number of elements
    vec: int  # elements of the vector type that it is declared as an array of
    space: str  # global, local or shared
    access: str  # r, w or rw


@dataclass(frozen=True)
class VectorType:
    """A vector type, for languages that declare types."""

    t: str  # the vector type
    e: str  # the type of a lane
    lanes: int  # number of lanes


@dataclass(frozen=True)
class Literal:
    """A constant in a kernel's text, for languages that declare constants."""

    r: str  # its text
    t: str  # its type
    dtype: str  # name of its dtype
    bits: int  # the bits of the value, as an integer
    number: Any  # the value


class Renderer:
    """Renders kernels for one target."""

    def __init__(self, target: Target):
        self.target = target
        self.words = self._macros("instr", WORDS)
        self.spelling: Any = SimpleNamespace(**self._macros("spelling", SPELLING))
        self.widened = str(getattr(self.spelling, "widened", str)()).split()
        self._macro_of: dict[tuple[str, DType, DType], Any] = {}
        self._texts: dict[tuple, list[str]] = {}
        self._types: dict[tuple[str, int], tuple[str, str]] = {}

    def _macros(self, kind: str, names: Container[str]) -> dict[str, Any]:
        """The macros of all template folders; those of a more specific folder replace others.

        Names of a template's own helper macros start with an underscore.
        """
        macros: dict[str, Any] = {}
        for folder_name in reversed(self.target.template_folders):
            path = f"{folder_name}/{kind}.{self.target.template_suffix}.j2"
            with contextlib.suppress(TemplateNotFound):
                module = environment().get_template(path).module
                macros |= _checked(path, module, names)
        return macros

    def word(self, instr: Instr) -> Any:
        """The most specific macro for an instruction; None if the target has none."""
        key = instr.opcode, instr.dest.dtype, (instr.dest, *instr.args)[-1].dtype
        if key not in self._macro_of:
            dtypes = [u16 if self._as_bits(d) else d for d in key[1:]]
            names = [f for f in forms(instr.opcode, *dtypes) if f in self.words]
            self._macro_of[key] = self.words[names[0]] if names else None
        return self._macro_of[key]

    def speaks(self, instr: Instr) -> bool:
        """Whether the target can render this instruction."""
        if self.word(instr) is None:
            return False
        if not self._computes(instr) or not self._multiplies(instr):
            return False
        missing = self.target.missing_opcodes
        return instr.opcode not in missing and (instr.opcode, instr.dest.dtype.name) not in missing

    def _computes(self, instr: Instr) -> bool:
        """Whether the target can compute with the instruction's dtypes.

        It cannot compute with a dtype that it only stores. Nor can it run wrapping operations on
        integers that it holds in wider registers.
        """
        if instr.opcode not in ARITHMETIC:
            return True
        if OPCODES[instr.opcode].wraps and instr.dest.dtype.name in self.widened:
            return False
        dtypes = {o.dtype.name for o in (instr.dest, *instr.args)}
        small = dtypes & set(self.target.stored_dtypes)
        if instr.opcode == "cast":
            return not small or (
                dtypes - small == {"f32"} and small <= set(self.target.converted_dtypes))
        return not small

    def _multiplies(self, instr: Instr) -> bool:
        """Whether the target supports the shapes of all matrix fragments."""
        grid = self.target.limits.grid
        return all(grid is not None and o.fragment.shape in grid.mma_shapes
                   and o.lanes * grid.subgroup == o.fragment.size
                   for o in (instr.dest, *instr.args) if o.fragment is not None)

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        """The data of a kernel for the frame: the text of its body, and its declarations."""
        memories = {m.name: (str(k), m) for k, m in enumerate(kernel.memories)}
        lines = [self._line(i, memories) for i in kernel.body]
        counters = [i.dest for i in kernel.body if i.opcode == "loop"]
        body, above = _split("\n".join(lines))
        return {
            "body": body,
            "above": above,
            "workgroup": kernel.workgroup,
            "constants": self._constants(kernel),
            "values": self._values(kernel),
            "vectors": self._vectors(kernel),
            "variables": [self._view(v, str(v.id)) for v in kernel.variables],
            "counters": [self._view(c, str(c.id)) for c in counters],
            "memories": [self._memory(m, k) for k, m in memories.values() if m.space == "global"],
            "locals": [self._memory(m, k) for k, m in memories.values() if m.space == "local"],
            "shared": [self._memory(m, k) for k, m in memories.values() if m.space == "shared"],
        }

    def frame(self, **data: Any) -> str:
        """The text of the whole module."""
        names = [f"{name}/module.{self.target.template_suffix}.j2"
                 for name in self.target.template_folders]
        return environment().select_template(names).render(**data)

    def _constants(self, kernel: Kernel) -> list[Literal]:
        """The constants of a kernel and the constant parts of its offsets, each once."""
        constants: dict[Operand, None] = {}
        for i in kernel.body:
            constants |= {replace(a, lanes=1): None for a in i.args if a.is_const}
            if i.attrs.get("off"):
                constants[constant(i.attrs["off"], kernel.index)] = None
        literals = []
        for o in constants:
            o = self._spelled(o)
            assert o.bits is not None
            literals.append(Literal(self._literal(o), self._type(o.dtype, 1)[0], o.dtype.name,
                                    o.bits, o.number))
        return literals

    def _values(self, kernel: Kernel) -> dict[str, list[str]]:
        """The register numbers of each type, one per lane, for languages that declare registers."""
        numbers: dict[str, list[str]] = {}
        for i in kernel.body:
            if i.dest.kind == "value":
                o = self._spelled(i.dest)
                t, count = self._spread(o)
                names = [f"{o.id}_{k}" for k in range(count)] if o.lanes > 1 else [str(o.id)]
                numbers.setdefault(t, []).extend(names)
        return numbers

    def _vectors(self, kernel: Kernel) -> list[VectorType]:
        """The vector types of a kernel, each once."""
        vectors = {(o.dtype, o.lanes): None for i in kernel.body for o in (i.dest, *i.args)
                   if o.lanes > 1 and o.fragment is None}
        vectors |= {(m.dtype, m.vec): None for m in kernel.memories if m.vec > 1}
        spelled = {(u16 if self._as_bits(d) else d, n): None for d, n in vectors}
        types = {self._type(d, n): n for d, n in spelled}
        return [VectorType(t, e, n) for (t, e), n in types.items()]

    # -- instructions ----------------------------------------------------------------------------

    def _offset(self, number: int, bits: int) -> str:
        """The text of a constant offset, from the target's macro if it has one."""
        macro = getattr(self.spelling, "offset", None)
        return str(number if macro is None else macro(number, bits))

    def _line(self, instr: Instr, memories: dict[str, tuple[str, Memory]]) -> str:
        operands = (instr.dest, *instr.args)
        mem = instr.attrs.get("mem")
        key = (
            instr.opcode,
            tuple((o.dtype.name, o.lanes, o.kind, o.bits, o.fragment) for o in operands),
            tuple((k, bool(v) if k == "off" else v) for k, v in instr.attrs.items() if k != "mem"),
            (memories[mem][1].dtype.name, memories[mem][1].space, memories[mem][1].access,
             memories[mem][1].vec) if mem else None,
        )
        parts = self._texts.get(key)
        if parts is None:
            parts = self._texts[key] = self._render(instr, memories)
        fill = {str(k): str(o.id) for k, o in enumerate(operands)}
        if mem:
            fill["M"] = memories[mem][0]
            fill["O"] = self._offset(instr.attrs.get("off", 0), instr.args[0].dtype.bits)
        return "".join(fill[p] if k % 2 else p for k, p in enumerate(parts))

    def _render(self, instr: Instr, memories: dict[str, tuple[str, Memory]]) -> list[str]:
        word = self.word(instr)
        if word is None:
            raise Unsupported(f"target {self.target.name} has no word for {instr.opcode} "
                              f"on {instr.dest.dtype}")
        views = [self._view(o, f"\x01{k}\x02") for k, o in enumerate((instr.dest, *instr.args))]
        attrs = dict(instr.attrs)
        if "mem" in attrs:
            attrs["mem"] = self._memory(memories[attrs["mem"]][1], "\x01M\x02")
            if attrs.get("off"):
                attrs["off"] = "\x01O\x02"
        text = str(word(*views, **attrs)).strip("\n")
        return _MARK.split("  " + text if not text.startswith("L") else text)

    def _view(self, o: Operand, number: str) -> OperandView:
        o = self._spelled(o)
        t, e = self._type(o.dtype, o.lanes)
        if o.is_const:
            r = self._literal(o)
        else:
            r = str(self.spelling.register(o.kind, number))
        k = o.dtype.kind
        parts: tuple[str, ...] = (r,)
        if o.fragment is not None:
            t, count = self._spread(o)
            parts = tuple(r if o.is_const else f"{r}_{n}" for n in range(count))
        return OperandView(
            r, t, e, self._predicate(o.lanes), number, o.dtype.name, o.lanes, k, o.dtype.bits,
            o.number if o.is_const else None, str(self.spelling.suffix(o.dtype.name, o.lanes)),
            parts, o.fragment)

    def _spread(self, o: Operand) -> tuple[str, int]:
        """The type and the number of the registers that hold an operand."""
        if o.fragment is None:
            return self._type(o.dtype, o.lanes)[1], o.lanes
        spread = str(self.spelling.spread(o.dtype.name, o.lanes, o.fragment.role))
        t, _, count = spread.rpartition(" ")
        return t, int(count)

    def _spelled(self, o: Operand) -> Operand:
        return replace(o, dtype=u16) if self._as_bits(o.dtype) else o

    def _as_bits(self, d: DType) -> bool:
        """Whether values of a dtype are only moved.

        They then have an integer type in the text, which no machine converts implicitly.
        """
        return d.name in self.target.stored_dtypes and d.name not in self.target.converted_dtypes

    def _type(self, d: DType, lanes: int) -> tuple[str, str]:
        key = (d.name, lanes)
        if key not in self._types:
            vector, lane = (str(self.spelling.type(d.name, n)) for n in (lanes, 1))
            if not vector:
                raise Unsupported(f"{self.target.name} has no {d}; use a dtype that it has, such "
                                  "as float32 or int32, or another device")
            self._types[key] = (vector, lane)
        return self._types[key]

    def _predicate(self, lanes: int) -> str:
        return self._type(boolean, lanes)[0]

    def _literal(self, o: Operand) -> str:
        """The text of a constant.

        The macro receives its bits. For a float, it also receives the bits of the equal double
        and, if it is finite, the hexadecimal notation of C.
        """
        number = o.number
        hex16 = hex64 = exact = ""
        if o.dtype.is_float:
            with np.errstate(all="ignore"):
                hex64 = f"{int(np.float64(number).view(np.uint64)):016X}"
            exact = float(number).hex() if np.isfinite(number) else ""
        if o.dtype.is_float and o.dtype.bits == 16:
            hex16 = f"{o.bits:04X}"
        return str(self.spelling.literal(o.dtype.name, o.lanes, o.dtype.kind, number, hex16, hex64,
                                      o.bits, exact))

    def _memory(self, m: Memory, number: str) -> MemoryView:
        d = u16 if self._as_bits(m.dtype) else m.dtype
        return MemoryView(str(self.spelling.memory(number)), self._type(d, 1)[0],
                          self._type(d, m.vec)[0], number, d.name, m.dtype.bytes, m.size, m.vec,
                          m.space, m.access)


def _checked(path: str, module: Any, names: Container[str]) -> dict[str, Any]:
    """The macros of a template; an error if one has a name that is never used."""
    macros = {name: m for name, m in vars(module).items() if callable(m)}
    for name in macros:
        if name not in names:
            raise ZtorchError(f"templates/{path}: no opcode is called {name!r}, and no spelling; "
                              f"rename a helper macro to {'_' + name!r}")
    return macros


def _split(text: str) -> tuple[str, dict[str, list[str]]]:
    """The text without its lines `^section line`, and the lines of each section, each once."""
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
