"""Masks: which steps count, from the layers that make them to losses and metrics, beside Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value
from ztorch.layers import Context, States
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

random = np.random.default_rng(5)
IDS = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2], [0, 6, 0, 0, 0]], np.int32)


def steps(shape: tuple[int, ...] = (3, 5, 4)) -> tuple[Value, Value, Context]:
    """A tensor, its mask and the context that knows of it."""
    context = Context(states=States(f64))
    x, mask = leaf("input", "x", shape, f64), leaf("input", "m", shape[:2], "bool")
    context.set_mask(x, mask)
    return x, mask, context


# -- where they come from, and how far they go ---------------------------------------------------


def test_id_0_and_padded_features_are_masked() -> None:
    context = Context()
    ids, x = leaf("input", "ids", IDS.shape, "int32"), leaf("input", "x", (2, 3, 2), "float32")
    y, z = L.Embedding(9, 4, mask_zero=True)(ids, context), L.Masking(-1.0)(x, context)
    array = np.array([[[-1, -1], [-1, 5], [0, 0]], [[2, 2], [3, -1], [-1, -1]]], np.float32)
    [of_ids, of_x, kept] = evaluate([context.masks[y], context.masks[z], z], {ids: IDS, x: array})
    np.testing.assert_array_equal(of_ids, IDS != 0)
    np.testing.assert_array_equal(of_x, [[False, True, True], [True, True, False]])
    np.testing.assert_array_equal(kept, np.where(of_x[..., None], array, 0))
    assert context.mask_of(L.Embedding(9, 4)(ids, context)) is None


PASSES = [L.Dense(4), L.Dropout(0.1), L.SpatialDropout1D(0.1), L.Activation("relu"), L.ReLU(),
          L.LayerNormalization(), L.BatchNormalization(), L.UnitNormalization(), L.Identity(),
          L.Residual(L.Dense(4)), L.MultiHeadAttention(2), L.TransformerEncoder(8, 2),
          L.PositionEmbedding(), L.Rescaling(2.0), L.TimeDistributed(L.Dense(3)),
          Sequential([L.Dense(3), L.ReLU()])]
DROPS = [L.Flatten(), L.GlobalAveragePooling1D(), L.GlobalMaxPooling1D(), L.Conv1D(3, 2),
         L.Reshape((20,)), L.Permute((2, 1)), L.RMSNormalization(), L.Lambda(lambda x: x * 2.0),
         Sequential([L.Dense(3), L.Flatten()])]


@pytest.mark.parametrize("layer", PASSES, ids=repr)
def test_layers_on_steps_pass_the_mask_on(layer: Any) -> None:
    x, mask, context = steps()
    assert context.mask_of(layer(x, context)) is mask


@pytest.mark.parametrize("layer", DROPS, ids=repr)
def test_layers_that_mix_steps_drop_it(layer: Any) -> None:
    x, _, context = steps()
    assert context.mask_of(layer(x, context)) is None


@pytest.mark.parametrize("kind", ["Add", "Average", "Maximum", "Concatenate", "Concatenate 1"])
@pytest.mark.parametrize("both", [True, False])
def test_masks_of_several_tensors_are_joined_as_in_keras(kind: str, both: bool) -> None:
    keras = references.keras()
    name, *axis = kind.split()
    how = {"axis": int(axis[0])} if axis else {}
    x, mask, context = steps()
    y, second = leaf("input", "y", x.shape, f64), leaf("input", "n", mask.shape, "bool")
    if both:
        context.set_mask(y, second)
    actual = context.mask_of(getattr(L, name)(**how)([x, y], context))
    masks = [random.random((3, 5)) < 0.5 for _ in range(2)]
    arrays = [random.normal(size=(3, 5, 4)) for _ in range(2)]
    tensors = [keras.ops.convert_to_tensor(m) for m in masks[:1 + both]] + [None] * (not both)
    want = getattr(keras.layers, name)(**how).compute_mask(
        [keras.ops.convert_to_tensor(a) for a in arrays], tensors)
    if actual is None:
        assert want is None or want.numpy().all()
        return
    np.testing.assert_array_equal(evaluate([actual], {mask: masks[0], second: masks[1]})[0],
                                  want.numpy())


def test_masks_travel_through_declared_models_and_configs() -> None:
    ids = L.Input((5,), dtype="int32")
    x = L.Embedding(9, 4, mask_zero=True)(ids)
    model = Model(ids, L.GlobalAveragePooling1D()(L.Dense(3)(x)))
    again = Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    table, kernel, _ = model.get_weights()
    rows = (table @ kernel)[IDS] * (IDS != 0)[..., None]
    for m in (model, again):
        np.testing.assert_allclose(m.compile("cpu", batch_size=3).predict(IDS),
                                   rows.sum(1) / (IDS != 0).sum(1)[:, None], rtol=2e-6, atol=1e-7)


def test_a_mask_of_a_call_holds_for_that_call_only() -> None:
    x, m = L.Input((5, 4), name="x"), L.Input((5,), dtype="bool", name="m")
    model = Model([x, m], {"some": L.GlobalAveragePooling1D()(x, mask=m),
                           "all": L.GlobalAveragePooling1D()(x)})
    array, mask = random.normal(size=(3, 5, 4)).astype(np.float32), IDS != 0
    y = model.compile("cpu", batch_size=3).predict([array, mask])
    np.testing.assert_allclose(y["all"], array.mean(1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(y["some"], (array * mask[..., None]).sum(1)
                               / mask.sum(1)[:, None], rtol=1e-5, atol=1e-7)


def test_custom_layers_receive_and_compute_masks() -> None:
    class Sum(L.Layer):
        def call(self, x: Value, context: Context, mask: Value | None = None) -> Value:
            assert mask is not None
            return OPS.sum(x * OPS.cast(OPS.expand_dims(mask, 2), x.dtype), axis=1)

    class Every2nd(L.Layer):
        def call(self, x: Value, context: Context) -> Value:
            return x[:, ::2]

        def compute_mask(self, x: Value, mask: Value | None = None) -> Value | None:
            return None if mask is None else mask[:, ::2]

    try:
        model = Sequential([L.Input((5,), dtype="int32"), L.Embedding(9, 4, mask_zero=True),
                            Every2nd(), Sum()])
        table = model.get_weights()[0]
        kept = IDS[:, ::2]
        np.testing.assert_allclose(
            model.compile("cpu", batch_size=3).predict(IDS),
            (table[kept] * (kept != 0)[..., None]).sum(1), rtol=1e-5, atol=1e-7)
        x, m = L.Input((5, 4)), L.Input((5,), dtype="bool")
        assert Sum()(x, m).shape == Sum()(x, mask=m).shape == (None, 4)
    finally:
        for name in ("Sum", "Every2nd"):
            del L.LAYERS[name]


def test_sentences_of_words_are_masked_twice() -> None:
    """Ids of words in sentences in texts: the mean of words, then the mean of sentences."""
    ids = random.integers(0, 3, (3, 4, 5)).astype(np.int32)
    ids[1, 2] = ids[2] = 0
    ids[2, 3, 1] = 1
    model = Sequential([L.Input((4, 5), dtype="int32"), L.Embedding(9, 2, mask_zero=True),
                        L.TimeDistributed(L.GlobalAveragePooling1D()), L.GlobalAveragePooling1D()])
    words, table = ids != 0, model.get_weights()[0]
    sentences = words.any(2)
    means = (table[ids] * words[..., None]).sum(2) / np.maximum(words.sum(2), 1)[..., None]
    want = (means * sentences[..., None]).sum(1) / sentences.sum(1)[:, None]
    np.testing.assert_allclose(model.compile("cpu", batch_size=3).predict(ids), want, rtol=1e-5,
                               atol=1e-7)


# -- layers that use them ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "BatchNormalization",
                                  "GlobalAveragePooling1D"])
def test_masked_layers_are_those_of_keras(kind: str) -> None:
    keras = references.keras()
    how = {"num_heads": 2, "key_dim": 3} if kind == "MultiHeadAttention" else {}
    x, mask, context = steps()
    context.training = kind == "BatchNormalization"
    layer = getattr(L, kind)(**how)
    y = layer(x, context)
    theirs = getattr(keras.layers, kind)(**how)
    array, counts = random.normal(size=x.shape), IDS != 0
    tensor, m = keras.ops.convert_to_tensor(array.astype(np.float32)), keras.ops.convert_to_tensor(
        counts)
    weights = [random.normal(size=w.shape) for w in layer.weights]
    if kind == "MultiHeadAttention":
        theirs.build(tensor.shape, tensor.shape)
        theirs.set_weights(weights)
        want = theirs(tensor, tensor, value_mask=m)
        tensor._keras_mask = m
        want = theirs(tensor, tensor)
    else:
        theirs.build(tensor.shape)
        theirs.set_weights(weights)
        want = theirs(tensor, mask=m, **({"training": True} if context.training else {}))
    feeds = {x: array, mask: counts, **{
        context.states.leaves[context.states.name(w)]: a
        for w, a in zip(layer.weights, weights, strict=True)
        if context.states.name(w) in context.states.leaves}}
    got, *moved = evaluate([y, *context.updates.values()], feeds, oracle=True)
    at = counts if got.ndim == 3 else slice(None)
    np.testing.assert_allclose(got[at], want.detach().numpy()[at], rtol=1e-4, atol=1e-5)
    for a, w in zip(moved, theirs.get_weights()[2:], strict=False):
        np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["Multiply", "Maximum", "Minimum"])
@pytest.mark.parametrize("known", [(0, 1, 2), (0, 2), (1,)])
def test_merged_steps_that_do_not_count(kind: str, known: tuple[int, ...]) -> None:
    """Where a step counts in some tensors, the result is that of these, as in Keras."""
    keras = references.keras()
    tensors = [leaf("input", f"x{k}", (3, 5, 4), f64) for k in range(3)]
    masks = [leaf("input", f"m{k}", (3, 5), "bool") for k in range(3)]
    arrays = [random.normal(size=(3, 5, 4)) for _ in tensors]
    counts = [random.random((3, 5)) < 0.5 for _ in tensors]
    context, given = Context(), [keras.ops.convert_to_tensor(a.astype(np.float32)) for a in arrays]
    for k in known:
        context.set_mask(tensors[k], masks[k])
        given[k]._keras_mask = keras.ops.convert_to_tensor(counts[k])
    y = getattr(L, kind)()(tensors, context)
    [got] = evaluate([y], dict(zip([*tensors, *masks], [*arrays, *counts], strict=True)), oracle=True)
    np.testing.assert_allclose(got, getattr(keras.layers, kind)()(given), rtol=1e-5, atol=1e-6)


# -- losses and metrics --------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["mse", "sparse_categorical_crossentropy"])
def test_losses_and_metrics_skip_masked_steps(loss: str) -> None:
    """The loss of Keras; gradients are those of the mean over the steps that count."""
    keras = references.keras()
    classes = loss != "mse"
    ours = Sequential([L.Input((5,), dtype="int32"), L.Embedding(9, 4, mask_zero=True, name="e"),
                       L.Dense(3, activation="softmax" if classes else None, name="d")])
    program = ours.compile("cpu", batch_size=4, optimizer="sgd", loss=loss,
                           metrics=["accuracy"] if classes else ["mae"])
    K = keras.layers
    theirs = keras.Sequential([keras.Input((5,), dtype="int32"), K.Embedding(9, 4, mask_zero=True),
                               K.Dense(3, activation="softmax" if classes else None)])
    theirs.set_weights(ours.get_weights())
    theirs.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss)
    y = random.integers(0, 3, (3, 5)) if classes else random.normal(size=(3, 5, 3))
    want = theirs.evaluate(IDS, y, verbose=0)
    got = program.evaluate(IDS, y, verbose=0)
    assert got[0] == pytest.approx(want, rel=1e-5)
    p, counts = program.predict(IDS), IDS != 0
    values = p.argmax(-1) == y if classes else abs(p - y).mean(-1)
    assert got[1] == pytest.approx(values[counts].mean(), rel=1e-5)
    theirs.train_on_batch(IDS, y)
    program.train_on_batch(IDS, y)
    for a, b in zip(program.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    before = program.get_weights()  # where nothing counts, nothing is lost or learnt
    for ids, weight in ((IDS * 0, None), (IDS, np.zeros(3))):
        assert program.train_on_batch(ids, y, sample_weight=weight)[0] == 0
        for a, b in zip(program.get_weights(), before, strict=True):
            np.testing.assert_array_equal(a, b)


# -- wrong masks ---------------------------------------------------------------------------------


def test_masks_of_another_length_or_batch_are_named() -> None:
    x = L.Input((5, 4))
    with pytest.raises(ShapeError, match=r"layer 'dense'.*mask do not fit: \(5, 4\) and \(7,\).*"
                                         r"must be \(5,\)"):
        L.Dense(3)(x, mask=L.Input((7,), dtype="bool"))
    with pytest.raises(ShapeError, match=r"layer 'dense'.*3 rows, and their mask has 2"):
        L.Dense(3)(leaf("input", "x", (3, 5, 4), f64), Context(),
                   mask=leaf("input", "m", (2, 5), "bool"))
    with pytest.raises(ShapeError, match="2 tensors and 1 masks"):
        L.Add()([x, x], mask=[L.Input((5,), dtype="bool")])
    with pytest.raises(ShapeError, match=r"layer 'flatten': wrong arguments.*'mask'"):
        L.Flatten()(x, mask=L.Input((5,), dtype="bool"))


def test_masks_travel_between_layers_on_tensors_as_in_keras() -> None:
    """From layer to layer, in gradients too, but not through operations in between."""
    keras = references.keras()
    ids = np.array([[1, 2, 0, 0], [3, 4, 5, 0]], np.int32)
    layers = [L.Embedding(9, 4, mask_zero=True), L.Dropout(0.5), L.LSTM(3, return_sequences=True),
              L.GlobalAveragePooling1D()]
    theirs = [keras.layers.Embedding(9, 4, mask_zero=True), keras.layers.Dropout(0.5),
              keras.layers.LSTM(3, return_sequences=True), keras.layers.GlobalAveragePooling1D()]
    y, want = zt.tensor(ids), keras.ops.convert_to_tensor(ids)
    for own, other in zip(layers, theirs, strict=True):
        for layer, tensor in ((own, y), (other, want)):
            layer(tensor)  # makes weights
        own.set_weights([random.normal(size=w.shape) for w in own.weights])
        other.set_weights(own.get_weights())
        y, want = own(y), other(want)
    np.testing.assert_allclose(y.numpy(), keras.ops.convert_to_numpy(want), rtol=0, atol=1e-6)
    embedding, _, lstm, mean = layers
    assert not np.allclose(mean(lstm(embedding(zt.tensor(ids)) * 1.0)).numpy(), y.numpy())

    x = zt.tensor(np.where([[[1], [1], [0], [0]]], random.normal(size=(1, 4, 4)), 0.0),
                  dtype="float32")
    slopes = zt.grad(lambda x: mean(lstm(L.Masking()(x))).sum())(x).numpy()
    assert (slopes[:, :2] != 0).all() and (slopes[:, 2:] == 0).all()
