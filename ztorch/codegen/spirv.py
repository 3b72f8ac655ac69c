"""The SPIR-V assembler, for text in the language of Khronos' `spirv-as`.

It takes the instructions and enumerants from Khronos' grammar (`grammar/`). Its output equals that
of spirv-as, word for word. A float can be written as a value, or as `!` and its bits, which
preserves every bit of a NaN.
"""

from __future__ import annotations

import functools
import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.codegen.targets import Target
from ztorch.errors import ZtorchError, nearest

MAGIC, VERSION = 0x07230203, 0x00010300  # the default version is 1.3
GENERATOR = 0x00070000  # the generator number of spirv-as
GRAMMAR = Path(__file__).parent / "grammar" / "spirv.json.gz"
INT, FLOAT, EXTENSIONS = 21, 22, 11  # opcodes: OpTypeInt, OpTypeFloat, OpExtInstImport
MAX_WORDS = 0xFFFF  # of an instruction


class InstructionForm(NamedTuple):
    """The operands of an instruction."""

    opcode: int  # number of the instruction
    typed: bool  # whether it has a result type
    result: bool  # whether it has a result
    kinds: tuple[str, ...]  # kinds of its other operands
    ids: int  # number of other operands if all are ids, else -1


class Grammar(NamedTuple):
    """Khronos' grammar, indexed for the assembler."""

    forms: dict[str, InstructionForm]  # instructions by name
    enums: dict[str, dict[str, list[Any]]]  # by kind and name: number, kinds of its parameters
    masks: frozenset[str]  # enums whose names can be joined by |
    composites: dict[str, list[str]]  # kinds that consist of several operands
    sets: dict[str, dict[str, int]]  # extended instruction sets: numbers by set and name


@functools.cache
def grammar() -> Grammar:
    """The grammar, which is read at the first call.

    >>> grammar().forms["OpFAdd"].opcode
    129
    """
    tables = json.loads(gzip.decompress(GRAMMAR.read_bytes()))
    forms = {}
    for name, (opcode, kinds) in tables["instructions"].items():
        typed, result = "IdResultType" in kinds, "IdResult" in kinds
        others = tuple(k for k in kinds if k not in ("IdResultType", "IdResult"))
        ids = len(others) if set(others) <= {"Id"} else -1
        forms[name] = InstructionForm(opcode, typed, result, others, ids)
    return Grammar(forms, tables["enums"], frozenset(tables["masks"]), tables["composites"],
                   tables["sets"])


def assemble(text: str, target: Target | None = None) -> bytes:
    """Assembles a module for the SPIR-V version of the target. Errors name the line.

    >>> words = assemble("OpCapability Shader\\nOpMemoryModel Logical GLSL450")
    >>> words[20:].hex()
    '11000200010000000e0003000000000001000000'
    """
    version = dict(target.frame_data).get("version", VERSION) if target else VERSION
    return _Assembler().module(text, int(version))


class _LineError(Exception):
    """An error in a line of text."""


class _Assembler:
    """The state of one assembly."""

    def __init__(self) -> None:
        self.grammar = grammar()
        self.numbers: dict[str, int] = {}  # numbers of ids, in order of first use
        self.types: dict[int, tuple[int, int]] = {}  # opcode and bits of scalar types
        self.sets: dict[int, dict[str, int]] = {}  # instructions of imported sets

    def module(self, text: str, version: int) -> bytes:
        words: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            try:
                tokens = line.split() if '"' not in line and ";" not in line else _tokens(line)
                if tokens:
                    words += self._instruction(tokens)
            except _LineError as error:
                raise ZtorchError(f"SPIR-V, line {number}: {error}: {line.strip()}") from None
        head = (MAGIC, version, GENERATOR, len(self.numbers) + 1, 0)
        return struct.pack(f"<{len(head) + len(words)}I", *head, *words)

    def _instruction(self, tokens: list[str]) -> list[int]:
        result = ""
        if len(tokens) > 2 and tokens[1] == "=":
            result, name, rest = tokens[0], tokens[2], tokens[3:]
        else:
            name, rest = tokens[0], tokens[1:]
        form = self.grammar.forms.get(name)
        if form is None:
            raise _LineError(f"there is no instruction {name}{nearest(name, self.grammar.forms)}")
        if bool(result) != form.result:
            raise _LineError(f"{name} has {'a' if form.result else 'no'} result")
        words = [0]
        if form.typed:
            words.append(self._id(rest.pop(0) if rest else ""))
        if result:
            words.append(self._id(result))
        if len(rest) == form.ids:
            words += [self._id(token) for token in rest]
        else:
            self._operands(form, rest, words)
        if len(words) > MAX_WORDS:
            raise _LineError(f"an instruction has at most {MAX_WORDS} words")
        words[0] = len(words) << 16 | form.opcode
        if form.opcode in (INT, FLOAT):
            self.types[words[1]] = form.opcode, words[2]
        elif form.opcode == EXTENSIONS:
            self.sets[words[1]] = self.grammar.sets.get(_unquoted(tokens[-1]), {})
        return words

    def _id(self, token: str) -> int:
        if token[:1] != "%" or len(token) == 1:
            raise _LineError(f"{token or 'nothing'!r} is not an id such as %1")
        number = self.numbers.get(token)
        if number is None:
            if not (token.isascii() and token[1:].replace("_", "0").isalnum()):
                raise _LineError(f"{token!r} is not an id: they have letters, digits and _")
            number = self.numbers[token] = len(self.numbers) + 1
        return number

    def _operands(self, form: InstructionForm, rest: list[str], words: list[int]) -> None:
        rest.reverse()  # so that pop() returns the next token
        for kind in form.kinds:
            if kind[-1] == "*":
                while rest:
                    self._operand(kind[:-1], rest, words)
            elif kind[-1] != "?" or rest:
                self._operand(kind.removesuffix("?"), rest, words)
        if rest:
            raise _LineError(f"too many operands, from {rest[-1]!r} on")

    def _operand(self, kind: str, rest: list[str], words: list[int]) -> None:
        if kind in self.grammar.composites:
            for part in self.grammar.composites[kind]:
                self._operand(part, rest, words)
            return
        if not rest:
            raise _LineError(f"an operand is missing ({kind})")
        if kind in self.grammar.enums:
            self._enumerant(kind, rest, words)
            return
        token = rest.pop()
        if kind == "Id":
            words.append(self._id(token))
        elif kind == "LiteralInteger":
            words += _number(token, INT, 32)
        elif kind == "LiteralString":
            data = _unquoted(token).encode() + b"\0"
            data += b"\0" * (-len(data) % 4)
            words += struct.unpack(f"<{len(data) // 4}I", data)
        elif kind == "LiteralContextDependentNumber":
            words += self._constant(token, rest, words[1])
        elif kind == "LiteralExtInstInteger":
            names = self.sets.get(words[-1], {})
            if token not in names:
                raise _LineError(f"no instruction {token} in that set{nearest(token, names)}")
            words.append(names[token])
        else:
            raise _LineError(f"operands of the kind {kind} are not supported")

    def _enumerant(self, kind: str, rest: list[str], words: list[int]) -> None:
        """Appends an enumerant with its parameters. Names of a mask can be joined by |."""
        names, value, parameters = self.grammar.enums[kind], 0, []
        token = rest.pop()
        for name in token.split("|") if kind in self.grammar.masks else [token]:
            if name not in names:
                raise _LineError(f"{kind} has no {name}{nearest(name, names)}")
            number, *kinds = names[name]
            value |= number
            parameters += kinds
        words.append(value)
        for parameter in parameters:
            self._operand(parameter, rest, words)

    def _constant(self, token: str, rest: list[str], type_id: int) -> list[int]:
        if type_id not in self.types:
            raise _LineError("the type of a constant must be a numeric type that is declared above")
        opcode, bits = self.types[type_id]
        if token[:1] != "!":
            return _number(token, opcode, bits)
        tokens = [token]
        while rest:
            tokens.append(rest.pop())
        if any(t[:1] != "!" for t in tokens) or len(tokens) != max(1, bits // 32):
            raise _LineError(f"a constant of {bits} bits has {max(1, bits // 32)} words, each "
                             "written after a !")
        return [word for t in tokens for word in _number(t[1:], INT, 32)]


_FLOATS = {32: "<f", 64: "<d"}  # format of `struct` by bits


def _number(token: str, opcode: int, bits: int) -> list[int]:
    """The words of a number, low word first; short integers are sign-extended."""
    wide = max(bits, 32)
    if opcode == FLOAT:
        if bits not in _FLOATS:
            raise _LineError(f"floats of {bits} bits are written as ! and their bits")
        read: Callable[[str], float] = float.fromhex if "0x" in token else float
        data = struct.pack(_FLOATS[bits], _parsed(read, token))
        number = int.from_bytes(data, "little")
    else:
        number = _parsed(lambda t: int(t, 0), token)
        if not -(1 << bits - 1) <= number < 1 << bits:
            raise _LineError(f"{token} does not fit {bits} bits")
    number &= (1 << wide) - 1
    return [number & 0xFFFFFFFF] if wide == 32 else [number & 0xFFFFFFFF, number >> 32]


def _parsed(read: Callable[[str], Any], token: str) -> Any:
    try:
        return read(token)
    except ValueError:
        raise _LineError(f"{token!r} is not a number") from None


def _tokens(line: str) -> list[str]:
    """The tokens of a line that has strings or a comment."""
    tokens, word, quoted, at = [], "", False, 0
    while at < len(line):
        c = line[at]
        if quoted and c == "\\" and at + 1 < len(line):
            at += 1
            word += line[at]
        elif c == '"':
            quoted = not quoted
            word += c
        elif not quoted and (c.isspace() or c == ";"):
            tokens += [word] if word else []
            word = ""
            if c == ";":
                return tokens
        else:
            word += c
        at += 1
    if quoted:
        raise _LineError("a string does not end")
    return [*tokens, word] if word else tokens


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != '"' or token[-1] != '"':
        raise _LineError(f"{token!r} is not a \"string\"")
    return token[1:-1]
