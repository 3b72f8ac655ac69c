"""Iterators that take long are read in a thread, and nothing else changes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.feed import read_ahead
from ztorch.feed.read_ahead import ReadAhead

NAME = "ztorch-read-ahead"


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == NAME]


def gone() -> bool:
    """Whether all threads end that read for nobody."""
    gc.collect()
    end = time.monotonic() + 10
    while readers() and time.monotonic() < end:
        time.sleep(0.01)
    return not readers()


@pytest.fixture(params=[True, False], ids=["slow", "fast"])
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(read_ahead, "SLOW", -1.0 if request.param else 1e9)
    return bool(request.param)


def test_items_come_in_order_and_end_once(slow: bool) -> None:
    names: list[str] = []

    def items() -> Iterator[int]:
        for k in range(9):
            names.append(threading.current_thread().name)
            yield k

    reader = ReadAhead(items(), lambda k: k + 100 if slow else k)
    assert list(reader) == [0, 1, 2, *(k + 100 * slow for k in range(3, 9))]
    assert next(reader, None) is None and next(reader, None) is None
    assert [name == NAME for name in names] == [False] * 3 + [slow] * 6
    assert gone()


def test_errors_of_an_iterator_are_raised_to_its_reader(slow: bool) -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise KeyError("row 5")

    reader = ReadAhead(items(), lambda k: k)
    assert [next(reader) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="row 5"):
        next(reader)
    assert gone()


def test_a_thread_ends_without_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "SLOW", -1.0)
    reader = ReadAhead(iter(range(1000)), lambda k: k)
    assert [next(reader) for _ in range(5)] == [0, 1, 2, 3, 4] and len(readers()) == 1
    del reader
    assert gone()


def program() -> zt.Program:
    model = zt.Sequential([L.Input((4,)), L.Dense(3)], seed=1)
    return model.compile("cpu:scalar", batch_size=5, optimizer="sgd", loss="mse")


def test_fit_and_predict_get_the_same_rows(slow: bool) -> None:
    x = np.random.default_rng(0).normal(size=(47, 4)).astype(np.float32)
    y = x[:, :3] * 2

    class Source:
        """Fills the same arrays for each batch."""

        def __init__(self, *columns: Any):
            self.columns = columns

        def __iter__(self) -> Iterator[Any]:
            buffers = [np.empty((7, c.shape[1]), np.float32) for c in self.columns]
            for k in range(0, 42, 7):
                for buffer, column in zip(buffers, self.columns, strict=True):
                    buffer[:] = column[k:k + 7]
                yield tuple(buffers) if len(buffers) > 1 else buffers[0]
                for buffer in buffers:
                    buffer[:] = np.nan

    ours, usual = program(), program()
    losses = ours.fit(Source(x, y), epochs=3, verbose=0).history["loss"]
    expected = usual.fit(x[:42], y[:42], epochs=3, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for a, b in zip(ours.get_weights(), usual.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ours.predict(Source(x)), usual.predict(x[:42]))
    assert gone()
