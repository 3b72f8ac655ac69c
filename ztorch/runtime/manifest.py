"""The manifest of an artifact: its fields, versions of the format, and what must agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from ztorch.abi import BUFFER_ALIGN, align_up
from ztorch.errors import ArtifactError
from ztorch.files.container import AGAIN, MANIFEST
from ztorch.files.kinds import TEXT, BadValue, ListOf, MapOf, OneOf, OrNone, String, Whole
from ztorch.files.parsing import parsing
from ztorch.files.schema import Record, field
from ztorch.runtime.buckets import BATCH, Buckets, open_axes_of, verb_of
from ztorch.runtime.snapshot import Metadata, Training
from ztorch.runtime.spec import (
    MAX_BYTES,
    PREPARE,
    RESULTS,
    FunctionSpec,
    LaunchSpec,
    ProgramSpec,
    entry_point,
    kernel_name,
)

FORMAT = "ztorch artifact"
VERSION = 6  # of the format: raised when what is written, or how its code is called, changes
OLDEST = 5  # version that is still read: the one before VERSION

MAX_DEVICE_ALIGN = 4096  # bytes: no device wants more between two states or constants
BOOL_ELEMENT = 4  # bytes: the most that a device takes for an element of a bool input or output

# The inputs and outputs of functions, by their role; those that score take x, y and w, and give at
# least a loss.
_SIGNATURES = {
    "predict": ({"x"}, {"y"}), PREPARE: (set(), set()), RESULTS: ({"sums"}, set()),
    "prefill": ({"x", "length"}, {"position"}),
    "generate": ({"x", "position", "live", "step", "count", "seeds", "temperature", "top_k",
                  "top_p", "repetition_penalty", "seen", "stops"}, {"tokens", "position"}),
    "beams": ({"x", "position", "live", "score", "length", "count", "beams", "length_penalty",
               "stops"}, {"tokens", "parents", "score", "length", "live", "position"}),
    "decode": ({"x", "position"}, {"logits"}),  # of version 5, which nobody calls any more
}
_SCORING = ({"x", "y", "w"}, {"loss"})
_PADDED = {"lengths", "real"}  # roles of further inputs, which tell what only fills up a batch


class MemberEntry(Record):
    """What the manifest says of another member of the file."""

    size: int = field(Whole(0, MAX_BYTES))  # in bytes
    sha256: str = field(String("[0-9a-f]{64}", "a SHA-256 of 64 lower-case digits"))  # its hash


class TargetEntry(Record):
    """The program as it was compiled for one target."""

    spec: ProgramSpec = field(ProgramSpec)  # what the code is
    code: str = field(TEXT)  # the member that holds it
    constants: str | None = field(OrNone(TEXT))  # the member that holds the constants, if any

    def check(self) -> None:
        try:
            check_program(self.spec)
        except BadValue as error:
            raise error.inside("spec") from None


class Header(Record):
    """What every version of the format begins with."""

    format: str = field(OneOf(FORMAT))  # tells artifacts from other zips
    version: int = field(Whole(1, 1 << 31))  # of the format
    ztorch: str = field(TEXT)  # the version that wrote it


class Manifest(Header):
    """All of manifest.json."""

    files: dict[str, MemberEntry] = field(MapOf(MemberEntry))  # every other member
    targets: tuple[TargetEntry, ...] = field(ListOf(TargetEntry))  # at least one
    program: Metadata = field(Metadata)  # what the program knows about its model
    training: Training | None = field(OrNone(Training))  # where training stands, if it trains

    def check(self) -> None:
        if not self.targets:
            raise BadValue([], "a list of at least one target", "targets")
        try:
            for target in self.targets:
                check_buckets(self.program, target.spec)
        except BadValue as error:
            raise error.inside("program") from None


def parse(data: bytes | memoryview, where: str) -> Manifest:
    """The manifest in the bytes of a member, every value checked; `where` names the file."""
    with parsing(where, ArtifactError, "is not JSON", AGAIN, MANIFEST):
        value = json.loads(bytes(data), object_pairs_hook=_unique, parse_constant=_no_constant)
    with parsing(where, ArtifactError, "describes no program", AGAIN, MANIFEST):
        return _checked(value, where)


def _checked(value: Any, where: str) -> Manifest:
    """The manifest that JSON data describe, every value checked."""
    try:
        header = Header.from_json(value)
        if not OLDEST <= header.version <= VERSION:
            newer = header.version > VERSION
            reads = f"version {VERSION}" if OLDEST == VERSION else f"versions {OLDEST} to {VERSION}"
            raise ArtifactError(f"{where} has format version {header.version}, written by ztorch "
                                f"{header.ztorch}; this ztorch reads {reads}: "
                                f"{'install a newer one' if newer else 'export it again'}")
        return Manifest.from_json(value)
    except BadValue as error:
        raise wrong(error, where) from None


def wrong(error: BadValue, where: str) -> ArtifactError:
    """The error of an artifact whose manifest has a bad value."""
    return ArtifactError(f"{where}: {MANIFEST}: {error}. {AGAIN[0].upper()}{AGAIN[1:]}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return keys


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def check_buckets(program: Metadata, spec: ProgramSpec) -> None:
    """Each bucket that a program may choose has its functions, and they take as many rows."""
    listed = program.axes
    if not listed:  # one bucket, that of the only function of each kind
        return
    sizes = next(iter(listed.values()))
    if next(iter(listed)) != BATCH or any(
            not axis or any(a >= b for a, b in pairwise(axis)) for axis in listed.values()):
        raise BadValue({name: list(axis) for name, axis in listed.items()},
                       f"sizes in ascending order by axis, {BATCH!r} first", "axes")
    verbs = {verb_of(name) for name in spec.functions} & {"predict", "evaluate", "train"}
    if math.prod(map(len, listed.values())) * len(verbs) > len(spec.functions):
        raise BadValue(list(sizes), "sizes for which there are functions", "axes", BATCH)
    for bucket in (buckets := Buckets(listed)):
        for verb in verbs:
            function = spec.functions.get(buckets.name(verb, bucket))
            if function is None or any(t.shape[0] != bucket[0] for t in function.inputs.values()):
                raise BadValue(list(sizes), f"sizes for which there is a function "
                               f"{buckets.name(verb, bucket)!r} of so many rows", "axes", BATCH)
            size_of = dict(zip(listed, bucket, strict=True))
            for t in (*function.inputs.values(), *function.outputs.values()):
                axes = open_axes_of(program.open_axes.get(t.name, ""))
                if any(t.shape[1 + k:2 + k] != (size_of.get(name),) for k, name in axes.items()):
                    raise BadValue(program.open_axes[t.name], "the name of an axis whose sizes its "
                                   "functions take", "open_axes", t.name)


# -- what must agree in a program -----------------------------------------------------------------


def check_program(spec: ProgramSpec) -> None:
    """Raises `BadValue` where parts of a spec contradict one another, so that code would read or
    write beyond the memory it is given."""
    check_params(spec)
    _check_entries(spec)
    for k, function in enumerate(spec.functions.values()):
        try:
            _check_ports(function)
            if function.loops or function.moves:
                from ztorch.runtime.loops import check_loops  # few programs have loops

                check_loops(function, spec.backend)
            reaches = _reaches(function)
            for n, launch in enumerate(function.launches):
                try:
                    _check_launch(n, launch, function, spec, reaches)
                except BadValue as error:
                    raise error.inside("launches", n) from None
        except BadValue as error:
            raise error.inside("functions", k) from None
    derived = any(state.role == "derived" for state in spec.states.values())
    for name in ("predict", *((PREPARE,) if derived else ())):
        if name not in spec.functions:
            raise BadValue(list(spec.functions), f"a list with a function {name!r}", "functions")
    if spec.backend == "cpu":
        check_symbols(spec)


def check_params(spec: ProgramSpec) -> None:
    """States and constants lie in params: aligned, apart, and with nothing beside them."""
    parts = sorted(_parts(spec), key=lambda part: part[0])
    for start, end, path in parts:
        if start % BUFFER_ALIGN:
            raise BadValue(start, f"a multiple of {BUFFER_ALIGN}", *path)
        if end > spec.params_bytes:
            raise BadValue(start, f"an offset from which {end - start} bytes end within the "
                           f"{spec.params_bytes} of params", *path)
    for (_, end, _), (start, _, path) in pairwise(parts):
        if start < end:
            raise BadValue(start, f"at least {end}, where the one before ends: they overlap", *path)
    align = BUFFER_ALIGN if spec.backend == "cpu" else MAX_DEVICE_ALIGN
    if spec.params_bytes > sum(align_up(end - start, align) for start, end, _ in parts):
        raise BadValue(spec.params_bytes, "no more than its states and constants take",
                       "params_bytes")


def _parts(spec: ProgramSpec) -> Iterator[tuple[int, int, tuple[str | int, ...]]]:
    """First byte, byte after the last, and path of the offset of all that lies in params."""
    for k, state in enumerate(spec.states.values()):
        yield state.offset, state.offset + state.nbytes, ("states", k, "offset")
    for k, (offset, length) in enumerate(spec.constants):
        yield offset, offset + length, ("constants", k, 0)


def _check_entries(spec: ProgramSpec) -> None:
    """The kernels of a device's code have names of their own. That they lie within the code is
    checked with the code at hand."""
    names: set[str] = set()
    for k, (name, *_) in enumerate(spec.entries):
        if name in names:
            raise BadValue(name, "a name that occurs once", "entries", k, 0)
        names.add(name)
    if bool(names) == (spec.backend == "cpu"):
        raise BadValue([list(e) for e in spec.entries],
                       "a list of kernels for a device, and empty for a CPU", "entries")


def _check_ports(f: FunctionSpec) -> None:
    """A function has the inputs and outputs that its callers fill and read."""
    verb = verb_of(f.name)
    inputs, outputs = _SIGNATURES.get(verb, _SCORING)
    if not _have_roles([n for n in f.inputs if n.partition("/")[0] not in _PADDED], inputs):
        raise BadValue(list(f.inputs), f"the inputs {', '.join(sorted(inputs)) or 'of none'}",
                       "inputs")
    if not (_have_roles(f.outputs, outputs) if verb == "predict" else outputs <= set(f.outputs)):
        raise BadValue(list(f.outputs), f"a list with {', '.join(outputs)}", "outputs")
    for key, tensors in (("inputs", f.inputs), ("outputs", f.outputs)):
        for k, t in enumerate(tensors.values()):
            if not t.shape and (key == "inputs" or verb == "predict") and verb != RESULTS:
                raise BadValue([], "a shape that begins with the batch size", key, k, "shape")


def _have_roles(ports: Iterable[str], roles: set[str]) -> bool:
    """Whether ports are of these roles: each one is ROLE, or several are ROLE/NAME."""
    names = list(ports)
    prefixes = [port.partition("/")[0] for port in names]
    return set(prefixes) == roles and not any(port.endswith("/") for port in names) and all(
        prefixes.count(role) == 1 or role not in names for role in roles)


def _check_launch(number: int, launch: LaunchSpec, f: FunctionSpec, spec: ProgramSpec,
                  reaches: Mapping[tuple[int, int], tuple[int, int]]) -> None:
    """A launch names a kernel that was made for memories of such sizes, and parts within them."""
    if launch.entry >= len(spec.entries):
        raise BadValue(launch.entry, f"the number of one of {len(spec.entries)} kernels", 0)
    sizes = {"params": spec.params_bytes, "arena": spec.arena_bytes}
    for k, (space, at, nbytes, _) in enumerate(launch.places):
        if space in sizes:
            low, high = reaches.get((number, k), (0, 0))
            if at + low < 0 or at + high + nbytes > sizes[space]:
                raise BadValue(nbytes, f"a part within the {sizes[space]} bytes of {space}",
                               2, k, 2)
            continue
        tensors = list((f.inputs if space == "inputs" else f.outputs).values())
        if at >= len(tensors):
            raise BadValue(at, f"a slot below {len(tensors)}", 2, k, 1)
        element = BOOL_ELEMENT if tensors[at].dtype.long == "bool" else 1
        if nbytes > tensors[at].nbytes * element:
            raise BadValue(nbytes, "no more than its tensor takes", 2, k, 2)
    name, _, _, group = spec.entries[launch.entry]
    if name != kernel_name(name.rpartition("_")[0], group, launch.grid, launch.places):
        raise BadValue(launch.entry, "the number of a kernel whose code takes such a grid and such "
                       f"memories; {name!r} does not", 0)


def _reaches(f: FunctionSpec) -> dict[tuple[int, int], tuple[int, int]]:
    """How far places of launches move down and up, in bytes, by the numbers of launch and place."""
    reaches: dict[tuple[int, int], tuple[int, int]] = {}
    for launch, place, loop, stride in f.moves:
        way = (f.loops[loop][2] - 1) * stride
        low, high = reaches.get((launch, place), (0, 0))
        reaches[launch, place] = low + min(way, 0), high + max(way, 0)
    return reaches


def check_symbols(spec: ProgramSpec) -> None:
    """The code that has these symbols was compiled for memory of the listed sizes."""
    for k, f in enumerate(spec.functions.values()):
        symbol = entry_point(f.name, f.inputs.values(), f.outputs.values(), spec.params_bytes,
                             spec.arena_bytes)
        if f.symbol != symbol:
            raise BadValue(f.symbol, f"{symbol!r}, for code that takes the inputs, outputs, params "
                           "and arena that are listed here", "functions", k, "symbol")
