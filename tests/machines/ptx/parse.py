"""Reads the PTX that our templates write: entries, declarations and instructions. Whatever it does
not know is an error, so nothing of a kernel can be passed over."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

BITS = {"pred": 1, "b8": 8, "s8": 8, "u8": 8, "b16": 16, "s16": 16, "u16": 16, "f16": 16, "bf16": 16,
        "b32": 32, "s32": 32, "u32": 32, "f32": 32, "b64": 64, "s64": 64, "u64": 64, "f64": 64}
SPECIAL = re.compile(r"%(n?ctaid|n?tid)\.[xyz]|%laneid|%cluster_ctarank")


class PtxError(Exception):
    """Text that is not PTX as we write it, or a kernel that broke a rule while it ran."""


@dataclass(frozen=True)
class Register:
    key: str
    type: str

    @property
    def bits(self) -> int:
        return BITS[self.type]


@dataclass(frozen=True)
class Literal:
    """The bits of a number, for as many bits as its reader wants."""

    number: int
    bits: int | None = None  # of a float, whose width its spelling says


@dataclass(frozen=True)
class Symbol:
    """A label, an array, a parameter or a special register."""

    name: str


@dataclass(frozen=True)
class Address:
    base: Register | Symbol
    offset: int


@dataclass(frozen=True)
class Pack:
    """Registers side by side, the lowest first."""

    parts: tuple[Register, ...]


@dataclass(frozen=True)
class TileAddress:
    """A tensor map and where in its tensor a box begins."""

    map: Any
    at: tuple[Any, ...]


Operand = Register | Literal | Symbol | Address | Pack | TileAddress


@dataclass(frozen=True)
class Instruction:
    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    unless: bool = False
    text: str = ""


@dataclass(frozen=True)
class Array:
    space: str
    align: int
    size: int  # in bytes


@dataclass
class Entry:
    name: str
    parameters: tuple[str, ...]
    workgroup: tuple[int, int, int]
    maps: tuple[str, ...] = ()  # parameters that are tensor maps; they are behind all others
    cluster: int = 1
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    machines: dict[Any, Any] = field(default_factory=dict)  # that have read the code, by grid


@dataclass(frozen=True)
class Program:
    version: str
    target: str
    entries: dict[str, Entry]


_HEADER = re.compile(r"\s*\.version (\S+)\s+\.target (\S+)\s+\.address_size 64\s+")
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)\s+\.reqntid (\d+), (\d+), (\d+)"
                    r"(?:\s+\.explicitcluster\s+\.reqnctapercluster (\d+), 1, 1)?"
                    r"(?:\s+\.minnctapersm \d+)?\s+\{")
_DYNAMIC = re.compile(r"\.extern \.shared \.align 1024 \.b8 dynamic\[\];\s+")
_LABEL = re.compile(r"(\w+):")
_SPACE = re.compile(r"(?:\s|//[^\n]*\n)*")
_ARRAY = re.compile(r"\.(shared|local) \.align (\d+) \.(b8) (\w+)\[(\d+)\]")


def parse(text: str) -> Program:
    """A module's entries, with registers told apart by the block that declares them."""
    head = _HEADER.match(text)
    if not head:
        raise PtxError(f"no header: {text[:60]!r}")
    at, entries = head.end(), {}
    if dynamic := _DYNAMIC.match(text, at):
        at = dynamic.end()
    while at < len(text):
        result = _ENTRY.match(text, at)
        if not result:
            raise PtxError(f"no entry at {text[at:at + 60]!r}")
        parameters, maps = [], []
        for p in filter(None, (s.strip() for s in result[2].split(","))):
            if chart := re.fullmatch(r"\.param \.align 64 \.b8 (\w+)\[128\]", p):
                maps.append(chart[1])
                continue
            if maps or not p.startswith(".param .u64 "):
                raise PtxError(f"parameter {p!r}")
            parameters.append(p.removeprefix(".param .u64 "))
        entry = Entry(result[1], tuple(parameters), (int(result[3]), int(result[4]), int(result[5])),
                      tuple(maps), int(result[6] or 1))
        at = _Body(text, result.end(), entry).read()
        if entry.name in entries:
            raise PtxError(f"two entries {entry.name}")
        entries[entry.name] = entry
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    return Program(head[1], head[2], entries)


class _Body:
    def __init__(self, text: str, at: int, entry: Entry):
        self.text, self.at, self.entry = text, at, entry
        self.scopes: list[dict[str, Register]] = [{}]
        self.count = 0

    def read(self) -> int:
        """To the closing brace; returns the place behind it."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            here = self.text[self.at:self.at + 1]
            if here == "{":
                self.scopes.append({})
                self.at += 1
            elif here == "}":
                self.scopes.pop()
                self.at += 1
                if not self.scopes:
                    self.check_labels()
                    return self.at
            elif label := _LABEL.match(self.text, self.at):
                if label[1] in self.entry.labels:
                    raise PtxError(f"{self.entry.name}: two labels {label[1]}")
                self.entry.labels[label[1]] = len(self.entry.code)
                self.at = label.end()
            else:
                end = self.text.find(";", self.at)
                if end < 0:
                    raise PtxError(f"{self.entry.name}: no end")
                self.statement(self.text[self.at:end])
                self.at = end + 1

    def check_labels(self) -> None:
        for i in self.entry.code:
            if i.opcode[0] == "bra" and i.operands[0].name not in self.entry.labels:  # type: ignore
                raise PtxError(f"{self.entry.name}: {i.text}: no such label")

    def statement(self, s: str) -> None:
        if s.startswith(".reg "):
            _, kind, names = s.split(None, 2)
            for name in names.split(","):
                self.declare(name.strip(), kind.removeprefix("."))
        elif s.startswith("."):
            m = _ARRAY.fullmatch(s.strip())
            if not m:
                raise PtxError(f"{self.entry.name}: {s!r}")
            self.entry.arrays[m[4]] = Array(m[1], int(m[2]), int(m[5]))
        else:
            self.entry.code.append(self.instruction(s))

    def declare(self, name: str, kind: str) -> None:
        if name in self.scopes[-1] or kind not in BITS:
            raise PtxError(f"{self.entry.name}: register {name} of type {kind}")
        self.count += 1
        self.scopes[-1][name] = Register(f"{name}#{self.count}", kind)

    def instruction(self, s: str) -> Instruction:
        guard, unless, rest = None, False, s.strip()
        if rest.startswith("@"):
            first, rest = rest[1:].split(None, 1)
            unless = first.startswith("!")
            guard = self.register(first.removeprefix("!"))
            if guard.type != "pred":
                raise PtxError(f"{s}: guarded by a {guard.type}")
        name, _, operands = rest.partition(" ")
        parts = re.findall(r"\[[^\]]*\]|\{[^}]*\}|[^,\s][^,]*", operands)
        return Instruction(tuple(name.split(".")), tuple(self.operand(p.strip()) for p in parts),
                           guard, unless, s.strip())

    def register(self, name: str) -> Register:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise PtxError(f"{self.entry.name}: {name} is not declared here")

    def operand(self, s: str) -> Operand:
        if s.startswith("[") and "{" in s:
            name, _, corner = s[1:-1].partition(",")
            each = corner.strip().removeprefix("{").removesuffix("}").split(",")
            return TileAddress(self.register(name.strip()), tuple(self.operand(x.strip()) for x in each))
        if s.startswith("["):
            base, *offsets = s[1:-1].split("+")
            number = sum(math.prod(int(n) for n in o.split("*")) for o in offsets)
            at = self.register(base) if base.startswith("%") else Symbol(base)
            return Address(at, number)
        if s.startswith("{"):
            return Pack(tuple(self.register(p.strip()) for p in s[1:-1].split(",")))
        if SPECIAL.fullmatch(s):
            return Symbol(s)
        if s.startswith("%"):
            return self.register(s)
        if s.startswith("0f"):
            return Literal(int(s[2:], 16), 32)
        if s.startswith("0d"):
            return Literal(int(s[2:], 16), 64)
        if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", s):
            return Literal(int(s, 0))
        return Symbol(s)
