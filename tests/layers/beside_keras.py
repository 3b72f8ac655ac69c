"""Recurrent layers beside those of Keras, with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import references
from ztorch.dtypes import f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.layers import Context, States
from ztorch.layers.symbol import leaves

random = np.random.default_rng(21)
BATCH, STEPS, FEATURES, UNITS = 3, 7, 5, 4
# As long as given, with a hole, and none but the first: Keras begins masked ones with zeros.
MASK = np.array([[True] * STEPS, [True, False, True, True, False, False, False],
                 [False, False, True, False, True, False, True]])


def draws(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [random.normal(size=shape) * 0.5 for shape in shapes]


def beside_keras(ours: Any, theirs: Any, masked: bool = False, states: int = 0,
                 shape: tuple[int, ...] = (BATCH, STEPS, FEATURES),
                 pixels: bool = False) -> list[np.ndarray]:
    """All outputs, and the gradients of a weighted sum of them by input, states and weights. With
    `pixels`, the mask is one of positions in each step."""
    keras, torch = references.keras(), references.torch()
    context = Context(states=States(f64))
    masks = MASK[:shape[0], :shape[1]]
    if pixels:
        masks = masks[(..., *[None] * (len(shape) - 3))] ^ (random.random(shape[:-1]) < 0.3)
    x, mask = leaf("input", "x", shape, f64), leaf("input", "m", masks.shape, "bool")
    states_before = [leaf("input", f"s{k}", (shape[0], UNITS), f64) for k in range(states)]
    y = leaves(ours(x, context, **({"mask": mask} if masked else {}),
                    **({"initial_state": states_before} if states else {})))
    weights = [context.read(w) for w in ours.weights]
    into = [leaf("input", f"into{k}", v.shape, f64) for k, v in enumerate(y)]
    total = sum((OPS.sum(v * w) for v, w in zip(y, into, strict=True)), start=OPS.full((), 0.0, f64))
    wrt = [x, *states_before, *weights]
    arrays = draws(*(v.shape for v in (*wrt, *into)))
    feeds = {**dict(zip((*wrt, *into), arrays, strict=True)), mask: masks}
    got = evaluate([*y, *gradients(total, wrt)], feeds, oracle=True)

    tensors = [torch.tensor(a, requires_grad=True) for a in arrays[:1 + states]]
    theirs.build(shape)
    theirs.set_weights(arrays[1 + states:len(wrt)])
    how = {"mask": torch.tensor(feeds[mask])} if masked else {}
    if states:
        how["initial_state"] = tensors[1:]
    result = keras.tree.flatten(theirs(tensors[0], **how))
    sum((v * torch.tensor(w)).sum() for v, w in zip(result, arrays[len(wrt):], strict=True)).backward()
    want = [*(v.detach().numpy() for v in result), *(t.grad.numpy() for t in tensors),
            *(w.value.grad.numpy() for w in theirs.weights if w.trainable)]
    assert [a.shape for a in got] == [b.shape for b in want]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return got
