"""Parses the text form of a kernel line by line. Errors name the line and quote it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, boolean, dtype
from ztorch.errors import VerifyError
from ztorch.ir.kernel import Fragment, Instr, Kernel, Memory, MmaShape, Operand, constant
from ztorch.ir.layouts import LAYOUTS
from ztorch.ir.opcodes import OPCODES

Type = tuple[DType, int, Fragment | None]  # dtype, lanes, fragment of a matrix

# Regular expressions of the tokens.
NAME = r"[A-Za-z_]\w*"
TYPE = rf"({'|'.join(d.name for d in ALL)})(?:x(\d{{1,4}}))?\b"
FRAGMENT = (rf"@([abc])\((\d{{1,4}})x(\d{{1,4}})x(\d{{1,4}}) ({'|'.join(d.name for d in ALL)})"
            rf"(?::(\d{{1,2}}))? ({'|'.join(d.name for d in ALL)})(?: ({'|'.join(LAYOUTS)}))?\)")
NUMBER = r"true\b|false\b|0x[0-9a-f]{1,16}\b|-?(?:inf\b|nan\b|\d{1,20}(?:\.\d*)?(?:e[+-]?\d{1,4})?)"
ATTR = rf"({NAME})=(?:(-?\d{{1,20}})|\(([\d, ]*)\)|({NAME}))"
WRITTEN = r"^\s*(?:loop\s+|var\s+)?%(\d{1,9})\s*[:=]"  # the id that a line defines


class Ids:
    """Chooses the id of an instruction whose text has none: the next free one after the last.

    Used ids are those of all variables, values and counters (the text always has them), and those
    of the instructions so far.
    """

    def __init__(self, used_ids: set[int]):
        self.used_ids = used_ids
        self.last = -1

    def note(self, used: int) -> None:
        self.last = used
        self.used_ids.add(used)

    def following(self) -> int:
        free = self.last + 1
        while free in self.used_ids:
            free += 1
        return free


def parse(text: str) -> Kernel:
    """Parse the text that `show` writes. Lines that start with `//` are comments.

    >>> k = parse('''
    ... kernel one index=i32 exact {
    ...   global y f32[1] w
    ...   store y[0], 1.0:f32
    ... }''')
    >>> k.body[0].opcode, k.body[0].args[1].number
    ('store', 1.0)
    """
    parser = _Parser({int(n) for n in re.findall(WRITTEN, text, re.ASCII | re.MULTILINE)})
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line and not line.startswith("//"):
            parser.line(number, line)
    return parser.kernel()


class _Parser:
    def __init__(self, used_ids: set[int]):
        self.number, self.text, self.at = 0, "", 0  # current line: number, text and column
        self.head: dict[str, Any] | None = None  # fields of the kernel from its first line
        self.closed = False  # whether the kernel's closing brace was read
        self.origin: tuple[str, ...] = ()  # names of layers
        self.memories: dict[str, Memory] = {}
        self.variables: list[Operand] = []
        self.body: list[Instr] = []
        self.known: dict[int, Operand] = {}  # operands defined so far, by id
        self.open: list[Instr] = []  # loops and ifs that are not closed yet
        self.ids = Ids(used_ids)

    def fail(self, message: str) -> VerifyError:
        return VerifyError(f"line {self.number}: {message}: {self.text!r}")

    def kernel(self) -> Kernel:
        if self.head is None or not self.closed:
            raise self.fail("the kernel is not complete; it must end with }")
        return Kernel(memories=tuple(self.memories.values()), variables=tuple(self.variables),
                      body=tuple(self.body), origin=self.origin, **self.head)

    # -- tokens of a line, left to right -----------------------------------------------------------

    def find(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(rf"\s*(?:{pattern})", re.ASCII).match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def need(self, pattern: str, expected: str) -> re.Match[str]:
        match = self.find(pattern)
        if not match:
            raise self.fail(f"expected {expected} at column {self.at + 1}")
        return match

    def end(self) -> None:
        self.need(r"$", "the end of the line")

    def type(self) -> Type:
        match = self.need(TYPE, "a type such as f32 or f32x16")
        fragment = self.find(FRAGMENT)
        if not fragment:
            return dtype(match[1]), int(match[2] or 1), None
        m, n, k, bits = (int(fragment[g] or 0) for g in (2, 3, 4, 6))
        shape = MmaShape(m, n, k, dtype(fragment[5]), dtype(fragment[7]), bits)
        return dtype(match[1]), int(match[2] or 1), Fragment(fragment[1], shape, fragment[8] or "")

    def operand(self, expected: Type | None) -> Operand:
        match = self.find(r"%(\d{1,9})")
        if match:
            if int(match[1]) not in self.known:
                raise self.fail(f"%{match[1]} is not defined yet")
            return self.known[int(match[1])]
        literal = self.need(f"({NUMBER})", "an operand")[1]
        if self.find(":"):
            expected = self.type()
        if expected is None:
            raise self.fail(f"the constant {literal} needs its type, as in {literal}:f32")
        d, lanes, fragment = expected
        if d.is_float and literal.startswith("0x"):
            bits = int(literal, 16)
        elif d.is_float and literal not in ("true", "false"):
            with np.errstate(over="ignore"):
                bits = constant(float(literal), d).bits or 0
        elif d.is_int and re.fullmatch(r"-?\d+", literal):
            bits = constant(int(literal), d).bits or 0
            if Operand(-1, d, 1, "const", bits).number != int(literal):
                raise self.fail(f"{literal} does not fit {d!r}")
        elif d.kind == "b" and literal in ("true", "false"):
            bits = int(literal == "true")
        else:
            raise self.fail(f"{literal} is not a constant of {d!r}")
        if bits >> d.bits:
            raise self.fail(f"{literal} has more than the {d.bits} bits of {d!r}")
        return Operand(-1, d, lanes, "const", bits, fragment)

    def attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        while match := self.find(ATTR):
            key, number, numbers, name = match.groups()
            if number is not None:
                attrs[key] = int(number)
            elif numbers is not None:
                attrs[key] = tuple(int(n) for n in re.findall(r"\d+", numbers))
            else:
                attrs[key] = {"true": True, "false": False}.get(name, name)
        return attrs

    # -- lines -------------------------------------------------------------------------------------

    def line(self, number: int, text: str) -> None:
        self.number, self.text, self.at = number, text, 0
        if self.head is None:
            self.header()
        elif self.closed:
            raise self.fail("nothing may follow the end of the kernel")
        elif text.startswith("}"):
            self.close()
        elif match := self.find(r"origin\s+(\[.*\])\s*$"):
            self.origin = self.names(match[1])
        elif match := self.find(
                rf"(global|shared|local)\s+({NAME})\s+{TYPE}\[(\d{{1,18}})\]\s+(rw?|w)\b"):
            space, name, element, lanes, size, access = match.groups()
            if lanes or name in self.memories:
                raise self.fail(f"memory {name} is declared twice" if not lanes else
                                "a memory has no lanes")
            vec = self.find(r"vec=(\d)\b")
            swizzled = self.find(r"swizzled\b") is not None
            streamed = self.find(r"streamed\b") is not None
            self.end()
            self.memories[name] = Memory(name, dtype(element), int(size), space, access,
                                         int(vec[1]) if vec else 1, swizzled=swizzled,
                                         streamed=streamed)
        elif match := self.find(r"var\s+%(\d{1,9}):"):
            d, lanes, fragment = self.type()
            self.end()
            self.variables.append(self.define(
                Operand(int(match[1]), d, lanes, "variable", None, fragment)))
        else:
            self.instruction()

    def header(self) -> None:
        match = self.need(rf"kernel\s+({NAME})\s+index=({NAME})\s+(exact|contract)\b",
                          "`kernel NAME index=i64 exact {`")
        attrs = self.attrs()
        self.need(r"\{\s*$", "{")
        group, cluster = attrs.pop("workgroup", (1, 1, 1)), attrs.pop("cluster", 1)
        resident = attrs.pop("resident_threads", 0)
        if attrs or match[2] not in {d.name for d in ALL}:
            raise self.fail("a kernel has an index dtype and optionally a workgroup, a cluster and "
                            "resident_threads")
        self.head = {"name": match[1], "index": dtype(match[2]), "exact": match[3] == "exact",
                     "workgroup": group, "cluster": cluster, "resident_threads": resident}

    def names(self, text: str) -> tuple[str, ...]:
        try:
            names = json.loads(text)
        except ValueError:
            names = None
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise self.fail("an origin is a list of names in double quotes")
        return tuple(names)

    def define(self, dest: Operand) -> Operand:
        if dest.id in self.known:
            raise self.fail(f"%{dest.id} is defined twice")
        self.known[dest.id] = dest
        return dest

    def emit(self, opcode: str, dest: Operand | None, args: tuple[Operand, ...],
             attrs: dict[str, Any]) -> Instr:
        if dest is None:
            match = self.find(r"#(\d{1,9})")
            token_id = int(match[1]) if match else self.ids.following()
            dest = self.define(Operand(token_id, boolean, 1, "token"))
        self.ids.note(dest.id)
        self.body.append(Instr(opcode, dest, args, attrs))
        return self.body[-1]

    def close(self) -> None:
        self.need(r"\}", "}")
        if self.find(r"else\b"):
            if not self.open or self.open[-1].opcode != "if" or self.open[-1].attrs["els"]:
                raise self.fail("else belongs to an if that has no else yet")
            self.open[-1].attrs["els"] = True
            self.emit("else", None, (self.open[-1].dest,), {})
            self.need(r"\{", "{")
        elif not self.open:
            self.closed = True
        else:
            start = self.open.pop()
            if start.opcode == "loop":
                self.emit("end_loop", None, (start.dest, *start.args), {})
            else:
                self.emit("end_if", None, (start.dest,), {"els": start.attrs["els"]})
        self.end()

    def loop(self, number: int, index: Type) -> None:
        """The rest of the head of a loop, whose counter has this number."""
        bounds = [self.operand(index)]
        for _ in range(2):
            self.need(",", ", between start, stop and step")
            bounds.append(self.operand(index))
        attrs = {"kind": self.need(f"({NAME})", "the kind of the loop")[1], **self.attrs()}
        counter = self.define(Operand(number, index[0], 1, "counter"))
        self.open.append(self.emit("loop", counter, tuple(bounds), attrs))
        self.need(r"\{", "{")
        self.end()

    def address(self, opcode: str, index: Type) -> tuple[Operand, dict[str, Any]]:
        """A memory with a start and an offset: the start, and the others as attributes."""
        mem, start = self.need(rf"({NAME})\s*\[", "a memory and [")[1], self.operand(index)
        off = self.find(r"([+-])\s*(\d{1,18})")
        self.need(r"\]", "]")
        attrs = {"mem": mem, "off": int(off[1] + off[2]) if off else 0}
        return start, attrs | ({"align": 0} if "align" in OPCODES[opcode].attrs else {})

    def instruction(self) -> None:
        assert self.head is not None
        index: Type = (self.head["index"], 1, None)
        if match := self.find(r"loop\s+%(\d{1,9})\s*="):
            return self.loop(int(match[1]), index)
        dest, expected = None, None
        if match := self.find(r"%(\d{1,9}):"):
            expected = self.type()
            d, lanes, fragment = expected
            dest = Operand(int(match[1]), d, lanes, fragment=fragment)
            self.need("=", "=")
        opcode = self.need(f"({NAME})", "an opcode")[1]
        if opcode not in OPCODES or opcode in ("else", "end_if", "end_loop"):
            raise self.fail(f"there is no opcode {opcode!r} here")
        args: list[Operand] = []
        attrs: dict[str, Any] = {}
        if "mem" in OPCODES[opcode].attrs:
            start, attrs = self.address(opcode, index)
            args.append(start)
        while self.find(",") if args else self.find(rf"(?=%|{NUMBER})"):
            args.append(self.operand(expected))
            if opcode == "set":
                expected = args[0].type
        if self.find(r"mask\b(?!=)"):
            args.append(self.operand(None))
        attrs |= self.attrs()
        if opcode == "if":
            attrs["els"] = False
        instr = self.emit(opcode, self.define(dest) if dest else None, tuple(args), attrs)
        if opcode == "if":
            self.open.append(instr)
            self.need(r"\{", "{")
        self.end()
