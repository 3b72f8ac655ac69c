"""Values with custom gradients, which users define in place of those that autodiff derives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.dtypes import DType
from ztorch.errors import ShapeError
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Op, Value, topological

# The gradient of each argument, None for none: `rule(upstreams, args, shared)`, where upstreams are
# the gradients of the results, and shared the other arguments.
GradientRule = Callable[[Sequence[Value], Sequence[Value], Sequence[Value]],
                        Sequence[Value | None]]


def _grad(o: Any, g: Value, y: Value, result: Value, *args: Value, rule: Any, count: int) -> tuple:
    slopes = rule([g], args[:count], args[count:])
    return g, *slopes, *(None for _ in args[count:])


# A result with the arguments that its gradient depends on. Only the gradient reads them.
_CUSTOM = Op("custom_gradient", "map", lambda result, *args, **attrs: (result.shape, result.dtype),
             numpy=lambda result, *args, **attrs: result, grad=_grad,
             body=lambda e, index, **attrs: e.read(0, index), movement=True, alias=True)


def with_gradient(results: Sequence[Value], args: Sequence[Value], shared: Sequence[Value],
                  rule: GradientRule) -> list[Value]:
    """Results whose gradients a rule gives.

    Args:
        results: Float tensors of one dtype, computed from `ops.stop_gradient` of `args`.
        args: Tensors that the rule gives gradients of.
        shared: Further tensors that the rule takes.
        rule: `rule(upstreams, args, shared)`.

    Examples:
        >>> from ztorch import ops
        >>> from ztorch.graph.op import leaf
        >>> from ztorch.graph.autodiff import gradients
        >>> from ztorch.graph.evaluate import evaluate
        >>> x = leaf("input", "x", (), "float32")
        >>> y = ops.stop_gradient(x) * 2.0
        >>> [y] = with_gradient([y], [x], [], lambda ups, args, shared: [ups[0] * args[0]])
        >>> [g.item() for g in evaluate([y, *gradients(y, [x])], {x: 5.0})]
        [10.0, 5.0]
    """
    count = len(args)
    if len(results) == 1:
        return [_CUSTOM(results[0], *args, *shared, rule=rule, count=count)]
    shapes = [y.shape for y in results]
    packed = OPS.concat(*(OPS.reshape(y, (y.size,)) for y in results), axis=0)

    def unpacking_rule(upstreams: Sequence[Value], *others: Any) -> Sequence[Value | None]:
        return rule(unpacked(upstreams[0], shapes), *others)

    return unpacked(_CUSTOM(packed, *args, *shared, rule=unpacking_rule, count=count), shapes)


def unpacked(packed: Value, shapes: Sequence[tuple[int, ...]]) -> list[Value]:
    """Tensors of the given shapes whose elements are stored one after the other."""
    parts, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        parts.append(OPS.reshape(OPS.slice(packed, (start,), (1,), (size,)), shape))
        start += size
    return parts


def need_floats(name: str, dtypes: Sequence[DType]) -> None:
    """Raises a ShapeError if the results of a function are not floats of one dtype."""
    if not dtypes[0].is_float or any(d is not dtypes[0] for d in dtypes):
        raise ShapeError(f"{name}: a function with a gradient of its own gives results of one "
                         f"float dtype, not {', '.join(map(str, dtypes))}; return other tensors "
                         "from a function of their own")


def check_slope(name: str, number: int, shape: tuple[int, ...], d: DType, slope: Any) -> None:
    """Raises a ShapeError if a gradient does not fit its argument."""
    if (slope.shape, slope.dtype) != (shape, d):
        raise ShapeError(f"{name}: backward gives {slope.dtype}{list(slope.shape)} as the gradient "
                         f"of tensor {number}, which is {d}{list(shape)}")


def rule_of(slopes: Sequence[Value | None], upstreams: Sequence[Value],
            inside: Sequence[Value]) -> tuple[GradientRule, list[Value]]:
    """The rule that computes slopes, and its inputs beside upstreams and arguments.

    Args:
        slopes: Results of the user's backward, computed from upstreams and `inside`.
        upstreams: Leaves that represent the gradients of the results.
        inside: Values that represent the arguments.
    """
    roots = [s for s in slopes if s is not None]
    sources = {*upstreams, *inside}
    order, depends = topological(roots, sources), set(sources)
    for v in order:
        if any(a in depends for a in v.args):
            depends.add(v)
    used = dict.fromkeys([*roots, *(a for v in order if v in depends and v not in sources
                                    for a in v.args)])
    shared = [v for v in used if v not in depends]

    def rule(ups: Sequence[Value], args: Sequence[Value],
             others: Sequence[Value]) -> list[Value | None]:
        new = dict(zip([*upstreams, *inside, *shared], [*ups, *args, *others], strict=True))
        results = iter(substituted(roots, new))
        return [None if s is None else next(results) for s in slopes]

    return rule, shared
