"""Translates sequential loops: each becomes a loop of the graph, with a separate body.

Variables that the body changes are the loop's state. Arrays of which each iteration only writes its
own part are written after the loop, from the results of all iterations. Reads of arrays that do not
change are moved before the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean
from ztorch.graph.body import Body, carry_leaf, dependents, slice_leaf
from ztorch.graph.loop import looped
from ztorch.graph.loop_segments import MIN_TRIP_COUNT, root_of
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, topological
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.control_flow import END_FLAG
from ztorch.kernels.counters import known_numbers
from ztorch.kernels.dependence import written
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.overlap import overlaps, slope
from ztorch.kernels.reading import ElementIndex
from ztorch.kernels.scope import KernelVariable, Loop, replace_variable
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar, full, reordered, union
from ztorch.kernels.uses import assigned, definitions, parts, reads_of

PRODUCTS_KEPT = 2  # elements that an iteration keeps for a gradient, per element of its products
STATES_KEPT = 64 << 20  # bytes of states from which on a gradient keeps few, and runs loops again
MAX_TRIALS = 8  # how often the shapes and dtypes of a state may grow before they must agree


@dataclass(frozen=True)
class DeferredWrite:
    """The arguments of a `store` that follows after a loop."""

    name: str
    index: ElementIndex
    new: LoopTensor
    condition: Any
    inner: Axes
    reduction: str | None


class LoopBuilder:
    """Collects the inputs and outputs of one loop while its body is translated."""

    def __init__(self, name: str, count: int, deferred: frozenset[str]):
        self.twin = LoopVar(name, count)
        self.deferred = deferred
        self.states: set[str] = set()  # those of them that are a state of a loop in the body
        self.number = slice_leaf(OPS.iota((count,), 0), 0)
        self.slices: list[tuple[Value, Value]] = [(self.number, OPS.iota((count,), 0))]
        self.var = LoopVar(name, count, self.number, self.twin.serial)
        self.writes: list[DeferredWrite] = []

    def sequence(self, value: Value) -> Value:
        """The iteration's element of a tensor with an element for each iteration."""
        leaf = slice_leaf(value, len(self.slices))
        self.slices.append((leaf, value))
        return leaf

    def defer_write(self, name: str, index: ElementIndex, new: LoopTensor, condition: Any,
                    inner: Axes, reduction: str | None) -> None:
        """Records that elements of an array are written after the loop."""
        if any(w.name == name and (reduction is None or w.reduction != reduction)
               and not self._apart(index, w.index) for w in self.writes):
            self.states.add(name)  # an iteration may write where a later one wrote before
        self.writes.append(DeferredWrite(name, index, new, condition, inner, reduction))

    def _apart(self, a: ElementIndex, b: ElementIndex) -> bool:
        """Whether two writes of different iterations never meet."""
        return any(isinstance(p, Affine) and isinstance(q, Affine) and p == q
                   and self.var in p.terms and not overlaps(p)
                   for p, q in zip(a.places, b.places, strict=True))


def run_in_order(t: ExpressionRules, s: ast.For, name: str, first: Affine, step: int, count: int,
                 last: Any, again: bool = False) -> None:
    """Runs a loop iteration by iteration.

    Args:
        t: The translator of statements.
        s: The loop.
        name: Name of its counter.
        first: The counter in the first iteration.
        step: The increment of each iteration.
        count: Number of iterations.
        last: Iterations whose counter reaches it do nothing; None if there are none.
        again: Whether a gradient computes iterations again, whatever the cost. Default: `False`.
    """
    changed = [n for n in assigned(s.body) if n in t.env and n != name]
    filled = [n for n in written(s.body) if n in t.env and n not in changed]
    deferred = frozenset(n for n in filled if _only_filled(s, n, name, t))
    state: dict[str, LoopTensor] = {}
    for _ in range(MAX_TRIALS):
        names = [n for n in (*changed, *filled) if n not in deferred]
        state = {n: state.get(n) or _state(t, s, n, t.env[n].value) for n in names}
        steps = LoopBuilder(name, count, deferred)
        carries = {n: carry_leaf(x.value, k) for k, (n, x) in enumerate(state.items())}
        after = _translate_body(t, s, steps, name, first, step, last, {
            n: LoopTensor(carries[n], state[n].axes, state[n].weak) for n in names})
        if steps.states:
            deferred -= steps.states
            continue
        if unknown := [n for n in names if n not in after]:  # counters of loops that may be empty
            changed = [n for n in changed if n not in unknown]
            t.env = {n: v for n, v in t.env.items() if n not in unknown}
            continue
        grown = {n: _widen(t, s, n, state[n], after[n]) for n in names}
        if all(_same_type(grown[n], state[n]) for n in names):
            break
        state = grown
    else:
        raise t.source.error(s, "the shapes of the loop's variables grow with each iteration",
                             f"they must stay the same: {', '.join(names)}")
    _finish(t, s, steps, state, carries, after, again)


def _only_filled(s: ast.For, array: str, counter: str, t: ExpressionRules) -> bool:
    """Whether iterations write an array in one place, each its own part, and do not read it."""
    places = written(s.body)[array]
    if len(places) != 1 or next(reads_of(s.body, array), None) is not None:
        return False
    index = parts(places[0][0].slice, definitions(s.body, {*t.env}))
    return any(slope(part, counter, known_numbers(t, s)) for part in index)


def _state(t: ExpressionRules, s: ast.For, name: str, x: Any) -> LoopTensor:
    if not isinstance(x, (LoopTensor, Affine, *NUMBERS)):
        raise t.source.error(s, f"{name} changes in this loop, but {x!r} is not a number or array")
    return t.arithmetic.tile(x)


def _translate_body(t: ExpressionRules, s: ast.For, steps: LoopBuilder, name: str, first: Affine,
                    step: int, last: Any, carries: dict[str, LoopTensor]) -> dict[str, LoopTensor]:
    """Translates the body once. Returns the state after an iteration."""
    before, masks = dict(t.env), len(t.masks)
    t.loops.append(Loop(steps.var, steps))
    depth = len(t.loops)
    counter = first.plus(Affine({steps.var: step}))
    t.env[name] = KernelVariable(counter, depth, depth, masks, "it counts iterations")
    for n, x in carries.items():
        t.env[n] = replace(before[n], value=x, changes=depth)
    t.assigned.append(set())
    body = s.body
    if last is not None:
        op = ast.Lt() if step > 0 else ast.Gt()
        inside = t.arithmetic.compare(op, counter, last)
        t.env["<inside>"] = KernelVariable(inside, depth, depth, masks)
        test = ast.copy_location(ast.Name("<inside>", ast.Load()), s)
        body = [ast.copy_location(ast.If(test, body, []), s)]
    t.block(body)
    t.assigned.pop()
    t.loops.pop()
    after = {n: _state(t, s, n, t.env[n].value) for n in carries if n in t.env}
    t.env = before
    return after


def _widen(t: ExpressionRules, s: ast.For, name: str, old: LoopTensor, new: LoopTensor
           ) -> LoopTensor:
    """The state before the first iteration, with the loops, shape and dtype that it has after one
    iteration."""
    try:
        shape = np.broadcast_shapes(old.shape, new.shape)
    except ValueError:
        shape = None
    if shape != new.shape:
        raise t.source.error(s, f"{name} has shape {list(old.shape)} before an iteration of this "
                             f"loop and {list(new.shape)} after it", "it must stay the same")
    d = t.arithmetic.common([old, new])
    axes = union([old.axes, new.axes])
    return LoopTensor(full(t.arithmetic.cast(old, d), axes, new.shape), axes, old.weak and new.weak)


def _same_type(a: LoopTensor, b: LoopTensor) -> bool:
    return (a.axes, a.shape, a.dtype, a.weak) == (b.axes, b.shape, b.dtype, b.weak)


def _finish(t: ExpressionRules, s: ast.For, steps: LoopBuilder, state: dict[str, LoopTensor],
            carries: dict[str, Value], after: dict[str, LoopTensor], again: bool) -> None:
    """Creates the loop, and sets variables to their final values."""
    news = [_typed(t, after[n], state[n].axes, x.shape, x.dtype) for n, x in state.items()]
    leaves, inits = [*carries.values()], [x.value for x in state.values()]
    flag = getattr(s, END_FLAG, None)
    proceed = None
    if flag is not None and not steps.writes:  # a skipped iteration would have nothing to write
        proceed = _end_carry([*state].index(flag), leaves, inits, news)
    inside = {*leaves, *(leaf for leaf, _ in steps.slices)}
    outs = [x.value for write in steps.writes for x in _results(write, inside)]
    used = {*topological([*news, *outs])}
    slices = [(leaf, x) for leaf, x in steps.slices if leaf in used]
    body = Body(steps.twin.extent, False, tuple(leaves), tuple(leaf for leaf, _ in slices), (),
                tuple(news), tuple(outs), proceed)
    body = replace(body, recompute=True) if again else _with_gradient_strategy(t, s, body)
    sequences = [x for _, x in slices]
    if _states_are_large(body, sequences):
        size = root_of(body.trip_count)
        t.note_more(s, f"a gradient keeps every {size}th state")
        body = replace(body, segment=size)
    ends, stacks = looped(body, inits, sequences, ahead=False)
    plain = {*assigned(s.body)}
    for n, y in zip(state, ends, strict=False):
        for around in t.ordered_around(n):
            around.states |= {n} & around.deferred
        x = LoopTensor(y, state[n].axes, state[n].weak)
        if n in plain and not t.parallel(t.env[n].depth):
            t.bind(n, x, t.env[n].fixed)
        else:
            t.env[n] = replace(t.env[n], value=x)
    _store_all(t, steps, stacks, inside)


def _end_carry(position: int, leaves: list[Value], inits: list[Value], news: list[Value]) -> int:
    """The carry that ends a loop: the flag at a position if it is one bool; else a new carry, true
    while the flag of any element is."""
    if inits[position].rank == 0:
        return position
    inits.append(OPS.any(inits[position]))
    leaves.append(carry_leaf(inits[-1], len(inits) - 1))
    news.append(OPS.any(news[position]))
    return len(inits) - 1


def _with_gradient_strategy(t: ExpressionRules, s: ast.For, body: Body) -> Body:
    """The body, which says whether a gradient computes iterations again; noted for `explain`."""
    products, state_size = _sizes(body)
    body = replace(body, recompute=PRODUCTS_KEPT * products > state_size)
    if products and any(c.dtype.is_float for c in body.carries):
        strategy = "computes iterations again" if body.recompute else "keeps iterations"
        t.note_more(s, f"a gradient {strategy}: products of {products} elements, a state of "
                       f"{state_size}")
    return body


def _states_are_large(body: Body, sequences: Iterable[Value]) -> bool:
    """Whether the states of all iterations, which a gradient may keep, take much memory, and more
    than what the loop reads and writes."""
    if body.trip_count < MIN_TRIP_COUNT or body.proceed is not None:
        return False
    state = sum(c.size * c.dtype.bytes for c, new in zip(body.carries, body.news, strict=True)
                if c is not new)
    outs = body.trip_count * sum(v.size * v.dtype.bytes for v in body.outs)
    read = sum(x.size * x.dtype.bytes for x in sequences)
    return body.trip_count * state > max(STATES_KEPT, read + outs)


def _results(write: DeferredWrite, inside: Collection[Value]) -> list[LoopTensor]:
    """The tiles of a write that each iteration computes: the elements, the condition and places."""
    tiles = [x for x in (write.condition, *write.index.places) if isinstance(x, LoopTensor)]
    return [write.new, *(x for x in tiles if not {*topological([x.value])}.isdisjoint(inside))]


def _store_all(t: ExpressionRules, steps: LoopBuilder, stacks: Iterable[Value],
               inside: Collection[Value]) -> None:
    """Stores what the iterations wrote into arrays."""
    stack = iter(stacks)
    for write in steps.writes:
        every = {id(x): _all_iterations(next(stack), x.axes, steps.twin)
                 for x in _results(write, inside)}
        index = replace(write.index, places=tuple(every.get(id(p), p) for p in write.index.places))
        t.store(write.name, replace_variable(index, steps.var, steps.twin), every[id(write.new)],
                every.get(id(write.condition), write.condition),
                union([write.inner, (steps.twin,)]), write.reduction)


def _sizes(body: Body) -> tuple[int, int]:
    """The number of elements of an iteration's products, and of the state, which a gradient keeps
    in any case. If products, such as blocks of scores, are larger, a gradient computes them
    again."""
    values = dependents(body.roots, (*body.carries, *body.slices))
    products = sum(v.size for v in values if v.op.kind == "contract")
    return products, sum(v.size for v in body.carries)


def _typed(t: ExpressionRules, x: LoopTensor, axes: Axes, shape: tuple[int, ...], d: DType
           ) -> Value:
    return full(x if d is boolean and x.dtype is boolean else t.arithmetic.cast(x, d), axes, shape)


def _all_iterations(stack: Value, axes: Axes, twin: LoopVar) -> LoopTensor:
    """The results of all iterations as a tile with an axis for the loop."""
    loops = union([axes, (twin,)])
    own = tuple(LoopVar(":", n) for n in stack.shape[1 + len(axes):])
    return LoopTensor(reordered(stack, [twin, *axes, *own], (*loops, *own)), loops)
