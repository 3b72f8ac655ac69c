"""Threads that share a model."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops

THREADS = 6
X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


@pytest.mark.parametrize("function", [lambda x: 2.0 * x, lambda x: x * ops.shape(x)[0]], ids=["rows", "batches"])
def test_threads_may_predict_with_a_model_that_is_not_compiled(function: Callable[[Any], Any]) -> None:
    model = zt.Sequential([L.Input((4,)), L.Lambda(function)])
    begin = threading.Barrier(THREADS)

    def predicted(k: int) -> None:
        size = 3 + k % 3
        begin.wait()
        want = [function(zt.tensor(X[at:at + size])).numpy() for at in range(0, 20 + k, size)]
        y = model.predict(X[:size * len(want)], batch_size=size, verbose=0)
        np.testing.assert_allclose(y, np.concatenate(want), rtol=1e-6)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(predicted, range(THREADS)))
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin.predict(X[:3], verbose=0), model.predict(X[:3], verbose=0))


def test_a_new_compile_leaves_programs_that_another_thread_runs() -> None:
    """A program for another batch size is freed with the last thread that runs it."""
    model = zt.Sequential([L.Input(("time", 2)), L.SimpleRNN(3), L.Dense(1)])
    short, long = np.ones((3, 4, 2), np.float32), np.ones((3, 20, 2), np.float32)
    want = model.predict(short, batch_size=3)
    for again in (lambda: model.predict(long), lambda: model.compile(loss="mse")):
        with model.running("predict", 3) as program:  # as another thread has it
            again()
            np.testing.assert_array_equal(program.predict(short), want)
        freed = weakref.ref(program)
        del program
        assert freed() is None
