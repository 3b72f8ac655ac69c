"""Operators and ops on tensors of a model that is being declared, beside NumPy, and in configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.layers.context import Context

A = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
B = np.cos(A)
ROW = np.arange(1, 5, dtype=np.float32)

# The same function with zt.ops, and with NumPy.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "arithmetic": (lambda o, a, b: (a / 2.0 + b * a - 1.0) ** 2, lambda a, b: (a / 2 + b * a - 1) ** 2),
    "reflected": (lambda o, a, b: 2.0 / (3.0 - b) + (1.5 - a) * 2, lambda a, b: 2 / (3 - b) + (1.5 - a) * 2),
    "arrays": (lambda o, a, b: ROW * a + (b - ROW), lambda a, b: ROW * a + b - ROW),
    "comparison": (lambda o, a, b: o.where(a > b, a, -b), lambda a, b: np.where(a > b, a, -b)),
    "parts": (lambda o, a, b: a[:, 1:, ::2] + b[..., None, 1, :2], lambda a, b: a[:, 1:, ::2] + b[..., None, 1, :2]),
    "products": (lambda o, a, b: a @ o.transpose(b, (0, 2, 1)), lambda a, b: a @ b.transpose(0, 2, 1)),
    "reduction": (lambda o, a, b: o.mean(o.relu(a) * b, axis=(1, 2)), lambda a, b: (np.maximum(a, 0) * b).mean((1, 2))),
    "lists": (lambda o, a, b: o.concat([a, b, a[:, :1]], axis=1), lambda a, b: np.concatenate([a, b, a[:, :1]], 1)),
    "methods": (lambda o, a, b: (a * 1.0).exp().sum(axis=-1) + o.max(b, axis=-1), lambda a, b: np.exp(a).sum(-1) + b.max(-1)),
    "results": (lambda o, a, b: o.split(a, 2, axis=-1)[1] - b[..., :2], lambda a, b: a[..., 2:] - b[..., :2]),
}


@together()
@pytest.mark.parametrize("name", CASES)
def test_ops_and_operators_are_layers(name: str) -> None:
    ours, numpy = CASES[name]
    a, b = L.Input((3, 4), name="a"), L.Input((3, 4), name="b")
    model = zt.Model([a, b], ours(zt.ops, a, b))
    want = numpy(A, B)
    assert model.output_shape == (None, *want.shape[1:])
    for made in (model, zt.Model.from_json(model.to_json())):
        x = made.leaves(2)
        y = made.called(x, Context())[""]
        [got] = evaluate([y], dict(zip(x.values(), (A, B), strict=True)))
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def test_in_a_program() -> None:
    x = L.Input((4,))
    model = zt.Model(x, zt.ops.softmax(L.Dense(3)(zt.ops.tanh(x) * 2.0)))
    model.compile("cpu:scalar", batch_size=4, optimizer="adam",
                  loss="sparse_categorical_crossentropy")
    data, labels = A.reshape(6, 4), np.arange(6) % 3
    kernel, bias = model.get_weights()
    z = np.tanh(data) * 2 @ kernel + bias
    e = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(model.predict(data), e / e.sum(1, keepdims=True), rtol=1e-5)
    want = -np.log(e / e.sum(1, keepdims=True))[np.arange(6), labels].mean()
    np.testing.assert_allclose(model.evaluate(data, labels, verbose=0), want, rtol=1e-5)
    model.fit(data, labels, verbose=0)
    assert (model.get_weights()[0] != kernel).any()


def test_what_it_cannot_do() -> None:
    x = L.Dense(4, name="d")(L.Input((3, 4)))
    for use, message in (
            (lambda: np.asarray(x), r"zt\.ops rather than NumPy"),
            (lambda: 1 if x > 0.0 else 2, r"zt\.ops\.where\(x > 0\.0, x, 0\.0\) in place of if"),
            (lambda: list(x), "the first axis is the batch"),
            (lambda: x.T, "keeps the batch as its first axis"),
            (lambda: x.foo, "it has no op 'foo'")):
        with pytest.raises(ConfigError, match=message):
            use()
    with pytest.raises(ShapeError, match=r"zt\.ops\.sum changes the batch axis"):
        zt.ops.sum(x, axis=0)
    with pytest.raises(ConfigError, match="no such op"):
        L.Operation("rellu")
    with pytest.raises(ConfigError, match="is not an argument of an op; use numbers"):
        L.Operation.from_config({"op": "relu", "arguments": [{"name": 0}]})
