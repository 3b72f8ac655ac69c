"""Going on from a beginning, one number after the other: each step is one native call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.config import number, positive, whole_seed
from ztorch.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ztorch.program.program import Program

Step = Callable[[int, int], np.ndarray]  # a number and its position -> logits of the next


class Choice:
    """Draws a number by its logits, or takes the likeliest at a temperature of zero.

    Warmth makes unlikely numbers likelier; with `top_k` only so many of the likeliest are drawn
    from. The same seed draws the same.

    >>> draw = Choice(temperature=0)
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
        order = np.argsort(-scores, kind="stable")[:self.top_k]  # of equals the first ones
        kept = scores[order] / self.temperature
        share = np.exp(kept - kept[0]).cumsum()
        # Raw words: they are the same in every version of NumPy.
        drawn = float(self._bits.random_raw()) / 2.0**64 * share[-1]
        return int(order[min(int(np.searchsorted(share, drawn, side="right")), len(order) - 1)])


def generate(program: Program, prompt: Any, length: int, choice: Choice) -> Iterator[int]:
    """`length` numbers that follow the prompt. What the model was compiled with bounds what it
    sees: when its rows are full, the older half is forgotten and the newer one read again."""
    seen = _checked(program, prompt)
    positive("generate(length=...)", length)
    rows = program.executable.functions["predict"].inputs["x"].shape[1]

    def go_on() -> Iterator[int]:
        if not program.writing.acquire(blocking=False):
            raise ConfigError(f"program {program.name!r} is generating already, and has one cache; "
                              "end the other one first, or load the program twice")
        try:
            with program.lend("decode") as call:
                def step(token: int, position: int) -> np.ndarray:
                    call.inputs["x"][...] = token
                    if "position" in call.inputs:  # no layer looks at it in some models
                        call.inputs["position"][...] = position
                    call()
                    return call.outputs["logits"][0]

                yield from follow(seen, length, rows, step, choice)
        finally:
            program.writing.release()

    return go_on()


def follow(seen: Sequence[int], length: int, rows: int, step: Step, choice: Choice,
           ) -> Iterator[int]:
    """The numbers that steps with a cache of `rows` positions give."""
    window, cached = list(seen[-rows:]), 0
    for made in range(length):
        while cached < len(window):
            logits = step(window[cached], cached)
            cached += 1
        token = choice(logits)
        yield token
        if made + 1 < length:
            if len(window) == rows:
                window, cached = window[rows - rows // 2:], 0
            window.append(token)


def _checked(program: Program, prompt: Any) -> list[int]:
    if "decode" not in program.executable.functions:
        raise ConfigError(f"program {program.name!r} cannot generate: it was compiled without; "
                          "compile a causal model with decode=True")
    try:
        given = np.asarray(prompt)
    except ValueError:  # rows of several lengths
        raise DataError("generate takes one list of whole numbers to go on from, not several; call "
                        "it for each") from None
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        raise DataError("generate takes a list of one or more whole numbers to go on from, not "
                        f"{given.dtype} of shape {given.shape}")
    limits = program.metadata.input_range.get("")
    if limits and not (limits.low <= given.min() and given.max() <= limits.high):
        raise DataError(f"the prompt reaches from {given.min()} to {given.max()}; layer "
                        f"{limits.layer!r} takes {limits.low} to {limits.high}")
    return [int(n) for n in given]
