"""Kernels to text: one macro call per instruction, remembered by shape. The only jinja2 import.

The text of an instruction depends on its opcode, dtypes, lanes, constants and attributes, but its
register numbers are only spelled. So each such shape is rendered once, with marks for the numbers,
and afterwards filled in: several times faster than calling the macro again.
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

_MARK = re.compile("\x01([0-9MO]+)\x02")
_KINDS = {"f": "float", "s": "int", "u": "int", "b": "bool"}


def forms(opcode: str, result: DType, operand: DType) -> tuple[str, ...]:
    """The macros that may stand for an opcode, the most special first. One may be for a single
    dtype or for a kind of them, and a conversion for a pair.

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
    """The one Jinja environment: undefined names and missing arguments are errors."""
    return Environment(
        loader=FileSystemLoader(folder("templates")), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)


@dataclass(frozen=True)
class OperandView:
    """An operand as macros see it: `r` is its spelling, `t` its type, `e` that of one lane, `p`
    that of a predicate with as many lanes, `k` its kind (f s u b), `c` a constant's number. The
    part of a matrix is spread over several registers, `parts`."""

    r: str
    t: str
    e: str
    p: str
    id: str
    dtype: str
    lanes: int
    k: str
    bits: int
    c: Any
    suffix: str
    parts: tuple[str, ...]
    fragment: Fragment | None


@dataclass(frozen=True)
class MemoryView:
    """A memory as macros see it: `r` is its spelling, `t` the type of an element, `v` that of the
    `vec` neighbours that it is an array of."""

    r: str
    t: str
    v: str
    id: str
    dtype: str
    bytes: int
    size: int
    vec: int
    space: str
    access: str


@dataclass(frozen=True)
class VectorType:
    """The type `t` of several of type `e`, for languages that declare types."""

    t: str
    e: str
    lanes: int


@dataclass(frozen=True)
class Literal:
    """A number that stands in a kernel's text, for languages that declare them."""

    r: str
    t: str
    dtype: str
    bits: int
    number: Any


class Renderer:
    """Renders kernels for one target."""

    def __init__(self, target: Target):
        self.target = target
        self.words = self._macros("instr", WORDS)
        self.spelling: Any = SimpleNamespace(**self._macros("spelling", SPELLING))
        self.widened = str(getattr(self.spelling, "widened", str)()).split()
        self._found: dict[tuple[str, DType, DType], Any] = {}
        self._texts: dict[tuple, list[str]] = {}
        self._types: dict[tuple[str, int], tuple[str, str]] = {}

    def _macros(self, kind: str, names: Container[str]) -> dict[str, Any]:
        """The macros of a kind in the folders of the chain, each the most special one. Helpers of
        a template begin with an underscore, and stay in it."""
        macros: dict[str, Any] = {}
        for folder_name in reversed(self.target.template_folders):
            path = f"{folder_name}/{kind}.{self.target.template_suffix}.j2"
            with contextlib.suppress(TemplateNotFound):
                module = environment().get_template(path).module
                macros |= _checked(path, module, names)
        return macros

    def word(self, instr: Instr) -> Any:
        """The macro of an instruction, the most special that there is; None where the target
        lacks it."""
        key = instr.opcode, instr.dest.dtype, (instr.dest, *instr.args)[-1].dtype
        if key not in self._found:
            spelled = [u16 if self._as_bits(d) else d for d in key[1:]]
            chosen = [f for f in forms(instr.opcode, *spelled) if f in self.words]
            self._found[key] = self.words[chosen[0]] if chosen else None
        return self._found[key]

    def speaks(self, instr: Instr) -> bool:
        """Whether the target has the word for this instruction."""
        if self.word(instr) is None:
            return False
        if not self._computes(instr) or not self._multiplies(instr):
            return False
        lacks = self.target.missing_opcodes
        return instr.opcode not in lacks and (instr.opcode, instr.dest.dtype.name) not in lacks

    def _computes(self, instr: Instr) -> bool:
        """False for arithmetic on a dtype that the target only stores, and for what would leave
        the range of integers that it holds in wider registers."""
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
        """False for parts of matrices of a shape that the target has not."""
        grid = self.target.limits.grid
        return all(grid is not None and o.fragment.shape in grid.mma_shapes
                   and o.lanes * grid.subgroup == o.fragment.size
                   for o in (instr.dest, *instr.args) if o.fragment is not None)

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        """What the frame needs of a kernel: its body as text, and its declarations."""
        memories = {m.name: (str(k), m) for k, m in enumerate(kernel.memories)}
        lines = [self._line(i, memories) for i in kernel.body]
        counters = [i.dest for i in kernel.body if i.opcode == "loop"]
        body, above = _parted("\n".join(lines))
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
        """The whole module."""
        names = [f"{name}/module.{self.target.template_suffix}.j2"
                 for name in self.target.template_folders]
        return environment().select_template(names).render(**data)

    def _constants(self, kernel: Kernel) -> list[Literal]:
        """Every constant of a kernel once, and the constant parts of its positions."""
        constants: dict[Operand, None] = {}
        for i in kernel.body:
            constants |= {replace(a, lanes=1): None for a in i.args if a.is_const}
            if i.attrs.get("off"):
                constants[constant(i.attrs["off"], kernel.index)] = None
        out = []
        for o in constants:
            o = self._spelled(o)
            assert o.bits is not None
            out.append(Literal(self._literal(o), self._type(o.dtype, 1)[0], o.dtype.name, o.bits,
                                o.number))
        return out

    def _values(self, kernel: Kernel) -> dict[str, list[str]]:
        """The numbers of the values of each type, for languages that declare registers: one for
        each lane."""
        numbers: dict[str, list[str]] = {}
        for i in kernel.body:
            if i.dest.kind == "value":
                o = self._spelled(i.dest)
                t, count = self._spread(o)
                names = [f"{o.id}_{k}" for k in range(count)] if o.lanes > 1 else [str(o.id)]
                numbers.setdefault(t, []).extend(names)
        return numbers

    def _vectors(self, kernel: Kernel) -> list[VectorType]:
        """The types of all that has several lanes, each once."""
        held = {(o.dtype, o.lanes): None for i in kernel.body for o in (i.dest, *i.args)
                if o.lanes > 1 and o.fragment is None}
        held |= {(m.dtype, m.vec): None for m in kernel.memories if m.vec > 1}
        spelled = {(u16 if self._as_bits(d) else d, n): None for d, n in held}
        types = {self._type(d, n): n for d, n in spelled}
        return [VectorType(t, e, n) for (t, e), n in types.items()]

    # -- instructions ----------------------------------------------------------------------------

    def _offset(self, number: int, bits: int) -> str:
        """The constant part of a position, in the target's own way if it has one."""
        spell = getattr(self.spelling, "offset", None)
        return str(number if spell is None else spell(number, bits))

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
        """The type of the registers that an operand is held in, and how many they are."""
        if o.fragment is None:
            return self._type(o.dtype, o.lanes)[1], o.lanes
        spread = str(self.spelling.spread(o.dtype.name, o.lanes, o.fragment.role))
        t, _, count = spread.rpartition(" ")
        return t, int(count)

    def _spelled(self, o: Operand) -> Operand:
        return replace(o, dtype=u16) if self._as_bits(o.dtype) else o

    def _as_bits(self, d: DType) -> bool:
        """Whether values of a dtype are only moved: then they are spelled as whole numbers, which
        no machine converts behind our back."""
        return d.name in self.target.stored_dtypes and d.name not in self.target.converted_dtypes

    def _type(self, d: DType, lanes: int) -> tuple[str, str]:
        key = (d.name, lanes)
        if key not in self._types:
            whole, one = (str(self.spelling.type(d.name, n)) for n in (lanes, 1))
            if not whole:
                raise Unsupported(f"{self.target.name} has no {d}; use a dtype that it has, such "
                                  "as float32 or int32, or another device")
            self._types[key] = (whole, one)
        return self._types[key]

    def _predicate(self, lanes: int) -> str:
        return self._type(boolean, lanes)[0]

    def _literal(self, o: Operand) -> str:
        """Constants are spelled from their bits; a float also as the bits of the same double, and
        in C's way if it is finite."""
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
    """The macros of a template, all of them under names that are looked up."""
    macros = {name: m for name, m in vars(module).items() if callable(m)}
    for name in macros:
        if name not in names:
            raise ZtorchError(f"templates/{path}: no opcode is called {name!r}, and no spelling; "
                              f"call a macro that only helps others {'_' + name!r}")
    return macros


def _parted(text: str) -> tuple[str, dict[str, list[str]]]:
    """The text without the lines that words send above it, `^section line`, and those, once."""
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
    """The renderer of a target, with its memory of shapes."""
    return Renderer(target)
