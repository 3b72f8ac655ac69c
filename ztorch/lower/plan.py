"""A graph as kernels to run in order, and where each value lies: the whole step as one program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from ztorch.dtypes import lying, to_storage
from ztorch.graph.memory import Buffer
from ztorch.graph.memory import plan as place_buffers
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower import grid, grid_contract
from ztorch.lower.alike import Span, rebased, shape_of
from ztorch.lower.contract import emit_contract
from ztorch.lower.frozen import Derived
from ztorch.lower.fuse import fuse
from ztorch.lower.index import Index, unflatten
from ztorch.lower.loops import emit_map, emit_reduce, widest
from ztorch.lower.passes import hoist, lane_by_lane, share_out
from ztorch.lower.prepare import prepare
from ztorch.lower.reduction import Phases
from ztorch.lower.region import COPY, Region, map_region, real_reads, view_of
from ztorch.lower.transpose import emit_transpose, find_turn
from ztorch.lower.tuning import OP_SLOTS_MIN


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: a slot of the inputs or outputs, or an offset in params or arena."""

    space: str
    at: int
    size: int  # bytes

    def overlaps(self, other: Place) -> bool:
        if self.space != other.space:
            return False
        if self.space in ("inputs", "outputs"):
            return self.at == other.at
        return self.at < other.at + other.size and other.at < self.at + self.size


@dataclass(frozen=True)
class Step:
    """One kernel on its buffers. `barrier`: workers meet before it, because it touches what an
    earlier step wrote, or writes what an earlier step touched."""

    kernel: Kernel
    places: tuple[Place, ...]
    writes: tuple[bool, ...]
    cycles: float
    barrier: bool = False


@dataclass(frozen=True)
class Plan:
    """One function of a program."""

    name: str
    inputs: list[Value]
    outputs: list[tuple[str, Value]]
    steps: list[Step]
    arena: int
    buffers: list[tuple[str, Buffer, int]]  # label, lifetime, offset

    @property
    def cycles(self) -> float:
        return sum(s.cycles for s in self.steps)


@dataclass
class Params:
    """The layout of what lives as long as the program: states and constants, in one block."""

    limits: Limits
    offsets: dict[str, int] = field(default_factory=dict)
    states: dict[str, Value] = field(default_factory=dict)
    constants: list[tuple[int, np.ndarray]] = field(default_factory=list)
    size: int = 0
    kernels: dict[tuple, Kernel] = field(default_factory=dict)  # by the shape of their regions
    _known: dict[tuple, int] = field(default_factory=dict)

    def state(self, v: Value) -> int:
        name = v.attrs["name"]
        if name not in self.offsets:
            self.offsets[name] = self._take(v.size * v.dtype.bytes)
            self.states[name] = v
        return self.offsets[name]

    def constant(self, v: Value) -> int:
        data = np.ascontiguousarray(to_storage(lying(v.dtype), v.attrs["data"]))
        key = (data.dtype.str, data.shape, data.tobytes())
        if key not in self._known:
            self._known[key] = self._take(data.nbytes)
            self.constants.append((self._known[key], data))
        return self._known[key]

    def _take(self, nbytes: int) -> int:
        at = self.size
        align = self.limits.buffer_align
        self.size += (nbytes + align - 1) // align * align
        return at


def lower(name: str, graph: Graph, limits: Limits, params: Params, fusion: bool = True,
          derived: Derived | None = None) -> Plan:
    """Kernels and buffers of one function; states and constants are given a place in params.
    With `derived`, the states never change and what is made of them alone is computed elsewhere."""
    graph = prepare(graph, limits, frozen=derived is not None)
    if derived is not None:
        graph = derived.take(graph)
    most = limits.grid.max_buffers if limits.grid else 0
    placed = _Plan(name, graph, fuse(graph, fusion), limits, params)
    while most and placed.asks_too_much():
        # what a kernel stores for itself is not foreseen, so it may take a lower number
        placed = _Plan(name, graph, fuse(graph, fusion, most), limits, params)
        most -= 1
    return placed.build()


class _Plan:
    def __init__(self, name: str, graph: Graph, regions: list[Region], limits: Limits,
                 params: Params):
        self.name, self.graph, self.limits, self.params = name, graph, limits, params
        self.regions = [r for r in regions if r.size]
        self.inputs = graph.leaves("input")
        self.places: dict[Value, Place] = {}
        self.read: dict[Region, list[Value]] = {}
        for region in self.regions:
            if region.kind == "reduce":
                late = Phases(region).used_later()
                region.stores += [v for v in late if v not in region.stores]
        self._place_updates()
        # values outside each region that it reads
        self.touched = [self._reads(r) for r in self.regions]
        self.arena, self.held = self._place_rest()

    def asks_too_much(self) -> bool:
        """Whether a kernel names more buffers than one may, and would name fewer if divided."""
        assert self.limits.grid is not None
        return any(len(r.members) > 1 and self.limits.grid.max_buffers < len(
            {self.places[v] for v in (*reads, *r.stores)})
            for r, reads in zip(self.regions, self.touched, strict=True))

    def build(self) -> Plan:
        steps = [self._step(r, k) for k, r in enumerate(self.regions)]
        outputs = list(self.graph.outputs.items())
        return Plan(self.name, self.inputs, outputs, _with_barriers(steps), self.arena, self.held)

    # -- places ----------------------------------------------------------------------------------

    def _place_updates(self) -> None:
        """New values of states go straight to their states, unless someone still needs the old
        one then; these take a way round, through a copy at the end."""
        by_name = {s.attrs["name"]: s for s in self.graph.leaves("state")}
        homes = {v: k for k, r in reversed([*enumerate(self.regions)]) for v in r.flat}
        last = {v: k for k, r in enumerate(self.regions) for v in self._reads(r)}
        for name, new in self.graph.updates.items():
            if not new.size:
                continue
            state = by_name.get(name)
            at = self.params.offsets.get(name)
            if at is None:  # only ever written: what it holds first is nobody's business
                first = np.zeros(new.shape, new.dtype.working)
                at = self.params.state(leaf("state", name, new.shape, new.dtype, first)
                                       if state is None else state)
            place = Place("params", at, self._bytes(new))
            if state is not None and not self._in_place(state, new, homes[new], last.get(state, 0)):
                copy = COPY(new)
                region = map_region(copy)
                region.stores = [copy]
                self.regions.append(region)
                new = copy
            self.places[new] = place

    def _in_place(self, state: Value, new: Value, home: int, last: int) -> bool:
        """Whether the new value may overwrite the state, last read by region `last`."""
        region = self.regions[home]
        if last > home:
            return False
        if state not in self._reads(region):
            return True
        if region.kind == "reduce" and not region.is_row(new):
            return False
        for v in region.members:
            for source, at in self._reads_at(region, v):
                if source is state and at != region.flat[new]:
                    return False
        return True

    def _place_rest(self) -> tuple[int, list[tuple[str, Buffer, int]]]:
        for slot, v in enumerate(self.inputs):
            self.places[v] = Place("inputs", slot, self._bytes(v))
        for slot, v in enumerate(self.graph.outputs.values()):
            self.places[v] = Place("outputs", slot, self._bytes(v))
        for v in self.graph.nodes():
            if v.op.kind == "leaf" and v.attrs["role"] == "state":
                self.places[v] = Place("params", self.params.state(v), self._bytes(v))
            elif v.op.kind == "leaf" and v.attrs["role"] == "constant":
                self.places[v] = Place("params", self.params.constant(v), self._bytes(v))
        buffers: dict[Value, Buffer] = {}
        last = {v: k for k, touched in enumerate(self.touched) for v in touched}
        for k, region in enumerate(self.regions):
            for v in region.stores:
                if v not in self.places:
                    buffers[v] = Buffer(v.serial, self._bytes(v), k, last.get(v, k),
                                        self.limits.buffer_align)
        offsets, total = place_buffers(list(buffers.values()))
        for v, buffer in buffers.items():
            self.places[v] = Place("arena", offsets[v.serial], buffer.size)
        listed = [(label(v), b, offsets[v.serial]) for v, b in buffers.items()]
        return total, listed

    def _bytes(self, v: Value) -> int:
        return v.size * v.dtype.bytes

    def _reads(self, region: Region) -> list[Value]:
        """What a region reads from outside."""
        if region in self.read:
            return self.read[region]
        found: dict[Value, None] = {}
        for v in region.members:
            for source, _ in self._reads_at(region, v):
                if source not in region.flat:
                    found[source] = None
        self.read[region] = list(found)
        return self.read[region]

    def _reads_at(self, region: Region, v: Value) -> list[tuple[Value, Index]]:
        if v.op.kind != "contract":
            return real_reads(v, region.index(v))
        found = []
        for a in v.args:  # a product reads all over its operands
            base = view_of(a, unflatten(Index(), a.shape))
            if base:
                found.append((base[0], Index((), -1)))
        return found

    # -- kernels ---------------------------------------------------------------------------------

    def _step(self, region: Region, number: int) -> Step:
        reads, stores = self.touched[number], region.stores
        buffers = [*reads, *stores]
        names: dict[Place, str] = {}
        for v in buffers:
            names.setdefault(self.places[v], f"m{len(names)}")
        written = {self.places[v] for v in stores}
        again = {self.places[v] for v in stores if region.kind == "reduce"}
        again |= written & {self.places[v] for v in reads}
        access = {p: "r" if p not in written else "rw" if p in again else "w" for p in names}
        fixed = {v: self._fixed(v, buffers, written) for v in buffers}
        roles = tuple((names[p], access[p], v in reads)
                      for v, p in ((v, self.places[v]) for v in buffers))
        shape = shape_of(region, buffers, fixed, roles)
        kernel = self.params.kernels.get(shape.key)
        if kernel is None:
            b = Builder("alike", self.limits.index, exact=not self.limits.fma)
            for v in buffers:
                if (name := names[self.places[v]]) not in b.memories:
                    b.memory(name, lying(v.dtype), v.size, access=access[self.places[v]])
            self._emit(b, region, {v: names[self.places[v]] for v in reads},
                       {v: names[self.places[v]] for v in stores})
            nest = b.kernel()
            if self.limits.grid is not None and region.kind != "contract":
                nest = lane_by_lane(nest)
            kernel = rebased(hoist(share_out(nest)), {
                names[self.places[v]]: shape.spans[v] for v in buffers if not fixed[v]})
            self.params.kernels[shape.key] = kernel
        origin = tuple(dict.fromkeys(
            re.sub(r"[^\w .:/-]", "_", v.layer) for v in region.members if v.layer))
        kernel = replace(kernel, name=_kernel_name(region, number), origin=origin)
        parts = {self.places[v]: self._part(v, shape.spans[v]) for v in buffers}
        places = tuple(parts[p] for p in names)
        moved = sum(p.size for p in places) / self.limits.processor.outer_bytes_per_cycle
        return Step(kernel, places, tuple(p in written for p in names),
                    max(_cycles(region, self.limits), moved))

    def _fixed(self, v: Value, buffers: list[Value], written: set[Place]) -> bool:
        """Whether a buffer is read from its beginning: slots are given as they are, the buffers of
        a grid are aligned, and what has two names or is written must be the same for both."""
        place = self.places[v]
        return (self.limits.grid is not None or place.space in ("inputs", "outputs")
                or any(place.overlaps(w) for w in written)
                or sum(self.places[w] == place for w in buffers) > 1)

    def _part(self, v: Value, span: Span) -> Place:
        place, size = self.places[v], v.dtype.bytes
        if span == Span(0, v.size):
            return place
        return Place(place.space, place.at + span.start * size, span.size * size)

    def _emit(self, b: Builder, region: Region, memory: dict[Value, str],
              target: dict[Value, str]) -> None:
        """The loop nest that suits the region and the machine."""
        lanes = self.limits.lanes(widest(region))
        turn = find_turn(region, lanes) if region.kind == "map" else None
        if self.limits.grid is not None:
            emit_on_grid[region.kind](b, region, memory, target, self.limits)
        elif turn is not None:
            emit_transpose(b, region, turn, memory, target, lanes)
        else:
            emit_in_loops[region.kind](b, region, memory, target, self.limits)


emit_in_loops = {"map": emit_map, "reduce": emit_reduce, "contract": emit_contract}
emit_on_grid = {"map": grid.emit_map, "reduce": grid.emit_reduce,
                "contract": grid_contract.emit_contract}


def _with_barriers(steps: list[Step]) -> list[Step]:
    """Workers meet only where a step depends on one that they have not met after."""
    out: list[Step] = []
    touched: dict[str, list[Place]] = {}  # by space, since they met; and what of it was written
    written: dict[str, list[Place]] = {}
    for s in steps:
        meets = any(p.overlaps(other) for p, w in zip(s.places, s.writes, strict=True)
                    for other in (touched if w else written).get(p.space, ()))
        if meets:
            touched, written = {}, {}
        for p, w in zip(s.places, s.writes, strict=True):
            touched.setdefault(p.space, []).append(p)
            if w:
                written.setdefault(p.space, []).append(p)
        out.append(Step(s.kernel, s.places, s.writes, s.cycles, meets))
    return out


def _cycles(region: Region, limits: Limits) -> float:
    """A rough estimate, to tell whether more workers would pay."""
    total = 0.0
    for v in region.members:
        lanes = limits.lanes(v.dtype)
        if v.op.kind == "contract":
            total += v.size * v.args[0].shape[-1] / (limits.processor.fma_ports * lanes)
        else:
            n = v.args[0].size if v.op.kind == "reduce" else v.size
            total += n * max(v.op.cost, OP_SLOTS_MIN) / (
                limits.processor.fma_ports * lanes)
    return total


def label(v: Value) -> str:
    """What a buffer is called in pictures: layer:op."""
    return f"{v.layer}:{v.op.name}" if v.layer else v.op.name


def _kernel_name(region: Region, number: int) -> str:
    """Reads like the model in a profiler; only letters, digits and underscores survive."""
    main = [v for v in region.members if v.op.kind != "map"] or region.members
    layer = next((v.layer for v in main if v.layer), "")
    ops = dict.fromkeys([*[v.op.name for v in main][:2], region.members[-1].op.name])
    words = "_".join([w for w in [layer, *ops] if w])
    return f"k{number}_" + re.sub(r"[^A-Za-z0-9_]+", "_", words)[:48]
