"""Recurrent layers of 1 to 1,000 steps, in every way of running them, train on every device as cells
written out in PyTorch do, in double precision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.available import device
from tests.parity import HERE, NARROW, Job, interpreted
from ztorch import layers as L
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.layers import Context, States

BATCH, FEATURES, UNITS, RATE = 3, 5, 7, 0.05
LENGTHS = {1: 20, 2: 20, 3: 20, 7: 20, 31: 20, 100: 20, 333: 5, 1000: 3}  # and steps of training
KINDS = ("SimpleRNN", "LSTM", "GRU")
WAYS = ("plain", "reversed", "bidirectional", "masked", "stateful")
CPUS = [f"cpu:{level}" for level in HERE]
PLACES = [*CPUS, "c", "vulkan", "opencl", "webgpu"]
EVERY = [pytest.param(place, kind, WAYS[(k + KINDS.index(kind)) % len(WAYS)], length,
                      marks=() if (place, kind, length) == (PLACES[0], "LSTM", 31) else pytest.mark.full)
         for place, kind, (k, length) in itertools.product(PLACES, KINDS, enumerate(LENGTHS))]


def model_of(kind: str, way: str, length: int) -> zt.Sequential:
    layer = getattr(L, kind)(UNITS, return_sequences=True, go_backwards=way == "reversed",
                             stateful=way == "stateful")
    return zt.Sequential([L.Input((length, FEATURES)), *([L.Masking()] if way == "masked" else []),
                          L.Bidirectional(layer) if way == "bidirectional" else layer], seed=1)


def stepped(kind: str, x: Any, states: list[Any], weights: list[Any]) -> list[Any]:
    """The states after one step, of which the first is the output."""
    kernel, recurrent, bias = weights
    if kind == "SimpleRNN":
        return [(x @ kernel + states[0] @ recurrent + bias).tanh()]
    if kind == "LSTM":
        i, f, g, o = (x @ kernel + states[0] @ recurrent + bias).chunk(4, -1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]
    z, r, n = (x @ kernel + bias[0]).chunk(3, -1)
    own_z, own_r, own_n = (states[0] @ recurrent + bias[1]).chunk(3, -1)
    z, r = (z + own_z).sigmoid(), (r + own_r).sigmoid()
    return [z * states[0] + (1 - z) * (n + r * own_n).tanh()]


def run(kind: str, x: Any, weights: list[Any], counts: Any = None,
        states: list[Any] | None = None) -> tuple[Any, list[Any]]:
    """The output of each step, and the last states. Steps that do not count repeat the last one."""
    torch = references.torch()
    zero = torch.zeros(BATCH, UNITS, dtype=torch.float64)
    states, outputs = states or [zero] * (1 + (kind == "LSTM")), []
    for k in range(x.shape[1]):
        new = stepped(kind, x[:, k], states, weights)
        states = new if counts is None else [
            torch.where(counts[:, k, None], a, b) for a, b in zip(new, states, strict=True)]
        outputs.append(states[0])
    return torch.stack(outputs, 1), states


def in_torch(kind: str, way: str, weights: list[np.ndarray],
             batches: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """The weights after a step of SGD for each batch."""
    torch = references.torch()
    trained = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in weights]
    states = None
    for batch in batches:
        x, y = (torch.tensor(a, dtype=torch.float64) for a in batch)
        counts = (x != 0).any(-1) if way == "masked" else torch.ones(x.shape[:2], dtype=torch.bool)
        if way == "bidirectional":
            backwards = run(kind, x.flip(1), trained[3:])[0].flip(1)
            output = torch.cat([run(kind, x, trained[:3])[0], backwards], -1)
        else:
            output, states = run(kind, x.flip(1) if way == "reversed" else x, trained, counts,
                                 states if way == "stateful" else None)
            states = [s.detach() for s in states]
        loss = (((output - y) ** 2).mean(-1) * counts).sum() / counts.sum()
        with torch.no_grad():
            for w, slope in zip(trained, torch.autograd.grad(loss, trained), strict=True):
                w -= RATE * slope
    return [w.detach().numpy() for w in trained]


@pytest.mark.parametrize(("place", "kind", "way", "length"), EVERY)
def test_training_is_that_of_cells_in_pytorch(place: str, kind: str, way: str, length: int) -> None:
    random = np.random.default_rng(length)
    model = model_of(kind, way, length)
    shapes = (BATCH, length, FEATURES), (BATCH, *model.output_shape[1:])
    batches = [tuple(random.normal(size=s).astype(np.float32) for s in shapes)
               for _ in range(LENGTHS[length])]
    for x, _ in batches if way == "masked" else ():
        x[1, length // 2 + 1:] = 0
        x[2, :length // 3] = 0
    want = in_torch(kind, way, model.get_weights(), batches)
    program = model.compile(place if place == "c" or place in CPUS else device(place).id,
                            batch_size=BATCH, loss="mse", optimizer=zt.optimizers.SGD(RATE))
    for x, y in batches:
        program.train_on_batch(x, y)
    for a, b in zip(program.get_weights(), want, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


def outputs_and_slopes(kind: str, length: int, d: DType) -> tuple[list[Value], list[Value]]:
    """Input and weights; the outputs of a layer, and the gradients of the sum of their squares."""
    x, context = leaf("input", "x", (2, length, 3), d), Context(states=States(d))
    layer = getattr(L, kind)(4, return_sequences=True)
    y = layer(x, context)
    wrt = [x, *map(context.read, layer.weights)]
    return wrt, [y, *gradients(OPS.sum(y * y), wrt)]


@pytest.mark.parametrize(("kind", "length"), [
    pytest.param(kind, length, marks=() if (kind, length) == ("GRU", 31) else pytest.mark.full)
    for kind, length in itertools.product(KINDS, LENGTHS)])
def test_the_interpreter_computes_outputs_and_gradients(kind: str, length: int) -> None:
    leaves, results = outputs_and_slopes(kind, length, f32)
    exact_leaves, exact = outputs_and_slopes(kind, length, f64)
    random = np.random.default_rng(length)
    feeds = {v: (random.normal(size=v.shape) * 0.5).astype(np.float32) for v in leaves}
    wanted = evaluate(exact, {b: feeds[a].astype(np.float64)
                              for a, b in zip(leaves, exact_leaves, strict=True)})
    job = Job(Graph({str(k): v for k, v in enumerate(results)}), feeds)
    for got, want in zip(interpreted(job, NARROW), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-6 * abs(want).max())
