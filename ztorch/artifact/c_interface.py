"""What a C program sees of a compiled model, as data: the header and the wrappers are made of it.

Users name models, layers and metrics as they like; everything here is a C identifier, or made of
characters that can stand in a C comment.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from ztorch.abi import BUFFER_ALIGN, align_up
from ztorch.codegen.cpuid import Question, questions
from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, TensorSpec

LONGEST = 100  # of the model's name, which is in names of files

# As C89 spells them on the machines a shared library of ours runs on, where long has 64 bits.
_C = {"f32": "float", "f64": "double", "i8": "signed char", "u8": "unsigned char",
      "i16": "short", "u16": "unsigned short", "i32": "int", "u32": "unsigned int",
      "i64": "long", "u64": "unsigned long", "bool": "unsigned char"}
_BITS = {"f16": "unsigned short", "bf16": "unsigned short"}  # no type of C: what a state holds
_LLVM = {"f32": "float", "f64": "double"}
_VERBS = {"train": "train_step"}
_MORE = ("init", "params", "params_bytes", "arena_bytes", "abi", "supported")
_KEYWORDS = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "atomic", "auto", "bitand", "bitor", "bool",
    "break", "case", "catch", "char", "class", "compl", "concept", "const", "consteval",
    "constexpr", "constinit", "const_cast", "continue", "co_await", "co_return", "co_yield",
    "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit",
    "export", "extern", "false", "float", "for", "friend", "goto", "if", "import", "inline",
    "int", "long", "module", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
    "reinterpret_cast", "requires", "restrict", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local",
    "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union",
    "unix", "linux", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while",
    "xor", "xor_eq",
))


@dataclass(frozen=True)
class CTensor:
    """An input or output: its name as an argument, its C type, and its shape in words."""

    name: str
    type: str
    shape: str
    llvm: str  # element type where the wrapper needs it, else nothing
    size: int
    optional: bool  # may be NULL: weights of rows are then 1, scores are not written


@dataclass(frozen=True)
class CFunction:
    """A function in both flavours; `symbol` names its body in the module."""

    name: str
    symbol: str
    verb: str
    inputs: tuple[CTensor, ...]
    outputs: tuple[CTensor, ...]
    changes: bool  # writes weights or counters


@dataclass(frozen=True)
class CState:
    """A tensor in params; NAME_OFFSET_macro is where."""

    macro: str
    type: str
    shape: str
    size: int
    offset: int
    role: str


@dataclass(frozen=True)
class CInterface:
    """All of it. `name` prefixes whatever the library defines, `macro` whatever the header does."""

    name: str
    macro: str
    target: str
    needs: tuple[str, ...]
    functions: tuple[CFunction, ...]
    states: tuple[CState, ...]
    batch: int
    sizes: tuple[tuple[str, int, str], ...]  # macro, numbers in a row, what they are
    params_bytes: int
    arena_bytes: int
    cpuid: tuple[Question, ...]
    xcr0: int
    abi: int
    align: int = BUFFER_ALIGN

    @property
    def trains(self) -> bool:
        """Whether the weights have to lie in memory that can be written."""
        return any(f.changes for f in self.functions)

    @property
    def ones(self) -> CTensor | None:
        """The weights of rows that a function takes when it is given none."""
        return next((t for f in self.functions for t in f.inputs if t.optional), None)

    @property
    def weights_symbol(self) -> str:
        """The name of the embedded params; no C program can spell it."""
        return f"{self.name}.params"

    @property
    def exports(self) -> list[str]:
        """Every function of the header."""
        return [*(f.name + flavour for f in self.functions for flavour in ("", "_in")),
                *(f"{self.name}_{m}" for m in _MORE)]


class _Names:
    """Identifiers that are all different, whatever they are made from."""

    def __init__(self, *taken: str):
        self.taken = set(taken)

    def new(self, text: str, otherwise: str) -> str:
        base = name = identifier(text, otherwise)
        count = 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


def identifier(text: str, otherwise: str = "model") -> str:
    """The nearest C identifier that is no keyword and reserved to nobody.

    >>> identifier("my-model"), identifier("3 bears"), identifier("größe"), identifier("int")
    ('my_model', 'n3_bears', 'gr_e', 'int_')
    """
    found = re.sub(r"[^A-Za-z0-9]*[^A-Za-z0-9_][^A-Za-z0-9]*", "_", text).strip("_") or otherwise
    if found[0].isdigit():
        found = f"n{found}"
    return f"{found}_" if found in _KEYWORDS else found


def describe(spec: ProgramSpec, name: str, changing: Collection[str]) -> CInterface:
    """The C face of a program; functions named in `changing` write to params.

    >>> describe(spec, "my-model", {"train"}).exports[0]     # doctest: +SKIP
    'my_model_predict'
    """
    name = identifier(name[:LONGEST])
    names, verbs = _Names(), _Names(*_MORE)
    functions = tuple(_function(f, name, verbs.new(_VERBS.get(f.name, f.name), "run"),
                                f.name in changing) for f in spec.functions.values())
    states = tuple(CState(names.new(s.name.upper(), "STATE"),
                          _BITS.get(s.dtype.name) or _c_type(s.dtype, s.name),
                          _shape(s.shape, s.dtype), math.prod(s.shape), s.offset,
                          identifier(s.role, "state"))
                   for s in spec.states.values())
    predict = spec.functions["predict"]
    scored = next((f.inputs for f in spec.functions.values() if "w" in f.inputs), {})
    targets = {n: t for n, t in scored.items() if n[0] == "y"}
    macros, sizes = _Names(), []
    for role, tensors, what in (("INPUT", predict.inputs, "x"),
                                ("OUTPUT", predict.outputs, "a prediction"),
                                ("TARGET", targets, "targets")):
        for t in tensors.values():
            name_, own = t.name[2:], identifier(t.name[2:], "part")
            sizes.append((macros.new(f"{role}_{own.upper()}_SIZE" if name_ else f"{role}_SIZE",
                                     role), math.prod(t.shape[1:]),
                          f"numbers in a row of {what}{f' ({own})' if name_ else ''}"))
    asked, saved = questions(spec.needs) if spec.arch == "x86_64" else ((), 0)
    params, arena = _whole(spec.params_bytes), _whole(spec.arena_bytes)
    batch = next(iter(predict.inputs.values())).shape[0]
    promise = repr((functions, states, sizes, batch, params, arena, BUFFER_ALIGN))
    return CInterface(
        name, name.upper(), spec.target, spec.needs, functions, states, batch, tuple(sizes),
        params, arena, asked, saved, zlib.crc32(promise.encode()))


def _function(f: FunctionSpec, prefix: str, verb: str, changes: bool) -> CFunction:
    names = _Names("params", "arena")
    inputs = tuple(_tensor(t, names, t.name == "w") for t in f.inputs.values())
    outputs = tuple(_tensor(t, names, not t.shape) for t in f.outputs.values())
    return CFunction(f"{prefix}_{verb}", f.symbol, verb, inputs, outputs, changes)


def _tensor(t: TensorSpec, names: _Names, optional: bool) -> CTensor:
    return CTensor(names.new(t.name, "value"), _c_type(t.dtype, t.name), _shape(t.shape, t.dtype),
                   _LLVM.get(t.dtype.name, ""), math.prod(t.shape), optional)


def _c_type(d: DType, what: str) -> str:
    if d.name not in _C:
        raise Unsupported(f"{what!r} is {d}, for which C has no type; export a model of float32")
    return _C[d.name]


def _shape(shape: tuple[int, ...], d: DType) -> str:
    return (d.long if d.name in _BITS else _C[d.name]) + "".join(f"[{n}]" for n in shape)


def _whole(nbytes: int) -> int:
    """Rounded up to whole lines, and never nothing: C has no arrays of size 0."""
    return max(align_up(nbytes, BUFFER_ALIGN), BUFFER_ALIGN)
