"""The C interface of a compiled model, as data for the templates of the header and the wrappers.

Names of models, layers and metrics may be any strings; here they are C identifiers, and all other
strings are safe in a C comment.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from ztorch.abi import BUFFER_ALIGN, align_up
from ztorch.codegen.cpuid import CpuidQuery, cpuid_queries
from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.runtime.spec import ARGUMENT, CALL, FunctionSpec, ProgramSpec, TensorSpec

LONGEST = 100  # characters of the model's name in names of files and functions

_LLVM = {"f32": "float", "f64": "double"}  # types of elements that wrappers touch
_VERBS = {"train": "train_step"}  # names of functions in C that differ from ours
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
    """An input or output of a function."""

    name: str  # of the argument
    type: str  # of an element, in C
    shape: str  # for comments: float[8][3]
    llvm: str  # of an element, where the wrapper touches it; else empty
    size: int  # elements
    optional: bool  # may be NULL: then inputs are ones, and scores are not written


@dataclass(frozen=True)
class CFunction:
    """A function of the library, which exists twice: NAME uses the library's own memory, NAME_in
    the caller's."""

    name: str  # model_verb
    symbol: str  # of its body in the module
    verb: str  # predict, train_step, ...
    inputs: tuple[CTensor, ...]
    outputs: tuple[CTensor, ...]
    changes: bool  # whether it writes weights or counters


@dataclass(frozen=True)
class CState:
    """A tensor in params."""

    macro: str  # the header defines MODEL_OFFSET_macro and MODEL_SIZE_macro
    type: str  # of an element, in C
    shape: str  # for comments
    size: int  # elements
    offset: int  # bytes
    role: str  # weight, slot, counter, ...


@dataclass(frozen=True)
class CInterface:
    """The whole interface of one library."""

    name: str  # prefix of everything the library defines
    macro: str  # prefix of everything the header defines
    target: str  # it was compiled for
    needs: tuple[str, ...]  # CPU features
    functions: tuple[CFunction, ...]
    states: tuple[CState, ...]
    batch: int  # rows; 0 in a function of tensors
    sizes: tuple[tuple[str, int, str], ...]  # macro, numbers in a row, meaning
    params_bytes: int
    arena_bytes: int
    cpuid: tuple[CpuidQuery, ...]  # how NAME_supported asks the CPU for its features
    xcr0: int  # bits of the register state that the operating system must save
    abi: int  # checksum of everything the header promises
    lists: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # macro, meaning, C literals
    texts: tuple[tuple[str, str, str], ...] = ()  # macro, C literal, meaning
    align: int = BUFFER_ALIGN  # bytes, of params and arena

    @property
    def trains(self) -> bool:
        """Whether the weights must be in writable memory."""
        return any(f.changes for f in self.functions)

    @property
    def ones(self) -> CTensor | None:
        """An optional input, for which functions read ones if it is NULL."""
        return next((t for f in self.functions for t in f.inputs if t.optional), None)

    @property
    def weights_symbol(self) -> str:
        """The symbol of the embedded params; with its dot it cannot clash with a name of C."""
        return f"{self.name}.params"

    @property
    def exports(self) -> list[str]:
        """Every function of the header."""
        return [*(f.name + suffix for f in self.functions for suffix in ("", "_in")),
                *(f"{self.name}_{m}" for m in _MORE)]


def literal(text: str) -> str:
    """A string as a C literal of ASCII characters.

    >>> print(literal('a "b" é'))
    "a \\"b\\" \\303\\251"
    """
    plain = {c: chr(c) for c in range(32, 127)} | {34: '\\"', 63: "\\?", 92: "\\\\"}
    return f'"{"".join(plain.get(c) or f"{chr(92)}{c:03o}" for c in text.encode())}"'


class _Names:
    """Makes distinct identifiers from any strings."""

    def __init__(self, *used: str):
        self.used = set(used)

    def new(self, text: str, otherwise: str) -> str:
        base = name = identifier(text, otherwise)
        count = 1
        while name in self.used:
            count += 1
            name = f"{base}_{count}"
        self.used.add(name)
        return name


def identifier(text: str, otherwise: str = "model") -> str:
    """The nearest C identifier that is neither a keyword nor reserved.

    >>> identifier("my-model"), identifier("3 bears"), identifier("größe"), identifier("int")
    ('my_model', 'n3_bears', 'gr_e', 'int_')
    """
    name = re.sub(r"[^A-Za-z0-9]*[^A-Za-z0-9_][^A-Za-z0-9]*", "_", text).strip("_") or otherwise
    if name[0].isdigit():
        name = f"n{name}"
    return f"{name}_" if name in _KEYWORDS else name


def describe(spec: ProgramSpec, name: str, changing: Collection[str]) -> CInterface:
    """The C interface of a program; functions named in `changing` write to params.

    >>> describe(spec, "my-model", {"train"}).exports[0]     # doctest: +SKIP
    'my_model_predict'
    """
    name = identifier(name[:LONGEST])
    names, verbs = _Names(), _Names(*_MORE)
    functions = tuple(_function(f, name, verbs.new(_verb(f.name), "run"),
                                f.name in changing) for f in spec.functions.values())
    states = tuple(CState(names.new(s.name.upper(), "STATE"),
                          s.dtype.c,
                          _shape(s.shape, s.dtype), math.prod(s.shape), s.offset,
                          identifier(s.role, "state"))
                   for s in spec.states.values())
    sizes = [] if CALL in spec.functions else _row_sizes(spec)
    cpuid, xcr0 = cpuid_queries(spec.needs) if spec.arch == "x86_64" else ((), 0)
    params, arena = _rounded_up(spec.params_bytes), _rounded_up(spec.arena_bytes)
    predict = spec.functions.get("predict")
    batch = next(iter(predict.inputs.values())).shape[0] if predict else 0
    promise = repr((functions, states, sizes, batch, params, arena, BUFFER_ALIGN))
    return CInterface(
        name, name.upper(), spec.target, spec.needs, functions, states, batch, tuple(sizes),
        params, arena, cpuid, xcr0, zlib.crc32(promise.encode()))


def _row_sizes(spec: ProgramSpec) -> list[tuple[str, int, str]]:
    """For each input, output and target of a model: a macro, the number of elements in a row, and a
    description."""
    predict = spec.functions["predict"]
    scored = next((f.inputs for f in spec.functions.values() if "w" in f.inputs), {})
    targets = {n: t for n, t in scored.items() if n[0] == "y"}
    macros, sizes = _Names(), []
    for role, tensors, meaning in (("INPUT", predict.inputs, "x"),
                                   ("OUTPUT", predict.outputs, "a prediction"),
                                   ("TARGET", targets, "targets")):
        for t in tensors.values():
            if t.name[0] not in "xy":  # lengths of rows, one number each
                continue
            port, part = t.name[2:], identifier(t.name[2:], "part")
            sizes.append((macros.new(f"{role}_{part.upper()}_SIZE" if port else f"{role}_SIZE",
                                     role), math.prod(t.shape[1:]),
                          f"numbers in a row of {meaning}{f' ({part})' if port else ''}"))
    return sizes


def _verb(function: str) -> str:
    """The name of a function in C after the name of the model: predict, train_step_8x128."""
    verb, at, sizes = function.partition("@")
    return f"{_VERBS.get(verb, verb)}{'_' if at else ''}{sizes}"


def _function(f: FunctionSpec, prefix: str, verb: str, changes: bool) -> CFunction:
    names = _Names("params", "arena")
    is_call = f.name == CALL  # a function of tensors has the name of the library
    inputs = tuple(_tensor(t, names.new(t.name.removeprefix(ARGUMENT if is_call else ""), "value"),
                           t.name in ("w", "real")) for t in f.inputs.values())
    outputs = tuple(_tensor(t, names.new(t.name, "value"), not t.shape and not is_call)
                    for t in f.outputs.values())
    return CFunction(prefix if is_call else f"{prefix}_{verb}", f.symbol, verb, inputs, outputs,
                     changes)


def _tensor(t: TensorSpec, name: str, optional: bool) -> CTensor:
    return CTensor(name, _c_type(t.dtype, t.name), _shape(t.shape, t.dtype),
                   _LLVM.get(t.dtype.name, ""), math.prod(t.shape), optional)


def _bits_only(d: DType) -> bool:
    """Whether C lacks the type, so that it only has the bits."""
    return d.is_float and d.bits < 32


def _c_type(d: DType, name: str) -> str:
    if _bits_only(d):
        raise Unsupported(f"{name!r} is {d}, for which C has no type; export a model of float32")
    return d.c


def _shape(shape: tuple[int, ...], d: DType) -> str:
    return (d.long if _bits_only(d) else d.c) + "".join(f"[{n}]" for n in shape)


def _rounded_up(nbytes: int) -> int:
    """The next multiple of the alignment, and at least one of it: C has no empty arrays."""
    return max(align_up(nbytes, BUFFER_ALIGN), BUFFER_ALIGN)
