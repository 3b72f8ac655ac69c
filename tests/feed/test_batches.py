"""User data, checked, converted and cut into batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.programs import classifier, compiled, flowers, regressor, same_states
from ztorch import layers as L
from ztorch.errors import DataError
from ztorch.feed.row_weights import axes_of_weights, class_weights
from ztorch.feed.staging import Kept
from ztorch.feed.stretches import Stretch
from ztorch.model.sequential import Sequential

X, Y = flowers(20)


class Foreign:
    """An array of another library: it only knows how to become NumPy's."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class Packed:
    """An array that offers DLPack only."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("x", [
    X, X.astype(np.float64), X.astype(">f4"), np.asfortranarray(X), X.tolist(), Foreign(X),
    Packed(X), np.repeat(X, 2, 0)[::2], X[..., None], list(X),
], ids=["float32", "float64", "big-endian", "fortran", "lists", "__array__", "dlpack", "strided",
        "extra axis", "list of arrays"])
def test_any_array_is_the_same_array(x: Any) -> None:
    a, b = classifier(), classifier()
    a.fit(X, Y, verbose=0)
    b.fit(x, Y.tolist(), verbose=0)
    assert same_states(a, b)


def test_conversion_by_batches_equals_conversion_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = classifier(), classifier()
    a.fit(X.astype(np.float64), Y.astype(np.int64), verbose=0)
    monkeypatch.setattr("ztorch.feed.columns.CONVERT_AT_ONCE", 0)
    b.fit(X.astype(np.float64), Y.astype(np.int64), verbose=0)
    assert same_states(a, b)


def test_bytes_are_not_scaled() -> None:
    program = classifier()
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(program.predict(x), program.predict(x.astype(np.float32)))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    program = classifier()
    x = torch.from_numpy(X)
    assert np.array_equal(program.predict(x), program.predict(X))
    with pytest.raises(DataError, match=r"pass x\.detach\(\)"):
        program.predict(x.clone().requires_grad_())
    with pytest.raises(DataError, match=r"pass x\.float\(\)"):
        program.predict(x.bfloat16())


@pytest.mark.cheap
@pytest.mark.parametrize(("y", "fits"), [
    (np.ones((20, 1)), True), (np.ones(20), True), (np.ones((20, 1, 1)), True),
    (np.ones((1, 20)), False), (np.ones((20, 2)), False),
])
def test_columns_of_targets(y: np.ndarray, fits: bool) -> None:
    program = regressor()
    if fits:
        program.fit(X[:, :2], y, verbose=0)
    else:
        with pytest.raises(DataError):
            program.fit(X[:, :2], y, verbose=0)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.cheap
@pytest.mark.parametrize(("x", "message"), [
    (np.zeros((3, 5)), r"shape \(3, 5\).*takes \(N, 4\).*axis 1 is 5 and should be 4"),
    (np.zeros(4), r"pass x\[None\]"),
    (np.zeros((3, 2, 2)), r"x\.reshape\(-1, 4\)"),
    (np.zeros((0, 4)), "x is empty"),
    (np.float32(1), "0 axes and should have 2"),
    ([["a", "b", "c", "d"]], "not numbers; encode text"),
    (np.zeros((3, 4), complex), "real and imaginary"),
    ([[1, 2, 3, 4], [1, 2]], "rows differ in length"),
    (np.array([[1, 2, 3, None]]), "not numbers"),
    ((X, Y), r"fit\(\*data\)"),
    ({"x": X}, "mapping"),
    (None, "x is None"),
])
def test_wrong_inputs(x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        classifier().predict(x)


@pytest.mark.cheap
@pytest.mark.parametrize(("y", "message"), [
    (None, "y is missing"),
    (Y[:-1], "x has 20 rows but y has 19"),
    (np.where(np.arange(20) == 7, 3, Y), r"label 3 in row 7 of y is out of range.*0\.\.2"),
    (np.where(np.arange(20) == 4, -1, Y), r"label -1 in row 4"),
    (Y + 0.5, r"label .*\.5 in row 0"),
    (np.where(np.arange(20) == 5, np.nan, Y), "y holds nan in row 5"),
    (Y + 1, "these start at 1: pass y - 1"),
    (np.eye(3)[Y], r"one-hot: pass y.argmax\(-1\)"),
])
def test_wrong_labels(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        classifier().fit(X, y, verbose=0)


def test_class_numbers_for_a_loss_of_probabilities() -> None:
    with pytest.raises(DataError, match=r"sparse_categorical_crossentropy'.*numpy\.eye\(3\)\[y\]"):
        classifier(loss="categorical_crossentropy").fit(X, Y, verbose=0)


@pytest.mark.cheap
@pytest.mark.parametrize(("w", "message"), [
    (np.ones(19), r"\(19,\); it takes one weight per row: \(20,\)"),
    (np.ones((20, 2)), "one weight per row"),
    (-np.ones(20), "-1.0 at 0 must be finite and not negative"),
    (np.full(20, np.nan), "finite"),
])
def test_wrong_weights(w: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        classifier().fit(X, Y, sample_weight=w, verbose=0)


def test_weights_of_classes_and_of_steps() -> None:
    port: Any = SimpleNamespace(classes=3)
    assert class_weights({1: 3.0}, port, np.array([0, 1, 2])).tolist() == [1, 3, 1]
    with pytest.raises(DataError, match="labels that are class numbers"):
        class_weights({1: 3.0}, port, np.array([-1, 0]))
    unknown: Any = SimpleNamespace(classes=None)  # then there are as many as the labels say
    assert class_weights({1: 3.0}, unknown, np.eye(4)[[2, 1]]).tolist() == [1, 3]
    with pytest.raises(DataError, match=r"names class 2; classes are 0\.\.1"):
        class_weights({2: 3.0}, unknown, np.array([0, 1, 0, 1]))
    model = classifier()
    assert [axes_of_weights(model, (X, Y, np.ones((20, *steps)))) for steps in ((), (1,), (4,))] == [
        {}, {}, {"": 1}]


def test_images_may_lack_the_channel_axis() -> None:
    model = Sequential([L.Input((4, 4, 1)), L.Flatten(), L.Dense(2)])
    program = compiled(model, 4)
    x = np.random.default_rng(0).normal(size=(6, 4, 4))
    assert np.array_equal(program.predict(x), program.predict(x[..., None]))
    with pytest.raises(DataError, match=r"another order: use x\.transpose"):
        program.predict(x[:, None])


def test_a_device_is_asked_once_whether_it_keeps_columns() -> None:
    asked: list[Any] = []
    call: Any = SimpleNamespace(program=SimpleNamespace(keep=lambda columns: asked.append(columns) or "kept"))
    kept = Kept()
    assert [kept.of(call, {"x": X}) for _ in range(2)] == ["kept"] * 2 and len(asked) == 1


def test_a_stretch_runs_its_batches_and_counts_those_that_were_run() -> None:
    order = np.arange(40)[::-1]
    native = Mock(run=Mock(return_value=2), finish=Mock(return_value=1))
    stretch = Stretch(native, order, first=8, count=5, rows=4)
    assert stretch.weight == 20.0 and stretch.steps == 0
    stretch.run()
    native.run.assert_called_once_with(order, 8, 5)
    assert stretch.steps == 2
    stretch.start()  # the loss of its last batch is awaited
    native.start.assert_called_once_with(order, 8, 5)
    assert stretch.steps == 5
    stretch.finish()
    assert stretch.steps == 1
    scores = Mock(added=Mock(return_value=0.5))
    assert stretch.add_to(scores) == 0.5
    scores.added.assert_called_once_with(native.call, 4.0)
