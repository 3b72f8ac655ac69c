"""The generator against its published vectors, a plain implementation, and the laws of chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ztorch import ops
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.ops.random import FEW_ROUNDS, NUMPY_WORDS, RANDOM_BITS, ROUNDS, threefry

SEED = leaf("state", "seed", (2,), "uint32")
STEP = leaf("state", "step", (), "uint32")
FEEDS = {SEED: np.array([0x12345678, 0x9ABCDEF0], np.uint32), STEP: np.array(7, np.uint32)}
MASK = 0xFFFFFFFF


def plain_threefry(key: tuple[int, int], counter: tuple[int, int], rounds: int = 20) -> tuple[int, int]:
    """Threefry-2x32 as the paper writes it, in Python's integers."""
    rotations = [13, 15, 26, 6, 17, 29, 16, 24]
    keys = [*key, 0x1BD11BDA ^ key[0] ^ key[1]]
    a, b = (counter[0] + keys[0]) & MASK, (counter[1] + keys[1]) & MASK
    for turn in range(rounds):
        r = rotations[turn % 8]
        a = (a + b) & MASK
        b = ((b << r | b >> (32 - r)) & MASK) ^ a
        if turn % 4 == 3:
            s = turn // 4 + 1
            a, b = (a + keys[s % 3]) & MASK, (b + keys[(s + 1) % 3] + s) & MASK
    return a, b


@pytest.mark.parametrize(("counter", "key", "rounds", "want"), [
    ((0, 0), (0, 0), 20, (0x6B200159, 0x99BA4EFE)), ((0, 0), (0, 0), 13, (0x9D1C5EC6, 0x8BD50731)),
    ((MASK, MASK), (MASK, MASK), 20, (0x1CB996FC, 0xBB002BE7)), ((MASK, MASK), (MASK, MASK), 13, (0xFD36D048, 0x2D17272C)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), 20, (0xC4923A9C, 0x483DF7A0)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), 13, (0xBA3E4725, 0xF27D669E)),
])
def test_known_answers(counter, key, rounds, want) -> None:
    """Those of the authors' own tests."""
    words = [[np.array([n], np.uint32) for n in pair] for pair in (key, counter)]
    got = threefry(NUMPY_WORDS, *(tuple(w) for w in words), rounds)
    assert tuple(int(w[0]) for w in got) == want == plain_threefry(key, counter, rounds)


@pytest.mark.parametrize("stream", [0, 3, 2**32 - 1])
def test_bits_are_the_hash_of_seed_step_stream_and_position(stream: int) -> None:
    [got] = evaluate([ops.random_bits((3, 5), SEED, STEP, stream)], FEEDS)
    key = int(FEEDS[SEED][0]), int(FEEDS[SEED][1]) ^ stream
    want = [plain_threefry(key, (k, 7))[0] for k in range(15)]
    assert got.dtype == np.uint32 and got.ravel().tolist() == want


def test_parts_of_a_tensor_are_drawn_from_a_position_on() -> None:
    first = leaf("input", "first", (), "uint32")
    [part] = evaluate([RANDOM_BITS(SEED, STEP, first, shape=(2, 3), stream=5, word=0, rounds=ROUNDS)],
                      {**FEEDS, first: np.array(4, np.uint32)})
    [whole] = evaluate([ops.random_bits((12,), SEED, STEP, 5)], FEEDS)
    assert part.ravel().tolist() == whole[4:10].tolist()


def test_every_part_of_the_name_changes_the_numbers() -> None:
    def bits(stream: int = 0, **changed: np.ndarray) -> np.ndarray:
        feeds = {v: changed.get(v.attrs["name"], a) for v, a in FEEDS.items()}
        return evaluate([ops.random_bits((1000,), SEED, STEP, stream)], feeds)[0]

    others = [bits(1), bits(step=np.array(8, np.uint32)), bits(seed=FEEDS[SEED] + np.uint32(1)),
              bits(seed=FEEDS[SEED][::-1])]
    for other in others:
        assert (bits() == other).mean() < 0.01
    np.testing.assert_array_equal(bits(), bits())


@pytest.mark.parametrize("rounds", [ROUNDS, FEW_ROUNDS])
def test_bits_are_fair_and_independent(rounds: int) -> None:
    [words] = evaluate([RANDOM_BITS(SEED, STEP, shape=(1 << 15,), stream=0, word=0, rounds=rounds)], FEEDS)
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(float)
    assert abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / math.sqrt(len(words))
    together = np.corrcoef(bits.T) - np.eye(32)
    assert abs(together).max() < 5.5 / math.sqrt(len(words))
    assert abs(np.corrcoef(words[:-1], words[1:])[0, 1]) < 5 / math.sqrt(len(words))


@pytest.mark.parametrize("d", ["float32", "float64", "float16", "bfloat16"])
def test_uniform(d: str) -> None:
    y = ops.random_uniform((200, 200), SEED, STEP, 1, d)
    [x] = evaluate([y], FEEDS)
    assert str(y.dtype) == d and x.min() >= 0 and x.max() < 1
    x = x.astype(np.float64).ravel()
    counts = np.histogram(x, 32, (0, 1))[0]
    expected = len(x) / 32
    assert ((counts - expected) ** 2 / expected).sum() < 70  # chi-square, 31 degrees of freedom
    assert abs(x.var() - 1 / 12) < 0.003


def test_uniform_float64_has_all_its_bits() -> None:
    [x] = evaluate([ops.random_uniform((1000,), SEED, STEP, 1, "float64")], FEEDS)
    whole = x * 2.0**53
    np.testing.assert_array_equal(whole, np.rint(whole))
    assert 0.4 < (whole % 2).mean() < 0.6


@pytest.mark.parametrize("d", ["float32", "float64", "bfloat16"])
def test_normal(d: str) -> None:
    y = ops.random_normal((300, 300), SEED, STEP, 2, d)
    x = evaluate([y], FEEDS)[0].astype(np.float64).ravel()
    assert str(y.dtype) == d and np.isfinite(x).all() and abs(x).max() > 3.9
    n = len(x)
    assert abs(x.mean()) < 5 / math.sqrt(n) and abs(x.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((x**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((x**4).mean() - 3) < 5 * math.sqrt(96 / n)


def test_dropout_drops_scales_and_passes_gradients_where_it_kept() -> None:
    x = leaf("input", "x", (100, 100), "float32")
    y = ops.dropout(x, 0.3, SEED, STEP, 5)
    feeds = {**FEEDS, x: np.full(x.shape, 2.0, np.float32)}
    got, slope = evaluate([y, *gradients(y, [x])], feeds)
    kept = got != 0
    assert abs(kept.mean() - 0.7) < 0.02
    key = int(FEEDS[SEED][0]), int(FEEDS[SEED][1]) ^ 5
    words = [plain_threefry(key, (k, 7), FEW_ROUNDS)[0] for k in range(200)]
    assert kept.ravel()[:200].tolist() == [w >= round(0.3 * 2**32) for w in words]
    np.testing.assert_allclose(got[kept], 2 / 0.7, rtol=1e-6)
    np.testing.assert_allclose(slope, np.where(kept, 1 / 0.7, 0), rtol=1e-6)


def test_dropped_elements_are_zero_even_if_not_finite() -> None:
    x = leaf("input", "x", (1000,), "float32")
    [got] = evaluate([ops.dropout(x, 0.5, SEED, STEP)], {**FEEDS, x: np.full(1000, np.inf)})
    assert set(got) == {0.0, np.inf}


def test_noise_shape_drops_along_axes() -> None:
    x = leaf("input", "x", (40, 3, 50), "float32")
    y = ops.dropout(x, 0.5, SEED, STEP, 0, noise_shape=(40, 1, 50))
    [got] = evaluate([y], {**FEEDS, x: np.ones(x.shape, np.float32)})
    assert (got == got[:, :1]).all() and 0.4 < got.mean() / 2 < 0.6


def test_dropout_at_its_ends_and_beyond() -> None:
    x = leaf("input", "x", (4,), "float32")
    assert ops.dropout(x, 0.0, SEED, STEP) is x
    assert ops.dropout(x, 1.0, SEED, STEP).op.name == "full"
    near = ops.dropout(x, 1 - 1e-12, SEED, STEP)
    assert np.isfinite(evaluate([near], {**FEEDS, x: np.zeros(4, np.float32)})[0]).all()
    with pytest.raises(ConfigError, match=r"between 0 and 1, not 1\.5"):
        ops.dropout(x, 1.5, SEED, STEP)
    for wrong in ((3,), (2, 4)):
        with pytest.raises(ShapeError, match=r"\(4,\)"):
            ops.dropout(x, 0.5, SEED, STEP, noise_shape=wrong)


def test_wrong_seeds_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"seed of shape \(2,\)"):
        ops.random_bits((3,), STEP, STEP)
    with pytest.raises(ShapeError, match="use a float dtype"):
        ops.random_normal((3,), SEED, STEP, dtype="int32")
