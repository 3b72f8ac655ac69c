"""A graph as text that determines its results: equal texts, equal programs.

Only graphs of the package's own ops have a text: the name of a third-party op does not identify
its functions.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.value import Graph, Op, Value

OURS = ("ztorch.", "numpy")  # modules whose functions are known by name
PLAIN = (bool, int, float, str, bytes, type(None), DType)  # attributes whose repr says all


def text_of(graph: Graph) -> str | None:
    """The text of a graph; None if it has none.

    Examples:
        >>> from ztorch import ops
        >>> from ztorch.graph.op import leaf
        >>> x = leaf("input", "x", (2,), "float32")
        >>> print(text_of(Graph({"y": ops.exp(x)})))
        0 leaf name='x' role='input' f32 (2,)
        1 ztorch.ops.elementwise.exp f32 (2,) 0
        'y' = 1
    """
    lines: list[str] = []
    numbers: dict[Value, int] = {}
    for root in (*graph.roots, *graph.declared):
        if not _write(root, lines, numbers):
            return None
    for sign, roots in (("=", graph.outputs), ("<-", graph.updates)):
        lines += [f"{name!r} {sign} {numbers[_computed(v)]}" for name, v in roots.items()]
    if graph.declared:
        lines.append(f"takes {' '.join(str(numbers[v]) for v in graph.declared)}")
    if graph.recomputed:
        lines.append(f"recomputed {graph.recomputed!r}")
    return "\n".join(lines)


def _computed(v: Value) -> Value:
    """The value that v is another name of."""
    while v.op.alias:
        v = v.args[0]
    return v


def _write(root: Value, lines: list[str], numbers: dict[Value, int]) -> bool:
    """Adds lines for all that a root depends on; whether that was possible."""
    stack = [_computed(root)]
    while stack:
        v = stack[-1]
        if v in numbers:
            stack.pop()
            continue
        args = [_computed(a) for a in v.args]
        missing = [a for a in args if a not in numbers]
        if missing:
            stack += missing
            continue
        stack.pop()
        own = _node(v)
        if own is None:
            return False
        numbers[v] = len(numbers)
        layer = [f"in {v.layer!r}"] if v.layer else []  # kernels are named after it
        lines.append(" ".join([str(numbers[v]), own, *layer, *(str(numbers[a]) for a in args)]))
    return True


def is_told(v: Value) -> bool:
    """Whether the op of a value is the package's own, and the `repr` of each of its attributes says
    all of it, in every program of a process.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> is_told(leaf("input", "x", (2, 3), "float32") + 1.0)
        True
    """
    return is_ours(v.op) and all(_is_plain(x) or isinstance(x, np.ndarray)  # compared by its bytes
                                 or getattr(x, "text", None) is not None for x in v.attrs.values())


def _is_plain(x: Any) -> bool:
    return all(map(_is_plain, x)) if isinstance(x, (tuple, list)) else isinstance(x, PLAIN)


def _node(v: Value) -> str | None:
    """Op, attributes, dtype and shape of a node."""
    if not is_ours(v.op):
        return None
    name = v.op.name if v.op.kind == "leaf" else f"{v.op.infer.__module__}.{v.op.name}"
    words = [name]
    is_state = v.attrs.get("role") == "state"
    for key, attribute in sorted(v.attrs.items()):
        if is_state and key == "data":
            continue
        text = _attribute(attribute)
        if text is None:
            return None
        words.append(f"{key}={text}")
    return " ".join([*words, repr(v.dtype), repr(v.shape)])


def _attribute(x: Any) -> str | None:
    if type(x) is tuple and _is_plain(x):  # most are shapes and axes
        return repr(x)
    if isinstance(x, (np.ndarray, np.generic)):
        raw = np.asarray(x, order="C")
        return f"{raw.dtype.str}{raw.shape}{hashlib.sha256(raw.tobytes()).hexdigest()}"
    if isinstance(x, (tuple, list)):
        parts = [_attribute(part) for part in x]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    if hasattr(x, "text"):  # the body of a loop, which is a graph
        text: str | None = x.text
        return text
    return repr(x) if isinstance(x, PLAIN) else None


@functools.cache
def is_ours(op: Op) -> bool:
    """Whether all functions of an op are the package's own."""
    functions = (op.infer, op.numpy, *((op.body,) if op.body is not None else ()))
    return all(_ours(f, 8) for f in functions)


def _ours(function: Callable[..., Any], depth: int) -> bool:
    """Whether a function and those that it encloses are from the package or NumPy."""
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):  # native functions hold their owner there
        module = type(function).__module__
    if not module.startswith(OURS) or depth == 0:
        return False
    try:
        enclosed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    except ValueError:  # a cell that is empty yet
        return False
    return all(is_ours(x) if isinstance(x, Op) else _ours(x, depth - 1)
               for x in enclosed if callable(x) and not isinstance(x, type))
