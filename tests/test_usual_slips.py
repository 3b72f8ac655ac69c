"""Slips that users of Keras make often, and the errors and warnings that teach them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.cases.small_model import X, Y, model
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch import losses, optimizers
from ztorch.errors import (
    ConfigError,
    DataError,
    NonFiniteLoss,
    ShapeError,
    UnknownName,
    ZtorchError,
)

Slip = tuple[str, Callable[[], Any], type[Exception], str]  # name, call, error, its message
HOT = np.eye(3)[Y]


@pytest.fixture(scope="module")
def trained() -> zt.Sequential:
    made = model()
    made.compile("cpu:scalar", optimizer="adam", loss="sparse_categorical_crossentropy", batch_size=20)
    return made


DECLARED: list[Slip] = [
    ("initializer", lambda: L.Dense(3, kernel_initializer="foo"), UnknownName,
     r"Dense\(kernel_initializer=...\): unknown initializer 'foo'"),
    ("no flags", lambda: L.PReLU(alpha_initializer="zeroes"), UnknownName, "did you mean 'zeros'"),
    ("activation", lambda: L.Dense(3, activation="rellu"), UnknownName, "did you mean 'relu'"),
    ("regularizer", lambda: L.Dense(3, kernel_regularizer="l3"), UnknownName, "unknown regularizer"),
    ("percent", lambda: L.Dropout(50), ConfigError, "from 0 to 1, below 1, not 50"),
    ("swapped", lambda: model().compile("mse", "adam"), ConfigError,
     "is an optimizer.*optimizer='adam', loss='mse'"),
    ("metric for metrics", lambda: model().compile(loss="mse", metric=["mae"]), UnknownName, "'metrics'"),
    ("function as rate", lambda: optimizers.Adam(lambda step: 0.1), ConfigError,
     "is a function.*LearningRateSchedule.*LearningRateScheduler"),
    ("lr", lambda: optimizers.Adam(lr=0.1), UnknownName, "here it is learning_rate"),
    ("unknown suffix", lambda: model().save("x.foo"), ConfigError, r"does not end in .zt; .*\.keras"),
    ("no suffix", lambda: model().save("x"), ConfigError, "does not end in .zt"),
    ("weights", lambda: model().save_weights("w.foo"), ConfigError, ".weights.h5 for Keras, .npz"),
    ("checkpoint", lambda: C.ModelCheckpoint("a.foo"), ConfigError, ".zt for the whole program, .keras"),
    ("einsum", lambda: zt.ops.einsum("ij,jk->ik", X), ShapeError,
     "got 1 operands, but its subscripts 'ij,jk->ik' are for 2"),
    ("take", lambda: zt.ops.take(zt.tensor(X), [0, 20], 0), ShapeError, "position 20 .* use -20 to 19"),
    ("take of arrays", lambda: zt.ops.take(X, -21, 0), ShapeError, "position -21 is out of range"),
    ("take along", lambda: zt.ops.take_along_axis(X, np.full((20, 1), 4)), ShapeError, "position 4"),
    ("fixed batch", lambda: L.Lambda(lambda x: zt.ops.reshape(x, (32, 2, 2)))(L.Input((4,))),
     ShapeError, r"cannot reshape \(1, 4\) to \(32, 2, 2\); write -1 in place of 32, the number of rows"),
    ("no compile", lambda: model().fit(X, Y), ConfigError, r"before it is compiled; write model.compile\("),
    ("layer class", lambda: zt.Sequential([L.Dense]), ConfigError, "not the class Dense"),
]


@together()
@pytest.mark.parametrize(("name", "call", "kind", "message"), DECLARED, ids=[s[0] for s in DECLARED])
def test_declarations(name: str, call: Callable[[], Any], kind: type[Exception], message: str, tmp_path: Path,
                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        call()
    assert not list(tmp_path.iterdir())


FED: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("targets for predict", lambda m: m.predict(X, Y), ConfigError, "predict takes no targets"),
    ("third of evaluate", lambda m: m.evaluate(X, Y, Y), ConfigError, "sample_weight= by name"),
    ("third of fit", lambda m: m.fit(X, Y, X, Y), ConfigError, r"validation_data=\(x, y\)"),
    ("third, a list", lambda m: m.fit(X, Y, [X, Y]), ConfigError, "not data"),
    ("program", lambda m: m.program.predict(X, Y), ConfigError, "predict takes no targets"),
    ("batch size", lambda m: m.fit(X, Y, 0), ConfigError, "batch_size must be a positive integer, not 0"),
    ("validation x", lambda m: m.fit(X, Y, validation_data=X, verbose=0), DataError, "is only one array"),
    ("four", lambda m: m.fit(X, Y, validation_data=(X, Y, Y, Y), verbose=0), DataError, "is a tuple of 4"),
    ("one pass", lambda m: m.fit(X, Y, validation_data=iter([(X, Y)]), epochs=2, verbose=0), DataError,
     "generator of validation_data has run out of batches; pass arrays"),
    ("one hot", lambda m: m.fit(X, HOT), DataError, r"look one-hot: pass y.argmax\(-1\)"),
    ("from 1", lambda m: m.fit(X, Y + 1), DataError, "these start at 1: pass y - 1"),
    ("rows", lambda m: m.fit(X, Y[:3]), DataError, "x has 20 rows but y has 3"),
    ("callback class", lambda m: m.fit(X, Y, callbacks=[C.EarlyStopping]), ConfigError, r"add \(\)"),
    ("rate is None", lambda m: m.fit(X, Y, callbacks=C.LearningRateScheduler(lambda e: None), verbose=0),
     ConfigError, "result of LearningRateScheduler's schedule for epoch 0 must be a number"),
    ("class weight", lambda m: m.fit(X, Y, class_weight={7: 1.0}), DataError, "names class 7"),
    ("nan", lambda m: m.fit(np.where(X > 0.9, np.nan, X), Y, verbose=0), NonFiniteLoss, "is not finite: clean"),
]


@together()
@pytest.mark.parametrize(("name", "call", "kind", "message"), FED, ids=[s[0] for s in FED])
def test_data(name: str, call: Callable[[Any], Any], kind: type[Exception], message: str,
              trained: zt.Sequential) -> None:
    with pytest.raises(kind, match=message):
        call(trained)


def test_labels_for_a_model_without_flatten() -> None:
    images = zt.Sequential([L.Input((4, 4, 1)), L.Dense(3, activation="softmax")])
    images.compile("cpu:scalar", optimizer="sgd", loss="sparse_categorical_crossentropy")
    with pytest.raises(DataError, match="one label per row, give the model a Flatten"):
        images.fit(np.zeros((20, 4, 4, 1)), Y)


def test_a_file_of_keras_is_no_artifact(tmp_path: Path) -> None:
    path = str(tmp_path / "m.keras")
    model().save(path)
    with pytest.raises(ZtorchError, match=r"is a file of Keras; load it with zt\.load_model"):
        zt.load(path)


def warned(units: int, loss: Any) -> list[str]:
    """The warnings of a model that ends with a softmax."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zt.Sequential([L.Input((4,)), L.Dense(units, activation="softmax")]).compile(
            "cpu:scalar", loss=loss, optimizer="sgd")
    return sorted({str(w.message) for w in caught})


def test_a_softmax_that_cannot_be_meant_is_told() -> None:
    [message] = warned(1, "binary_crossentropy")
    assert "the softmax of a single number is always 1" in message
    [message] = warned(3, losses.SparseCategoricalCrossentropy(from_logits=True))
    assert "has from_logits=True, but the model ends with a softmax" in message
    assert not warned(3, "sparse_categorical_crossentropy")


def test_negative_positions_count_from_the_end() -> None:
    """As in NumPy and Keras, for lists, arrays, tensors, methods, and in models."""
    t, want = zt.tensor(X), X[[-1, 2]]
    forms = [t.take([-1, 2], 0), zt.ops.take(t, [-1, 2], axis=0), zt.ops.take(t, zt.tensor([-1, 2]), 0), zt.ops.take(X, [-1, 2], 0),
             zt.ops.gather(t, np.array([-1, 2]), 0)]
    for y in forms:
        np.testing.assert_array_equal(np.asarray(y), want)
    at = np.array([[-1], [0]])
    np.testing.assert_array_equal(zt.ops.take_along_axis(X[:2], at, 1), np.take_along_axis(X[:2], at, 1))
    x = L.Input((4,))
    last = zt.Model(x, [zt.ops.take(x, -1, axis=1), L.Lambda(lambda v: v.take([-2], axis=1))(x)])
    last.compile("cpu:scalar")
    y, z = last.predict(X)
    np.testing.assert_array_equal(y, X[:, -1])
    np.testing.assert_array_equal(z, X[:, [-2]])


def test_a_compile_that_fails_leaves_the_model_as_it_was(trained: zt.Sequential) -> None:
    before = trained.compile_arguments, trained._asked
    with pytest.raises(ConfigError, match="no loss"):
        trained.compile("cpu:scalar", optimizer="sgd", batch_size=5)
    assert (trained.compile_arguments, trained._asked) == before
