"""Graph rewrites after which every value has a loop nest: copies and splits."""

from __future__ import annotations

import functools

from ztorch.graph.body import SHARED
from ztorch.graph.merging import merged
from ztorch.graph.op import OPS
from ztorch.graph.passes import cse
from ztorch.graph.rewrite import by_others, filled
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.column_sums import tiles_below
from ztorch.lower.cpu.borders import without_borders
from ztorch.lower.cpu.l1_conflicts import with_padded_results
from ztorch.lower.cpu.library_operands import as_library_reads
from ztorch.lower.cpu.scatter_add import scatter_on_buffers
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.rewrites.attention import ATTENTION, attention_on_buffers, with_attention
from ztorch.lower.rewrites.attention_gradients import (
    ATTENTION_GRADIENT,
    with_attention_gradients,
)
from ztorch.lower.rewrites.attention_results import with_short_results
from ztorch.lower.rewrites.attention_sums import with_sums_over_values
from ztorch.lower.rewrites.chained import becomes_chains
from ztorch.lower.rewrites.column_groups import with_column_groups
from ztorch.lower.rewrites.deep_products import loops_over_k
from ztorch.lower.rewrites.frozen import Derived
from ztorch.lower.rewrites.in_place_concat import with_outs_in_place
from ztorch.lower.rewrites.independent import as_recurrence, iterations_last
from ztorch.lower.rewrites.interleaves import with_interleaves
from ztorch.lower.rewrites.layouts import with_fewest_transposes
from ztorch.lower.rewrites.library_convolutions import (
    CONVOLUTION,
    convolution_on_buffers,
    with_library_convolutions,
)
from ztorch.lower.rewrites.loop_bodies import loops_outside, prepared_loop, prepared_result
from ztorch.lower.rewrites.overwritten import is_stack
from ztorch.lower.rewrites.paired_iterations import in_pairs
from ztorch.lower.rewrites.parts_of_stacks import with_work_on_parts
from ztorch.lower.rewrites.products import ProductRewrites
from ztorch.lower.rewrites.recurrence import RECURRENCE, RECURRENCE_RESULT
from ztorch.lower.rewrites.row_blocks import in_blocks
from ztorch.lower.rewrites.shared_heads import with_shared_heads
from ztorch.lower.rewrites.split_reductions import split_reduction
from ztorch.lower.rewrites.stacks_abreast import with_stacks_abreast
from ztorch.lower.rewrites.strip_mining import strip_mined
from ztorch.lower.rewrites.symmetric_products import with_symmetric_products
from ztorch.lower.thread_blocks import threads_on_buffers
from ztorch.lower.tuning import PLANES_MAX, VIEWS_MAX


def prepare(graph: Graph, limits: Limits, derived: Derived | None = None,
            fixed_role: str = "state", often: bool = False, layouts: bool = True,
            library: str = "") -> Graph:
    """The graph with copies where a root or the operand of a kernel must be in a buffer.

    With `derived`, states never change, and what is packed from them is stored. In the body of a
    loop, leaves of the `fixed_role` do not change. If they are also used `often`, the cost of
    packing them does not count. With `layouts`, convolutions may have another layout than the
    model. Where another `library` computes products, their operands stay as they are, and
    convolutions are nodes.
    """
    graph = by_others(graph, serial=limits.grid is None)
    graph = with_library_convolutions(loops_outside(merged(graph)), library, limits)
    if limits.grid is not None:
        graph = with_attention_gradients(with_sums_over_values(graph), limits)
        graph = with_short_results(with_attention(graph, limits))
    else:
        graph = with_symmetric_products(with_shared_heads(graph))
    graph = in_blocks(graph, limits)
    graph = strip_mined(graph, limits)
    graph = loops_over_k(with_fewest_transposes(graph) if layouts else graph, limits)
    graph = without_borders(graph, limits)
    if limits.grid is not None:
        graph = cse(graph)  # rewrites of several values may share operands
    else:
        graph = in_pairs(graph if fixed_role == SHARED else with_stacks_abreast(graph), limits)
        # The stacks of a loop may lie over sequences that one kernel reads, then another writes.
        if fixed_role != SHARED or not graph.outputs:
            graph = with_column_groups(graph, limits)
        graph = with_padded_results(graph)
    graph = with_interleaves(with_work_on_parts(graph), in_runs=fixed_role != SHARED)
    return _Preparation(graph, limits, derived, fixed_role, often, library).run()


class _Preparation:
    """Copies and splits for the values of one graph."""

    def __init__(self, graph: Graph, limits: Limits, derived: Derived | None, fixed_role: str,
                 often: bool, library: str):
        self.graph = graph
        self.limits = limits
        self.derived = derived
        self.fixed_role = fixed_role
        self.in_body = fixed_role == SHARED
        self.new: dict[Value, Value] = {}
        self.products = ProductRewrites(limits, often, derived, becomes_chains(graph, limits))
        self.library = library
        self.frozen = derived is not None or self.in_body
        self.results: dict[Value, list[Value]] = {}  # of loops: those that are read
        self.readers: dict[Value, list[Value]] = {r: [r] for r in graph.roots}  # an output: itself
        for v in graph.nodes():
            for a in v.args:
                self.readers.setdefault(a, []).append(v)
            if v.op.kind == "result":
                self.results.setdefault(v.args[0], []).append(v)
        self.transposed_copies: dict[tuple[Value, int], Value] = {}
        self.iterations_contiguous: set[Value] = set()  # results stored with iterations contiguous
        self.fixed: set[Value] = set()  # values made of states, constants and fills
        self.inner_roots = set(graph.roots) if self.in_body else set()
        self.tiles: dict[tuple, int] = {}  # of products, for sums of their columns
        self.depth: dict[Value, int] = {}  # of views: the longest chain that a reader looks through

    def run(self) -> Graph:
        """The prepared graph."""
        for v in self.graph.nodes():
            if v.attrs.get("role") in (self.fixed_role, "constant") or (
                    (v.args or filled(v)) and self.fixed.issuperset(v.args)):
                self.fixed.add(v)
            if v.args and v.args[0] in self.iterations_contiguous:  # with the same layout as v
                self.new[v] = self.new[v.args[0]]
                continue
            with layer_scope(v.layer):
                self.new[v] = self._within_depth(self._prepared(v))
        for_caller = set() if self.in_body else set(self.graph.outputs.values())
        roots = [(self.new[r], r.layer, r in for_caller) for r in self.graph.roots]
        return merged(self.graph.with_roots(_roots(roots)))

    def _prepared(self, v: Value) -> Value:
        """A value on its new operands, with the copies and splits that its op needs."""
        args = tuple(self.new[a] for a in v.args)
        out = v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype)
        serial = self.limits.grid is None
        if not all(x.size for x in (v, *v.args)):
            return _empty(out)
        if v.op.kind == "contract":
            in_place = as_library_reads(self.library, out, self.limits) if self.library else None
            return in_place if in_place is not None else self.products.prepared(
                out, self.frozen and v.args[1] in self.fixed)
        if v.op.kind == "reduce":
            return split_reduction(out, self.limits.grid, tiles_below(out, self.limits, self.tiles))
        if serial and out.op.movement and _repeats_scattered(out):
            copy = _copied(out.args[0], out.size, self.transposed_copies)
            return Value(out.op, (copy,), out.attrs, out.shape, out.dtype)
        if serial and _looks_up_scattered(out):
            rows = self.new[v.args[0]] = COPY(out.args[0])  # for other readers, too
            return Value(out.op, (rows, *out.args[1:]), out.attrs, out.shape, out.dtype)
        if v.op.kind == "loop":
            return self._loop(v, out)
        if v.op.kind == "scatter":
            return scatter_on_buffers(out)
        if v.op in (ATTENTION, ATTENTION_GRADIENT):
            return attention_on_buffers(out)
        if v.op is CONVOLUTION:
            return convolution_on_buffers(out)
        if v.op.kind == "threads":
            return threads_on_buffers(out)
        if v.op.kind == "result" and args[0].op is RECURRENCE:
            return RECURRENCE_RESULT(*args, index=v.attrs["index"],
                                     iterations_last=v in self.iterations_contiguous)
        if v.op.kind == "result":
            return prepared_result(v, args[0], self.limits.buffer_align)
        return out

    def _loop(self, v: Value, out: Value) -> Value:
        """A loop as one kernel if its elements are independent, else with a prepared body."""
        private = {self.new[a] for a in v.args if self.readers[a] == [v]}
        read = self.results.get(v, [])
        recurrence = as_recurrence(out, {y.attrs["index"] for y in read}, private, self.limits)
        if recurrence is not None:
            self.iterations_contiguous.update(
                iterations_last(recurrence, read, self.readers, self.limits))
            return recurrence
        # A loop that may exit early may run a single iteration, as a branch does.
        body = v.attrs["body"]
        runs_often = body.proceed is None and body.trip_count > 1
        inside = functools.partial(prepare, limits=self.limits, derived=self.derived,
                                   fixed_role=SHARED, often=runs_often,
                                   library=self.library)
        stacks = {y.attrs["index"] for y in read if y in self.inner_roots}
        in_place = self.limits.grid is None and runs_often and not body.recompute
        return prepared_loop(out, lambda graph: with_outs_in_place(inside(graph)) if in_place
                             else inside(graph), self.limits.buffer_align, stacks, self.derived,
                             from_caller=self.limits.grid is None)

    def _within_depth(self, out: Value) -> Value:
        """A value, copied if readers would have to look through too many views."""
        if not out.args or not is_view(out):
            return out
        self.depth[out] = 1 + max(self.depth.get(a, 0) for a in out.args)
        return COPY(out) if self.depth[out] == VIEWS_MAX else out


def _empty(v: Value) -> Value:
    """A value without elements, or the neutral element of a reduction of none."""
    if not v.size or v.op.kind == "contract":
        return OPS.full(v.shape, 0, v.dtype)
    if v.op.kind == "reduce":
        return OPS.full(v.shape, identity(v.op.opcode, v.dtype), v.dtype)
    return v


def _repeats_scattered(v: Value) -> bool:
    """Whether v broadcasts a tensor with strided rows, such as weights whose vectors would be
    gathered again for each repetition."""
    [x, *others] = v.args
    return not others and v.size > x.size and is_view(x) and bool(x.args) and _scattered(v)


def _looks_up_scattered(v: Value) -> bool:
    """Whether v looks up whole rows of a tensor with strided rows, at least as many as it has."""
    if v.op.kind != "map" or v.op.opcode or len(v.args) != 2 or not v.args[1].dtype.is_int:
        return False
    x = v.args[0]
    return is_view(x) and bool(x.args) and v.size >= x.size and v.dtype is x.dtype and (
        v.shape[-1:] == x.shape[-1:]) and _scattered(x)


def _scattered(v: Value) -> bool:
    """Whether a view is not contiguous along its last axis."""
    axes = [k for k, n in enumerate(v.shape) if n > 1]
    if not axes or v.shape[axes[-1]] <= PLANES_MAX:
        return False
    last = Var("last", v.shape[axes[-1]])
    base = view_of(v, [Index.of(last) if k == axes[-1] else Index() for k in range(v.rank)])
    return base is not None and not (base[1].is_affine and base[1].factor(last) in (0, 1))


def _copied(x: Value, most: int, copies: dict[tuple[Value, int], Value]) -> Value:
    """A copy of a view that is contiguous along its last axis. Slices of one tensor of at most
    `most` elements share a copy of that tensor.

    Args:
        x: The view.
        most: The most elements of a shared copy.
        copies: Shared copies, by tensor and contiguous axis; new ones are added.
    """
    cut = x
    while cut.op.name == "reshape":
        cut = cut.args[0]
    if cut.op.name != "slice" or cut.args[0].size > most:
        return COPY(x)
    last = max(axis for axis, n in enumerate(cut.shape) if n > 1)
    order = (*[axis for axis in range(cut.rank) if axis != last], last)
    span = {name: tuple(cut.attrs[name][axis] for axis in order)
            for name in ("start", "step", "size")}
    key = cut.args[0], last
    if key not in copies:
        copies[key] = COPY(OPS.transpose(cut.args[0], order))
    return OPS.reshape(OPS.slice(copies[key], **span), x.shape)


def _roots(roots: list[tuple[Value, str, bool]]) -> list[Value]:
    """The roots, each computed by a kernel and none twice. A root for the caller is marked True:
    the stack of a loop is copied there, unless placement lets the loop store it there."""
    out: dict[Value, None] = {}
    for r, layer, for_caller in roots:
        if r in out or r.op.kind in ("leaf", "threads_result") or is_view(r) or (
                r.op.kind == "result" and (for_caller or not is_stack(r))):
            with layer_scope(layer):
                r = COPY(r)
        out[r] = None
    return list(out)
