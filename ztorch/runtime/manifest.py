"""The manifest of an artifact: its fields, the version of the format, and consistency checks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ztorch.errors import ArtifactError
from ztorch.files.container import AGAIN, MANIFEST
from ztorch.files.kinds import TEXT, BadValue, ListOf, MapOf, OneOf, OrNone, String, Whole
from ztorch.files.parsing import parsing
from ztorch.files.schema import Record, field
from ztorch.runtime.buckets import BATCH, Buckets, parse_open_axes, verb_of
from ztorch.runtime.program_checks import check_program
from ztorch.runtime.snapshot import Metadata, Training
from ztorch.runtime.spec import ARGUMENT, CALL, MAX_BYTES, FunctionSpec, ProgramSpec

FORMAT = "ztorch artifact"
VERSION = 7  # of the format; increases if the contents of the file or the calls of its code change
OLDEST = 6  # the oldest version that is read: the one before VERSION


class MemberEntry(Record):
    """The manifest's row for another member of the file."""

    size: int = field(Whole(0, MAX_BYTES))  # in bytes
    sha256: str = field(String("[0-9a-f]{64}", "a SHA-256 of 64 lower-case digits"))  # hash


class TargetEntry(Record):
    """The program compiled for one target."""

    spec: ProgramSpec = field(ProgramSpec)  # the layout of the code
    code: str = field(TEXT)  # the member that holds it
    constants: str | None = field(OrNone(TEXT))  # the member that holds the constants, if any

    def check(self) -> None:
        try:
            check_program(self.spec)
        except BadValue as error:
            raise error.inside("spec") from None


class Header(Record):
    """The header of every version of the format."""

    format: str = field(OneOf(FORMAT))  # distinguishes artifacts from other zip files
    version: int = field(Whole(1, 1 << 31))  # of the format
    ztorch: str = field(TEXT)  # version of ztorch that wrote the file


class Manifest(Header):
    """All of manifest.json."""

    files: dict[str, MemberEntry] = field(MapOf(MemberEntry))  # every other member
    targets: tuple[TargetEntry, ...] = field(ListOf(TargetEntry))  # at least one
    program: Metadata = field(Metadata)  # facts about the model
    training: Training | None = field(OrNone(Training))  # the training run, if it trains

    def check(self) -> None:
        if not self.targets:
            raise BadValue([], "a list of at least one target", "targets")
        try:
            for target in self.targets:
                check_buckets(self.program, target.spec)
                check_scoring(self.program, target.spec)
                check_arguments(self.program, target.spec)
        except BadValue as error:
            raise error.inside("program") from None


def parse(data: bytes | memoryview, where: str) -> Manifest:
    """Reads a manifest and checks every value; `where` names the file in errors."""
    with parsing(where, ArtifactError, "is not JSON", AGAIN, MANIFEST):
        value = json.loads(bytes(data), object_pairs_hook=_unique, parse_constant=_no_constant)
    with parsing(where, ArtifactError, "describes no program", AGAIN, MANIFEST):
        return _checked(value, where)


def _checked(value: Any, where: str) -> Manifest:
    """Checks parsed JSON, and returns it as a manifest."""
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


def check_scoring(program: Metadata, spec: ProgramSpec) -> None:
    """Checks that functions with a loss take targets and row weights. Custom steps of a model are
    excepted; their batches are never padded."""
    for name, f in spec.functions.items():
        verb = verb_of(name)
        roles = {port.partition("/")[0] for port in f.inputs}
        if verb in ("train", "evaluate") and verb not in program.whole_batches and not (
                {"x", "y", "w"} <= roles and "loss" in f.outputs):
            raise BadValue(list(program.whole_batches), f"a list with {verb!r}, whose function "
                           "lacks one of the inputs w, x, y or the output loss", "whole_batches")


def check_buckets(program: Metadata, spec: ProgramSpec) -> None:
    """Checks that each bucket has its functions, and that their inputs have its sizes."""
    axis_sizes = program.axes
    if not {*program.whole_axes} <= {*axis_sizes}:
        raise BadValue(list(program.whole_axes), "names of axes", "whole_axes")
    if not {*program.multiples} <= {*axis_sizes}:
        raise BadValue(program.multiples, "numbers by name of an axis", "multiples")
    if not axis_sizes:  # one bucket, with one function of each kind
        return
    sizes = next(iter(axis_sizes.values()))
    if next(iter(axis_sizes)) != BATCH or any(
            not axis or any(a >= b for a, b in pairwise(axis)) for axis in axis_sizes.values()):
        raise BadValue({name: list(axis) for name, axis in axis_sizes.items()},
                       f"sizes in ascending order by axis, {BATCH!r} first", "axes")
    verbs = {verb_of(name) for name in spec.functions} & {"predict", "evaluate", "train"}
    if math.prod(map(len, axis_sizes.values())) * len(verbs) > len(spec.functions):
        raise BadValue(list(sizes), "sizes for which there are functions", "axes", BATCH)
    for bucket in (buckets := Buckets(axis_sizes)):
        for verb in verbs:
            function = spec.functions.get(buckets.name(verb, bucket))
            if function is None or any(t.shape[0] != bucket[0] for t in function.inputs.values()):
                raise BadValue(list(sizes), f"sizes for which there is a function "
                               f"{buckets.name(verb, bucket)!r} of so many rows", "axes", BATCH)
            _check_open_axes(program, function, dict(zip(axis_sizes, bucket, strict=True)))


def _check_open_axes(program: Metadata, function: FunctionSpec, sizes: Mapping[str, int]) -> None:
    """Checks that the inputs and outputs of a function have the sizes of its bucket, by axis."""
    for t in (*function.inputs.values(), *function.outputs.values()):
        text = program.open_axes.get(t.name, "")
        try:
            axes = parse_open_axes(text)
        except ValueError:
            raise BadValue(text, "names of axes, with steps of their sizes such as "
                           "'time@1-2/2'", "open_axes", t.name) from None
        if any(axis.name not in sizes or t.shape[1 + k:2 + k] != (axis.size(sizes[axis.name]),)
               for k, axis in axes.items()):
            raise BadValue(program.open_axes[t.name], "the name of an axis whose sizes its "
                           "functions take", "open_axes", t.name)


def check_arguments(program: Metadata, spec: ProgramSpec) -> None:
    """Checks that a function of tensors has a list of its arguments, and that a model has none."""
    names = program.arguments
    if (names is None) == (CALL in spec.functions):
        raise BadValue(names and list(names), "a list of arguments for a program with a function "
                       f"{CALL!r}, and null for any other", "arguments")
    if names is not None:
        ports = [f"{ARGUMENT}{name}" for name in names]
        if len(set(names)) < len(names) or not set(spec.functions[CALL].inputs) <= set(ports):
            raise BadValue(list(names), "names that differ, among them all inputs of its function",
                           "arguments")
