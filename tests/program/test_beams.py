"""Beam search against a search in Python that runs the whole model for each number."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from tests.cases.available import device
from tests.cases.covering import one_in_each_run
from tests.cases.generating import LENGTH, MODELS, WORDS
from ztorch.errors import ConfigError
from ztorch.program.program import Program

PROMPTS = [[4], [1, 2, 3], [k % WORDS for k in range(23)]]
WAYS: list[dict[str, Any]] = [
    {"beams": 2}, {"beams": 4, "length_penalty": 0.0}, {"beams": 4, "stop": 2},
    {"beams": 3, "stop": [1, 5], "length_penalty": 0.0}, {"beams": 4, "stop": 6, "length_penalty": 2.0}]


@functools.cache
def compiled(device: str = "cpu") -> Program:
    model = MODELS["pre-norm"]()
    model.get_layer("dense").set_weights([w * 3 for w in model.get_layer("dense").get_weights()])
    return model.compile(device, batch_size=8, decode=4)


def brute_force(program: Program, prompt: list[int], length: int, beams: int,
                length_penalty: float = 1.0, stop: Any = ()) -> list[int]:
    """The best of the beams, each a (score, text, window, whether it goes on)."""
    stops = {stop} if isinstance(stop, int) else set(stop)
    now: list[tuple[float, list[int], list[int], bool]] = [(0.0, [], prompt[-LENGTH:], True)]
    for _ in range(length):
        offers = []
        for order, (score, text, window, live) in enumerate(now):
            if not live:
                offers.append((score, text, window, False, order * WORDS))
                continue
            row = np.array([window + [0] * (LENGTH - len(window))])
            logs = np.log(program.predict(row)[0, len(window) - 1].astype(np.float64))
            rest = window[-(LENGTH // 2):] if len(window) == LENGTH else window
            offers += [(score + logs[k], [*text, k], [*rest, k], k not in stops, order * WORDS + k)
                       for k in range(WORDS)]
        offers.sort(key=lambda o: (-o[0] / len(o[1]) ** length_penalty, o[4]))
        now = [offer[:4] for offer in offers[:beams]]
    return now[0][1]


@pytest.mark.parametrize("how", WAYS[::-1], ids=str)
def test_the_best_of_the_beams(how: dict[str, Any]) -> None:
    """Also past the end of the row."""
    program = compiled()
    for length in (1, 4, 2 * LENGTH + 3):
        want = [brute_force(program, prompt, length, **how) for prompt in PROMPTS]
        assert [row.tolist() for row in program.generate(PROMPTS, length, **how)] == want
        assert program.generate(PROMPTS[1], length, **how).tolist() == want[1]


def test_the_best_beam_is_at_least_as_likely_as_the_likeliest_numbers() -> None:
    program = compiled()

    def score(text: list[int]) -> float:
        window, total = [4], 0.0
        for k in text:
            row = np.array([window + [0] * (LENGTH - len(window))])
            total += math.log(program.predict(row)[0, len(window) - 1, k])
            window.append(k)
        return total

    greedy = program.generate([4], 6, temperature=0).tolist()
    best = program.generate([4], 6, beams=4).tolist()
    assert score(best) >= score(greedy) - 1e-4


@pytest.mark.parametrize("backend", one_in_each_run("vulkan", "opencl", "webgpu"))
def test_devices_search_alike(backend: str) -> None:
    device(backend)
    there = compiled(f"{backend}:0")
    want = compiled().generate(PROMPTS[1], LENGTH + 3, beams=3, stop=6).tolist()
    assert there.generate(PROMPTS[1], LENGTH + 3, beams=3, stop=6).tolist() == want


WRONG = [
    ({"beams": 5}, "beams=5.* needs a row for each beam.*compile it with decode=5"),
    ({"beams": 1}, "temperature=0"), ({"beams": 0}, "beams"), ({"beams": 2.0}, "beams"),
    ({"beams": 2, "temperature": 0.5, "top_k": 3}, "omit temperature, top_k, or beams"),
    ({"beams": 2, "stream": True}, "omit stream"), ({"length_penalty": 2.0}, "set beams="),
    ({"beams": 2, "length_penalty": math.nan}, "length_penalty"), ({"beams": 2, "stop": 9}, "0 to 6")]


def test_wrong_arguments() -> None:
    for how, message in WRONG:
        with pytest.raises(ConfigError, match=message):
            compiled().generate([1], 3, **how)
    one = MODELS["no positions"]().compile("cpu", batch_size=1, decode=True)
    with pytest.raises(ConfigError, match="generates 1 at once; compile it with decode=2"):
        one.generate([1], 3, beams=2)
