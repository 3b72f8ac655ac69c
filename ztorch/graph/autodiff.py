"""Reverse-mode differentiation: each op brings its own gradient; this walks the graph once."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope, topological


def gradients(y: Value, wrt: Sequence[Value]) -> list[Value]:
    """d(sum of y) / d(each of wrt), as new nodes of the graph.

    >>> from ztorch.graph.op import leaf
    >>> from ztorch import ops
    >>> x = leaf("input", "x", (3,), "float64")
    >>> [dx] = gradients(ops.sum(x * x), [x])
    >>> dx.shape
    (3,)
    """
    order = topological([y])
    needed = set(wrt)
    for v in order:  # a node matters if something we differentiate by lies below it
        if any(a in needed for a in v.args):
            needed.add(v)
    seeds: dict[Value, Value] = {y: OPS.ones_like(y)}
    for v in reversed(order):
        if v not in seeds or v not in needed or not v.args or v in wrt:
            continue
        if v.op.grad is None:
            raise Unsupported(f"op {v.op.name} has no gradient; wrap its input in "
                              "ops.stop_gradient, or keep it out of the loss")
        with layer_scope(v.layer):
            parts = v.op.grad(OPS, seeds[v], v, *v.args, **v.attrs)
            for arg, part in zip(v.args, parts, strict=True):
                if part is None or arg not in needed:
                    continue
                assert part.shape == arg.shape and part.dtype == arg.dtype, (v, arg, part)
                seeds[arg] = OPS.add(seeds[arg], part) if arg in seeds else part
    return [seeds[w] if w in seeds else OPS.zeros_like(w) for w in wrt]
