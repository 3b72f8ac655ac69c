"""The gradient of a loop, which is a loop over the iterations in the other order.

It reads the values that the forward loop keeps of every iteration. The terms that iterations add to
the gradient of a shared value become one large product after the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ztorch.graph.autodiff import pullback
from ztorch.graph.body import (
    SLICE,
    Body,
    arguments,
    carry_leaf,
    dependents,
    is_number,
    results_of,
    slice_leaf,
)
from ztorch.graph.hoisting import computed_ahead
from ztorch.graph.loop_totals import Totals, in_dtype, of_sums
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Value, topological

CHEAP = 2  # issue slots of an op that is recomputed rather than stored for every iteration


class Backward:
    """The loop that goes back through the iterations of another one."""

    def __init__(self, loop: Value, upstreams: Mapping[int, Value], in_segments: bool = False):
        """
        Args:
            loop: The loop.
            upstreams: Gradients of results, by their index.
            in_segments: Whether the forward loop only keeps its states, and the other values that
                this loop reads are recomputed. Default: `False`.
        """
        self.forward, self.upstreams, self.in_segments = loop, upstreams, in_segments
        self.first = OPS.full((), 0).serial  # number from which on values are made here
        self.body = body = loop.attrs["body"]
        # A branch that was not taken has no gradient. Of other loops that end early, all iterations
        # are kept: those after the end change nothing.
        self.proceed = body.proceed if body.is_branch else None
        self.inits, self.sequences, self.shared = arguments(body, loop.args)
        self.slices: dict[Value, Value] = {}  # leaves of the new body: their sequences
        self.stored: list[Value] = []  # values that the forward loop keeps for this one
        self.again: dict[Value, Value] = {}  # more leaves: values that segments recompute
        self.ahead = frozenset(computed_ahead(body))  # values that the forward loop reads
        self.next_states: set[Value] = set()  # next values of states kept per iteration
        self.states: list[Value | None] = []  # of each carry, per iteration; None: unchanged
        self.known: dict[Value, Value] = {}  # values of the forward body, as those of the new one
        self.carried = [k for k, c in enumerate(body.carries) if c.dtype.is_float]

    def loop(self) -> tuple[Body, list[Value], list[Value]]:
        """The loop that goes back: its body, first values and sequences."""
        body, carried = self.body, self.carried
        leaves = {k: carry_leaf(body.carries[k], k) for k in carried}
        cotangents: dict[Value, Value] = {}
        for k, g in leaves.items():
            _add(cotangents, body.news[k], g)
        for index, upstream in self.upstreams.items():
            if index >= len(body.carries):
                _add(cotangents, body.outs[index - len(body.carries)], self._slice(upstream))
        wrt = [v for v in body.leaves if v.dtype.is_float]
        slopes = dict(zip(wrt, pullback(cotangents, wrt), strict=True))
        self.slope_of = self._moved({v: g for v, g in slopes.items() if g is not None},
                                    {*leaves.values(), *self.slices})
        first = [self.upstreams.get(k, OPS.zeros_like(body.carries[k])) for k in carried]
        news = [self.slope_of.get(body.carries[k], OPS.zeros_like(body.carries[k]))
                for k in carried]
        depends = dependents(self.slope_of.values(),
                             [*leaves.values(), *self.slices, *self.again])
        self.totals = totals = Totals(self.forward.op, body, [*self.slices, *self.again],
                                      leaves.values(), news, depends)
        self.stack_of = {s: totals.stack(self.slope_of[s]) for s in body.slices
                         if s in self.slope_of}
        self.read_by_slopes = [*totals.read]
        # Products first: they keep stacks, of which there are other sums.
        self.total_of = {v: totals.of(self.slope_of[v]) for v in sorted(
            (v for v in body.shared if v in self.slope_of),
            key=lambda v: self.slope_of[v].op.kind != "contract")}
        own = [in_dtype(v, of_sums(v.dtype)) for v in totals.own_sums]
        sums = [carry_leaf(v, len(body.carries) + k) for k, v in enumerate(own)]
        going = [] if self.proceed is None else [body.carries[self.proceed]]
        iteration = Body(
            body.trip_count, not body.reverse, (*leaves.values(), *sums, *going),
            (*self.slices, *self.again), (),
            (*news, *(c + v for c, v in zip(sums, own, strict=True)), *going),
            tuple(totals.outs), len(leaves) + len(sums) if going else None)
        inits = [*first, *map(OPS.zeros_like, sums)]
        if self.proceed is not None:
            inits.append(self.inits[self.proceed])
        return iteration, inits, list(self.slices.values())

    def inside(self, v: Value) -> bool:
        """Whether a value that does not depend on the iteration is computed inside of this loop: if
        there is one iteration, so that recomputed values do not take memory before it."""
        return is_number(v) or (self.body.trip_count == 1 and v.serial > self.first)

    def slopes(self, last: Sequence[Value], stacks: Mapping[Value, Value],
               long: Sequence[Value] | None = None) -> tuple[Value | None, ...]:
        """The gradients of the forward loop's arguments.

        Args:
            last: Last values of the carries of `loop`.
            stacks: Its stacks, by the values of an iteration.
            long: The long sums, if they are known. Default: `None`, from stacks.
        """
        body = self.body
        long = self.totals.sums(stacks) if long is None else long
        of_carry = dict(zip(self.carried, last, strict=False))
        own = {v: in_dtype(total, v.dtype) for v, total in zip(
            self.totals.own_sums, last[len(self.carried):], strict=False)}
        return (*(of_carry.get(k) for k in range(len(body.carries))),
                *(self.stack_of[s](stacks, body.trip_count) if s in self.stack_of else None
                  for s in body.slices),
                *(self.total_of[v](long, own) if v in self.total_of else None
                  for v in body.shared))

    # -- values of the forward loop ----------------------------------------------------------------

    def _slice(self, sequence: Value) -> Value:
        """The iteration's element of a sequence."""
        s = slice_leaf(sequence, len(self.slices))
        self.slices[s] = sequence
        return s

    def _moved(self, slopes: dict[Value, Value], own: set[Value]) -> dict[Value, Value]:
        """The slopes in terms of this loop's leaves."""
        body = self.body
        varying = dependents([*slopes.values(), *body.roots], {*body.carries, *body.slices})
        backward = dependents(slopes.values(), own)
        self.known = dict(zip(body.shared, self.shared, strict=True))
        edge = {a for v in topological(slopes.values(), own) if v in backward for a in v.args}
        edge |= set(slopes.values())
        needed = sorted((v for v in edge if v in varying and v not in backward),
                        key=lambda v: v.serial)
        read = {s for v in needed for s in self._sources(v, varying)}
        self.next_states = {new for c, new in zip(body.carries, body.news, strict=True)
                            if c in read}
        for again in (False, True):  # cheap values are recomputed, where that stores no more
            for v in needed:
                if self._recomputed(v, varying) is not again:
                    continue
                for source in self._sources(v, varying) if again else [v]:
                    self._keep(source)
        self._read_stacks()
        roots = substituted(list(slopes.values()), self.known)
        return dict(zip(slopes, roots, strict=True))

    def _read_stacks(self) -> None:
        """Add the values that the forward loop keeps to `known`."""
        body = self.body
        self.known |= {c: self.inits[k] for k, c in enumerate(body.carries)
                       if c in self.stored and body.news[k] is c}  # it never changes
        outs = [v for v in self.stored if v not in self.known]
        if self.in_segments:
            self.again = {leaf(SLICE, f"again {k}", v.shape, v.dtype): v
                          for k, v in enumerate(outs)}
            self.known |= {v: s for s, v in self.again.items()}
            outs = [c for c, new in zip(body.carries, body.news, strict=True) if c is not new
                    ] if outs else []
        if not outs:
            return
        _, stacks = results_of(self.forward.op(*self.forward.args, body=replace(
            body, proceed=self.proceed, outs=(*body.outs, *outs))))
        stack_of = dict(zip(outs, stacks[len(body.outs):], strict=True))
        self.states = [stack_of.get(c) for c in body.carries]
        for v in self.stored:
            if v not in self.known:
                self.known[v] = self._slice(stack_of[v])

    def _keep(self, v: Value) -> None:
        """Keep a value of the forward body, and add it to `known`."""
        if v in self.known or v in self.stored:
            return
        if v in self.body.slices:
            self.known[v] = self._slice(self.sequences[self.body.slices.index(v)])
        else:
            self.stored.append(v)

    def _recomputed(self, v: Value, varying: set[Value]) -> bool:
        """Whether v is recomputed: its operands are kept anyway."""
        if self.body.recompute:
            return v.op.kind != "leaf"
        if v.op.movement and not v.op.written and v.args:
            sources = self._sources(v, varying)  # a part of them is stored rather than all
            return v.size >= sum(s.size for s in sources) or all(map(self._is_kept, sources))
        return bool(v.args) and self._is_cheap(v) and all(
            map(self._is_kept, self._sources(v, varying)))

    def _is_cheap(self, v: Value) -> bool:
        """Whether recomputing v is cheaper than to store and load it: true for a function of a
        state alone, which is stored next to the one before."""
        return v.op.kind == "map" and v not in self.ahead and (
            v.op.cost <= CHEAP or self.next_states.issuperset(v.args))

    def _is_kept(self, v: Value) -> bool:
        return any(v in group for group in (
            self.known, self.stored, self.body.slices, self.next_states, self.ahead))

    def _sources(self, v: Value, varying: set[Value]) -> list[Value]:
        """The operands of v, where all cheap values are recomputed."""
        if v not in varying:
            return []
        if self._is_kept(v) or not v.args:
            return [v]
        cheap = self.body.recompute or v.op.movement or self._is_cheap(v)
        return [s for a in v.args for s in self._sources(a, varying)] if cheap else [v]


def _add(cotangents: dict[Value, Value], v: Value, g: Value) -> None:
    if v.dtype.is_float:
        cotangents[v] = OPS.add(cotangents[v], g) if v in cotangents else g
