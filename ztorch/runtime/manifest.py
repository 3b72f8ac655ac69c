"""The manifest of an artifact, checked value by value before anything is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ztorch.dtypes import ALL
from ztorch.errors import ArtifactError
from ztorch.files.container import AGAIN, MANIFEST
from ztorch.runtime.spec import PREPARE, FunctionSpec, ProgramSpec, entry_point, kernel_name

FORMAT = "ztorch artifact"
VERSION = 5  # of the format; raised whenever what is written, or how its code is called, changes

MOST_BYTES = 1 << 40  # of anything; whether this machine has as much is asked later
# What a function takes and gives; those that score take x, y and w, and give a loss at least.
_SIGNATURES = {"predict": ({"x"}, {"y"}), "decode": ({"x", "position"}, {"logits"}),
               PREPARE: (set(), set())}
_SYMBOL = re.compile(r"zt_(?!worker$)[A-Za-z0-9_]+")
_TARGET = re.compile(r"[a-z0-9][a-z0-9._\-]*(:[a-z0-9_\-]+)?")
_BACKEND = re.compile(r"[a-z]+")
_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACES = ("inputs", "outputs", "params", "arena")
_ALIGN = 64  # what compiled code expects of every state and constant
_APART = 4096  # the most that any device wants the places of two to be a multiple of


class Field:
    """A value of the manifest that knows its place, so that each complaint names it."""

    def __init__(self, value: Any, place: str, where: str):
        self.value, self.place, self.where = value, place, where

    def wrong(self, must: str) -> ArtifactError:
        shown = "missing" if self.value is _MISSING else repr(self.value)
        shown = shown if len(shown) < 60 else f"{shown[:57]}..."
        return ArtifactError(f"{self.where}: {MANIFEST}: {self.place or 'the whole'} is {shown}; "
                             f"it must be {must}. {AGAIN[0].upper()}{AGAIN[1:]}")

    def __getitem__(self, key: str) -> Field:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        place = f"{self.place}.{key}" if self.place else key
        return Field(self.value.get(key, _MISSING), place, self.where)

    def __iter__(self) -> Iterator[Field]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        for k, value in enumerate(self.value):
            yield Field(value, f"{self.place}[{k}]", self.where)

    def row(self, length: int, like: str) -> list[Field]:
        fields = list(self)
        if len(fields) != length:
            raise self.wrong(like)
        return fields

    def items(self) -> Iterator[tuple[str, Field]]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key in self.value:
            yield key, self[key]

    def whole(self, low: int, high: int) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.wrong(f"a whole number from {low} to {high}")
        return self.value

    def number(self) -> float:
        if type(self.value) not in (int, float) or not 0 <= self.value <= 1e300:
            raise self.wrong("a number, zero or more")
        return self.value

    def flag(self) -> bool:
        if type(self.value) is not bool:
            raise self.wrong("true or false")
        return self.value

    def text(self, pattern: re.Pattern[str] | None = None, like: str = "a text") -> str:
        if not isinstance(self.value, str) or len(self.value) > 1000 or (
                pattern is not None and not pattern.fullmatch(self.value)):
            raise self.wrong(like)
        return self.value

    def optional(self) -> Field | None:
        return None if self.value is None else self


_MISSING = object()


def parse(data: bytes | memoryview, where: str) -> Field:
    """The manifest as a field, of a format this ztorch reads."""
    try:
        value = json.loads(bytes(data), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: {MANIFEST} is not JSON ({error}); {AGAIN}") from None
    manifest = Field(value, "", where)
    if manifest["format"].value != FORMAT:
        raise manifest["format"].wrong(repr(FORMAT))
    version = manifest["version"]
    if version.whole(1, 1 << 31) != VERSION:
        what = "install a newer one" if version.value > VERSION else "export it again"
        raise ArtifactError(f"{where} has format version {version.value}, written by ztorch "
                            f"{manifest['ztorch'].text()}; this ztorch reads version {VERSION}: "
                            f"{what}")
    return manifest


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def program_spec(spec: Field) -> ProgramSpec:
    """The spec of one target, all of it checked."""
    for key in ("name", "arch"):
        spec[key].text()
    spec["target"].text(_TARGET, "the name of a target, such as 'avx2'")
    for feature in (*spec["needs"], *spec["kernels"]):
        feature.text()
    spec["backend"].text(_BACKEND, "the name of a backend, such as 'cpu'")
    size = spec["params_bytes"].whole(0, MOST_BYTES)
    arena = spec["arena_bytes"].whole(0, MOST_BYTES)
    _entries(spec)
    parts = []  # (first byte, last byte + 1, field) of all that lies in params
    names: set[str] = set()
    derived = False
    for state in spec["states"]:
        nbytes = tensor(state, names)
        state["role"].text()
        state["trainable"].flag()
        parts.append(_part(state["offset"], nbytes, size))
        derived |= state["role"].value == "derived"
    for constant in spec["constants"]:
        at, length = constant.row(2, "[offset, bytes]")
        parts.append(_part(at, length.whole(1, MOST_BYTES), size))
    parts.sort(key=lambda p: p[0])
    for (_, end, a), (start, _, b) in pairwise(parts):
        if end > start:
            raise b.wrong(f"at least {end}, where {a.place} ends: they overlap")
    apart = _ALIGN if spec["backend"].value == "cpu" else _APART
    if size > sum(-(-(end - start) // apart) * apart for start, end, _ in parts):
        raise spec["params_bytes"].wrong("no more than its states and constants take")
    functions: set[str] = set()
    for function in spec["functions"]:
        _function(function, functions)
        _launches(function, spec["entries"].value, {"params": size, "arena": arena})
    for needed in ("predict", *((PREPARE,) if derived else ())):
        if needed not in functions:
            raise spec["functions"].wrong(f"a list with a function {needed!r}")
    made = ProgramSpec.from_json(spec.value)
    if made.backend == "cpu":
        for function in spec["functions"]:
            _agrees(function["symbol"], made, made.functions[function["name"].value])
    return made


def _agrees(symbol: Field, made: ProgramSpec, f: FunctionSpec) -> None:
    """An error unless the code that has this symbol was made for memory of these sizes: it would
    read and write beyond what it is given."""
    wanted = entry_point(f.name, f.inputs.values(), f.outputs.values(), made.params_bytes,
                         made.arena_bytes)
    if symbol.value != wanted:
        raise symbol.wrong(f"{wanted!r}, for code that takes the inputs, outputs, params and arena "
                           "that are listed here")


def _entries(spec: Field) -> None:
    """The kernels of a device's code; that they lie within it is checked with the code at hand."""
    names: set[str] = set()
    for entry in spec["entries"]:
        name, at, size, group = entry.row(4, "[name, first byte, bytes, workgroup]")
        name.text(_ENTRY, "the name of a kernel")
        _new(name, names)
        at.whole(0, MOST_BYTES)
        size.whole(1, MOST_BYTES)
        for n in group.row(3, "three numbers"):
            n.whole(1, 1 << 16)
    for limit in spec["limits"]:
        what, value = limit.row(2, "[name, number]")
        what.text()
        value.whole(0, MOST_BYTES)
    if bool(names) == (spec["backend"].value == "cpu"):
        raise spec["entries"].wrong("a list of kernels for a device, and empty for a CPU")


def _launches(function: Field, entries: list[Any], sizes: dict[str, int]) -> None:
    """Every launch names a kernel that was made for memories of such sizes, and parts within their
    space."""
    for launch in function["launches"]:
        entry, grid, places, barrier = launch.row(4, "[kernel, grid, places, barrier]")
        if not 0 <= entry.whole(0, MOST_BYTES) < len(entries):
            raise entry.wrong(f"the number of one of {len(entries)} kernels")
        for n in grid.row(3, "three numbers"):
            n.whole(1, (1 << 31) - 1)
        for place in places:
            space, at, nbytes, writes = place.row(4, "[space, place, bytes, writes]")
            if space.text() not in _SPACES:
                raise space.wrong(f"one of {', '.join(_SPACES)}")
            start, length = at.whole(0, MOST_BYTES), nbytes.whole(1, MOST_BYTES)
            writes.flag()
            if space.value in ("inputs", "outputs"):
                slots = list(function[space.value])
                if start >= len(slots):
                    raise at.wrong(f"a slot below {len(slots)}")
                wide = 4 if slots[start]["dtype"].value == "bool" else 1
                if length > tensor(slots[start], set()) * wide:
                    raise nbytes.wrong("no more than its tensor takes")
            elif start + length > sizes[space.value]:
                raise nbytes.wrong(f"a part within the {sizes[space.value]} bytes of {space.value}")
        barrier.flag()
        name, _, _, group = entries[entry.value]
        if name != kernel_name(name.rpartition("_")[0], group, grid.value, places.value):
            raise entry.wrong("the number of a kernel whose code takes such a grid and such "
                              f"memories; {name!r} does not")


def _part(offset: Field, nbytes: int, size: int) -> tuple[int, int, Field]:
    at = offset.whole(0, size)
    if at % _ALIGN:
        raise offset.wrong(f"a multiple of {_ALIGN}")
    if at + nbytes > size:
        raise offset.wrong(f"at most {size - nbytes}, so that {nbytes} bytes end within params")
    return at, at + nbytes, offset


def _function(function: Field, known: set[str]) -> None:
    name = _new(function["name"], known)
    function["symbol"].text(_SYMBOL, "a symbol such as 'zt_predict'")
    function["cycles"].number()
    for kernel in function["kernels"]:
        label, cycles = kernel.row(2, "[name, cycles]")
        label.text()
        cycles.number()
    for buffer in function["buffers"]:
        label, *numbers = buffer.row(5, "[label, bytes, first, last, offset]")
        label.text()
        for number in numbers:
            number.whole(0, MOST_BYTES)
    inputs: set[str] = set()
    outputs: set[str] = set()
    for t in function["inputs"]:
        tensor(t, inputs)
    for t in function["outputs"]:
        tensor(t, outputs)
    takes, gives = _SIGNATURES.get(name, ({"x", "y", "w"}, {"loss"}))
    if not _are(inputs, takes):
        raise function["inputs"].wrong(f"the inputs {', '.join(sorted(takes)) or 'of none'}")
    if not (_are(outputs, gives) if name == "predict" else gives <= outputs):
        raise function["outputs"].wrong(f"a list with {', '.join(gives)}")
    for t in (*function["inputs"], *(function["outputs"] if name == "predict" else ())):
        if not t["shape"].value:
            raise t["shape"].wrong("a shape that begins with the batch size")


def _are(ports: set[str], roles: set[str]) -> bool:
    """Whether they are these inputs or outputs, each one by its role, or several as role/name."""
    found = [port.partition("/")[0] for port in ports]
    return set(found) == roles and not any(port.endswith("/") for port in ports) and all(
        found.count(role) == 1 or role not in ports for role in roles)


def _new(name: Field, known: set[str]) -> str:
    text = name.text()
    if text in known:
        raise name.wrong("a name that occurs once")
    known.add(text)
    return text


def tensor(t: Field, known: set[str]) -> int:
    """Checks name, shape and dtype; gives the bytes it takes."""
    _new(t["name"], known)
    nbytes = next((d.bytes for d in ALL if d.long == t["dtype"].value), 0)
    if not nbytes:
        raise t["dtype"].wrong("a dtype such as 'float32'")
    dims = list(t["shape"])
    if len(dims) > 16:
        raise t["shape"].wrong("a shape of at most 16 axes")
    for n in dims:
        nbytes *= n.whole(1, MOST_BYTES)
    if nbytes > MOST_BYTES:
        raise t["shape"].wrong(f"a shape of at most {MOST_BYTES} bytes")
    return nbytes


def program_metadata(program: Field) -> dict[str, Any]:
    """What a program knows about itself; checked where running relies on it."""
    program["name"].text()
    program["seed"].whole(0, (1 << 64) - 1)
    if "model" in program.value and (model := program["model"].optional()):
        dict(model.items())  # its inside is checked by who makes a model of it
    for classes in _several(program["classes"]):
        classes.whole(1, MOST_BYTES)
    if "input_range" in program.value:  # which format 1 had not from the start
        for limits in _several(program["input_range"], "low"):
            limits["low"].whole(-MOST_BYTES, MOST_BYTES)
            limits["high"].whole(-MOST_BYTES, MOST_BYTES)
            limits["layer"].text()
    for loss in _several(program["loss"], "name"):
        loss["name"].text()
    if "weights" in program.value:
        for weight in program["weights"]:
            weight["name"].text()
    for layer in program["layers"]:
        layer["name"].text()
        layer["class"].text()
        layer["parameters"].whole(0, MOST_BYTES)
        shape = list(layer["output_shape"])
        several = any(isinstance(n.value, list) for n in shape)  # a shape of each output
        for n in shape:
            for m in n if several else [n]:
                m.whole(0, MOST_BYTES)
    return program.value


def _several(field: Field, key: str = "") -> list[Field]:
    """What is said of the input or output, or of several by their names, where it is said; `key`
    is one that a single one has."""
    value = field.value
    if isinstance(value, dict) and isinstance(value.get(key), (dict, type(None))):
        return [one for _, one in field.items() if one.optional()]
    return [field] if field.optional() else []
