"""Models with open axes that are compiled without sizes: their data decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ConfigError
from ztorch.feed.row_sizes import sizes_seen
from ztorch.model.late_compile import chosen

RANDOM = np.random.default_rng(0)


def rows(*lengths: int) -> list[np.ndarray]:
    return [RANDOM.normal(size=(n, 3)).astype(np.float32) for n in lengths]


def reader() -> zt.Sequential:
    return zt.Sequential([L.Input((None, 3)), L.GlobalAveragePooling1D(), L.Dense(1)], seed=1)


HOW: dict[str, Any] = {"batch_size": 2, "optimizer": "adam", "loss": "mse"}
SHORT, LONG = rows(3, 5, 9, 2), rows(20, 4, 11, 30)
Y = np.arange(4.0)


def axes(model: zt.Sequential) -> tuple[int, ...]:
    assert model.program is not None
    return model.program.buckets.axes["axis1"]


def test_sizes_follow_the_data_and_training_continues_when_they_grow() -> None:
    model = reader()
    assert model.compile("cpu:scalar", **HOW) is model and model.program is None
    first = model.fit(SHORT, Y, epochs=2, verbose=0).history["loss"]
    assert axes(model) == (8, 16)
    more = model.fit(LONG, Y, epochs=2, verbose=0).history["loss"]
    assert axes(model) == (8, 16, 32)

    told = reader().compile("cpu:scalar", **HOW, sizes=(8, 16, 32))
    want = [told.fit(x, Y, epochs=2, verbose=0).history["loss"] for x in (SHORT, LONG)]
    np.testing.assert_allclose([*first, *more], np.ravel(want), rtol=1e-5)
    np.testing.assert_allclose(model.predict(LONG), told.predict(LONG), rtol=1e-4, atol=1e-6)
    assert axes(model) == (8, 16, 32)  # a batch that fits compiles nothing


def test_validation_data_count() -> None:
    model = reader()
    model.compile("cpu:scalar", **HOW)
    history = model.fit(SHORT, Y, validation_data=(LONG, Y), epochs=1, verbose=0).history
    assert axes(model) == (8, 16, 32) and np.isfinite(history["val_loss"]).all()


def test_a_model_that_was_not_compiled_predicts() -> None:
    model = reader()
    batch = RANDOM.normal(size=(3, 7, 3)).astype(np.float32)
    assert model.predict(batch).shape == (3, 1) and axes(model) == (7,)


def test_without_data_sizes_are_required(tmp_path: Path) -> None:
    model = reader()
    model.compile("cpu:scalar", **HOW)
    with pytest.raises(ConfigError, match=r"compile\(\.\.\., sizes=\{'axis1': \(64, 128\)\}"):
        model.save(tmp_path / "m.zt")
    model.predict(SHORT)
    model.save(tmp_path / "m.zt")
    assert zt.load(tmp_path / "m.zt").predict(SHORT).shape == (4, 1)


@together(of=20)
@pytest.mark.parametrize(("low", "high", "most", "sizes"), [
    (5, 5, 4, (5,)), (1, 8, 4, (8,)), (1, 9, 4, (8, 16)), (60, 64, 4, (64,)), (31, 64, 4, (32, 64)),
    (1, 1000, 4, (128, 256, 504, 1000)), (1, 1000, 1, (1000,)), (1, 100, 2, (56, 104))])
def test_chosen_sizes(low: int, high: int, most: int, sizes: tuple[int, ...]) -> None:
    assert chosen(low, high, most) == sizes


def test_several_inputs_and_axes() -> None:
    x = {"a": np.zeros((2, 6, 5, 3)), "b": [np.zeros(4), np.zeros(9)]}
    open_axes = {"a": {0: "height", 1: "width"}, "b": {0: "time"}}
    want = {"height": {6}, "width": {5}, "time": {4, 9}}
    assert sizes_seen(x, open_axes, ["a", "b"]) == want
    assert sizes_seen(list(x.values()), open_axes, ["a", "b"]) == want
    same = sizes_seen(x, {"a": {0: "time"}, "b": {0: "time"}}, ["a", "b"])
    assert same == {"time": {6, 4, 9}}


def test_a_compile_that_fails_fails_again_for_the_same_reason() -> None:
    """The second call said that the model is not compiled."""
    class Broken(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = L.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            raise ValueError("a slip")

    model = Broken()
    model.compile("cpu:scalar", optimizer="sgd", loss="mse")
    for _ in range(2):
        with pytest.raises(ValueError, match="a slip"):
            model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
