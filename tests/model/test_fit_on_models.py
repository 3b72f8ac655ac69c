"""A model runs by the program that compile returned: fit, predict and the rest are on the model, and its weights are
those of the program, whatever the size of batches."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, WeightsError

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
LEARN: dict[str, Any] = {"batch_size": 8, "optimizer": "adam", "loss": "mse"}


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3), L.Dense(4)])


def same(a: Any, b: Any) -> None:
    assert len(a) == len(b) > 0
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


def by_hand(made: zt.Model) -> np.ndarray:
    k, b, k2, b2 = made.get_weights()
    return (X @ k + b) @ k2 + b2


def test_models_and_programs_train_to_equal_weights(tmp_path: Path) -> None:
    made, twin = model(), model()
    program = made.compile("cpu:scalar", **LEARN)
    assert made.program is program and made.compiled
    explicit = twin.compile("cpu:scalar", **LEARN)
    first = made.get_weights()
    history = made.fit(X, X, epochs=2, verbose=0)
    assert history.history == explicit.fit(X, X, epochs=2, verbose=0).history
    assert made.history is history and made.metrics_names == ["loss"]
    assert made.train_on_batch(X, X) == explicit.train_on_batch(X, X)
    assert made.test_on_batch(X, X) == made.evaluate(X, X, verbose=0)
    for weights in (program.get_weights(), twin.get_weights(), explicit.get_weights()):
        same(made.get_weights(), weights)
    assert all((a != b).any() for a, b in zip(first, made.get_weights(), strict=True))
    np.testing.assert_allclose(made.predict(X), by_hand(made), atol=1e-6)
    same([made.predict_on_batch(X)], [program.predict(X)])
    [score] = made.metrics
    assert (score.name, score.result()) == ("loss", history.history["loss"][-1])
    steps, *_, slot = made.optimizer.variables
    assert steps.name == "step" and steps.numpy() == made.optimizer.iterations == 3 and slot.shape == (4,)
    slot.assign(1.5)
    assert (np.asarray(made.optimizer.variables[-1]) == 1.5).all()
    made.learning_rate = 0.5
    assert program.learning_rate == made.learning_rate == 0.5
    made.save(tmp_path / "m.zt")
    same([zt.load(tmp_path / "m.zt").predict(X)], [made.predict(X)])


def test_weights_that_are_set_on_a_model_are_the_programs(tmp_path: Path) -> None:
    made = model()
    program = made.compile("cpu:scalar", **LEARN)
    made.fit(X, X, verbose=0)
    learned = made.get_weights()
    made.save_weights(tmp_path / "w.safetensors")
    made.set_weights([np.ones(w.shape) for w in learned])
    assert all((w == 1).all() for w in program.get_weights())
    np.testing.assert_allclose(program.predict(X), by_hand(made), atol=1e-5)
    made.layers[0].set_weights(learned[:2])
    same(program.get_weights()[:2], learned[:2])
    program.load_weights(tmp_path / "w.safetensors")
    same(made.get_weights(), learned)
    with pytest.raises(WeightsError, match="layer 'dense' has 2 weights, not 1"):
        made.layers[0].set_weights(learned[:1])
    same(made.get_weights(), learned)


def test_batches_of_another_size_are_of_the_same_weights() -> None:
    """As one program of the size that training had, bit for bit: with slots, counters and epochs."""
    made, twin = model(), model()
    made.compile("cpu:scalar", **{**LEARN, "batch_size": 4})
    other = twin.compile("cpu:scalar", **LEARN)
    for _ in range(2):
        history = made.fit(X, X, batch_size=8, epochs=2, verbose=0).history
        assert history == other.fit(X, X, epochs=2, verbose=0).history
    same(made.get_weights(), other.get_weights())
    same(made.program.get_weights(), other.get_weights())  # type: ignore[union-attr]
    same([made.predict(X, batch_size=3)], [other.predict(X)])
    made.set_weights([w + 1 for w in made.get_weights()])
    np.testing.assert_allclose(made.predict(X, batch_size=3), by_hand(made), atol=1e-5)
    np.testing.assert_allclose(made.evaluate(X, X, batch_size=5, verbose=0),
                               made.evaluate(X, X, verbose=0), rtol=1e-6)
    with pytest.raises(ConfigError, match="batch_size must be a positive integer, not 0"):
        made.predict(X, batch_size=0)


def test_callbacks_see_weights_as_they_are() -> None:
    made, seen = model(), []
    program = made.compile("cpu:scalar", **LEARN)
    keep = zt.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: seen.append(
        (made.get_weights()[0], program.get_weights()[0], made.predict(X, batch_size=2)[0],
         program.predict(X)[0])))
    made.fit(X, X, epochs=3, verbose=0, callbacks=keep)
    for mine, theirs, small, whole in seen:
        same([mine, small], [theirs, whole])
    assert (seen[0][0] != seen[2][0]).any()


def test_models_with_shared_layers_share_weights() -> None:
    """An encoder, trained as a part of an autoencoder, and its decoder after that."""
    x = L.Input((4,))
    encoder = zt.Sequential([L.Input((4,)), L.Dense(2)], name="encoder")
    hidden = L.Dense(3)(encoder(x))
    whole, half = zt.Model(x, L.Dense(4)(hidden)), zt.Model(x, hidden)
    encoder.compile("cpu:scalar", batch_size=8)
    whole.compile("cpu:scalar", **LEARN)
    half.compile("cpu:scalar", batch_size=8, optimizer="sgd", loss="mse")
    for trained, y in ((whole, X), (half, X[:, :3]), (whole, X)):
        before = encoder.get_weights()[0]
        trained.fit(X, y, verbose=0)
        kernel, bias = encoder.get_weights()
        assert (kernel != before).any()
        same(whole.get_weights()[:2], [kernel, bias])
        np.testing.assert_allclose(encoder.predict(X), X @ kernel + bias, atol=1e-6)
        k, b = half.get_weights()[2:]
        np.testing.assert_allclose(half.predict(X), (X @ kernel + bias) @ k + b, atol=1e-6)


def test_explicit_programs_keep_their_weights() -> None:
    """A model compiled again goes on; the program of before stays as it was."""
    made = model()
    first = made.compile("cpu:scalar", **LEARN)
    first.fit(X, X, verbose=0)
    learned = first.get_weights()
    second = made.compile("cpu:scalar", **LEARN)
    same(second.get_weights(), learned)
    second.fit(X, X, verbose=0)
    same(first.get_weights(), learned)
    same(made.get_weights(), second.get_weights())
    first.fit(X, X, epochs=2, verbose=0)  # it is the model's again
    same(made.get_weights(), first.get_weights())
    same([made.predict(X)], [first.predict(X)])  # by the program compiled last


def test_weights_outlive_the_program(tmp_path: Path) -> None:
    made = model()
    with made.compile("cpu:scalar", **LEARN) as program:
        made.fit(X, X, verbose=0)
        learned = program.get_weights()
    same(made.get_weights(), learned)
    with pytest.raises(ConfigError, match="closed"):
        made.predict(X)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        same(twin.get_weights(), learned)
        assert not twin.compiled
    np.testing.assert_allclose(made.compile("cpu:scalar").predict(X), by_hand(made), atol=1e-6)


def test_copies_train_independently() -> None:
    made = model()
    made.compile("cpu:scalar", **LEARN)
    made.fit(X, X, verbose=0)
    twin, learned = copy.deepcopy(made), made.get_weights()
    made.fit(X, X, verbose=0)
    same(twin.get_weights(), learned)
    assert (made.get_weights()[0] != learned[0]).any()


def test_16_bits_do_not_round_the_models_weights() -> None:
    made = model()
    first = made.get_weights()
    program = made.compile("cpu:scalar", batch_size=8, dtype="mixed_bfloat16")
    same(made.get_weights(), first)
    assert (program.get_weights()[0] != first[0]).any()
    made.set_weights([np.ones(w.shape) for w in first])
    np.testing.assert_allclose(made.predict(X), by_hand(made), rtol=0.02)


def test_what_comes_before_compile() -> None:
    made = model()
    np.testing.assert_allclose(made.predict(X), by_hand(made), atol=1e-6)
    with pytest.raises(ConfigError, match=r"compile with loss= and optimizer="):
        made.fit(X, X)
    for verb in (made.fit, made.evaluate, made.train_on_batch):
        with pytest.raises(ConfigError, match=r"before it is compiled; write model\.compile\("):
            getattr(model(), verb.__name__)(X, X)
    made.compile("cpu:scalar", **LEARN)
    made.add(L.Dense(4))
    assert not made.compiled
    with pytest.raises(ConfigError, match="have changed since it was compiled"):
        made.fit(X, X)
    assert made.predict(X).shape == (len(X), 4)
    made.pop()
    np.testing.assert_allclose(made.predict(X), by_hand(made), atol=1e-6)
    with pytest.raises(ConfigError, match=r"weights alone go to model\.save_weights"):
        made.save("m.h5")


def test_a_frozen_layer_keeps_its_weights() -> None:
    made = model()
    made.build()
    made.layers[0].set_weights([np.ones((4, 3)), np.zeros(3)])
    made.layers[0].trainable = False
    made.compile("cpu:scalar", **LEARN)
    made.fit(X, X, verbose=0)
    assert (made.get_weights()[0] == 1).all()
    assert [w.path for w in made.trainable_weights] == ["dense_1/kernel", "dense_1/bias"]
    assert made.non_trainable_weights == made.layers[0].weights


@pytest.mark.parametrize("kind", ["generator", "loader", "sequence"])
@pytest.mark.parametrize("asked", [None, 4])
def test_each_batch_of_an_iterator_is_a_step_unless_batch_size_is_set(kind: str, asked: int | None) -> None:
    """Steps of plain SGD against NumPy: batches of 3 rows, or cut and joined to 4."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(12, 2)).astype(np.float32), np.zeros((2, 1))
    y = x @ np.array([[1.0], [-2.0]], np.float32)
    pairs = [(x[i:i + 3], y[i:i + 3]) for i in range(0, 12, 3)]
    model = zt.Sequential([L.Input((2,)), L.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile("cpu:scalar", batch_size=asked, optimizer=zt.optimizers.SGD(0.1), loss="mse")

    class Loader:
        batch_size = 3

        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return iter(pairs)

    class Batches(zt.utils.PyDataset):
        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
            return pairs[k]

    given: dict[str, Callable[[], Any]] = {"generator": lambda: (p for p in pairs * 2), "loader": Loader, "sequence": Batches}
    model.fit(given[kind](), epochs=1, steps_per_epoch=2, shuffle=False, verbose=0)
    for i in range(2):
        a, b = (v[i * (asked or 3):(i + 1) * (asked or 3)].astype(np.float64) for v in (x, y))
        w -= 0.1 * 2 * a.T @ (a @ w - b) / len(a)
    np.testing.assert_allclose(model.get_weights()[0], w, rtol=1e-5)
    assert len(model.predict(given[kind](), steps=2)) == 2 * (asked or 3)


@pytest.mark.parametrize("listed", [False, True])
def test_short_batches_within_an_iterator_are_steps_too(listed: bool) -> None:
    """Steps of plain SGD against NumPy: only a list tells its largest batch, else the first one is."""
    sizes = (2, 1, 3) if listed else (3, 1, 2)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(6, 2)).astype(np.float32), np.zeros((2, 1))
    y = x @ np.array([[1.0], [-2.0]], np.float32)
    ends = np.cumsum(sizes)
    pairs = [(x[e - n:e], y[e - n:e]) for n, e in zip(sizes, ends, strict=True)]
    model = zt.Sequential([L.Input((2,)), L.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.1), loss="mse")
    model.fit(pairs if listed else iter(pairs * 2), epochs=2, steps_per_epoch=3, verbose=0)
    for a, b in pairs * 2:
        w -= 0.1 * 2 * a.astype(np.float64).T @ (a @ w - b) / len(a)
    np.testing.assert_allclose(model.get_weights()[0], w, rtol=1e-5)
    counted: list[int] = []
    model.evaluate(pairs if listed else iter(pairs), verbose=0,
                   callbacks=[zt.callbacks.LambdaCallback(on_test_batch_end=lambda k, logs: counted.append(k))])
    assert counted == [0, 1, 2]
