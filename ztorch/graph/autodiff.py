"""Reverse-mode differentiation: one walk over the graph, with the gradient of each op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope, topological


def gradients(y: Value, wrt: Sequence[Value]) -> list[Value]:
    """The gradients of the sum of y, as new nodes of the graph.

    Args:
        y: A float tensor.
        wrt: Tensors to differentiate with respect to.

    Returns:
        The gradient of each tensor of `wrt`, in its shape and dtype; zeros where y does not depend
        on it.

    Raises:
        Unsupported: An op between `wrt` and y has no gradient.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> from ztorch import ops
        >>> x = leaf("input", "x", (3,), "float64")
        >>> [dx] = gradients(ops.sum(x * x), [x])
        >>> dx.shape
        (3,)
    """
    slopes = pullback({y: OPS.ones_like(y)}, wrt)
    return [OPS.zeros_like(w) if slope is None else slope
            for w, slope in zip(wrt, slopes, strict=True)]


def pullback(cotangents: Mapping[Value, Value], wrt: Sequence[Value]) -> list[Value | None]:
    """The gradients of the sum of some values, each times a cotangent.

    Args:
        cotangents: Float tensors, each with a tensor of its shape and dtype.
        wrt: Tensors to differentiate with respect to.

    Returns:
        The gradient of each tensor of `wrt`; None where nothing depends on it.
    """
    order = topological(cotangents)
    dependent = set(wrt)  # the nodes that depend on one of wrt
    for v in order:
        if any(a in dependent for a in v.args):
            dependent.add(v)
    grads = dict(cotangents)  # as far as known
    of_results: dict[Value, dict[int, Value]] = {}  # of loops: gradients of results by index
    for v in reversed(order):
        upstream: Any = (of_results if v.op.kind in ("loop", "threads") else grads).get(v)
        if upstream is None or v not in dependent or not v.args or v in wrt:
            continue
        if v.op.kind in ("result", "threads_result"):
            by_index, index = of_results.setdefault(v.args[0], {}), v.attrs["index"]
            by_index[index] = (OPS.add(by_index[index], upstream) if index in by_index
                               else upstream)
            continue
        if v.op.grad is None:
            raise Unsupported(f"op {v.op.name} has no gradient; wrap its input in "
                              "ops.stop_gradient, or keep it out of the loss")
        with layer_scope(v.layer):
            parts = v.op.grad(OPS, upstream, v, *v.args, **v.attrs)
            for arg, part in zip(v.args, parts, strict=True):
                if part is None or arg not in dependent:
                    continue
                assert part.shape == arg.shape and part.dtype == arg.dtype, (v, arg, part)
                grads[arg] = OPS.add(grads[arg], part) if arg in grads else part
    return [grads.get(w) for w in wrt]
