"""Fifty compiled training steps against PyTorch: from the same weights to the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch import optimizers
from ztorch.compile.pipeline import build
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace

BATCH, STEPS = 12, 50
SIZES = (20, 32, 16, 5)
# Keras and PyTorch put epsilon in different places; this small, the place makes no difference.
TINY = 1e-30


def torch_sgd(torch: Any, weights: Any, **more: Any) -> Any:
    return torch.optim.SGD(weights, lr=0.05, **more)


OPTIMIZERS = {
    "sgd": (lambda: optimizers.SGD(0.05), torch_sgd),
    "momentum": (lambda: optimizers.SGD(0.05, momentum=0.9),
                 lambda t, w: torch_sgd(t, w, momentum=0.9)),
    "nesterov": (lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
                 lambda t, w: torch_sgd(t, w, momentum=0.9, nesterov=True)),
    "adam": (lambda: optimizers.Adam(0.003, epsilon=TINY),
             lambda t, w: t.optim.Adam(w, lr=0.003, eps=TINY)),
    "adamw": (lambda: optimizers.AdamW(0.003, weight_decay=0.1, epsilon=TINY),
              lambda t, w: t.optim.AdamW(w, lr=0.003, weight_decay=0.1, eps=TINY)),
    "rmsprop": (lambda: optimizers.RMSprop(0.001, rho=0.9, epsilon=TINY),
                lambda t, w: t.optim.RMSprop(w, lr=0.001, alpha=0.9, eps=TINY)),
}

QUICK = {("nesterov", "float32"), ("adam", "float32"), ("adam", "float64")}


def data(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(STEPS, BATCH, SIZES[0])).astype(dtype)
    return x, rng.integers(0, SIZES[-1], (STEPS, BATCH)).astype(np.int32)


def ours(optimizer: Any, dtype: str, device: str) -> tuple[dict[str, np.ndarray], list[np.ndarray],
                                                           list[float]]:
    """First weights, last weights and the losses on the way."""
    model = Sequential([L.Input((SIZES[0],)), L.Dense(SIZES[1], activation="tanh"),
                        L.Dense(SIZES[2], activation="gelu"),
                        L.Dense(SIZES[3], activation="softmax")], name="mlp", seed=7)
    traced = trace(model, BATCH, optimizer, "sparse_categorical_crossentropy", dtype_=dtype)
    executable = build(traced.functions, device, "mlp")
    names = [w.name for w in traced.metadata.weights]
    first = {n: executable.state(n) for n in names}
    call, losses = executable.bind("train"), []
    for x, y in zip(*data(dtype), strict=True):
        call.inputs["x"][...], call.inputs["y"][...] = x, y.reshape(call.inputs["y"].shape)
        call.inputs["w"][...] = call.inputs["real"][...] = 1.0
        call()
        losses.append(float(call.outputs["loss"]))
    return first, [executable.state(n) for n in names], losses


def theirs(make: Any, first: dict[str, np.ndarray], dtype: str) -> tuple[list[np.ndarray],
                                                                         list[float]]:
    torch = references.torch()
    weights = [torch.tensor(a, requires_grad=True) for a in first.values()]
    optimizer, losses = make(torch, weights), []
    for x, y in zip(*data(dtype), strict=True):
        hidden = torch.tanh(torch.tensor(x) @ weights[0] + weights[1])
        hidden = torch.nn.functional.gelu(hidden @ weights[2] + weights[3])
        scores = hidden @ weights[4] + weights[5]
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(y, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return [w.detach().numpy() for w in weights], losses


@pytest.mark.parametrize(("name", "dtype"), [
    pytest.param(n, d, marks=() if (n, d) in QUICK else pytest.mark.slow)
    for n in OPTIMIZERS for d in ("float32", "float64")])
def test_the_same_weights_after_fifty_steps(name: str, dtype: str) -> None:
    """In float64 to 1e-9. In float32 to 2e-5 (weights are about 0.3): fifty steps of rounding, which
    Adam and RMSprop enlarge where a gradient is almost zero, since they divide by its size."""
    references.torch()
    mine, make = OPTIMIZERS[name]
    first, last, losses = ours(mine(), dtype, "cpu")
    want, want_losses = theirs(make, first, dtype)
    tolerance = 1e-9 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(losses, want_losses, atol=tolerance, rtol=0)
    for n, got, w in zip(first, last, want, strict=True):
        np.testing.assert_allclose(got, w, atol=tolerance, rtol=0, err_msg=n)
        assert np.abs(got - first[n]).max() > 1e-3  # it did learn


def test_the_level_of_the_cpu_does_not_show() -> None:
    """Scalar code and the best vectors part by no more than rounding in fifty steps of Adam."""
    _, scalar, _ = ours(optimizers.Adam(0.003), "float32", "cpu:scalar")
    _, vectors, _ = ours(optimizers.Adam(0.003), "float32", "cpu")
    for a, b in zip(scalar, vectors, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=0)
