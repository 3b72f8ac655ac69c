"""Attention, AdditiveAttention and EinsumDense beside Keras: numbers, gradients, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.layers.against_keras import is_keras, plain
from tests.layers.running import same
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.layers.context import Context, States

RANDOM = np.random.default_rng(0)
QUERY, VALUE, KEY = (RANDOM.normal(size=shape) for shape in ((3, 5, 4), (3, 6, 7), (3, 6, 4)))
SLOPE = RANDOM.normal(size=(3, 5, 7))
SEEN = np.arange(6) < np.array([[6], [4], [2]])
COUNTS = np.arange(5) < np.array([[2], [5], [3]])
CASES: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("Attention", {}, {}, False),
    ("Attention", {"use_scale": True}, {"use_causal_mask": True}, True),
    ("Attention", {"use_scale": True, "score_mode": "concat"}, {}, True),
    ("AdditiveAttention", {}, {}, True),
    ("AdditiveAttention", {"use_scale": False}, {"use_causal_mask": True}, False),
]


@pytest.mark.parametrize(("name", "how", "call", "masked"), CASES)
def test_attention_is_that_of_keras(name: str, how: dict[str, Any], call: dict[str, Any],
                                    masked: bool) -> None:
    keras, torch = references.keras(), references.torch()
    ours = getattr(L, name)(**how, name="tried")
    theirs = getattr(keras.layers, name)(**how, dtype="float64", name="tried")
    arrays = [QUERY, VALUE, KEY]
    leaves = [leaf("input", f"x{k}", a.shape, "float64") for k, a in enumerate(arrays)]
    context = Context(False, States(leaves[0].dtype))
    if masked:
        for tensor, mask in zip(leaves, (COUNTS, SEEN), strict=False):
            context.masks[tensor] = constant(mask, "bool")
    y, scores = ours(leaves, context=context, return_attention_scores=True, **call)
    assert (context.mask_of(y) is not None) == masked
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    masks = [torch.tensor(COUNTS), torch.tensor(SEEN), None] if masked else None
    theirs.build([a.shape for a in arrays])
    values = [RANDOM.normal(size=w.shape) for w in theirs.weights]
    theirs.set_weights(values)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in ours.weights]
    assert {k: plain(v) for k, v in ours.get_config().items()}.items() <= {
        k: plain(v) for k, v in {"seed": None, **theirs.get_config()}.items()}.items() | {
            ("score_mode", "dot")}
    want, their_scores = theirs(tensors, mask=masks, return_attention_scores=True, **call)
    (want * torch.tensor(SLOPE)).sum().backward()
    states = [context.read(w) for w in ours.weights]
    slopes = gradients(OPS.sum(y * constant(SLOPE, y.dtype)), [*leaves, *states])
    got = evaluate([y, scores, *slopes], dict(zip([*leaves, *states], [*arrays, *values],
                                                  strict=True)), oracle=True)
    zero = np.zeros(KEY.shape)
    same(got, [want, their_scores, *(zero if t.grad is None else t.grad for t in tensors),
               *(w.value.grad for w in theirs.weights)],
         1e-5, atol=2e-6)  # Keras multiplies in float32 here


def test_a_sequence_attends_to_itself() -> None:
    x = L.Input((5, 4))
    both = zt.Model(x, [L.Attention()(x), L.Attention()([x, x])])
    both.compile("cpu:scalar", batch_size=3)
    one, two = both.predict(QUERY.astype("f"))
    np.testing.assert_array_equal(one, two)
    weights = np.exp(QUERY @ QUERY.swapaxes(1, 2))
    np.testing.assert_allclose(one, weights / weights.sum(-1, keepdims=True) @ QUERY, rtol=1e-5)


@pytest.mark.parametrize("how", [
    {"equation": "abc,cd->abd", "output_shape": (6, 4), "bias_axes": "d"},
    {"equation": "...x,xhd->...hd", "output_shape": (2, 3), "bias_axes": "hd", "activation": "tanh"},
    {"equation": "abc,bd->adc", "output_shape": (4, 7), "bias_axes": "d"},
    {"equation": "ab...,bc->ac...", "output_shape": 4, "bias_axes": "c"},
    {"equation": "abc,bc->ab", "output_shape": (6,)}], ids=lambda how: how["equation"])
def test_einsum_dense_is_that_of_keras(how: dict[str, Any]) -> None:
    is_keras("EinsumDense", how, VALUE)


@pytest.mark.parametrize(("how", "said"), [
    ({"equation": "ab,bc", "output_shape": 3}, "must be like 'ab,bc->ac'"),
    ({"equation": "ab,bc->ad", "output_shape": 3}, "axis '[cd]' is neither"),
    ({"equation": "ab,bc->ac", "output_shape": 3, "bias_axes": "b"}, "must be letters of the output"),
])
def test_wrong_equations(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        L.EinsumDense(**how)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="give the input a letter for each axis"):
        L.EinsumDense("ab,bc->ac", 3)(L.Input((4, 5)))
    with pytest.raises(ShapeError, match="two sizes"):
        L.EinsumDense("abc,cd->abd", (3, 2))(L.Input((4, 5)))
    with pytest.raises(ShapeError, match="queries and keys need as many features"):
        L.Attention()([L.Input((4, 5)), L.Input((4, 6))])
