"""GroupQueryAttention and SpectralNormalization beside Keras: numbers, gradients, training steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.layers.running import same
from ztorch import layers as L
from ztorch.errors import ConfigError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.layers.context import Context, States

RANDOM = np.random.default_rng(0)
QUERY, VALUE, KEY = (RANDOM.normal(size=shape) for shape in ((3, 5, 4), (3, 6, 7), (3, 6, 4)))
SLOPE = RANDOM.normal(size=(3, 5, 4))
SEEN = RANDOM.random((3, 5, 6)) < 0.7
SEEN[..., 0] = True


@pytest.mark.parametrize(("how", "call"), [
    ((3, 4, 2), {}), ((2, 3, 1), {"use_causal_mask": True}), ((3, 2, 2), {"attention_mask": SEEN})])
def test_group_attention_is_that_of_keras(how: tuple[int, ...], call: dict[str, Any]) -> None:
    keras, torch = references.keras(), references.torch()
    ours = L.GroupQueryAttention(*how, name="tried")
    theirs = keras.layers.GroupQueryAttention(*how, dtype="float64", name="tried")
    arrays = [QUERY, VALUE, KEY]
    leaves = [leaf("input", f"x{k}", a.shape, "float64") for k, a in enumerate(arrays)]
    context = Context(False, States(leaves[0].dtype))
    y = ours(*leaves, context=context, **{
        name: constant(x, "bool") if isinstance(x, np.ndarray) else x for name, x in call.items()})
    theirs.build(*(a.shape for a in arrays))
    values = [RANDOM.normal(size=w.shape) for w in theirs.weights]
    theirs.set_weights(values)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in ours.weights]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = theirs(*tensors, **{name: torch.tensor(x) if isinstance(x, np.ndarray) else x
                               for name, x in call.items()})
    (want * torch.tensor(SLOPE)).sum().backward()
    states = [context.read(w) for w in ours.weights]
    slopes = gradients(OPS.sum(y * constant(SLOPE, y.dtype)), [*leaves, *states])
    got = evaluate([y, *slopes], dict(zip([*leaves, *states], [*arrays, *values], strict=True)),
                   oracle=True)
    same(got, [want, *(t.grad for t in tensors), *(w.value.grad for w in theirs.weights)],
         2e-5, atol=2e-5)  # Keras multiplies in float32 here


def test_one_group_for_each_head_is_multi_head_attention() -> None:
    x = L.Input((5, 4))
    many = zt.Model(x, L.MultiHeadAttention(2, 3, use_causal_mask=True)(x))
    groups = zt.Model(x, L.GroupQueryAttention(3, 2, 2, use_causal_mask=True)(x))
    groups.set_weights(many.get_weights())
    y = [references.Run(m.trace(3).functions["predict"])(x=QUERY)["y"] for m in (many, groups)]
    np.testing.assert_array_equal(*y)


def test_generation_caches_the_keys_of_groups() -> None:
    ids = L.Input((6,), dtype="int32")
    x = L.Embedding(7, 4)(ids)
    y = L.Dense(7)(L.GroupQueryAttention(2, 4, 2, use_causal_mask=True, rotary=True)(x))
    model = zt.Model(ids, y, seed=3)
    program = model.compile("cpu:scalar", batch_size=1, decode=True)
    prompt = [1, 4]
    tokens = [*program.generate(prompt, 3, temperature=0.0)]
    row = list(prompt)
    for _ in range(3):  # without a cache
        logits = program.predict(np.array([row + [0] * (6 - len(row))], np.int32))
        row.append(int(logits[0, len(row) - 1].argmax()))
    assert tokens[-3:] == row[-3:]


def test_files_of_keras_hold_both(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    keras, torch = references.keras(), references.torch()
    x = L.Input((5, 4))
    y = L.GroupQueryAttention(3, 4, 2)(x, x)
    model = zt.Model(x, L.SpectralNormalization(L.Dense(3), 2)(y), seed=1)
    model.save(tmp_path / "m.keras")
    theirs, again = keras.models.load_model(tmp_path / "m.keras"), zt.load_keras(tmp_path / "m.keras")
    rows = QUERY.astype("f")
    want, same_again = (references.Run(m.trace(3).functions["predict"])(x=rows)["y"]
                        for m in (model, again))
    np.testing.assert_array_equal(same_again, want)
    with torch.no_grad():
        np.testing.assert_allclose(theirs(rows, training=False).numpy(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["Dense", "Conv2D"])
def test_spectral_steps_are_those_of_keras(kind: str) -> None:
    """Ten steps with momentum: each begins with a kernel whose largest singular value is about 1."""
    keras, torch = references.keras(), references.torch()
    how: dict[str, Any] = {"Dense": {"units": 3}, "Conv2D": {"filters": 3, "kernel_size": 2}}[kind]
    shape = {"Dense": (5,), "Conv2D": (4, 4, 2)}[kind]
    x = RANDOM.normal(size=(8, *shape)).astype("f")
    theirs = keras.layers.SpectralNormalization(getattr(keras.layers, kind)(**how), 2)
    y = RANDOM.normal(size=theirs(torch.tensor(x)).shape).astype("f")
    ours = zt.Sequential([L.Input(shape), L.SpectralNormalization(
        getattr(L, kind)(**how), 2)])
    program = ours.compile("cpu:scalar", batch_size=8, optimizer=zt.optimizers.SGD(0.1, 0.9),
                           loss="mse")
    named = {w.path.rpartition("/")[2]: w for w in theirs.weights}
    for path, array in program.weight_arrays().items():
        named[path.rpartition("/")[2]].assign(array)
    velocity = {path: 0.0 for path, w in named.items() if w.trainable}
    for _ in range(10):
        loss = ((theirs(torch.tensor(x), training=True) - torch.tensor(y))**2).mean()
        theirs.zero_grad()
        loss.backward()
        assert abs(program.train_on_batch(x, y) - loss.item()) < 1e-5 * max(1.0, loss.item())
        with torch.no_grad():
            for path in velocity:
                velocity[path] = 0.9 * velocity[path] - 0.1 * named[path].value.grad
                named[path].assign(named[path].value + velocity[path])
    assert len(program.weights) == len(named) == 3
    for path, array in program.weight_arrays().items():
        want = named[path.rpartition("/")[2]].value.detach().numpy()
        np.testing.assert_allclose(array, want, rtol=2e-4, atol=2e-5)


def test_the_matrix_of_an_embedding_is_normalized() -> None:
    layer = L.SpectralNormalization(L.Embedding(6, 4), 20)
    program = zt.Sequential([L.Input((3,), dtype="int32"), layer]).compile(
        "cpu:scalar", batch_size=2, optimizer=zt.optimizers.SGD(0.0), loss="mse")
    program.train_on_batch(np.ones((2, 3), "i"), np.ones((2, 3, 4)))
    matrix = program.weights["spectral_normalization/embedding/embeddings"]
    np.testing.assert_allclose(np.linalg.svd(matrix)[1][0], 1.0, rtol=1e-4)


def test_a_kernel_of_zeros_stays_as_it_is() -> None:
    layer = L.SpectralNormalization(L.Dense(3, kernel_initializer="zeros"))
    program = zt.Sequential([L.Input((4,)), layer]).compile(
        "cpu:scalar", batch_size=2, optimizer=zt.optimizers.SGD(0.0), loss="mse")
    assert np.isfinite(program.train_on_batch(np.ones((2, 4)), np.ones((2, 3))))
    assert not program.weights["spectral_normalization/dense/kernel"].any()


def test_penalties_of_outputs_are_those_of_keras() -> None:
    keras = references.keras()
    x, y = RANDOM.normal(size=(8, 4)).astype("float32"), RANDOM.normal(size=(8, 2)).astype("float32")
    theirs = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3),
                               keras.layers.ActivityRegularization(0.1, 0.2), keras.layers.Dense(2)])
    ours = zt.Sequential([L.Input((4,)), L.Dense(3), L.ActivityRegularization(0.1, 0.2), L.Dense(2)])
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.SGD(0.1), "mse")
    program = ours.compile("cpu", batch_size=8, optimizer=zt.optimizers.SGD(0.1), loss="mse")
    assert program.train_on_batch(x, y) == pytest.approx(float(theirs.train_on_batch(x, y)), rel=1e-5)
    for _ in range(3):
        program.train_on_batch(x, y)
        theirs.train_on_batch(x, y)
    for a, b in zip(program.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="must divide num_query_heads=4"):
        L.GroupQueryAttention(2, 4, 3)
    with pytest.raises(ConfigError, match=r"needs a layer with a kernel.*Flatten 'flatten' has none"):
        zt.Sequential([L.Input((4,)), L.SpectralNormalization(L.Flatten())]).build()
    with pytest.raises(ConfigError, match="takes l1 and l2"):
        L.ActivityRegularization(0.1, activity_regularizer="l2")
