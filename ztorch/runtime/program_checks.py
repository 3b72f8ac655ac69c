"""Checks the description of a program from a file, so that its code cannot access memory outside
its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from ztorch.abi import BUFFER_ALIGN, align_up
from ztorch.dtypes import dtype
from ztorch.files.kinds import BadValue
from ztorch.runtime.buckets import verb_of
from ztorch.runtime.spec import (
    CALL,
    PREPARE,
    RESULTS,
    FunctionSpec,
    LaunchSpec,
    ProgramSpec,
    entry_point,
    kernel_name,
)

MAX_DEVICE_ALIGN = 4096  # bytes; no device needs a larger alignment of states and constants
BOOL_BYTES = 4  # the largest element of a bool input or output on any device

# The roles of the inputs and outputs of functions. Functions with a loss take x, y and w, and
# return at least one score.
_SIGNATURES = {
    "predict": ({"x"}, {"y"}), CALL: ({"x"}, {"y"}), PREPARE: (set(), set()),
    RESULTS: ({"sums"}, set()),
    "prefill": ({"x", "length"}, {"position"}),
    "generate": ({"x", "position", "live", "step", "count", "seeds", "temperature", "top_k",
                  "top_p", "repetition_penalty", "seen", "stops"}, {"tokens", "position"}),
    "beams": ({"x", "position", "live", "score", "length", "count", "beams", "length_penalty",
               "stops"}, {"tokens", "parents", "score", "length", "live", "position"}),
}
_SCORING: tuple[set[str], set[str]] = ({"x", "y", "w"}, set())
# Roles of optional inputs: they mark the padding of a batch, or weigh outputs and steps.
_OPTIONAL = {"lengths", "real", "weights"}


def check_program(spec: ProgramSpec) -> None:
    """Raises `BadValue` if parts of a spec contradict one another, so that code would access memory
    outside its buffers."""
    check_params(spec)
    _check_entries(spec)
    for k, function in enumerate(spec.functions.values()):
        try:
            _check_ports(function)
            if function.loops or function.moves:
                from ztorch.runtime.loops import check_loops  # few programs have loops

                check_loops(function, spec.backend)
            ranges = _move_ranges(function)
            for n, launch in enumerate(function.launches):
                try:
                    _check_launch(n, launch, function, spec, ranges)
                except BadValue as error:
                    raise error.inside("launches", n) from None
        except BadValue as error:
            raise error.inside("functions", k) from None
    derived = any(state.role == "derived" for state in spec.states.values())
    main = CALL if CALL in spec.functions else "predict"
    for name in (main, *((PREPARE,) if derived else ())):
        if name not in spec.functions:
            raise BadValue(list(spec.functions), f"a list with a function {name!r}", "functions")
    if spec.backend == "cpu":
        check_symbols(spec)


def check_params(spec: ProgramSpec) -> None:
    """Checks that states and constants are aligned, do not overlap, and fill params."""
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
    """The first byte, the end, and the path of the offset of each state and constant."""
    for k, state in enumerate(spec.states.values()):
        yield state.offset, state.offset + state.memory.nbytes, ("states", k, "offset")
    for k, (offset, length) in enumerate(spec.constants):
        yield offset, offset + length, ("constants", k, 0)


def _check_entries(spec: ProgramSpec) -> None:
    """Checks that the kernels of a device's code have unique names. `load.py` checks that they are
    within the code."""
    names: set[str] = set()
    for k, (name, *_) in enumerate(spec.entries):
        if name in names:
            raise BadValue(name, "a name that occurs once", "entries", k, 0)
        names.add(name)
    for key, rows in (("shared", spec.shared), ("maps", spec.maps)):
        for k, (number, *_) in enumerate(rows):
            if number >= len(spec.entries):
                raise BadValue(number, f"the number of one of {len(spec.entries)} kernels", key, k,
                               0)
    if bool(names) == (spec.backend == "cpu"):
        raise BadValue([list(e) for e in spec.entries],
                       "a list of kernels for a device, and empty for a CPU", "entries")


def _check_ports(f: FunctionSpec) -> None:
    """Checks that a function has the inputs and outputs that its callers use."""
    verb = verb_of(f.name)
    inputs, outputs = _SIGNATURES.get(verb, _SCORING)
    ports = [n for n in f.inputs if n.partition("/")[0] not in _OPTIONAL]
    if verb not in _SIGNATURES:  # a custom step may ignore targets and row weights
        inputs = {port.partition("/")[0] for port in ports} & inputs | {"x"}
    if not _have_roles(ports, inputs):
        raise BadValue(list(f.inputs), f"the inputs {', '.join(sorted(inputs))}" if inputs else
                       "no inputs", "inputs")
    if not (_have_roles(f.outputs, outputs) if verb in (CALL, "predict") else
            outputs <= set(f.outputs)) or (not f.outputs and verb not in _SIGNATURES):
        raise BadValue(list(f.outputs), f"a list with {', '.join(outputs)}", "outputs")
    for key, tensors in (("inputs", f.inputs), ("outputs", f.outputs)):
        for k, t in enumerate(tensors.values()):
            if not t.shape and (key == "inputs" or verb == "predict") and verb not in (
                    CALL, RESULTS):
                raise BadValue([], "a shape that begins with the batch size", key, k, "shape")


def _have_roles(ports: Iterable[str], roles: set[str]) -> bool:
    """Whether ports have exactly these roles: one port is called ROLE, or several ROLE/NAME."""
    names = list(ports)
    prefixes = [port.partition("/")[0] for port in names]
    return set(prefixes) == roles and not any(port.endswith("/") for port in names) and all(
        prefixes.count(role) == 1 or role not in names for role in roles)


def _check_launch(number: int, launch: LaunchSpec, f: FunctionSpec, spec: ProgramSpec,
                  ranges: Mapping[tuple[int, int], tuple[int, int]]) -> None:
    """Checks that a launch names a kernel for buffers of its sizes, and parts within them."""
    if launch.entry >= len(spec.entries):
        raise BadValue(launch.entry, f"the number of one of {len(spec.entries)} kernels", 0)
    sizes = {"params": spec.params_bytes, "arena": spec.arena_bytes}
    for k, (space, at, nbytes, _) in enumerate(launch.places):
        if space in sizes:
            low, high = ranges.get((number, k), (0, 0))
            if at + low < 0 or at + high + nbytes > sizes[space]:
                raise BadValue(nbytes, f"a part within the {sizes[space]} bytes of {space}",
                               2, k, 2)
            continue
        tensors = list((f.inputs if space == "inputs" else f.outputs).values())
        if at >= len(tensors):
            raise BadValue(at, f"a slot below {len(tensors)}", 2, k, 1)
        element = BOOL_BYTES if tensors[at].dtype.long == "bool" else 1
        if nbytes > tensors[at].nbytes * element:
            raise BadValue(nbytes, "no more than its tensor takes", 2, k, 2)
    for kernel, place, of, first, extents, pitches, box in spec.maps:
        if kernel == launch.entry and (
                place >= len(launch.places) or not len(extents) == len(box) == len(pitches) + 1
                or first + dtype(of).bytes * extents[0] + sum((e - 1) * p for e, p in zip(
                    extents[1:], pitches, strict=True)) > launch.places[place][2]):
            raise BadValue(launch.entry, "the number of a kernel whose maps are in its memories", 0)
    name, _, _, group = spec.entries[launch.entry]
    if name != kernel_name(name.rpartition("_")[0], group, launch.grid, launch.places):
        raise BadValue(launch.entry, "the number of a kernel whose code takes such a grid and such "
                       f"memories; {name!r} does not", 0)


def _move_ranges(f: FunctionSpec) -> dict[tuple[int, int], tuple[int, int]]:
    """The bytes by which the places of launches move down and up at most, by launch and place."""
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    for launch, place, loop, stride in f.moves:
        distance = (f.loops[loop][2] - 1) * stride
        low, high = ranges.get((launch, place), (0, 0))
        ranges[launch, place] = low + min(distance, 0), high + max(distance, 0)
    return ranges


def check_symbols(spec: ProgramSpec) -> None:
    """Checks that the symbols are those of code for memory of the listed sizes."""
    for k, f in enumerate(spec.functions.values()):
        symbol = entry_point(f.name, f.inputs.values(), f.outputs.values(), spec.params_bytes,
                             spec.arena_bytes)
        if f.symbol != symbol:
            raise BadValue(f.symbol, f"{symbol!r}, for code that takes the inputs, outputs, params "
                           "and arena that are listed here", "functions", k, "symbol")
