"""Steps of an optimizer on given gradients, and PyTorch's weights beside ours."""

from __future__ import annotations

import numpy as np

from tests import references
from ztorch import optimizers
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

random = np.random.default_rng(2)
START = {"a/kernel": random.normal(size=(4, 3)), "a/bias": random.normal(size=3)}
STEPS = 50
# Different in every step and of very different sizes, so that no term can hide.
GRADIENTS = [{n: random.normal(size=w.shape) * 10.0 ** random.integers(-3, 2) for n, w in
              START.items()} for _ in range(STEPS)]


def runner(optimizer, dtype="float64"):
    """The optimizer as a function of given gradients."""
    params = [leaf("state", n, w.shape, dtype, w.astype(dtype)) for n, w in START.items()]
    grads = [leaf("input", f"d {n}", w.shape, dtype) for n, w in START.items()]
    step = leaf("state", "optimizer/step", (), "int32", np.array(0, np.int32))
    updates = optimizers.get(optimizer).new_values(params, grads, step)
    return references.Run(Graph({}, {s.attrs["name"]: v for s, v in updates.items()}))


def ours(optimizer, steps=STEPS):
    run = runner(optimizer)
    for g in GRADIENTS[:steps]:
        run(**{f"d {n}": a for n, a in g.items()})
    return [run.values[n] for n in START]


def torch_weights(make, gradients=GRADIENTS, after_backward=None):
    torch = references.torch()
    weights = [torch.tensor(w, requires_grad=True) for w in START.values()]
    optimizer = make(torch.optim, weights)
    for g in gradients:
        for w, d in zip(weights, g.values(), strict=True):
            w.grad = torch.tensor(d)
        if after_backward:
            after_backward(torch, weights)
        optimizer.step()
    return [w.detach().numpy() for w in weights]


def close(got, expected, rtol=1e-10):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)
