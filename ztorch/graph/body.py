"""The body of a loop of the graph.

A body is a separate graph. Its leaves are the values that change from iteration to iteration, and
the values that it reads from outside, which stay the same.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Op, Value, topological

CARRY, SLICE, SHARED = "carry", "slice", "shared"  # roles of a body's leaves


@dataclass(frozen=True, eq=False)
class Body:
    """The iterations of a loop.

    The arguments of the loop are the first values of the carries, then the sequences, then the
    values that all iterations share. Its results are the last values of the carries, then the
    stacks of outs.
    """

    trip_count: int  # how many, at most
    reverse: bool  # whether sequences are read, and stacks written, from their end
    carries: tuple[Value, ...]  # leaves: the state before the iteration
    slices: tuple[Value, ...]  # leaves: the iteration's element of each sequence
    shared: tuple[Value, ...]  # leaves: values that are the same in every iteration
    news: tuple[Value, ...]  # the state after the iteration
    outs: tuple[Value, ...]  # values kept of every iteration
    proceed: int | None = None  # number of the carry that ends the loop where it is false
    recompute: bool = False  # whether its gradient computes an iteration again from its carries
    again: bool = False  # whether its iterations have run before, and run again to save memory
    segment: int | None = None  # iterations that its gradient computes again at a time
    ahead: bool = False  # whether products of sequences alone are computed before the loop

    @property
    def is_branch(self) -> bool:
        """Whether it is taken once or not at all. Then nothing of it is computed before."""
        return self.proceed is not None and self.trip_count == 1

    @functools.cached_property
    def nodes(self) -> list[Value]:
        """All that an iteration computes, each value after its arguments."""
        return topological(self.roots)

    @property
    def roots(self) -> tuple[Value, ...]:
        return (*self.news, *self.outs)

    @property
    def leaves(self) -> tuple[Value, ...]:
        """In the order of the loop's arguments."""
        return (*self.carries, *self.slices, *self.shared)

    def with_roots(self, roots: Iterable[Value]) -> Body:
        """The same loop around other values, news first."""
        values = tuple(roots)
        count = len(self.news)
        return replace(self, news=values[:count], outs=values[count:])

    @functools.cached_property
    def text(self) -> str | None:
        """Equal for bodies that compute the same; None where ops of users are in them."""
        text = text_of(Graph({str(k): v for k, v in enumerate((*self.leaves, *self.roots))}))
        counts = [len(part) for part in (self.carries, self.slices, self.shared)]
        if text is None:
            return None
        way = f"{self.trip_count} {self.reverse} {counts} {self.proceed} {self.recompute}"
        way += f" {self.segment} {self.ahead}"
        return hashlib.sha256(f"{text}\n{way}".encode()).hexdigest()[:32]

    def __repr__(self) -> str:
        """The key of equal bodies: attributes of nodes are compared by it."""
        return f"<body {self.text or id(self)}>"


def carry_leaf(like: Value, number: int) -> Value:
    """A leaf that represents a state before the iteration."""
    return leaf(CARRY, f"carry {number}", like.shape, like.dtype)


def slice_leaf(sequence: Value, number: int) -> Value:
    """A leaf that represents the iteration's element of a sequence."""
    return leaf(SLICE, f"slice {number}", sequence.shape[1:], sequence.dtype)


def dependents(roots: Iterable[Value], sources: Iterable[Value]) -> set[Value]:
    """The values on paths from sources to roots, including both."""
    depends = set(sources)
    for v in topological(roots, depends):
        if any(a in depends for a in v.args):
            depends.add(v)
    return depends


def iterations_of(x: Value, start: int, end: int, step: int = 1) -> Value:
    """Elements of a sequence, as its slice would be."""
    count = -(-(end - start) // step)
    return x if count == x.shape[0] else OPS.slice(
        x, (start, *(0 for _ in x.shape[1:])), (step, *(1 for _ in x.shape[1:])),
        (count, *x.shape[1:]))


def with_own_leaves(body: Body) -> Body:
    """The same body with leaves that no other one has."""
    carries = tuple(carry_leaf(v, k) for k, v in enumerate(body.carries))
    slices = tuple(leaf(SLICE, f"slice {k}", v.shape, v.dtype) for k, v in enumerate(body.slices))
    new = dict(zip((*body.carries, *body.slices), (*carries, *slices), strict=True))
    return replace(body.with_roots(substituted(body.roots, new)), carries=carries, slices=slices)


def is_number(v: Value) -> bool:
    """Whether a value needs nothing from outside: a fill, a range or a constant."""
    return not v.args and (v.op.kind == "map" or v.attrs.get("role") == "constant")


def closed(body: Body, inside: Callable[[Value], bool] = is_number
           ) -> tuple[Body, tuple[Value, ...]]:
    """The body with a leaf for each value that it reads from outside, and these values.

    A value that does not depend on the iteration becomes such a shared value, so it is computed
    once, before the loop.

    Args:
        body: The iterations; `shared` is empty.
        inside: Whether a value that does not depend on the iteration is computed in the body all
            the same. Default: `is_number`.
    """
    own = {*body.carries, *body.slices}
    depends = dependents(body.roots, own)
    read = [a for v in topological(body.roots, own) if v in depends for a in v.args]
    stack = [v for v in dict.fromkeys([*body.roots, *reversed(read)]) if v not in depends]
    outside: dict[Value, None] = {}
    visited = set[Value]()
    while stack:
        v = stack.pop()
        if v in visited:
            continue
        visited.add(v)
        if inside(v):
            stack += v.args
        else:
            outside[v] = None
    leaves = tuple(leaf(SHARED, f"shared {k}", v.shape, v.dtype) for k, v in enumerate(outside))
    roots = substituted(body.roots, dict(zip(outside, leaves, strict=True)))
    return replace(body.with_roots(roots), shared=leaves), tuple(outside)


def first_values(nodes: Iterable[Value]) -> set[Value]:
    """The first values of the carries of all loops among some nodes, and of arrays that threads
    write. Prepared loops write the next values over them, so each loop has first values of its
    own."""
    firsts: set[Value] = set()
    for v in nodes:
        if v.op.kind == "loop":
            firsts.update(arguments(v.attrs["body"], v.args)[0])
        elif v.op.kind == "threads":
            firsts.update(v.args[-len(v.attrs["program"].written):])
    return firsts


def arguments(body: Body, args: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """The arguments of a loop: first values of carries, sequences, values that all iterations
    share."""
    first = len(body.carries)
    second = first + len(body.slices)
    return tuple(args[:first]), tuple(args[first:second]), tuple(args[second:])


# -- results ---------------------------------------------------------------------------------------


def _result_infer(loop: Value, index: int) -> tuple[tuple[int, ...], DType]:
    body: Body = loop.attrs["body"]
    count = len(body.carries)
    if index < count:
        return body.carries[index].shape, body.carries[index].dtype
    out = body.outs[index - count]
    return (body.trip_count, *out.shape), out.dtype


def _result_numpy(results: Any, index: int) -> Any:
    raise AssertionError("loops are evaluated by graph/evaluate.py")


def _result_batch(one: Value, many: Any, index: int) -> Value:
    """Of a stack, iterations are the first axis and examples the second one."""
    [loop] = many.args
    result = RESULT(loop, index=index)
    if index < len(loop.attrs["body"].carries):
        return result
    return OPS.transpose(result, (1, 0, *range(2, result.rank)))


RESULT = Op("result", "result", _result_infer, _result_numpy, batch=_result_batch)


def results_of(loop: Value) -> tuple[list[Value], list[Value]]:
    """All results of a loop: the last values of its carries, and its stacks."""
    body: Body = loop.attrs["body"]
    count = len(body.carries)
    results = [RESULT(loop, index=k) for k in range(count + len(body.outs))]
    return results[:count], results[count:]
