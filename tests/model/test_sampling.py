"""Drawing numbers: each as often as its probability says, by top-k, top-p and penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ztorch import ops
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.model import sampling
from ztorch.model.sampling import SamplingInputs, drawn

LOGITS = np.array([0.3, -1.0, 2.0, 0.1, -3.0, 0.3], np.float32)
COUNT = 20_000  # draws: shares are within 0.013 of probabilities, or 3.6 deviations


def draws(logits: np.ndarray, seen: np.ndarray | None = None, temperature: float = 1.0,
          top_k: int | None = None, top_p: float = 1.0, repetition_penalty: float = 1.0,
          step: int = 0, count: int = COUNT) -> np.ndarray:
    """Numbers drawn by the same logits with the seeds 0, 1, 2, ..."""
    n = len(logits)
    arrays: dict[str, Any] = {
        "logits": np.tile(logits, (count, 1)),
        "seen": np.tile(np.zeros(n, bool) if seen is None else seen, (count, 1)),
        "step": np.array(step, np.uint32),
        "seeds": np.stack([np.arange(count), np.zeros(count)]).astype(np.uint32),
        "temperature": np.float32([temperature]),
        "top_k": np.int32([top_k or n]),
        "top_p": np.float32([top_p]),
        "repetition_penalty": np.float32([repetition_penalty]),
    }
    leaves = {name: leaf("input", name, a.shape, a.dtype.name) for name, a in arrays.items()}
    choices = SamplingInputs(*(leaves[name] for name in list(arrays)[3:]))
    numbers = drawn(leaves["logits"], leaves["seen"], leaves["step"], choices)
    [got] = evaluate([numbers], {leaves[name]: a for name, a in arrays.items()})
    assert got.dtype == np.int32 and got.shape == (count,)
    return np.asarray(got)


def shares(logits: np.ndarray = LOGITS, **how: Any) -> np.ndarray:
    return np.bincount(draws(logits, **how), minlength=len(logits)) / COUNT


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(), dtype=np.float64)
    return e / e.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    got = shares(temperature=temperature)
    np.testing.assert_allclose(got, softmax(LOGITS / temperature), atol=0.013)


def test_temperature_zero_takes_the_most_likely_token() -> None:
    assert (draws(LOGITS, temperature=0.0, count=9) == 2).all()
    assert (draws(np.zeros(4, np.float32), temperature=0.0, count=9) == 0).all()  # the first one
    assert (draws(LOGITS * 1e4, temperature=1e-3, count=99) == 2).all()


def test_top_k_keeps_the_most_likely_and_ties_of_the_last() -> None:
    for k, kept in ((1, [2]), (2, [0, 2, 5]), (3, [0, 2, 5]), (4, [0, 2, 3, 5]), (6, range(6))):
        want = np.where(np.isin(np.arange(6), list(kept)), LOGITS, -np.inf)
        np.testing.assert_allclose(shares(top_k=k), softmax(want), atol=0.013)


def test_thresholds_are_exact_to_the_last_bit() -> None:
    """The largest above which three elements are: the third largest."""
    x = np.random.default_rng(2).uniform(-80, 0, (50, 7)).astype(np.float32)
    logits = leaf("input", "logits", x.shape, "float32")
    at_least = sampling._threshold(logits, lambda kept: ops.sum(ops.cast(kept, "float32"), -1, True) >= 3.0)
    [least] = evaluate([at_least], {logits: x})
    np.testing.assert_allclose(least[:, 0], np.sort(x)[:, -3], rtol=3e-7)
    assert ((x >= least).sum(-1) == 3).all()


def test_top_p_keeps_the_smallest_set_of_that_probability() -> None:
    p = softmax(LOGITS)
    assert 0.6 < p[2] < 0.65
    for share, kept in ((0.01, [2]), (0.6, [2]), (0.65, [0, 2, 5]), (0.999, range(6))):
        want = np.where(np.isin(np.arange(6), list(kept)), LOGITS, -np.inf)
        np.testing.assert_allclose(shares(top_p=share), softmax(want), atol=0.013)


def test_top_p_applies_after_top_k() -> None:
    """Of three, the first has 0.73 of the probability; of all it has 0.63."""
    best = np.where(LOGITS > 0.2, LOGITS, -np.inf)
    np.testing.assert_allclose(shares(top_k=3, top_p=0.7), np.arange(6) == 2)
    np.testing.assert_allclose(shares(top_k=3, top_p=0.8), softmax(best), atol=0.013)


def test_repeated_tokens_are_penalized() -> None:
    seen = np.array([True, True, False, False, False, False])
    want = LOGITS.copy()
    want[:2] = LOGITS[0] / 2, LOGITS[1] * 2
    got = shares(seen=seen, repetition_penalty=2.0)
    np.testing.assert_allclose(got, softmax(want), atol=0.013)


def test_rows_are_sampled_independently_of_the_batch() -> None:
    many = draws(LOGITS, count=50)
    assert many[0] == draws(LOGITS, count=1)[0]
    assert (draws(LOGITS, count=50, step=1) != many).any()


def test_many_classes() -> None:
    """Thresholds among 5,000 logits are exact: of distinct ones top-k keeps k."""
    logits = np.random.default_rng(0).normal(0, 3, 5000).astype(np.float32)
    for k, count in ((1, 60), (7, 120), (100, 600)):
        got = set(draws(logits, top_k=k, temperature=50.0, count=count).tolist())
        best = set(np.argsort(-logits)[:k].tolist())
        assert got <= best and len(got) > 0.9 * k
