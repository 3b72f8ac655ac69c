"""Finds numbers that follow from the size of an open axis, such as in `x * ops.shape(x)[1]` or
`ops.linspace(0, 1, steps)`.

Steps of padding would change them. A graph alone does not tell them from others, so a model is
traced for two sizes, and the numbers that its graphs hold are compared. Those of the smaller size
must begin those of the larger one, as positions and masks do.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ztorch.graph.body import Body
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Value, topological


def number_of_size(roots: Iterable[Value], larger: Iterable[Value],
                   layers: Container[str]) -> Value | None:
    """The first value of a graph whose numbers follow from the size of an axis; None if there is
    none, or if the graphs differ in more than sizes.

    Args:
        roots: The outputs of a model.
        larger: Those for a larger size.
        layers: The paths of layers whose values are compared. The others know what is padded.

    Examples:
        >>> from ztorch.graph.op import OPS, leaf
        >>> def outputs(size):
        ...     x = leaf("input", "x", (size, 3), "float32")
        ...     return [x + OPS.cast(OPS.iota((size, 1), 0, "int32"), "float32"), x / size]
        >>> number_of_size(outputs(4), outputs(5), {""})
        <full f32[4x3]>
    """
    nodes, others = topological(roots), topological(larger)
    if [v.op.name for v in nodes] != [w.op.name for w in others]:
        return None
    pairs = list(zip(nodes, others, strict=True))
    for v, w in pairs:
        if v.layer not in layers:
            continue
        if v.op.name == "full" and repr(v.attrs["value"]) != repr(w.attrs["value"]):
            return v
        if not all(_same(a, w.attrs.get(name), layers) for name, a in v.attrs.items()):
            return v
    constant = _constants(nodes)
    read = {a for v in nodes if v not in constant for a in v.args}
    ends = [(v, w) for v, w in pairs if v in constant and v in read and v.layer in layers
            and v.op.name != "full"]
    numbers = zip(evaluate([v for v, _ in ends], {}), evaluate([w for _, w in ends], {}),
                  strict=True)
    return next((v for (v, _), (a, b) in zip(ends, numbers, strict=True)
                 if not begins_with(b, a)), None)


def _constants(nodes: Sequence[Value]) -> set[Value]:
    """The values that no input and no state affects."""
    constant: set[Value] = set()
    for v in nodes:
        if all(a in constant for a in v.args) and v.attrs.get("role", "constant") == "constant":
            constant.add(v)
    return constant


def _same(a: Any, b: Any, layers: Container[str]) -> bool:
    """Whether attributes agree, but for integers, which may be sizes."""
    if isinstance(a, Body) and isinstance(b, Body):
        counts = a.trip_count == b.trip_count or bool(a.slices or a.outs)
        return counts and number_of_size(a.roots, b.roots, layers) is None
    return repr(a) == repr(b) if isinstance(a, float) else True


def begins_with(larger: np.ndarray, a: np.ndarray) -> bool:
    """Whether an array is the beginning of another along each axis.

    >>> begins_with(np.arange(5), np.arange(3)), begins_with(np.arange(5), np.arange(1, 3))
    (True, False)
    """
    return larger.ndim == a.ndim and np.array_equal(
        larger[tuple(map(slice, a.shape))], a, equal_nan=a.dtype.kind == "f")
