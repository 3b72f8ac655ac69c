"""Beam search: the continuation of a prompt that is likeliest as a whole, or nearly so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.config import number, positive
from ztorch.errors import ConfigError
from ztorch.program.generate import Continuation, Drawing, RowGenerator, alone, is_several


@dataclass(frozen=True)
class Search:
    """How beams are searched: arguments of `generate`, checked when it is made."""

    beams: int | None  # continuations that are kept
    length_penalty: float  # power of its length that a continuation's score is divided by
    drawing: Drawing  # of which only `stop` matters
    stream: bool  # which there is not: the best beam is known at the end

    def __post_init__(self) -> None:
        if self.beams is None:
            raise ConfigError("generate(length_penalty=...) ranks beams; say beams=, too")
        if positive("generate(beams=...)", self.beams) == 1:
            raise ConfigError("generate(beams=1) takes the likeliest number each time; say "
                              "temperature=0")
        number("generate(length_penalty=...)", self.length_penalty)
        if names := self.drawing.changed():
            raise ConfigError(f"generate(beams={self.beams}) looks for the likeliest numbers and "
                              f"draws none; leave out {', '.join(names)}, or beams")
        if self.stream:
            raise ConfigError(f"generate(beams={self.beams}) knows the best beam at the end only; "
                              "leave stream out")


@dataclass
class Beam(Continuation):
    """One continuation of a prompt."""

    text: tuple[int, ...] = ()  # after the prompt
    score: float = -math.inf  # logarithm of its probability


def search(program: Any, prompt: Any, length: int, how: Search) -> Any:
    """The best continuation of a prompt, or of each prompt; see `Predictor.generate`."""
    generator = RowGenerator(program)
    positive("generate(length=...)", length)
    assert how.beams is not None
    if how.beams > generator.rows:
        raise ConfigError(f"generate(beams={how.beams}) needs a row for each beam, and program "
                          f"{program.name!r} generates {generator.rows} at once; compile it with "
                          f"decode={how.beams}")
    stops = generator.stops(how.drawing)
    several = is_several(prompt)
    rows = [generator.prompt(one) for one in (prompt if several else [prompt])]
    with alone(program):
        texts = [_searched(generator, row, length, how, stops) for row in rows]
    return texts if several else texts[0]


def _searched(generator: RowGenerator, prompt: Continuation, length: int, how: Search,
              stops: np.ndarray) -> np.ndarray:
    """The best continuation of one prompt."""
    beams = [Beam(list(prompt.window), live=k == 0, score=0.0 if k == 0 else -math.inf)
             for k in range(generator.rows)]
    made = 0
    with generator.program.borrow("beams") as call:
        call.inputs["beams"][...] = how.beams
        call.inputs["length_penalty"][...] = how.length_penalty
        call.inputs["stops"][...] = stops
        while made < length and any(beam.live for beam in beams):
            generator.fill(beams)
            count = min(length - made, generator.room(beams))
            generator.go_on(beams, call.inputs)
            call.inputs["score"][...] = [beam.score for beam in beams]
            call.inputs["length"][...] = [len(beam.text) for beam in beams]
            call.inputs["count"][...] = count
            call()
            beams = _after(beams, count, call.outputs)
            made += count
    return np.array(beams[0].text, np.int32)  # beams are ranked


def _after(beams: list[Beam], count: int, outputs: dict[str, np.ndarray]) -> list[Beam]:
    """The beams after a call: each goes on from the one that it was made of, iteration by
    iteration."""
    parents, tokens = (outputs[name].tolist() for name in ("parents", "tokens"))
    scores, live = outputs["score"].tolist(), outputs["live"].tolist()
    after = []
    for k, score in enumerate(scores):
        at = k
        text: list[int] = []
        for turn in reversed(range(count)):
            if parents[at][turn] >= 0:  # the loop took this iteration
                if tokens[at][turn] >= 0:
                    text.insert(0, tokens[at][turn])
                at = parents[at][turn]
        source = beams[at]
        after.append(Beam(source.window + text, live[k], source.cached, (*source.text, *text),
                          score))
    return after
