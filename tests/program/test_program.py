"""fit, evaluate, predict and the rest of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.programs import classifier, flowers, regressor, same_states
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, WeightsError
from ztorch.metrics import WeightedMetric
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD
from ztorch.schedules import ExponentialDecay


def test_it_learns_and_records_a_history() -> None:
    x, y = flowers(150)
    program = classifier()
    history = program.fit(x, y, epochs=20, validation_split=0.2, verbose=0)
    assert list(history.history) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert history.epoch == list(range(20))
    assert history.history["loss"][-1] < 0.6 * history.history["loss"][0]
    assert history.history["val_accuracy"][-1] > 0.9
    assert history.params == {"verbose": 0, "epochs": 20, "steps": 15}
    assert program.history is history and program.epoch == 20


def test_evaluate_equals_numpy_for_any_number_of_rows() -> None:
    program = classifier()
    for rows in (1, 7, 8, 9, 30):
        x, y = flowers(rows)
        p = program.predict(x)
        assert p.shape == (rows, 3)
        loss, accuracy = program.evaluate(x, y, verbose=0)
        assert loss == pytest.approx(-np.log(p[np.arange(rows), y]).mean(), rel=1e-5)
        assert accuracy == pytest.approx((p.argmax(1) == y).mean())


def test_a_short_batch_trains_like_a_program_of_that_size() -> None:
    x, y = flowers(5)
    padded, exact = classifier(8, dropout=0.0), classifier(5, dropout=0.0)
    for program in (padded, exact):
        program.fit(x, y, epochs=3, shuffle=False, verbose=0)
    for a, b in zip(padded.get_weights(), exact.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_sample_weights_count_rows() -> None:
    x, y = flowers(20)
    program = classifier(metrics=[WeightedMetric("accuracy")])
    w = np.arange(20) % 3
    whole = program.evaluate(np.repeat(x, w, 0), np.repeat(y, w), verbose=0, return_dict=True)
    weighed = program.evaluate(x, y, sample_weight=w, verbose=0, return_dict=True)
    assert weighed["accuracy"] == pytest.approx(whole["accuracy"], rel=1e-5)
    assert weighed["loss"] * 20 == pytest.approx(whole["loss"] * w.sum(), rel=1e-5)


def test_class_weights_are_sample_weights_of_training_only() -> None:
    x, y = flowers(40)
    a, b = classifier(), classifier()
    table = {0: 1.0, 2: 5.0}
    w = np.where(y == 2, 5.0, 1.0)
    for one_hot in (False, True):
        target = np.eye(3)[y] if one_hot else y
        kind = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
        a, b = classifier(loss=kind), classifier(loss=kind)
        ha = a.fit(x, target, class_weight=table, validation_split=0.25, verbose=0)
        hb = b.fit(x[:30], target[:30], sample_weight=w[:30], verbose=0,
                   validation_data=(x[30:], target[30:]))
        assert same_states(a, b)
        assert ha.history == hb.history
    with pytest.raises(DataError, match=r"class 7; classes are 0\.\.2"):
        classifier().fit(x, y, class_weight={7: 2.0}, verbose=0)


def test_rows_without_weight_change_nothing() -> None:
    x, y = flowers(16)
    program = classifier()
    before = program.get_weights()
    program.fit(x, y, sample_weight=np.zeros(16), verbose=0)
    for a, b in zip(before, program.get_weights(), strict=True):
        assert np.array_equal(a, b)


def test_shuffling_repeats_by_seed_and_differs_by_epoch() -> None:
    x, y = flowers()
    a, b, c = classifier(), classifier(), classifier(seed=2)
    c.set_weights(a.get_weights())
    for program in (a, b, c):
        program.fit(x, y, epochs=2, verbose=0)
    assert same_states(a, b)
    assert not same_states(a, c)


def test_epochs_in_one_fit_or_two_are_the_same() -> None:
    x, y = flowers()
    a, b = classifier(), classifier()
    a.fit(x, y, epochs=5, verbose=0)
    b.fit(x, y, epochs=2, verbose=0)
    history = b.fit(x, y, epochs=5, initial_epoch=2, verbose=0)
    assert same_states(a, b)
    assert history.epoch == [2, 3, 4]


def test_steps_per_epoch_walks_on_through_the_data() -> None:
    x, y = flowers(64)
    a, b = classifier(), classifier()
    a.fit(x, y, epochs=3, verbose=0)
    b.fit(x, y, epochs=8, steps_per_epoch=3, verbose=0)
    assert same_states(a, b)


def test_a_part_of_the_validation_data() -> None:
    """Of arrays and re-iterable sources the first batches, of a generator the next ones."""
    x, y = flowers(40)
    pieces = [(x[k:k + 8], y[k:k + 8]) for k in range(0, 40, 8)]
    program = classifier()
    first = program.evaluate(x[:16], y[:16], verbose=0)
    assert program.evaluate(x, y, steps=2, verbose=0) == first
    assert program.evaluate(pieces, steps=2, verbose=0) == first
    assert program.evaluate(x[:16], y[:16], steps=9, verbose=0) == first

    def seen(data: Any) -> list[float]:
        how = {"epochs": 2, "initial_epoch": 0, "validation_steps": 2, "verbose": 0}
        p = classifier()
        p.learning_rate = 0.0
        return p.fit(x, y, validation_data=data, **how).history["val_loss"]

    second = program.evaluate(x[16:32], y[16:32], verbose=0)
    assert seen((x, y)) == seen(pieces) == [first[0]] * 2
    assert seen(p for p in pieces) == [first[0], second[0]]
    for source in ({"validation_data": (x, y)}, {"validation_split": 0.5}):
        rows = slice(0, 6) if "validation_data" in source else slice(len(x) // 2, len(x) // 2 + 6)
        curve = program.fit(x, y, epochs=1, initial_epoch=0, validation_steps=3, validation_batch_size=2,
                            verbose=0, **source).history["val_loss"]
        assert curve == pytest.approx(program.evaluate(x[rows], y[rows], verbose=0)[:1], rel=1e-5)
    with pytest.raises(ConfigError, match="validation_steps=0"):
        program.fit(x, y, validation_data=(x, y), validation_steps=0)


def test_what_the_model_has() -> None:
    program = classifier()
    with pytest.raises(AttributeError, match=r"a program has no 'layers', but the model .*: model\.layers"):
        program.layers  # noqa: B018
    assert program.optimizer.learning_rate == program.learning_rate
    assert not hasattr(program, "nothing")


def test_a_checkpoint_brings_its_history_back(tmp_path: Path) -> None:
    x, y = flowers(30)
    program = classifier()
    program.fit(x, y, epochs=2, verbose=0)
    program.save_checkpoint(tmp_path / "run.safetensors")
    saved = program.history.state()
    program.fit(x, y, epochs=3, verbose=0)
    assert program.history.state() != saved
    program.load_checkpoint(tmp_path / "run.safetensors")
    assert program.history.state() == saved


def test_a_snapshot_does_not_change() -> None:
    x, y = flowers(30)
    program = Sequential([L.Input((4,)), L.Dense(3)]).compile(
        "cpu", batch_size=10, optimizer="sgd", loss="sparse_categorical_crossentropy")
    snapshot = program.snapshot()
    before = snapshot.params.copy()
    program.fit(x, y, epochs=1, verbose=0)
    np.testing.assert_array_equal(snapshot.params, before)
    assert (program.snapshot().params != before).any()


def test_single_steps_equal_fit() -> None:
    x, y = flowers(13)
    a, b = classifier(), classifier()
    a.fit(x, y, shuffle=False, verbose=0)
    b.train_on_batch(x[:8], y[:8])
    scores: Any = b.train_on_batch(x[8:], y[8:], return_dict=True)
    assert same_states(a, b) and list(scores) == ["loss", "accuracy"]
    assert a.test_on_batch(x[:8], y[:8]) == a.evaluate(x[:8], y[:8], verbose=0)
    assert np.array_equal(a.predict_on_batch(x[:3]), a.predict(x[:3]))
    with pytest.raises(DataError, match="batches of 8"):
        a.predict_on_batch(x)


def test_validation_only_in_some_epochs() -> None:
    x, y = flowers()
    history = classifier().fit(x, y, epochs=5, validation_data=(x, y), validation_freq=2, verbose=0)
    assert len(history.history["loss"]) == 5 and len(history.history["val_loss"]) == 2
    history = classifier().fit(x, y, epochs=5, validation_data=(x, y), validation_freq=[1, 5],
                               verbose=0)
    assert len(history.history["val_loss"]) == 2


def test_scores_are_scalars_without_metrics() -> None:
    program = regressor()
    x = np.random.default_rng(0).normal(size=(50, 2))
    program.fit(x, x.sum(1), epochs=30, verbose=0)
    assert program.evaluate(x, x.sum(1), verbose=0) < 1e-3
    assert program.metrics_names == ["loss"]


# -- weights ---------------------------------------------------------------------------------------


def test_weights_have_keras_order_and_names() -> None:
    program = classifier()
    assert list(program.weights) == ["hidden/kernel", "hidden/bias", "out/kernel", "out/bias"]
    assert [w.shape for w in program.get_weights()] == [(4, 8), (8,), (8, 3), (3,)]
    new = [w + 1 for w in program.get_weights()]
    program.set_weights(new)
    assert all(np.array_equal(a, b) for a, b in zip(new, program.get_weights(), strict=True))


def test_weights_come_in_the_order_of_the_model_also_where_they_are_read_in_another() -> None:
    model = Sequential([L.Input((4,)), L.BatchNormalization(name="norm"), L.Dense(2, name="out")])
    model.set_weights([np.full(w.shape, k) for k, w in enumerate(model.weights)])
    program = model.compile("cpu", batch_size=8, loss="mse", optimizer="sgd", threads=1)
    assert program.weight_names == [w.path for w in model.weights]
    assert [float(w.max()) for w in program.get_weights()] == [0, 1, 2, 3, 4, 5]
    assert list(program.weights) == program.weight_names


def test_set_weights_refuses_and_changes_nothing() -> None:
    program = classifier()
    before = program.get_weights()
    with pytest.raises(WeightsError, match="3 arrays; the model has 4 weights: hidden/kernel"):
        program.set_weights(before[:3])
    with pytest.raises(WeightsError, match=r"'out/bias' has shape \(3,\) in the model but \(4,\)"):
        program.set_weights([w + 1 for w in before[:3]] + [np.zeros(4)])
    assert all(np.array_equal(a, b) for a, b in zip(before, program.get_weights(), strict=True))


def test_learning_rate_can_be_set_unless_scheduled() -> None:
    program = regressor()
    program.learning_rate = 0.0
    before = program.get_weights()
    x = np.ones((8, 2))
    program.fit(x, np.ones(8), verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, program.get_weights(), strict=True))
    with pytest.raises(ConfigError, match="at least 0, not -1"):
        program.learning_rate = -1.0
    scheduled = regressor(optimizer=SGD(ExponentialDecay(0.1, 10, 0.9)))
    assert scheduled.learning_rate == 0.1
    scheduled.fit(x, np.ones(8), verbose=0)
    np.testing.assert_allclose(scheduled.learning_rate, 0.1 * 0.9 ** (scheduled.optimizer.iterations / 10))
    with pytest.raises(ConfigError, match="schedule"):
        scheduled.learning_rate = 0.5
