"""Bad data for fit and bad weights, and settings of the environment that are wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.small_model import X, Y, compiled, model
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import (
    ConfigError,
    DataError,
    FileError,
    WeightsError,
    ZtorchError,
)
from ztorch.optimizers import SGD
from ztorch.program.program import Program
from ztorch.schedules import ExponentialDecay

ROOT = Path(__file__).parents[2]
NAN = np.where(np.arange(20) == 7, np.nan, Y)


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


MASKED = np.ma.masked_less(X, -0.5)
FULL = np.ma.masked_less(X, -2.0)  # it could hide numbers, and hides none


def test_masks_are_not_lost_silently(program: Program) -> None:
    count = int((X < -0.5).sum())
    labels = np.ma.masked_equal(Y, 2)
    added, scaled = zt.compiled(lambda a: a + 1.0), L.Normalization()
    for use, what in (
            (lambda: program.predict(MASKED), "x"), (lambda: program.fit(MASKED, Y), "x"),
            (lambda: program.predict([MASKED[0], MASKED[1]]), "x"),
            (lambda: program.evaluate(X, labels), "y"),
            (lambda: program.fit(iter([(MASKED, Y)])), "x of batch 0"),
            (lambda: program.fit(X, Y, sample_weight=labels), "sample_weight"),
            (lambda: model().set_weights([np.ma.masked_less(np.ones((4, 5)), 2)] * 4),
             "weight 'dense/kernel'"),
            (lambda: zt.ops.exp(MASKED), "zt.ops.exp: a"), (lambda: added(MASKED), "argument 0"),
            (lambda: scaled.adapt(MASKED), "data"), (lambda: scaled.adapt([(MASKED, Y)]), "x")):
        with pytest.raises(DataError, match=rf"{what} has \d+ masked elements.*x\.filled\(value\)"):
            use()
    with pytest.raises(DataError, match=f"x has {count} masked"):
        program.predict(MASKED)
    np.testing.assert_array_equal(program.predict(FULL), program.predict(X))
    np.testing.assert_array_equal(program.predict(MASKED.filled(0)),
                                  program.predict(np.where(X < -0.5, 0, X)))


FITTED: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((X[:, :3], Y), {}, DataError, "axis 1 is 3 and should be 4"),
    ((X[0], Y), {}, DataError, r"pass x\[None\]"),
    ((X[:0], Y[:0]), {}, DataError, "x is empty"),
    ((X.astype(str), Y), {}, DataError, "not numbers"),
    ((X, None), {}, DataError, "y is missing"),
    ((X, Y[:-1]), {}, DataError, "20 rows but y has 19"),
    ((X, NAN), {}, DataError, "nan in row 7"),
    ((X, Y + 1), {}, DataError, r"label 3 in row 2 .* 0\.\.2; these start at 1: pass y - 1"),
    ((X, Y - 1), {}, DataError, "label -1 in row 0"),
    ((X, np.eye(3)[Y]), {}, DataError, "look one-hot"),
    ((iter([(X, Y), (X, Y + 1)]),), {}, DataError, "row 22 of y of batch 1.*pass y - 1"),
    ((iter([]),), {}, DataError, "gave no batches"),
    ((iter([(X, Y)]),), {"epochs": 2}, DataError, "run out of batches"),
    ((X, Y), {"batch_size": 0}, ConfigError, "batch_size.*not 0"),
    ((X, Y), {"batch_size": 9}, ConfigError, "compiled for 8"),
    ((X, Y), {"epochs": -1}, ConfigError, "epochs=-1"),
    ((X, Y), {"epochs": "3"}, ConfigError, "epochs='3'"),
    ((X, Y), {"shuffle": "batch"}, ConfigError, "shuffle must be True or False, not 'batch'"),
    ((X, Y), {"verbose": "junk"}, ConfigError, "verbose='junk'"),
    ((X, Y), {"steps_per_epoch": 0}, ConfigError, "steps_per_epoch=0"),
    *(((X, Y), {"validation_split": v}, ConfigError, "validation_split")
      for v in (1, -1, "a", float("nan"), 0.999)),
    ((X, Y), {"validation_freq": "a"}, ConfigError, "validation_freq='a'"),
    ((X, Y), {"validation_freq": 2.5}, ConfigError, "validation_freq=2.5"),
    ((X, Y), {"validation_data": 5}, DataError, "validation_data is int; it takes"),
    ((X, Y), {"validation_data": (X, NAN)}, DataError, "nan in row 7"),
    ((X, Y), {"sample_weight": np.ones(5)}, DataError, r"one weight per row: \(20,\)"),
    ((X, Y), {"class_weight": {3: 1.0}}, DataError, r"class 3; classes are 0\.\.2"),
    ((X, Y), {"class_weight": {1: "a"}}, ConfigError, r"class_weight\[1\].*'a'"),
    ((X, Y), {"callbacks": 5}, ConfigError, "5 is not a ztorch.callbacks.Callback"),
    ((X, Y), {"callbacks": [C.EarlyStopping]}, ConfigError, r"add \(\)"),
    ((X, Y), {"callbacks": [C.LearningRateScheduler(lambda e: None)]}, ConfigError,
     "LearningRateScheduler.*not None"),
    ((X, Y), {"callbacks": [C.CSVLogger(ROOT)]}, FileError, "it is a folder"),
    ((X, Y), {"callbacks": [C.ModelCheckpoint(f"{__file__}/x.zt")]}, FileError, "cannot write"),
    ((X, Y), {"callbacks": [C.ModelCheckpoint("{los}.zt")]}, ConfigError, "names 'los'"),
]


@pytest.mark.cheap
@pytest.mark.parametrize(("data", "how", "kind", "message"), FITTED, ids=[f[3] for f in FITTED])
def test_fitted(program: Program, data: tuple[Any, ...], how: dict[str, Any],
                kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        program.fit(*data, **{"verbose": 0, **how})
    assert np.isfinite(program.fit(X, Y, verbose=0).history["loss"]).all()  # it works still


@pytest.mark.parametrize("loss", ["binary_crossentropy", "categorical_crossentropy"])
def test_probabilities_lie_between_0_and_1(loss: str) -> None:
    program = compiled(loss=loss, metrics=())
    good = np.eye(3)[Y]
    program.fit(X, good, verbose=0)
    for bad in (good * 255, good - 0.5):
        with pytest.raises(DataError, match=rf"row 0; the loss {loss} takes numbers from 0 to 1"):
            program.fit(X, bad, verbose=0)


def test_a_callback_that_raises_ends_fit_with_its_own_error(program: Program) -> None:
    def trip(batch: int, logs: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        program.fit(X, Y, verbose=0, callbacks=C.LambdaCallback(on_train_batch_end=trip))
    program.fit(X, Y, verbose=0)


def test_wrong_arguments_fail_before_the_first_step(tmp_path: Path) -> None:
    steps: list[int] = []
    count = C.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    scheduled = compiled(optimizer=SGD(ExponentialDecay(0.1, 10, 0.9)))
    (tmp_path / "c.ckpt").mkdir()
    for late, message in ((C.ReduceLROnPlateau("loss"), "follows the schedule"),
                          (C.ModelCheckpoint(tmp_path / "c.ckpt"), "is a folder")):
        with pytest.raises(ZtorchError, match=message):
            scheduled.fit(X, Y, verbose=0, callbacks=[count, late])
    assert not steps


def test_misspelled_monitors_get_a_suggestion(program: Program) -> None:
    with pytest.warns(UserWarning, match="'acuracy', .*; did you mean 'accuracy'. Known: accuracy"):
        program.fit(X, Y, verbose=0, callbacks=C.EarlyStopping("acuracy"))


@pytest.mark.cheap
@pytest.mark.parametrize(("given", "kind", "message"), [
    ([], WeightsError, "got 0 arrays; the model has 4 weights: dense/kernel"),
    ([np.ones((5, 4))] * 4, WeightsError, r"'dense/kernel' has shape \(4, 5\)"),
    ([None] * 4, DataError, r"set_weights\(\)\[0\] is None"),
    (["a"] * 4, DataError, r"set_weights\(\)\[0\] holds .* not numbers"),
], ids=["few", "shape", "None", "text"])
def test_weights(program: Program, given: list[Any], kind: type[Exception], message: str) -> None:
    before = program.get_weights()
    with pytest.raises(kind, match=message):
        program.set_weights(given)
    for a, b in zip(before, program.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_whole_numbers_are_weights_too(program: Program) -> None:
    before = program.get_weights()
    program.set_weights([np.ones(w.shape, int) for w in before])
    assert all((w == 1).all() for w in program.get_weights())
    program.set_weights(before)


# -- the environment -----------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "value", "message"), [
    ("ZTORCH_THREADS", "abc", "ZTORCH_THREADS='abc' must be an integer"),
    ("ZTORCH_DEBUG", "grph", "ZTORCH_DEBUG='grph' is not a stage; did you mean 'graph'"),
    ("ZTORCH_DUMP", f"{__file__}/x", "ZTORCH_DUMP='.*' is not writable: "),
])
def test_settings(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        compiled()


def test_a_fresh_process_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build():\n    return 1 / 0\n")
    ran = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), "train", "net.py", "--data", "digits"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, text=True, capture_output=True,
        check=False)
    assert ran.returncode == 1
    assert re.fullmatch(r"error: .*net\.py, line 2: ZeroDivisionError: division by zero\n",
                        ran.stderr)
