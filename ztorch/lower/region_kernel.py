"""The kernel of one region, as a step of its function."""

from __future__ import annotations

import copy
import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ztorch.abi import AGAIN
from ztorch.dtypes import storage_dtype
from ztorch.errors import Unsupported
from ztorch.graph.body import SHARED, SLICE
from ztorch.graph.hints import hints_of, layer_name
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.lower import nests
from ztorch.lower.cpu.masked_sums import masked_sums
from ztorch.lower.cpu.rounded_casts import rounded_casts
from ztorch.lower.cpu.rows_of_gathers import gathers_as_rows
from ztorch.lower.cpu.short_indices import short_indices
from ztorch.lower.cycles import kernel_cycles
from ztorch.lower.insets import stored
from ztorch.lower.kernel_names import main_of, stem_of
from ztorch.lower.lane_by_lane import lane_by_lane
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.passes import hoist, share_out, streamed_stores
from ztorch.lower.placement import Placement
from ztorch.lower.reduction import axes_of
from ztorch.lower.schedule import Schedule
from ztorch.lower.schedule_hints import Hinted
from ztorch.lower.shared_kernels import Span, rebased, shape_of
from ztorch.lower.tails import stored_in_pieces
from ztorch.lower.thread_blocks import written_first
from ztorch.lower.tuning import STREAMED_BYTES, STREAMED_SHARE


@dataclass(frozen=True)
class KernelStep:
    """One kernel on its buffers."""

    kernel: Kernel
    locations: tuple[Location, ...]  # of the kernel's buffers, in their order
    writes: tuple[bool, ...]  # which of them it writes
    cycles: float  # estimated, for one worker
    barrier: bool = False  # whether there is a barrier before it
    skipped: bool = False  # whether workers apart skip this barrier
    key: str = ""  # function and kernel name without the tile size, by which schedules are given
    schedule: Schedule | None = None  # None: it has none
    tuned: bool = False  # whether the schedule was measured
    unmet: tuple[str, ...] = ()  # a sentence for each user hint that it does not follow
    joined: tuple[KernelStep, ...] = ()  # the steps that are one launch; empty: only this one
    in_turn: bool = False  # whether these run one after another: it is a chain
    region_kernel: RegionKernel | None = field(default=None, repr=False, compare=False)

    @property
    def parts(self) -> tuple[KernelStep, ...]:
        """The steps of single regions that this step computes."""
        return self.joined or (self,)


class RegionKernel:
    """One region of a placement, with its buffers.

    Args:
        function: The name of the function.
        placement: The locations of the function's buffers.
        number: The number of the region.
        label: The label that identifies the region in the kernel's name.
    """

    def __init__(self, function: str, placement: Placement, number: int, label: str):
        self.placement, self.number = placement, number
        self.region = placement.regions[number]
        self.limits, self.params = placement.limits, placement.params
        self.reads, self.stores = placement.reads[number], self.region.stores
        self.buffers = [*self.reads, *self.stores]
        self.at = {v: placement.at(number, v) for v in self.buffers}
        self.names: dict[Location, str] = {}  # of the kernel's memories
        for v in self.buffers:
            self.names.setdefault(self.at[v], f"m{len(self.names)}")
        self.written = {self.at[v] for v in (*self.stores, *written_first(self.region))}
        self.stem = stem_of(self.region, label)
        self.key = f"{function}/{self.stem}"
        self.hints = hints_of(self.region.members)
        self.chosen: Schedule | None = None  # overrides the rules' proposal
        self.tuned = False  # whether `chosen` was measured
        if placement.runs_again(number):  # the same kernel under another name
            self.name = stem_of(self.region, f"{label}{AGAIN}")
        else:
            self.name = self.stem

    @property
    def work(self) -> str:
        """A digest of the kernel's computation, equal in all processes and programs and independent
        of buffer locations. Empty if it cannot be computed."""
        shape = shape_of(self.region, self.buffers, dict.fromkeys(self.buffers, False),
                         (self.region.in_place,))
        text = repr(shape.key)
        return "" if " at 0x" in text else hashlib.sha256(text.encode()).hexdigest()

    @property
    def title(self) -> str:
        """A readable description of the kernel: its ops, dtype and shape."""
        first = main_of(self.region)[0]
        words = self.stem.partition("_")[2]
        shape = self.region.shape or first.shape
        if first.op.kind == "contract":
            *batch, m, n = first.shape
            shape = (*batch, m, first.args[0].shape[-1], n)
        return f"{words} {'x'.join(map(str, shape))}"

    @functools.cached_property
    def hinted(self) -> Hinted:
        """The rules' proposal, with hints."""
        return nests.propose(self.region, self.limits)

    def proposal(self) -> Schedule:
        """The schedule that the rules propose."""
        return self.hinted.schedule

    def with_schedule(self, schedule: Schedule) -> RegionKernel:
        """The same kernel by another schedule."""
        other = copy.copy(self)
        other.chosen = schedule
        return other

    def step(self) -> KernelStep:
        """The kernel on its buffers."""
        region, names = self.region, self.names
        again = {self.at[v] for v in self.stores if region.kind in (
            "reduce", "scatter", "convolution")}
        again |= self.written & {self.at[v] for v in self.reads}
        access = {p: "r" if p not in self.written else "rw" if p in again else "w" for p in names}
        fixed = {v: self._is_fixed(v) for v in self.buffers}
        roles = tuple((names[p], access[p], v in self.reads, _role_in_loop(v))
                      for v, p in self.at.items())
        shape = shape_of(region, self.buffers, fixed, (roles, self.chosen, self.hints))
        spans = {names[self.at[v]]: shape.spans[v] for v in self.buffers if not fixed[v]}
        kernel, schedule = self.params.kernel(shape, lambda: self._lowered(access, spans))
        lanes = nests.vector_lanes(region, self.limits)
        kernel = replace(kernel, name=f"{self.name}_{schedule.tile(lanes)}", origin=self._layers)
        parts = {self.at[v]: self._part(v, shape.spans[v]) for v in self.buffers}
        locations = tuple(parts[p] for p in names)
        own = self._own_memories(kernel)
        touched = [] if region.in_place else locations  # in-place updates touch only a few bytes
        stored_elsewhere = 0 if region.in_place else sum(
            (v.size - stored(v)) * v.dtype.bytes for v in self.stores)
        transfer_cycles = (sum(p.size for p in touched) - stored_elsewhere) / (
            self.limits.processor.outer_bytes_per_cycle)
        cycles = max(kernel_cycles(region, self.limits), transfer_cycles)
        writes = (*(p in self.written for p in names), *(True for _ in own))
        return KernelStep(kernel, (*locations, *own), writes, cycles, False, False, self.key,
                          schedule, self.tuned,
                          () if self.chosen or self.hints is None else self.hinted.unmet,
                          region_kernel=self)

    def _own_memories(self, kernel: Kernel) -> tuple[Location, ...]:
        """The locations of global memories that hold no value: signals, and what they announce."""
        names = set(self.names.values())
        own = [m for m in kernel.memories if m.space == "global" and m.name not in names]
        signals = {i.attrs["mem"] for i in kernel.body if i.opcode == "grid_signal"}
        return tuple(Location("params", self.params.counters(m.size) if m.name in signals else (
            self.params.workspace(m.size * m.dtype.bytes)), m.size * m.dtype.bytes) for m in own)

    @property
    def _layers(self) -> tuple[str, ...]:
        """The names of the layers that the kernel computes."""
        return tuple(dict.fromkeys(re.sub(r"[^\w .:/-]", "_", layer_name(v.layer))
                                   for v in self.region.members if v.layer))

    def _lowered(self, access: Mapping[Location, str],
                 spans: Mapping[str, Span]) -> tuple[Kernel, Schedule]:
        """The loop nest of the region, with the chosen schedule or that of the rules."""
        b = Builder("shared", self.limits.index, exact=not self.limits.fma)
        schedule = self.chosen or self.proposal()
        for v in self.buffers:
            if (name := self.names[self.at[v]]) not in b.memories:
                b.memory(name, storage_dtype(v.dtype), v.size, access=access[self.at[v]])
        try:
            nests.emit(b, self.region, {v: self.names[self.at[v]] for v in self.reads},
                       {v: self.names[self.at[v]] for v in self.stores}, self.limits, schedule)
        except OverflowError as error:
            layers = ", ".join(self._layers) or self.stem
            raise Unsupported(f"layer {layers}: kernel {self.stem} {error}; compile for another "
                              "device, such as cpu") from None
        nest = b.kernel()
        if self._leaves_the_caches(schedule):
            nest = streamed_stores(nest)
        if self.region.kind == "threads":  # no hoisting: a loop without iterations must not read
            return rebased(nest, spans), schedule
        grid = self.limits.grid
        if grid is not None and (self.region.kind != "contract"
                                 or grid.scalar_stores_readable_as_vectors):
            nest = lane_by_lane(nest)
        nest = hoist(share_out(nest))
        if grid is None:
            nest = rounded_casts(short_indices(gathers_as_rows(nest, self.limits)))
            nest = masked_sums(nest) if self.limits.mask_registers else stored_in_pieces(nest)
        return rebased(nest, spans), schedule

    def _leaves_the_caches(self, schedule: Schedule) -> bool:
        """Whether the results are written line by line, and a reader would not find them in a cache
        anyway."""
        in_lines = schedule.kind == "elements" or (
            schedule.kind == "rows" and not axes_of(self.region).by_columns)
        if not in_lines or self.region.in_place:
            return False
        touched = sum(p.size for p in self.names)
        return touched >= max(STREAMED_BYTES, STREAMED_SHARE * self.limits.processor.l3_bytes)

    def _is_fixed(self, v: Value) -> bool:
        """Whether a buffer must be passed from its first element on: slots are passed unchanged,
        buffers of grids must be aligned, and a buffer that has two names or is written needs one
        start address."""
        location = self.at[v]
        return (self.limits.grid is not None or location.space in SLOTS
                or any(location.overlaps(w) for w in self.written)
                or sum(self.at[w] == location for w in self.buffers) > 1)

    def _part(self, v: Value, span: Span) -> Location:
        location, size = self.at[v], v.dtype.bytes
        if span == Span(0, v.size):
            return location
        return Location(location.space, location.offset + span.start * size, span.size * size)


def _role_in_loop(v: Value) -> str:
    """Whether a leaf changes from iteration to iteration: tiles and prefetches depend on it. Empty
    for all other values."""
    role: str = v.attrs.get("role", "")
    return role if role in (SHARED, SLICE) else ""
