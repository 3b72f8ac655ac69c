"""Programs read full batches where users' arrays lie, and write results where they are returned."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError
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


@pytest.mark.parametrize("width", [3, WIDTH], ids=["copied", "in place"])
def test_arrays_like_earlier_ones(width: int) -> None:
    """Their checks are not repeated: results, weights and arrays of the caller are the latest."""
    x, y = L.Input((width,)), np.ones((width, 2), np.float32)
    dense = L.Dense(2, use_bias=False, name="dense")
    model = zt.Model(x, [dense(x), L.Rescaling(3.0)(x)])
    two, one = model.compile("cpu", batch_size=ROWS), zt.Sequential([
        L.Input((width,)), L.Rescaling(3.0)]).compile("cpu", batch_size=ROWS)
    results = []
    for k, rows in enumerate([ROWS, 5, ROWS, 5, 5, ROWS]):
        value = np.random.default_rng(k).standard_normal((rows, width), np.float32)
        two.set_weights([(k + 1) * y])
        out = np.zeros_like(value)
        assert one.predict_on_batch(value, out) is out
        overlapping = np.concatenate([value, value])
        one.predict_on_batch(overlapping[:rows], out=overlapping[1:rows + 1])
        results.append((value, k + 1, out, overlapping[1:rows + 1], one.predict(value),
                        *two.predict_on_batch(value)))
    for value, factor, *thrice, sums, again in results:
        for array in (*thrice, again):
            np.testing.assert_array_equal(array, value * np.float32(3))
        np.testing.assert_allclose(
            sums, factor * value.astype(np.float64) @ y, rtol=1e-4, atol=1e-3)
    frozen, narrow = np.zeros((5, width), np.float32), np.zeros((4, width), np.float32)
    frozen.flags.writeable = False
    for wrong in (frozen, narrow, frozen.astype(np.float64), [[0.0]]):
        with pytest.raises(ConfigError, match="out="):
            one.predict_on_batch(results[1][0], out=wrong)
    one.close()
    with pytest.raises(ConfigError, match="closed"):
        one.predict_on_batch(results[0][0])


def test_numbers_of_like_arrays_are_checked() -> None:
    program = zt.Sequential([L.Input((2,), dtype="int32"), L.Embedding(4, 3)]).compile(
        "cpu", batch_size=1)
    for _ in range(2):
        assert program.predict_on_batch(np.array([[1, 3]], np.int32)).shape == (1, 2, 3)
        with pytest.raises(DataError, match="holds 4"):
            program.predict_on_batch(np.array([[1, 4]], np.int32))


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
