"""Reverse-mode differentiation: one walk over the graph, with the gradient of each op."""

from __future__ import annotations

import functools
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
    asked = set(wrt)
    dependent = set(asked)  # the nodes that depend on one of wrt
    for v in order:
        if any(a in dependent for a in v.args):
            dependent.add(v)
    parts_of = {v: [g] for v, g in cotangents.items()}  # the terms of each gradient so far
    of_results: dict[Value, dict[int, Value]] = {}  # of loops: gradients of results by index
    for v in reversed(order):
        if v not in dependent or not v.args or v in asked:
            continue
        upstream: Any = (of_results.get(v) if v.op.kind in ("loop", "threads") else
                         _total(v, parts_of[v]) if v in parts_of else None)
        if upstream is None:
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
                parts_of.setdefault(arg, []).append(part)
    return [_total(w, parts_of[w]) if w in parts_of else None for w in wrt]


def _total(v: Value, terms: Sequence[Value]) -> Value:
    """The gradient of v, the sum of these terms. Those of neighboring parts of it are joined."""
    sums: list[Value] = []
    with layer_scope(v.layer):
        for term in terms:
            k = 0
            while k < len(sums):
                joined = _joined(sums[k], term)
                if joined is not None:
                    del sums[k]
                    term, k = joined, -1  # which may join others, too
                k += 1
            sums.append(term)
        return functools.reduce(OPS.add, sums)


def _joined(a: Value, b: Value) -> Value | None:
    """The sum of two tensors that are zero except in neighboring parts; None of others."""
    if a.op.name == b.op.name == "reshape" and a.args[0].shape == b.args[0].shape:
        joined = _joined(a.args[0], b.args[0])
        return None if joined is None else OPS.reshape(joined, a.shape)
    if a.op.name != "pad" or b.op.name != "pad" or a.attrs["value"] or b.attrs["value"]:
        return None
    first, second = sorted((a, b), key=lambda v: v.attrs["low"])
    ends = [low + n for low, n in zip(first.attrs["low"], first.args[0].shape, strict=True)]
    starts = second.attrs["low"]
    apart = [k for k, low in enumerate(starts) if low != first.attrs["low"][k]]
    if len(apart) != 1 or starts[apart[0]] != ends[apart[0]]:
        return None
    [axis], high = apart, second.attrs["high"]
    if any(high[k] != n for k, n in enumerate(first.attrs["high"]) if k != axis):
        return None
    parts = [x for v in (first, second) for x in (
        v.args[0].args if v.args[0].op.name == "concat" and v.args[0].attrs["axis"] == axis
        else v.args)]
    return OPS.pad(OPS.concat(*parts, axis=axis), first.attrs["low"], high)
