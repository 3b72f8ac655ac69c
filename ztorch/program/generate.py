"""Generation: continues a sequence one number at a time, each by one native call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.config import number, positive, whole_seed
from ztorch.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful

NextLogits = Callable[[int, int], np.ndarray]  # a number and its position -> logits of the next


class Sampler:
    """Draws a number by its logits.

    Args:
        temperature: Above 1 makes unlikely numbers likelier; 0 always takes the likeliest. Default:
            `1.0`.
        top_k: Draws only from so many of the likeliest numbers; None: from all. Default: `None`.
        seed: The same seed draws the same numbers. Default: `0`.

    Examples:
        >>> draw = Sampler(temperature=0)
        >>> draw(np.array([0.0, 2.0, 1.0]))
        1
    """

    def __init__(self, temperature: float = 1.0, top_k: int | None = None, seed: int = 0):
        self.temperature = number("generate(temperature=...)", temperature, least=0)
        self.top_k = None if top_k is None else positive("generate(top_k=...)", top_k)
        self._bits = np.random.PCG64(whole_seed(seed))

    def __call__(self, logits: np.ndarray) -> int:
        if self.temperature == 0:
            return int(logits.argmax())
        scores = logits.astype(np.float64)
        likeliest = np.argsort(-scores, kind="stable")[:self.top_k]  # of equals, the first ones
        scaled = scores[likeliest] / self.temperature
        cumulative = np.exp(scaled - scaled[0]).cumsum()
        # Raw bits: they are the same in every version of NumPy.
        point = float(self._bits.random_raw()) / 2.0**64 * cumulative[-1]
        position = int(np.searchsorted(cumulative, point, side="right"))
        return int(likeliest[min(position, len(likeliest) - 1)])


def generate(program: Stateful, prompt: Any, length: int, sampler: Sampler) -> Iterator[int]:
    """An iterator over `length` numbers that follow the prompt. Arguments are checked at once, not
    when the first number is asked for."""
    start = _checked_prompt(program, prompt)
    positive("generate(length=...)", length)
    capacity = program.executable.functions["predict"].inputs["x"].shape[1]

    def numbers() -> Iterator[int]:
        if not program.generate_lock.acquire(blocking=False):
            raise ConfigError(f"program {program.name!r} is generating already, and has one cache; "
                              "end the other one first, or load the program twice")
        try:
            with program.borrow("decode") as call:
                def next_logits(token: int, position: int) -> np.ndarray:
                    call.inputs["x"][...] = token
                    if "position" in call.inputs:  # in some models no layer depends on it
                        call.inputs["position"][...] = position
                    call()
                    return call.outputs["logits"][0]

                yield from continue_sequence(start, length, capacity, next_logits, sampler)
        finally:
            program.generate_lock.release()

    return numbers()


def continue_sequence(start: Sequence[int], length: int, capacity: int, next_logits: NextLogits,
                      sampler: Sampler) -> Iterator[int]:
    """The numbers that follow `start`. The model sees the last `capacity` numbers at most, and
    caches what it has seen. When its cache is full, the older half is forgotten and the newer half
    is read again."""
    window = list(start[-capacity:])
    cached = 0  # numbers of the window that the cache holds
    for count in range(1, length + 1):
        while cached < len(window):
            logits = next_logits(window[cached], cached)
            cached += 1
        token = sampler(logits)
        yield token
        if count < length:
            if len(window) == capacity:
                window, cached = window[capacity - capacity // 2:], 0
            window.append(token)


def _checked_prompt(program: Stateful, prompt: Any) -> list[int]:
    if "decode" not in program.executable.functions:
        raise ConfigError(f"program {program.name!r} cannot generate: it was compiled without; "
                          "compile a causal model with decode=True")
    try:
        tokens = np.asarray(prompt)
    except ValueError:  # rows of several lengths
        raise DataError("generate takes one list of integers to go on from, not several; call "
                        "it for each") from None
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not tokens.size:
        raise DataError("generate takes a list of one or more integers to go on from, not "
                        f"{tokens.dtype} of shape {tokens.shape}")
    limits = program.metadata.input_range.get("")
    if limits and not (limits.low <= tokens.min() and tokens.max() <= limits.high):
        raise DataError(f"the prompt reaches from {tokens.min()} to {tokens.max()}; layer "
                        f"{limits.layer!r} takes {limits.low} to {limits.high}")
    return [int(token) for token in tokens]
