"""Models with open axes whose layers combine steps in ways that cannot leave padding out, and layers
that give probabilities along padded axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import Unsupported

rng = np.random.default_rng(3)


class Pooling(L.Layer, abstract=True):
    """The mean of the steps, weighted by a softmax over them, beside their distance from it."""

    def __init__(self) -> None:
        super().__init__()
        self.score = L.Dense(1)

    def call(self, x: Any) -> Any:
        weights = ops.softmax(self.score(ops.tanh(x)), axis=1)
        mean = ops.sum(weights * x, axis=1, keepdims=True)
        return mean[:, 0], x - mean


def attended(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    score = np.exp(np.tanh(x) @ kernel + bias)
    mean = (score / score.sum(1, keepdims=True) * x).sum(1, keepdims=True)
    return mean[:, 0], x - mean


def test_each_size_of_the_data_is_computed_without_padding() -> None:
    x = L.Input((None, 3))
    model = zt.Model(x, [*Pooling()(x)])
    kernel, bias = rng.normal(size=(3, 1)), rng.normal(size=1)
    model.set_weights([kernel, bias])
    for steps in (5, 9, 5):
        rows = rng.normal(size=(4, steps, 3))
        for y, expected in zip(model.predict(rows), attended(rows, kernel, bias), strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    mixed = [rng.normal(size=(n, 3)) for n in (5, 9, 5)]
    means, rests = model.predict(mixed)
    for row, mean, rest in zip(mixed, means, rests, strict=True):
        first, second = attended(row[None], kernel, bias)
        np.testing.assert_allclose(mean, first[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rest, second[0], rtol=1e-4, atol=1e-5)


def test_it_trains_on_targets_as_long_as_the_data() -> None:
    x = L.Input((None, 3))
    model = zt.Model(x, Pooling()(x)[1])
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.5), loss="mse", metrics=["mae"])
    for steps in (6, 8):
        kernel, bias = model.get_weights()
        rows, y = rng.normal(size=(4, steps, 3)), rng.normal(size=(4, steps, 3))
        history = model.fit(rows, y, verbose=0).history
        error = attended(rows, kernel, bias)[1] - y
        np.testing.assert_allclose(history["loss"], [(error ** 2).mean()], rtol=1e-4)
        np.testing.assert_allclose(history["mae"], [np.abs(error).mean()], rtol=1e-4)
        assert np.abs(model.get_weights()[0] - kernel).max() > 1e-4


def test_a_class_takes_rows_of_other_lengths_than_its_first() -> None:
    class Attended(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Pooling()

        def call(self, x: Any) -> Any:
            return self.attention(x)[0]

    model = Attended()
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.5), loss="mse")
    model.build((None, 4, 3))
    for steps in (4, 7, 4):
        kernel, bias = model.get_weights()
        rows, y = rng.normal(size=(5, steps, 3)), rng.normal(size=(5, 3))
        error = attended(rows, kernel, bias)[0] - y
        np.testing.assert_allclose(model.fit(rows, y, verbose=0).history["loss"],
                                   [(error ** 2).mean()], rtol=1e-4)
    assert str(model.input_shape) == "(None, None, 3)"
    with pytest.raises(zt.errors.DataError, match=r"takes \(N, axis1, 3\)"):
        model.predict(np.ones((2, 4, 5)))


def test_a_class_that_needs_one_length_refuses_others() -> None:
    class Flat(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = L.Dense(1, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            return self.dense(ops.reshape(x, (x.shape[0], -1)))

    model = Flat()
    for _ in range(2):
        np.testing.assert_allclose(model.predict(np.ones((2, 4, 3))), [[12.0], [12.0]])
        with pytest.raises(zt.errors.DataError, match="axis 1 is 5 and should be 4"):
            model.predict(np.ones((2, 5, 3)))


@pytest.mark.parametrize("make", [
    lambda: L.Conv1D(2, 3, padding="same", activation="sigmoid"),
    lambda: L.SeparableConv1D(2, 3, padding="same", activation="softmax"),
    lambda: L.Conv1DTranspose(2, 3, padding="same", activation="sigmoid"),
    lambda: L.TimeDistributed(L.Dense(2, activation="softmax")),
], ids=["conv", "separable", "transposed", "dense"])
def test_the_loss_of_probabilities_along_a_padded_axis(make: Any) -> None:
    """Losses read their logits, where padding counts as little."""
    x, y = rng.normal(size=(4, 5, 3)), np.eye(2)[rng.integers(0, 2, (4, 5))]
    losses = []
    for steps, sizes in ((5, None), (None, 8)):
        layer = make()
        loss = "binary_crossentropy" if "sigmoid" in str(layer.get_config()) else (
            "categorical_crossentropy")
        model = zt.Sequential([L.Input((steps, 3)), layer], seed=2)
        program = model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.5), loss=loss,
                                batch_size=4, **({} if sizes is None else {"sizes": sizes}))
        losses.append([*program.fit(x, y, epochs=2, verbose=0).history["loss"],
                       *model.get_weights()[0].ravel()])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4, atol=1e-6)


def upscaled(x: Any) -> Any:
    """Each pixel has four channels, which become 2 x 2 pixels."""
    _, height, width, _ = ops.shape(x)
    x = ops.reshape(x, (-1, height, width, 2, 2))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4)), (-1, 2 * height, 2 * width, 1))


def pixels(x: np.ndarray) -> np.ndarray:
    parts = x.reshape(*x.shape[:3], 2, 2).transpose(0, 1, 3, 2, 4)
    return parts.reshape(x.shape[0], 2 * x.shape[1], 2 * x.shape[2], 1)


def test_upscaling_models_train_on_several_sizes_and_predict_others_meanwhile() -> None:
    x = L.Input((None, None, 4))
    model = zt.Model(x, L.Lambda(upscaled)(L.Dense(4, use_bias=False)(x)))
    model.compile("sgd", "mse")
    small = rng.normal(size=(1, 2, 5, 4)).astype("float32")
    seen = []

    class Predicting(zt.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append((self.model.get_weights()[0], self.model.predict(small)))

    for height, width in ((3, 4), (4, 2)):
        rows = rng.normal(size=(4, height, width, 4)).astype("float32")
        y = rng.normal(size=(4, 2 * height, 2 * width, 1)).astype("float32")
        expected = np.mean((pixels(rows @ model.get_weights()[0]) - y) ** 2)
        history = model.fit(rows, y, epochs=2, batch_size=4, verbose=0, callbacks=[Predicting()])
        np.testing.assert_allclose(history.history["loss"][0], expected, rtol=1e-4)
    assert len(seen) == 4 and not np.array_equal(seen[0][0], seen[1][0])
    for kernel, y in seen:
        np.testing.assert_allclose(y, pixels(small @ kernel), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.predict(small), pixels(small @ seen[-1][0]), rtol=1e-4,
                               atol=1e-5)


class Counting(zt.Model):
    """A model whose own `call` computes with the number of steps."""

    def call(self, x: Any) -> Any:  # type: ignore[override]
        return x / ops.shape(x)[1]


COUNTING: dict[str, Any] = {
    "numbered from the last": lambda x: x * ops.arange(x.shape[1], dtype="float32")[::-1, None],
    "their number": lambda x: x * ops.shape(x)[1],
    "counted": lambda x: x / ops.sum(ops.ones_like(x[:1, :, :1])),
    "from 0 to 1": lambda x: x * ops.linspace(0.0, 1.0, x.shape[1])[:, None],
    "in a loop": lambda x: ops.fori_loop(0, x.shape[1], lambda k, s: s + 1.0, x),
    "a class": lambda x: x / ops.shape(x)[1]}


@pytest.mark.parametrize("name", COUNTING)
def test_code_that_counts_steps_sees_no_padding(name: str) -> None:
    function, x = COUNTING[name], L.Input((None, 3))
    model = Counting() if name == "a class" else zt.Model(x, L.Lambda(function)(x))
    rows = [rng.normal(size=(n, 3)).astype(np.float32) for n in (5, 9)]
    if name == "a class":
        for row in rows:
            np.testing.assert_allclose(model.predict(row[None], verbose=0)[0], row / len(row), rtol=1e-6)
        return
    with pytest.raises(Unsupported, match=r"computes with the size of an open axis|would mix padding"):
        model.compile("cpu:scalar", batch_size=2, sizes=16)
    for row, y in zip(rows, model.predict(rows, verbose=0), strict=True):
        np.testing.assert_allclose(y, function(zt.tensor(row[None])).numpy()[0], rtol=1e-5, atol=1e-6)


def test_positions_of_steps_may_be_padded() -> None:
    x = L.Input((None, 3))
    model = zt.Model(x, L.Lambda(lambda x: x * ops.arange(x.shape[1], dtype="float32")[:, None])(x))
    program = model.compile("cpu:scalar", batch_size=2, sizes=16)
    rows = [rng.normal(size=(n, 3)).astype(np.float32) for n in (5, 9)]
    for row, y in zip(rows, program.predict(rows), strict=True):
        np.testing.assert_allclose(y, row * np.arange(len(row))[:, None], rtol=1e-6)
