"""The memory of large results is kept for later ones, and never taken from a living array."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ztorch import Sequential
from ztorch import layers as L
from ztorch.runtime import result_memory
from ztorch.runtime.result_memory import empty

F4 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "MAPPED_BYTES", 4096)
    monkeypatch.setattr(result_memory, "KEPT_BYTES", 20_000)
    result_memory._free_blocks.clear()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_dropped_result_gives_its_memory_to_the_next() -> None:
    first = empty((32, 64), F4)
    at = address(first)
    assert address(empty((32, 64), F4)) != at and at % 64 == 0  # the first one lives
    del first
    second = empty((2048,), F4)
    assert address(second) == at and address(empty((64, 32), F4)) != at


def test_a_view_keeps_the_memory() -> None:
    whole = empty((32, 64), F4)
    whole[...] = 3.0
    row = whole[5, ::2]
    del whole
    gc.collect()
    empty((32, 64), F4)[...] = 4.0
    np.testing.assert_array_equal(row, np.full(32, 3.0))


def test_blocks_are_kept_up_to_a_limit() -> None:
    for count in (2048, 2560):
        empty((count,), F4)
    assert sorted(result_memory._free_blocks) == [8192, 10240]
    empty((1025,), F4)  # beyond it, all others are released
    assert [*result_memory._free_blocks] == [4100]
    empty((10_000,), F4)  # larger than all that may be kept
    assert not result_memory._free_blocks


def test_results_of_a_program_are_not_overwritten_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("call_pool", "results"):
        monkeypatch.setattr(f"ztorch.feed.{module}.DIRECT_BYTES", 1)
    program = Sequential([L.Input((64,)), L.ReLU()]).compile("cpu", batch_size=32)
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    for predict in (program.predict_on_batch, program.predict):
        results = [predict(x + k) for k in range(3)]
        at = address(results.pop())
        assert address(predict(x)) == at
        for k, y in enumerate(results):
            np.testing.assert_array_equal(y, np.maximum(x + k, 0))
