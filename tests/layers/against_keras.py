"""A layer beside Keras' layer of the same name and arguments: description, weights, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import references
from tests.layers.running import Traced, same
from ztorch import layers as L


def plain(x: Any) -> Any:
    """Configs of both in one form: tuples, names of activations and initializers."""
    if isinstance(x, dict):
        return x["class_name"]
    if isinstance(x, (list, tuple)):
        return tuple(plain(item) for item in x)
    return {"linear": None, "glorot_uniform": "GlorotUniform", "zeros": "Zeros"}.get(x, x)


def is_keras(name: str, how: dict[str, Any], x: np.ndarray, rtol: float = 1e-9) -> Traced:
    """Our layer computes the same as Keras' layer, with PyTorch's gradients, all in float64."""
    keras, torch = references.keras(), references.torch()
    theirs = getattr(keras.layers, name)(**how, dtype="float64", name="tried")
    ours = getattr(L, name)(**how, name="tried")
    case = Traced(ours, x)
    config = theirs.get_config()
    for key, value in ours.get_config().items():
        assert plain(value) == plain(config[key]), key
    if not theirs.built:
        theirs.build(x.shape)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in ours.weights]
    theirs.set_weights(list(case.weights.values()))
    tensor = torch.tensor(x, requires_grad=True)
    y = theirs(tensor)
    assert tuple(theirs.compute_output_shape(x.shape)) == case.y.shape == tuple(y.shape)
    (y * torch.tensor(case.slope)).sum().backward()
    same(case.oracle(), [y, tensor.grad, *(w.value.grad for w in theirs.weights)], rtol,
         atol=rtol / 100)
    return case
