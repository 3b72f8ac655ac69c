"""Weights of outputs and of steps: `sample_weight` as Keras takes it."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch.errors import ConfigError, DataError, ShapeError, Unsupported

random = np.random.default_rng(8)
X = random.normal(size=(10, 4, 3)).astype(np.float32)  # the last of three batches is not full
IDS = random.integers(0, 3, (10, 4))
IDS[:, 0] = 1
WORDS = random.integers(0, 2, (10, 4))
VALUES = random.normal(size=(10, 1)).astype(np.float32)
ROWS, OTHERS = random.uniform(0, 3, (2, 10)).astype(np.float32)
STEPS = random.uniform(0, 3, (10, 4)).astype(np.float32)
KERNELS = [random.normal(size=shape).astype(np.float32) for shape in ((3, 2), (2,), (3, 1), (1,))]


def two_outputs(kind: Any) -> Any:
    x = kind.layers.Input((4, 3))
    words = kind.layers.Dense(2, activation="softmax", name="words")(x)
    value = kind.layers.Dense(1, name="value")(kind.layers.GlobalAveragePooling1D()(x))
    model = kind.Model(x, [words, value])
    model.compile(optimizer=kind.optimizers.SGD(0.1), loss=["sparse_categorical_crossentropy", "mse"],
                  metrics=[["accuracy"], ["mae"]], weighted_metrics=[["accuracy"], ["mae"]], loss_weights=[1.0, 0.5])
    model.set_weights(KERNELS)
    return model


def masked(kind: Any) -> Any:
    model = kind.Sequential([kind.layers.Input((4,), dtype="int32"), kind.layers.Embedding(3, 3, mask_zero=True),
                             kind.layers.Dense(2, activation="softmax")])
    model.compile(optimizer=kind.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy",
                  weighted_metrics=["sparse_categorical_crossentropy"] if kind is zt else None)  # see below
    model.set_weights([np.eye(3, dtype=np.float32), *KERNELS[:2]])
    return model


TARGETS = [WORDS, VALUES]
# A model, its data, and the weights that its rows, steps or outputs have.
CASES: dict[str, tuple[Callable[[Any], Any], Any, Any, Any]] = {
    "steps of one output, rows of another": (two_outputs, X, TARGETS, [STEPS, ROWS]),
    "steps of a sequence with a mask": (masked, IDS, WORDS, STEPS),
}


def scores_of(kind: Any, name: str) -> list[Any]:
    """All that a session says, in order."""
    make, x, y, weights = CASES[name]
    model = make(kind)
    more = {"batch_size": 4, "verbose": 0}
    histories = [model.fit(x, y, sample_weight=weights, validation_data=(x, y, weights), shuffle=False, **more).history,
                 model.evaluate(x, y, return_dict=True, **more)]  # without weights again
    return [*histories, *model.get_weights()]


@together()
@pytest.mark.parametrize("name", CASES)
def test_scores_and_weights_are_those_of_keras(name: str) -> None:
    for ours, theirs in zip(scores_of(zt, name), scores_of(references.keras(), name), strict=True):
        if isinstance(ours, dict):
            assert set(theirs) <= set(ours)
            ours, theirs = ([scores[key] for key in sorted(theirs)] for scores in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=1e-6)


def test_weighted_metrics_leave_masked_steps_out() -> None:
    """Not compared with Keras, which by PyTorch scales the weights in place before its metrics see them."""
    model = masked(zt)
    scores = model.evaluate(IDS, WORDS, sample_weight=STEPS, batch_size=4, return_dict=True, verbose=0)
    p = model.predict(IDS, verbose=0).astype(np.float64)
    losses = -np.log(np.take_along_axis(p, WORDS[..., None], -1)[..., 0])
    assert scores["sparse_categorical_crossentropy"] == pytest.approx(
        np.average(losses, weights=STEPS * (IDS != 0)), rel=1e-5)


def test_weights_of_one_output_are_those_of_its_rows() -> None:
    model = two_outputs(zt)
    how = {"return_dict": True, "verbose": 0}
    each = model.evaluate(X, TARGETS, sample_weight={"words": OTHERS, "value": ROWS}, **how)
    for name, weights in (("words", OTHERS), ("value", ROWS)):
        alone = model.evaluate(X, TARGETS, sample_weight=weights, **how)
        assert each[f"{name}_loss"] == pytest.approx(alone[f"{name}_loss"], rel=1e-6)
    unweighted = model.evaluate(X, TARGETS, **how)
    assert abs(unweighted["value_loss"] - each["value_loss"]) > 0.01


def test_weights_come_by_name_and_in_batches() -> None:
    model = two_outputs(zt)
    want = model.evaluate(X, TARGETS, sample_weight=[STEPS, None], verbose=0)
    assert model.evaluate(X, TARGETS, sample_weight={"words": STEPS}, verbose=0) == want
    assert model.evaluate(X, TARGETS, sample_weight=[STEPS, np.ones(10)], verbose=0) == want
    batches = [(X[k:k + 5], [y[k:k + 5] for y in TARGETS], [STEPS[k:k + 5], np.ones(5)]) for k in (0, 5)]
    for source in (batches, iter(batches)):  # the latter can be read only once
        np.testing.assert_allclose(model.evaluate(source, verbose=0), want, rtol=1e-5)


def test_a_batch_may_exceed_the_compiled_batch_size() -> None:
    """As in Keras; a program takes the weights that it was compiled for."""
    model, alike = two_outputs(zt), two_outputs(zt)
    want = model.evaluate(X, TARGETS, sample_weight=[STEPS, ROWS], verbose=0)
    model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.1), loss=["sparse_categorical_crossentropy", "mse"],
                  metrics=[["accuracy"], ["mae"]], weighted_metrics=[["accuracy"], ["mae"]],
                  loss_weights=[1.0, 0.5], batch_size=4)
    np.testing.assert_allclose(model.test_on_batch(X, TARGETS, sample_weight=[STEPS, ROWS]), want, rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(X)[0], alike.predict(X, verbose=0)[0], rtol=1e-5)
    for each in (model, alike):
        each.train_on_batch(X, TARGETS, sample_weight=[STEPS, ROWS])
        each.train_on_batch(X[:3], [y[:3] for y in TARGETS])
    for ours, same in zip(model.get_weights(), alike.get_weights(), strict=True):
        np.testing.assert_allclose(ours, same, rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="x has 10 rows, but this program is compiled for batches of 4"):
        model.program.train_on_batch(X, TARGETS)


class Watcher(zt.callbacks.Callback):
    """Looks at a program while another one trains for it, and ends training after two epochs."""

    def __init__(self, program: Any):
        super().__init__()
        self.program_held, self.scores = program, []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.scores.append([self.program_held.evaluate(X, TARGETS, verbose=0),
                            self.model.evaluate(X, TARGETS, verbose=0)])
        self.model.stop_training = epoch == 1


def test_programs_accept_them_like_models() -> None:
    model, alike = two_outputs(zt), two_outputs(zt)
    weights, more = {"words": STEPS, "value": ROWS}, {"shuffle": False, "verbose": 0, "epochs": 3}
    model.evaluate(X, TARGETS, verbose=0)  # compiles
    program, watch = model.program, Watcher(model.program)
    history = program.fit(X, TARGETS, sample_weight=weights, callbacks=[watch], **more).history
    want = alike.fit(X, TARGETS, sample_weight=weights, callbacks=[early := Watcher(alike)], **more).history
    assert history == want and len(history["loss"]) == 2 and program.epoch == 2
    assert watch.scores == early.scores and watch.scores[0][0] == watch.scores[0][1] != watch.scores[1][0]
    for verb in ("train_on_batch", "test_on_batch", "evaluate"):
        got, expected = (getattr(each, verb)(X, TARGETS, sample_weight=weights) for each in (program, alike))
        assert got == expected
    for ours, same in zip(model.get_weights(), alike.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, same)
    assert program.evaluate(X, TARGETS, verbose=0) == alike.evaluate(X, TARGETS, verbose=0)


def one_output() -> Any:
    model = zt.Sequential([zt.layers.Input((4, 3)), zt.layers.Dense(1)])
    model.compile("cpu:scalar", optimizer="sgd", loss="mse", batch_size=5)
    return model


def loaded(model: Any) -> Any:
    """The program of a model from its artifact."""
    with TemporaryDirectory() as folder:
        model.compile_if_due("evaluate")
        model.program.save(f"{folder}/m.zt")
        return zt.load(f"{folder}/m.zt")


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "another output": (lambda: two_outputs(zt).evaluate(X, TARGETS, sample_weight={"word": ROWS}, verbose=0), DataError,
                       "sample_weight: .*'word'.*words"),
    "other steps": (lambda: one_output().evaluate(X, X[..., :1], sample_weight=np.ones((10, 3)), verbose=0), DataError,
                    r"one weight for each step: \(10, 4\)"),
    "too many axes": (lambda: one_output().evaluate(X, X[..., :1], sample_weight=np.ones((10, 4, 1, 1)), verbose=0),
                      ShapeError, "weights of the output have 3 axes"),
    "below zero": (lambda: one_output().evaluate(X, X[..., :1], sample_weight=-np.ones((10, 4)), verbose=0), DataError,
                   "sample_weight"),
    "a program that was loaded": (lambda: loaded(two_outputs(zt)).evaluate(X, TARGETS, sample_weight={"words": ROWS}, verbose=0),
                                  Unsupported, "while its model is held"),
    "a program that was loaded, steps": (
        lambda: loaded(one_output()).evaluate(X, X[..., :1], sample_weight=STEPS, verbose=0), DataError, "one weight per row"),
    "another size": (lambda: one_output().program.evaluate(X, X[..., :1], sample_weight=STEPS, batch_size=4, verbose=0),
                     ConfigError, "compiled for 5"),
}


@together()
@pytest.mark.parametrize("name", WRONG)
def test_wrong_weights_are_explained(name: str) -> None:
    use, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        use()


def test_a_mean_over_weights_of_steps_is_refused() -> None:
    model = zt.Sequential([zt.layers.Input((4, 3)), zt.layers.Dense(1)])
    model.compile("cpu:scalar", optimizer="sgd", loss=zt.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    with pytest.raises((Unsupported, ConfigError), match="one weight per row, not one per step"):
        model.evaluate(X, X[..., :1], sample_weight=STEPS, verbose=0)
