"""Loops as nodes of the graph, and their gradients.

A loop has several results, so it is two ops: `LOOP`, the node of the loop itself, and `RESULT`, one
of its results. The gradient is a loop, too, over the turns in the other order. It reads what the
forward loop keeps of every turn; what turns add to the gradient of a value that they share becomes
one large product after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import pullback
from ztorch.graph.batching import repeated, vectorized
from ztorch.graph.body import Body, arguments, carry_leaf, closed, dependents, slice_leaf
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value, topological
from ztorch.graph.rewrite import substituted

Shape = tuple[int, ...]

CHEAP = 2  # issue slots of an op that is computed again rather than stored for every turn


def _loop_infer(*args: Value, body: Body) -> tuple[Shape, DType]:
    return (), boolean  # a loop by itself is no tensor


def _loop_numpy(*args: Any, body: Body) -> Any:
    raise AssertionError("loops are evaluated by graph/evaluate.py")


def _result_infer(loop: Value, index: int) -> tuple[Shape, DType]:
    body: Body = loop.attrs["body"]
    count = len(body.carries)
    if index < count:
        return body.carries[index].shape, body.carries[index].dtype
    out = body.outs[index - count]
    return (body.turns, *out.shape), out.dtype


def _result_numpy(results: Any, index: int) -> Any:
    return results[index]


def repeat(body: Body, inits: Sequence[Value], sequences: Sequence[Value]
           ) -> tuple[list[Value], list[Value]]:
    """A loop as values of the graph.

    Products of sequences that do not depend on carries are computed before the loop, for all turns
    at once.

    Args:
        body: The turns; `shared` is empty, and what it reads from outside are values around it.
        inits: First values of the carries.
        sequences: A sequence for each slice: tensors whose first axis is the turn.

    Returns:
        The last values of the carries, and the stacks of what is kept of every turn.
    """
    body, sequences = _products_first(body, list(sequences))
    body, shared = closed(body)
    return results_of(LOOP(*inits, *sequences, *shared, body=body))


def results_of(loop: Value) -> tuple[list[Value], list[Value]]:
    """All results of a loop: the last values of its carries, and its stacks."""
    body: Body = loop.attrs["body"]
    count = len(body.carries)
    results = [RESULT(loop, index=k) for k in range(count + len(body.outs))]
    return results[:count], results[count:]


def _products_first(body: Body, sequences: list[Value]) -> tuple[Body, list[Value]]:
    """The body with products of sequences alone as slices of their own."""
    ahead = dependents(body.roots, body.slices) - dependents(body.roots, body.carries)
    order = topological(body.roots, {*body.carries, *body.slices})
    heavy: set[Value] = set()  # products of sequences, and what is made of them alone
    for v in order:
        if v in ahead and (v.op.kind == "contract" or any(a in heavy for a in v.args)):
            heavy.add(v)
    ends = [a for v in order if v not in heavy for a in v.args if a in heavy]
    ends = list(dict.fromkeys(_below_movement(v, heavy) for v in [
        *ends, *(r for r in body.roots if r in heavy)]))
    if not ends:
        return body, sequences
    examples = dict(zip(body.slices, sequences, strict=True))
    try:
        known = vectorized(ends, examples, body.turns)
    except Unsupported:  # it draws random numbers at every turn
        return body, sequences
    leaves = [slice_leaf(known[v], len(sequences) + k) for k, v in enumerate(ends)]
    roots = substituted(body.roots, dict(zip(ends, leaves, strict=True)))
    used = set(topological(roots))
    kept = [(s, x) for s, x in (*examples.items(), *((s, known[v]) for s, v in zip(
        leaves, ends, strict=True))) if s in used]
    return replace(body.with_roots(roots), slices=tuple(s for s, _ in kept)), [x for _, x in kept]


def _below_movement(v: Value, heavy: set[Value]) -> Value:
    """What a chain of movements reads: it costs nothing inside the loop."""
    while v.op.movement and len(v.args) == 1 and v.args[0] in heavy:
        v = v.args[0]
    return v


# -- the gradient ----------------------------------------------------------------------------------


def _grad(o: Any, upstreams: Mapping[int, Value], loop: Value, *args: Value,
          body: Body) -> tuple[Value | None, ...]:
    """`upstreams`: gradients of results, by their index."""
    backward = _Backward(body, arguments(body, args), upstreams)
    return backward.slopes()


class _Backward:
    """The loop that goes back through the turns of another one."""

    def __init__(self, body: Body, args: tuple[tuple[Value, ...], ...],
                 upstreams: Mapping[int, Value]):
        self.body, self.upstreams = body, upstreams
        # A branch that was not taken has no gradient. Of other loops that end early, all turns are
        # kept: those after the end change nothing.
        self.proceed = body.proceed if body.turns == 1 else None
        self.inits, self.sequences, self.shared = args
        self.slices: dict[Value, Value] = {}  # leaves of the new body: their sequences
        self.stored: list[Value] = []  # what the forward loop keeps for this one
        self.known: dict[Value, Value] = {}  # values of the forward body, as those of the new one
        self.sums: list[Value] = []  # what is added up by a carry of its own
        self.outs: list[Value] = []  # what is kept of every turn

    def slopes(self) -> tuple[Value | None, ...]:
        """The gradients of the loop's arguments."""
        body = self.body
        carried = [k for k, c in enumerate(body.carries) if c.dtype.is_float]
        leaves = {k: carry_leaf(body.carries[k], k) for k in carried}
        cotangents: dict[Value, Value] = {}
        for k, g in leaves.items():
            _add(cotangents, body.news[k], g)
        for index, upstream in self.upstreams.items():
            if index >= len(body.carries):
                _add(cotangents, body.outs[index - len(body.carries)], self._slice(upstream))
        wrt = [v for v in body.leaves if v.dtype.is_float]
        slopes = dict(zip(wrt, pullback(cotangents, wrt), strict=True))
        slopes = self._moved({v: g for v, g in slopes.items() if g is not None},
                             {*leaves.values(), *self.slices})
        first = [self.upstreams.get(k, OPS.zeros_like(body.carries[k])) for k in carried]
        news = [slopes.get(body.carries[k], OPS.zeros_like(body.carries[k])) for k in carried]
        own = [*leaves.values(), *self.slices]
        depends = dependents(slopes.values(), own)
        self.outs = [slopes[s] for s in body.slices if s in slopes]
        totals = {v: self._total(slopes[v], depends) for v in body.shared if v in slopes}
        extra = [carry_leaf(v, len(body.carries) + k) for k, v in enumerate(self.sums)]
        outs = list(dict.fromkeys(self.outs))
        going = [] if self.proceed is None else [body.carries[self.proceed]]
        turn = Body(body.turns, not body.reverse, (*leaves.values(), *extra, *going),
                    tuple(self.slices), (),
                    (*news, *(c + v for c, v in zip(extra, self.sums, strict=True)), *going),
                    tuple(outs), len(leaves) + len(extra) if going else None)
        last, stacks = repeat(turn, [*first, *map(OPS.zeros_like, extra),
                                     *(self.inits[self.proceed or 0] for _ in going)],
                              list(self.slices.values()))
        stack_of = dict(zip(outs, stacks, strict=True))
        sum_of = dict(zip(self.sums, last[len(carried):], strict=False))
        return (*(dict(zip(carried, last, strict=False)).get(k) for k in range(len(body.carries))),
                *(stack_of[slopes[s]] if s in slopes else None for s in body.slices),
                *(totals[s](stack_of, sum_of) if s in totals else None for s in body.shared))

    # -- what it reads of the forward loop ---------------------------------------------------------

    def _slice(self, sequence: Value) -> Value:
        """The turn's element of a sequence."""
        s = slice_leaf(sequence, len(self.slices))
        self.slices[s] = sequence
        return s

    def _moved(self, slopes: dict[Value, Value], own: set[Value]) -> dict[Value, Value]:
        """The slopes in terms of this loop's leaves."""
        body = self.body
        turning = dependents([*slopes.values(), *body.roots], {*body.carries, *body.slices})
        backward = dependents(slopes.values(), own)
        self.known = dict(zip(body.shared, self.shared, strict=True))
        edge = {a for v in topological(slopes.values(), own) if v in backward for a in v.args}
        edge |= set(slopes.values())
        needed = sorted((v for v in edge if v in turning and v not in backward),
                        key=lambda v: v.serial)
        for again in (False, True):  # what is cheap is computed again, where that stores no more
            for v in needed:
                if self._recomputed(v, turning) is not again:
                    continue
                for source in self._sources(v, turning) if again else [v]:
                    self._keep(source)
        if self.stored:
            _, stacks = results_of(LOOP(*self.inits, *self.sequences, *self.shared, body=replace(
                body, proceed=self.proceed, outs=(*body.outs, *self.stored))))
            for v, stack in zip(self.stored, stacks[len(body.outs):], strict=True):
                self.known[v] = self._slice(stack)
        roots = substituted(list(slopes.values()), self.known)
        return dict(zip(slopes, roots, strict=True))

    def _keep(self, v: Value) -> None:
        """Makes a value of the forward body known here."""
        if v in self.known or v in self.stored:
            return
        if v in self.body.slices:
            self.known[v] = self._slice(self.sequences[self.body.slices.index(v)])
        else:
            self.stored.append(v)

    def _recomputed(self, v: Value, turning: set[Value]) -> bool:
        """Whether v is computed again: what it is made of is kept anyway."""
        if v.op.movement and not v.op.written and v.args:
            return True
        if v.op.kind != "map" or not v.args or v.op.cost > CHEAP:
            return False
        return all(s in self.known or s in self.stored or s in self.body.slices
                   for s in self._sources(v, turning))

    def _sources(self, v: Value, turning: set[Value]) -> list[Value]:
        """What v is computed from, where all that is cheap is computed again."""
        if v not in turning:
            return []
        if v in self.known or v in self.stored or not v.args:
            return [v]
        cheap = v.op.movement or (v.op.kind == "map" and v.op.cost <= CHEAP)
        return [s for a in v.args for s in self._sources(a, turning)] if cheap else [v]

    # -- what all turns add up to ------------------------------------------------------------------

    def _total(self, v: Value, depends: set[Value]) -> Callable[..., Value]:
        """The sum of v over all turns, as a function of the results of this loop. A sum of products
        is one product of stacks."""
        if v.op.kind == "contract":
            a, b = (self._stack(x, depends) for x in v.args)
            attrs = v.attrs
            return lambda stacks, sums: _long_product(a(stacks), b(stacks), v.op, attrs)
        if v.op.kind == "reduce" and v.op.opcode == "add":
            [x], axes = v.args, v.attrs["axes"]
            rows = self._stack(x, depends)
            return lambda stacks, sums: OPS.sum(rows(stacks), axis=(0, *(a + 1 for a in axes)))
        if v.op.name == "add" and v in depends:
            parts = [self._total(x, depends) for x in v.args]
            return lambda stacks, sums: OPS.add(*(part(stacks, sums) for part in parts))
        if v.op.name in ("reshape", "transpose", "slice") and v in depends:
            part = self._total(v.args[0], depends)
            return lambda stacks, sums: Value(v.op, (part(stacks, sums),), v.attrs, v.shape,
                                              v.dtype)
        if v not in self.sums:
            self.sums.append(v)
        return lambda stacks, sums: sums[v]

    def _stack(self, v: Value, depends: set[Value]) -> Callable[..., Value]:
        """v of every turn, as a function of this loop's stacks."""
        if v in self.slices:
            return lambda stacks: self.slices[v]
        if v not in depends:
            return lambda stacks: repeated(v, self.body.turns)
        if v.op.movement and len(v.args) == 1:
            below = self._stack(v.args[0], depends)

            def moved(stacks: Mapping[Value, Value]) -> Value:
                stack = below(stacks)
                return vectorized([v], {v.args[0]: stack}, self.body.turns)[v]

            return moved
        self.outs.append(v)
        return lambda stacks: stacks[v]


def _add(cotangents: dict[Value, Value], v: Value, g: Value) -> None:
    if v.dtype.is_float:
        cotangents[v] = OPS.add(cotangents[v], g) if v in cotangents else g


def _long_product(a: Value, b: Value, op: Op, attrs: Mapping[str, Any]) -> Value:
    """The sum over turns of a @ b, as one product: turns become part of what it sums over."""
    turns, m, k, n = a.shape[0], a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[1:-2]
    rank = len(batch)
    order = (*range(1, rank + 2), 0, rank + 2)  # ..., m, turns, k
    left = OPS.reshape(OPS.transpose(a, order), (*batch, m, turns * k))
    order = (*range(1, rank + 1), 0, rank + 1, rank + 2)  # ..., turns, k, n
    right = OPS.reshape(OPS.transpose(b, order), (*batch, turns * k, n))
    return op(left, right, **attrs)


def _batch(one: Value, many: Any, body: Body) -> Value:
    raise Unsupported("zt.vmap does not support loops yet")


LOOP = Op("loop", "loop", _loop_infer, _loop_numpy, _grad)
RESULT = Op("result", "result", _result_infer, _result_numpy)
