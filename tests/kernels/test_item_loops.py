"""Loops over the items of arrays, `enumerate` and `zip`: plain Python's numbers, and gradients."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf

X = np.arange(1.0, 13.0).reshape(3, 4) / 8 - 0.7
KERNELS = {
    "items of a row": "s = 0.0\n    for v in x[0]:\n        s += v * v if v > 0 else v\n    return s",
    "rows and elements": """out = np.zeros_like(x)
    for i, row in enumerate(x):
        for j, v in enumerate(row):
            out[i, j] = v * 2 + i * j
    return out""",
    "sums of columns": """out = np.zeros(x.shape[1])
    for row in x:
        for j, v in enumerate(row):
            out[j] += v * v
    return out""",
    "sums of columns without an order": """out = np.zeros(x.shape[1])
    for i in zt.grid(x.shape[0]):
        for j, v in enumerate(x[i]):
            out[j] += v * v
    return out""",
    "the shorter of two": "s = 0.0\n    for u, v in zip(x[0], x[1, :3]):\n        s += u * v\n    return s",
    "until a break": """at = -1.0
    for v in x[0]:
        if v > -0.4:
            at = v
            break
    return at""",
    "a known tuple": """out = np.zeros(4)
    for k, c in enumerate((1.0, 2.5)):
        for i, v in enumerate(x[1]):
            out[i] += c * v ** k
    return out""",
    "in order": """out, h = x[0].copy(), 0.0
    for i, v in enumerate(x[0]):
        h = 0.5 * h + v
        out[i] = h
    return out""",
    "an array that the loop changes": """y = x[2].copy()
    for i, v in enumerate(y):
        if i + 1 < len(y):
            y[i + 1] = y[i + 1] + 0.5 * v
    return y""",
    "expressions": "s = 0.0\n    for v in x[0, 2:]:\n        s += v ** 3\n    for v in np.exp(x[1]):\n        s += v\n    return s"}


@pytest.mark.parametrize("name", KERNELS)
def test_numbers_and_gradients_are_those_of_python(name: str) -> None:
    text = f"def k(x):\n    {KERNELS[name]}\n"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"np": np, "zt": zt}
    exec(compile(text, name, "exec"), names)
    k = zt.kernel(names["k"])
    x = leaf("input", "x", X.shape, "float64")
    y = k.trace({"x": x})
    weights = np.linspace(0.5, 1.5, y.size).reshape(y.shape)
    [slope] = gradients(OPS.sum(y * weights), [x])
    value, slopes = evaluate([y, slope], {x: X})
    np.testing.assert_allclose(value, k.debug(X), rtol=1e-12)
    steps = 1e-6 * np.eye(X.size).reshape(X.size, *X.shape)
    rises = [np.sum((k.debug(X + h) - k.debug(X - h)) * weights) / 2e-6 for h in steps]
    np.testing.assert_allclose(slopes.ravel(), rises, rtol=1e-5, atol=1e-8)
