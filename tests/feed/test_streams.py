"""Batches from iterators: sizes, steps, passes, errors and order."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, same_states
from ztorch.callbacks import LambdaCallback
from ztorch.errors import DataError
from ztorch.feed.array_batches import permutation
from ztorch.terminal.progress import Progress

X, Y = flowers(20)


# -- iterators -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Where a bar can be redrawn."""

    def isatty(self) -> bool:
        return True


def pieces(*sizes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    ends = np.cumsum(sizes)
    return [(X[e - s:e], Y[e - s:e]) for s, e in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("sizes", [(8, 8, 4), (3, 9, 8), (20,), (1,) * 20, (5, 15)])
def test_batches_of_any_size_are_regrouped(sizes: tuple[int, ...]) -> None:
    a, b = classifier(), classifier()
    a.fit(X, Y, shuffle=False, epochs=2, verbose=0)
    history = b.fit(pieces(*sizes), epochs=2, verbose=0)
    assert same_states(a, b)
    assert history.history == a.history.history
    assert b.evaluate(iter(pieces(*sizes)), verbose=0) == a.evaluate(X, Y, verbose=0)
    assert np.array_equal(b.predict(iter([p[0] for p in pieces(*sizes)])), a.predict(X))


def test_a_generator_continues_in_the_next_epoch() -> None:
    a, b = classifier(), classifier()
    a.fit(X[:16], Y[:16], shuffle=False, verbose=0)
    b.fit((p for p in pieces(5, 6, 5)), epochs=2, steps_per_epoch=1, verbose=0)
    assert same_states(a, b)


def test_a_generator_that_runs_out_says_so() -> None:
    with pytest.raises(DataError, match="run out of batches; pass steps_per_epoch"):
        classifier().fit((p for p in pieces(8, 8)), epochs=2, verbose=0)
    with pytest.raises(DataError, match="gave no batches"):
        classifier().fit(iter([]), verbose=0)


def test_a_function_is_not_called() -> None:
    with pytest.raises(DataError, match="x is a function; call it, and pass its result"):
        classifier().fit(lambda: pieces(8, 8))


def test_a_loader_starts_again() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader(data, batch_size=6)
    a, b = classifier(), classifier()
    a.fit(X, Y, shuffle=False, epochs=3, validation_data=(X, Y), verbose=0)
    b.fit(loader, epochs=3, validation_data=loader, verbose=0)
    assert same_states(a, b) and a.history.history == b.history.history


class Shuffling:
    """Batches of 3 in another order in each pass, as those of zt.data: `epoch` counts passes."""

    rows = len(X)

    def __init__(self) -> None:
        self.epoch = 0
        self.passes: list[int] = []

    def __iter__(self) -> Any:
        self.passes.append(self.epoch)
        order = permutation(3, self.epoch, len(X))
        self.epoch += 1
        for k in range(0, len(X), 3):
            yield X[order[k:k + 3]], Y[order[k:k + 3]]


@pytest.mark.parametrize("steps", [None, 1, 2, 3, 4, 7])
def test_a_resumed_run_sees_the_same_passes(steps: int | None,
                                            tmp_path: Path) -> None:
    """Also from within a pass, where epochs are not passes: 20 rows are 3 steps."""
    whole, first, second = classifier(), classifier(), classifier()
    how: Any = {"steps_per_epoch": steps, "verbose": 0}
    source = Shuffling()
    history = whole.fit(source, epochs=5, validation_data=source, **how).history
    first.fit(Shuffling(), epochs=2, **how)
    first.save_checkpoint(tmp_path / "run.ckpt")
    second.load_checkpoint(tmp_path / "run.ckpt")
    resumed = Shuffling()
    again = second.fit(resumed, epochs=5, **how).history
    assert same_states(whole, second) and again["loss"] == history["loss"]
    if steps is None:
        assert resumed.passes == [2, 3, 4]


def test_a_stream_continues_in_the_next_fit() -> None:
    program, source = classifier(), Shuffling()
    program.fit(source, epochs=2, verbose=0)
    program.evaluate(source, verbose=0)  # a pass that trains nothing
    program.fit(source, epochs=1, verbose=0)
    assert source.passes == [0, 1, 2, 2]


class Sized:
    """Three batches as large as the program's, the last one shorter."""

    batch_size = 8

    def __iter__(self) -> Any:
        yield from pieces(8, 8, 4)

    def __len__(self) -> int:
        return 3


@pytest.mark.cheap
@pytest.mark.parametrize(("make", "total"), [
    (Shuffling, "3"), (lambda: pieces(5, 9, 6), "3"), (lambda: pieces(8, 8), "2"), (Sized, "3"),
    (lambda: iter(pieces(8, 8, 4)), "?")], ids=["rows", "list", "even list", "length", "iterator"])
def test_the_first_epoch_of_a_stream_shows_its_steps(make: Any, total: str,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source can tell: callbacks hear of it, and the bar has an end."""
    bars: list[str] = []
    monkeypatch.setattr(Progress, "draw", lambda self, done, logs: bars.append(
        str(self._steps or "?")))
    monkeypatch.setattr("ztorch.terminal.progress.INTERVAL", -1.0)
    monkeypatch.setattr("sys.stdout", Terminal())
    told: list[Any] = []
    program = classifier()
    callback = LambdaCallback(on_train_begin=lambda logs: told.append(callback.params["steps"]))
    program.fit(make(), callbacks=[callback], verbose=1)
    assert told == [None if total == "?" else int(total)]
    assert set(bars) == {total}


def test_errors_in_a_stream_name_the_batch_and_the_row() -> None:
    bad = [(X[:8], Y[:8]), (X[8:], np.full(12, 9))]
    with pytest.raises(DataError, match="label 9 in row 8 of y of batch 1"):
        classifier().fit(bad, verbose=0)
    with pytest.raises(DataError, match="batch 0 of the iterator has 1 parts"):
        classifier().fit(iter([X]), verbose=0)
    with pytest.raises(DataError, match="y and sample_weight must come from it"):
        classifier().fit(iter(pieces(20)), Y, verbose=0)


def test_weights_from_a_stream() -> None:
    w = np.arange(20) % 4
    a, b = classifier(), classifier()
    a.fit(X, Y, sample_weight=w, class_weight={1: 3.0}, shuffle=False, verbose=0)
    b.fit(iter([(X[:7], Y[:7], w[:7]), (X[7:], Y[7:], w[7:])]), class_weight={1: 3.0}, verbose=0)
    assert same_states(a, b)


def test_the_order_of_rows_is_fixed_for_ever() -> None:
    # A change here would change every training run that people have recorded.
    assert permutation(0, 0, 8).tolist() == [0, 2, 1, 5, 4, 3, 6, 7]
    assert permutation(7, 2, 5).tolist() == [4, 0, 1, 3, 2]
    assert permutation(1, 1, 1).tolist() == [0]
    assert sorted(permutation(-1, 3, 100).tolist()) == list(range(100))
    assert permutation(0, 0, 50).tolist() != permutation(0, 1, 50).tolist()
    assert permutation(0, 0, 50).tolist() != permutation(1, 0, 50).tolist()


def test_predictions_of_each_batch_reach_callbacks() -> None:
    """Of its real rows alone, and copied: the next batch is computed in the same memory."""
    model = zt.Sequential([zt.layers.Input((2,)), zt.layers.Rescaling(3.0)])
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    batches: list[tuple[int, Any]] = []
    model.predict(x, batch_size=2, verbose=0, callbacks=zt.callbacks.LambdaCallback(
        on_predict_batch_end=lambda batch, logs: batches.append((batch, logs["outputs"]))))
    assert [batch for batch, _ in batches] == [0, 1, 2]
    for batch, outputs in batches:
        np.testing.assert_array_equal(outputs, 3 * x[2 * batch:2 * batch + 2])
