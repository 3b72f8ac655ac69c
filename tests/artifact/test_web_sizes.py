"""Pages for browsers of models with several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.artifact.web_pages import asked
from ztorch import layers as L
from ztorch.compile.web_page import export_web


def test_several_sizes(tmp_path: Path) -> None:
    """The page chooses the smallest size that holds the rows and their steps, as Python does."""
    model = zt.Sequential([L.Input(("time", 3)), L.BatchNormalization(), L.MultiHeadAttention(1), L.GRU(3, return_sequences=True),
                           L.Dense(2)], name="steps", seed=4)
    options: dict[str, Any] = {"batch_size": (1, 4), "sizes": (2, 6), "loss": "mse",
                               "optimizer": zt.optimizers.SGD(0.1)}
    export_web(model.trace(**options), tmp_path / "page", webassembly=False)
    program = model.compile("cpu", **options)
    random = np.random.default_rng(3)
    calls: list[Any] = []
    wanted: list[Any] = []
    for rows, time in ((1, 2), (3, 5), (9, 1), (4, 6)):
        x = random.normal(size=(rows, time, 3)).astype(np.float32)
        y = random.normal(size=(rows, time, 2)).astype(np.float32)
        calls += [["predict", x.ravel().tolist(), {"time": time}],
                  ["train", x.ravel().tolist(), y.ravel().tolist(), None, {"time": time}]]
        wanted.append(program.predict(x))
        history = program.fit(x, y, shuffle=False, verbose=0).history
        wanted.append(history["loss"][0])
    calls[1::2] = [[verb, x, y, [1.0] * (len(y) // 2 // sizes["time"]), sizes]
                   for verb, x, y, _, sizes in calls[1::2]]
    calls += [["predict", [0.0] * 21, {"time": 7}], ["predict", [0.0] * 6]]
    _, said = asked(tmp_path / "page", "steps.zt", calls)
    for actual, want in zip(said, wanted, strict=False):
        if isinstance(want, float):
            assert actual["loss"] == pytest.approx(want, rel=1e-4)
        else:
            np.testing.assert_allclose(_numbers(actual), want.ravel(), rtol=0, atol=1e-5)
    assert "takes sizes of axis time from 1 to 6, not 7: pass { time: n }" in said[-2]["error"]
    assert "not undefined" in said[-1]["error"]


def test_sizes_that_are_multiples(tmp_path: Path) -> None:
    """Tensors that are joined have equal sizes for these alone."""
    x = L.Input(("time", 1))
    model = zt.Model(x, L.Add()([x, L.UpSampling1D(2)(L.MaxPooling1D(2)(x))]), name="steps")
    export_web(model.trace(1, sizes=6), tmp_path / "page", webassembly=False)
    calls = [["predict", [1.0, 3.0, 2.0, 5.0], {"time": 4}], ["predict", [0.0] * 3, {"time": 3}]]
    _, (actual, refused) = asked(tmp_path / "page", "steps.zt", calls)
    assert _numbers(actual) == [4.0, 6.0, 7.0, 10.0]
    assert "takes sizes of axis time that are multiples of 2, not 3" in refused["error"]


def test_batches_whose_rows_are_combined_are_not_padded(tmp_path: Path) -> None:
    x = L.Input((1,))
    model = zt.Model(x, L.Lambda(lambda x: x - zt.ops.mean(x, axis=0))(x), name="centered")
    export_web(model.trace(batch_size=(2, 3)), tmp_path / "page", webassembly=False)
    calls = [["predict", [1.0, 3.0, 8.0, 5.0, 9.0]], ["predict", [1.0, 3.0, 8.0, 5.0]]]
    _, (actual, refused) = asked(tmp_path / "page", "centered.zt", calls)
    assert _numbers(actual) == [-3.0, -1.0, 4.0, -2.0, 2.0]
    assert "predict combines the rows of a batch: pass 2 or 3 rows" in refused["error"]


def test_sizes_of_several_axes_and_outputs_of_other_sizes(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input(("height", "width", 2)),
                           L.Conv2D(4, 3, strides=2, padding="same"), L.UpSampling2D(2),
                           L.Conv2D(3, 2)], name="fields", seed=4)
    options: dict[str, Any] = {"batch_size": 2, "sizes": {"height": (3, 6), "width": 5},
                               "loss": "mse", "optimizer": zt.optimizers.SGD(0.1)}
    export_web(model.trace(**options), tmp_path / "page", webassembly=False)
    program = model.compile("cpu", **options)
    random = np.random.default_rng(3)
    calls: list[Any] = []
    wanted: list[Any] = []
    for rows, height, width in ((1, 2, 5), (3, 5, 3)):
        x = random.normal(size=(rows, height, width, 2)).astype(np.float32)
        y = program.predict(x)
        wanted.append(y.ravel())
        sizes = {"height": height, "width": width}
        calls += [["predict", x.ravel().tolist(), sizes],
                  ["train", x.ravel().tolist(), (y + 1).ravel().tolist(), [1.0] * rows, sizes]]
        wanted.append(program.fit(x, y + 1, shuffle=False, verbose=0).history["loss"][0])
    _, said = asked(tmp_path / "page", "fields.zt", [*calls, ["predict", [0.0] * 4, {"height": 1}]])
    for actual, want in zip(said, wanted, strict=False):
        actual = [actual["loss"]] if isinstance(want, float) else _numbers(actual)
        np.testing.assert_allclose(actual, np.atleast_1d(want), rtol=1e-4, atol=1e-5)
    assert "takes sizes of axis width from 1 to 5, not undefined" in said[-1]["error"]


def _numbers(found: dict[str, float]) -> list[float]:
    return [found[key] for key in sorted(found, key=int)] if isinstance(found, dict) else found
