"""Programs read full batches where users' arrays lie, and write results where they are returned."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.feed.columns import DIRECT_BYTES
from ztorch.program.program import Program

ROWS, WIDTH = 16, 512  # a batch and its result are too large to be copied


@pytest.fixture(scope="module")
def program() -> Program:
    assert 4 * ROWS * WIDTH >= DIRECT_BYTES
    model = zt.Sequential([L.Input((WIDTH,)), L.Activation("tanh"), L.Rescaling(2.0)])
    return model.compile("cpu", batch_size=ROWS, loss="mse")


def array(rows: int = ROWS, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH), dtype=np.float32)


def buffers(program: Program) -> Any:
    """The call that waits for the next batch."""
    with program.calls.borrow("predict") as call:
        return call


def close(y: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(y, 2 * np.tanh(x), rtol=0, atol=1e-6)


def test_a_full_batch_is_not_copied(program: Program) -> None:
    call, x = buffers(program), array()
    call.inputs["x"][...], call.outputs["y"][...] = 7, 8
    kept = x.copy()
    first = program.predict_on_batch(x)
    second = program.predict(-x)
    close(first, kept)
    close(second, -kept)
    np.testing.assert_array_equal(x, kept)
    assert (call.inputs["x"] == 7).all() and (call.outputs["y"] == 8).all()
    assert first.flags.writeable and not np.may_share_memory(first, second)


def test_operands_that_cannot_be_read_in_place_are_copied(program: Program) -> None:
    """Fewer rows, other dtypes, orders and alignments; and all in turn with full batches."""
    x, odd = array(), np.empty(4 * ROWS * WIDTH + 4, np.uint8)
    shifted = odd[4:].view(np.float32).reshape(x.shape)  # whole elements, but no whole vectors
    torn = odd[1:-3].view(np.float32).reshape(x.shape)  # parts of elements
    for value in (shifted, torn):
        value[...] = x
    results = []
    for value in (x, x[:3], x.astype(np.float64), x[::-1], np.asfortranarray(x), shifted, torn,
                  x.tolist(), x):
        results.append((program.predict_on_batch(value), np.asarray(value, np.float32)))
    for y, value in results:  # none was overwritten by a later one
        close(y, value)


def test_many_batches(program: Program) -> None:
    """The last one is not full."""
    x = array(3 * ROWS + 5)
    close(program.predict(x), x)
    close(np.concatenate([program.predict(x[k:k + ROWS]) for k in range(0, len(x), ROWS)]), x)
    error = np.mean((2 * np.tanh(x) - 0.5) ** 2)
    scores = program.evaluate(x, np.full_like(x, 0.5), verbose=0)
    assert scores == pytest.approx(error, rel=1e-5)
    close(program.predict(x[:ROWS]), x[:ROWS])


def test_threads_share_a_program(program: Program) -> None:
    inputs = [array(ROWS * (1 + k % 2), seed=k) for k in range(4)]
    results: list[list[np.ndarray]] = [[] for _ in inputs]

    def work(k: int) -> None:
        for _ in range(25):
            results[k].append(program.predict(inputs[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, ys in zip(inputs, results, strict=True):
        assert len(ys) == 25
        for y in ys:
            close(y, x)


def test_ops_on_arrays_keep_their_results() -> None:
    """Memory of a result is used again when nothing has the array any more, and not before."""
    x = array(64)
    double = zt.compiled(lambda v: v * 2.0)
    kept = [zt.ops.tanh(x * k) for k in range(4)]
    views = [zt.ops.tanh(x + k)[1:, ::2] for k in range(4)]
    for k in range(4):
        del kept[0]
        kept.append(double(x + k))
        kept[-1] += 1.0  # results can be written
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y, (x + np.float32(k)) * 2 + 1)
    for k, y in enumerate(views):
        np.testing.assert_allclose(y, np.tanh(x + k)[1:, ::2], rtol=0, atol=1e-6)
    shifted = np.concatenate([[0], x.reshape(-1)]).astype(np.float32)[1:]  # an unaligned array
    np.testing.assert_allclose(zt.ops.tanh(shifted), np.tanh(shifted), rtol=0, atol=1e-6)
