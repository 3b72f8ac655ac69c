"""The locations of a step's buffers: inputs, outputs, params or the arena."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from ztorch.graph.body import CARRY
from ztorch.graph.memory import ArenaBuffer
from ztorch.graph.memory import plan as place_buffers
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.buffers import buffers_of, label, memory_of, reads_at
from ztorch.lower.grid.rows import stored_between_passes
from ztorch.lower.in_place_results import replaced
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.locations import Location
from ztorch.lower.params import Params
from ztorch.lower.reduction import Phases
from ztorch.lower.region import COPY, Region, map_region
from ztorch.lower.rewrites.histories import Histories
from ztorch.lower.rewrites.overwritten import Overwritten, is_stack
from ztorch.lower.waves import bounds

Buffers = dict[tuple[Value, int], ArenaBuffer]  # by value and time; -k: unused, of region k
# Kinds of regions of which each element is computed by one worker.
PLAIN = ("contract", "convolution", "map", "reduce", "scatter", "winograd")


class Placement:
    """The locations of all values that kernels read or write. It may add regions: copies of new
    states that cannot overwrite the old state yet."""

    def __init__(self, graph: Graph, regions: Sequence[Region], limits: Limits, params: Params,
                 inputs: Sequence[Value], carries: Mapping[Value, int],
                 bodies: Mapping[Value, Placement], in_outputs: bool = False,
                 parallel: bool = False):
        """`inputs` and `carries` have slots in that order. The number of a carry is the distance in
        bytes of its next value. `bodies` are the placements of loops. A region that is listed twice
        runs twice. With `in_outputs`, values that outputs copy or replace are computed there. With
        `parallel`, kernels between two barriers do not reuse each other's memory."""
        self.graph, self.limits, self.params = graph, limits, params
        self._given = list(regions), inputs, carries, bodies
        self.regions = [r for r in regions if r.size]
        self.inputs, self.bodies, self.parallel = inputs, bodies, parallel
        self.locations: dict[Value, Location] = {}  # the first location of a value
        self._again: dict[Value, list[Location]] = {}  # its locations when it is stored again
        self._unused: dict[tuple[int, Value], Location] = {}  # scratch for results stored again
        self._writers: dict[Value, list[int]] = {}  # regions that store a buffer in the arena
        self._kept_in: dict[Value, Value] = {}  # a value between passes: its result
        self.carries = {v.attrs["name"]: (k, step) for k, (v, step) in enumerate(carries.items())}
        self.histories = Histories(self.regions, limits.buffer_align)
        self._read: dict[Region, list[Value]] = {}
        news = set(graph.updates.values())
        for region in (r for r in self.regions if r.kind == "reduce"):
            late = stored_between_passes(region, limits)
            region.stores += (added := [v for v in late if v not in region.stores])
            self._kept_in |= Phases(region).replaced(added, [
                v for v in region.stores if memory_of(v) is v and v not in news])
        self._carry_states()
        self._place_updates()
        if in_outputs:
            self._place_copied()
            slots = {v: k for k, v in enumerate(graph.outputs.values())}
            for v, y in replaced(self.regions, slots, self.locations, self._kept_in, limits):
                self.locations[v] = Location("outputs", slots[y], self._bytes(v))
        self.first_run = {r: k for k, r in reversed([*enumerate(self.regions)])}  # its number
        self.reads = [self.read_by(r) for r in self.regions]  # values from outside each region
        self.arena, self.buffers = self._place_rest()

    def storing_late(self, outs: Sequence[int]) -> Placement:
        """The same body of a loop, except that copies at its end store these outs."""
        copies = {f"out {k}": COPY(self.graph.outputs[f"out {k}"]) for k in outs}
        regions, inputs, carries, bodies = self._given
        added = [map_region(copy) for copy in copies.values()]
        for region, copy in zip(added, copies.values(), strict=True):
            region.stores = [copy]
        return Placement(Graph(self.graph.outputs | copies, self.graph.updates),
                         [*regions, *added], self.limits, self.params, inputs, carries, bodies)

    def too_many_buffers(self) -> bool:
        """Whether a kernel has more buffers than the machine allows, and could be divided."""
        assert self.limits.grid is not None
        divisible = [(r, reads) for r, reads in zip(self.regions, self.reads, strict=True)
                     if len(r.members) > 1 and r.kind not in ("loop", "recurrence", "threads")]
        return any(self.limits.grid.max_buffers < len(
            {self.locations[v] for v in (*reads, *r.stores)}) for r, reads in divisible)

    def _carry_states(self) -> None:
        """Updates a state in place, without copies before and after a loop, if only that loop reads
        and changes it. The same holds for a carry of an enclosing loop."""
        region_of = {v: r for r in self.regions for v in r.flat}
        for name, new in self.graph.updates.items():
            last = new.args[0] if new.op is COPY else new
            loop = last.args[0] if last.op.kind == "result" else last
            if loop.op.kind != "loop" or last.attrs["index"] >= len(loop.attrs["body"].carries):
                continue
            first = loop.args[last.attrs["index"]]
            state = first.args[0] if first.op is COPY else None
            if state is None or state.attrs.get("role") not in ("state", CARRY) or (
                    state.attrs.get("name") != name) or self._has_rows(name, first):
                continue
            copies = [region_of[first], region_of[new]]
            others = [r for r in self.regions if r not in copies]
            if all(len(r.members) == 1 for r in copies) and not any(
                    state in self.read_by(r) for r in others):
                self.regions = others
                self.locations[first] = self.locations[new] = self._home(name, state, new)

    def _has_rows(self, name: str, first: Value | None = None) -> bool:
        """Whether a carry, or one that begins with `first`, has a row for every iteration."""
        return first in self.histories.sizes or self.carries.get(name, (0, 0))[1] != 0

    def _place_updates(self) -> None:
        """Computes new values of states in place, unless the old value is still needed then: such a
        new value is copied to its state at the end."""
        by_name = {s.attrs["name"]: s for role in ("state", CARRY) for s in self.graph.leaves(role)}
        homes = {v: k for k, r in reversed([*enumerate(self.regions)]) for v in r.flat}
        last = {v: k for k, r in enumerate(self.regions) for v in self.read_by(r)}
        for name, new in self.graph.updates.items():
            if not new.size or new in self.locations:
                continue
            state = by_name.get(name)
            location = self._home(name, state, new)
            if state is not None and not self._in_place(state, new, homes[new], last.get(state, 0)):
                copy = COPY(new)
                region = map_region(copy)
                region.stores = [copy]
                self.regions.append(region)
                new = copy
            self.locations[new] = location

    def _place_copied(self) -> None:
        """Removes copies to outputs where the output itself can be the buffer."""
        slots = {v: k for k, v in enumerate(self.graph.outputs.values())}
        makers = {memory_of(v): r for r in self.regions for v in r.stores}
        for region in list(self.regions):
            copy = region.members[0]
            if copy.op is not COPY or copy not in slots or len(region.members) > 1:
                continue
            for source, at in reads_at(region, copy):  # none for a fill
                buffer = memory_of(source)
                maker = makers.get(buffer)
                if maker is not None and (maker.kind in PLAIN or is_stack(buffer)) and (
                        at == region.flat[copy] and buffer.size == copy.size
                        and buffer not in {*slots, *self.locations}):
                    self.locations[buffer] = Location("outputs", slots[copy], self._bytes(copy))
                    self.regions.remove(region)

    def _home(self, name: str, state: Value | None, new: Value) -> Location:
        """The location of a state or a carry."""
        if name in self.carries:
            slot, step = self.carries[name]
            return Location("carries", slot, self._bytes(new), 0 if new is state else step)
        at = self.params.offsets.get(name)
        if at is None:  # only ever written: nothing reads its first contents
            first = np.zeros(new.shape, new.dtype.working)
            at = self.params.state(leaf("state", name, new.shape, new.dtype, first)
                                   if state is None else state)
        return Location("params", at, self._bytes(new))

    def _in_place(self, state: Value, new: Value, home: int, last: int) -> bool:
        """Whether region `home` can overwrite the state, whose last reader is region `last`."""
        if self._has_rows(state.attrs["name"]):
            return True
        region = self.regions[home]
        if last > home:
            return False
        if state not in self.read_by(region):
            return True
        if (region.kind == "reduce" and not region.is_row(new)) or new.op is INTERLEAVED:
            return False
        for v in region.members:
            for source, at in reads_at(region, v):
                if source is state and at != region.flat[new]:
                    return False
        return True

    def _place_rest(self) -> tuple[int, list[tuple[str, ArenaBuffer, int]]]:
        self._place_leaves()
        for k, region in enumerate(self.regions):
            for v in buffers_of(region):
                if v not in self.locations and v not in self._kept_in and memory_of(v) is v:
                    self._writers.setdefault(v, []).append(k)
        buffers = self._buffers()
        offsets, total = place_buffers(list(buffers.values()))
        self._locate(buffers, offsets)
        for k, region in enumerate(self.regions):
            first = region.members[0]
            region.in_place = first.op.partial and first.args[0] in self.locations and (
                self.at(k, first) == self.at(k, first.args[0]))
        return total, [(label(v), b, offsets[b.id]) for (v, _), b in buffers.items() if b.size]

    def _place_leaves(self) -> None:
        """The locations of inputs and outputs, states, constants, and what loops carry."""
        for space, values in (("inputs", self.inputs), ("outputs", self.graph.outputs.values())):
            for slot, v in enumerate(values):
                self.locations[v] = self.locations[memory_of(v)] = Location(
                    space, slot, self._bytes(v))
        for v in self.graph.nodes():
            if v.op.kind == "leaf" and v.attrs["role"] == "state":
                self.locations[v] = Location("params", self.params.state(v), self._bytes(v))
            elif v.op.kind == "leaf" and v.attrs["role"] == "constant":
                self.locations[v] = Location("params", self.params.constant(v), self._bytes(v))
            elif v.op.kind == "leaf" and v.attrs["role"] == CARRY:
                self.locations[v] = self._home(v.attrs["name"], v, v)

    def _buffers(self) -> Buffers:
        """The buffers of the arena, with the regions between which each is in use."""
        align = self.limits.buffer_align
        last: dict[tuple[Value, int], int] = {}
        readers: dict[Value, list[int]] = {}
        for k, touched in enumerate(self.reads):
            for m in map(memory_of, touched):
                readers.setdefault(m, []).append(k)
                if m in self._writers:
                    last[m, self._time(m, k)] = k
        over = Overwritten(self.regions, readers, self._writers, self.bodies, align)
        self.parts = over.parts
        self.bodies = {**self.bodies, **{loop: self.bodies[loop].storing_late(outs)
                                         for loop, outs in over.late.items() if outs}}
        for v, part in self.parts.items():  # their buffer lives as long as they do
            last[part.buffer, 0] = max([last[part.buffer, 0], *readers.get(v, ())])
        self.sizes = {v: self.bodies[v].arena if v in self.bodies else
                      self.histories.sizes.get(v, self._bytes(v)) for v in self._writers}
        lives = self._lives()
        buffers = {(v, time): ArenaBuffer((v.serial, time), self.sizes[v], lives[k][0],
                                          lives[last.get((v, time), k)][1], align)
                   for v, writers in self._writers.items() if v not in self.parts
                   for time, k in enumerate(writers)}
        for k, region in enumerate(self.regions):
            if self.runs_again(k):  # it does not overwrite its results outside the arena
                buffers |= {(v, -k): ArenaBuffer((v.serial, -k), self._bytes(v), k, k, align)
                            for v in region.stores if v in self.locations}
        return buffers

    def _locate(self, buffers: Buffers, offsets: Mapping[Hashable, int]) -> None:
        """The locations of all values in the arena."""
        first: dict[Value, Location] = {}  # the first location of a buffer
        for (v, time), buffer in buffers.items():
            location = Location("arena", offsets[v.serial, time], buffer.size)
            if time < 0:
                self._unused[-time, v] = location
            elif time == 0:
                first[v], self.locations[v] = location, self.histories.part(v, location)
            else:
                self._again.setdefault(v, []).append(location)
        for v, part in self.parts.items():
            start = self.locations[part.buffer].offset + part.start
            self.locations[v] = Location("arena", start, self._bytes(v))
        self.locations |= {v: self.locations[w] for v, w in self._kept_in.items()}
        for region in self.regions:
            for v in region.stores:
                buffer_location = first.get(memory_of(v), self.locations[memory_of(v)])
                self.locations[v] = self.histories.part(v, buffer_location)

    def _lives(self) -> list[tuple[int, int]]:
        """For each region, the first and the last that may run at the same time."""
        if not self.parallel:
            return [(k, k) for k in range(len(self.regions))]
        memory = [[[self.locations.get(m, m) for m in map(memory_of, values)] for values in lists]
                  for lists in (self.reads, (buffers_of(r) for r in self.regions))]
        return bounds(*memory)

    def _time(self, v: Value, number: int) -> int:
        """The number of times that a buffer has been stored again before a region runs."""
        return max(bisect_right(self._writers[v], number) - 1, 0)

    def at(self, number: int, v: Value) -> Location:
        """The location of a value when the region of this number runs."""
        v = self._kept_in.get(v, v)
        if (number, v) in self._unused:
            return self._unused[number, v]
        m = memory_of(v)
        if m in self._again and (time := self._time(m, number)):
            return self.histories.part(v, self._again[m][time - 1])
        return self.locations[v]

    def runs_again(self, number: int) -> bool:
        """Whether the region of this number has run before."""
        return self.first_run[self.regions[number]] < number

    def _bytes(self, v: Value) -> int:
        return v.size * v.dtype.bytes

    def read_by(self, region: Region) -> list[Value]:
        """The outside values that a region reads."""
        if region not in self._read:
            self._read[region] = list(dict.fromkeys(
                source for v in region.members for source, _ in reads_at(region, v)
                if source not in region.flat))
        return self._read[region]
