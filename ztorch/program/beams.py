"""Beam search: the most likely continuation of a prompt as a whole, approximately."""

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
    """Options of a beam search: arguments of `generate`, checked on construction."""

    beams: int | None  # number of continuations to keep
    length_penalty: float  # exponent of the length by which scores are divided
    drawing: Drawing  # only `stop` applies
    stream: bool  # not supported: the best beam is only known at the end

    def __post_init__(self) -> None:
        if self.beams is None:
            raise ConfigError("generate(length_penalty=...) ranks beams; set beams= as well")
        if positive("generate(beams=...)", self.beams) == 1:
            raise ConfigError("generate(beams=1) takes the most likely number each time; use "
                              "temperature=0")
        number("generate(length_penalty=...)", self.length_penalty)
        if names := self.drawing.changed():
            raise ConfigError(f"generate(beams={self.beams}) searches for the most likely numbers "
                              f"and draws none; omit {', '.join(names)}, or beams")
        if self.stream:
            raise ConfigError(f"generate(beams={self.beams}) only knows the best beam at the end; "
                              "omit stream")


@dataclass
class Beam(Continuation):
    """One continuation of a prompt."""

    text: tuple[int, ...] = ()  # after the prompt
    score: float = -math.inf  # its log-probability


def search(program: Any, prompt: Any, length: int, options: Search) -> Any:
    """The best continuation of a prompt, or of each prompt; see `Predictor.generate`."""
    generator = RowGenerator(program)
    positive("generate(length=...)", length)
    assert options.beams is not None
    if options.beams > generator.rows:
        raise ConfigError(f"generate(beams={options.beams}) needs a row for each beam, but program "
                          f"{program.name!r} generates {generator.rows} at once; compile it with "
                          f"decode={options.beams}")
    stops = generator.stops(options.drawing)
    several = is_several(prompt)
    rows = [generator.prompt(one) for one in (prompt if several else [prompt])]
    with alone(program):
        texts = [_searched(generator, row, length, options, stops) for row in rows]
    return texts if several else texts[0]


def _searched(generator: RowGenerator, prompt: Continuation, length: int, options: Search,
              stops: np.ndarray) -> np.ndarray:
    """The best continuation of one prompt."""
    beams = [Beam(list(prompt.window), live=k == 0, score=0.0 if k == 0 else -math.inf)
             for k in range(generator.rows)]
    written = 0
    with generator.program.borrow("beams") as call:
        call.inputs["beams"][...] = options.beams
        call.inputs["length_penalty"][...] = options.length_penalty
        call.inputs["stops"][...] = stops
        while written < length and any(beam.live for beam in beams):
            generator.fill(beams)
            count = min(length - written, generator.room(beams))
            generator.go_on(beams, call.inputs)
            call.inputs["score"][...] = [beam.score for beam in beams]
            call.inputs["length"][...] = [len(beam.text) for beam in beams]
            call.inputs["count"][...] = count
            call()
            beams = _after(beams, count, call.outputs)
            written += count
    return np.array(beams[0].text, np.int32)  # beams are sorted


def _after(beams: list[Beam], count: int, outputs: dict[str, np.ndarray]) -> list[Beam]:
    """The beams after a call. Each continues the beam that it was derived from, iteration by
    iteration."""
    parents, tokens = (outputs[name].tolist() for name in ("parents", "tokens"))
    scores, live = outputs["score"].tolist(), outputs["live"].tolist()
    after = []
    for k, score in enumerate(scores):
        at = k
        text: list[int] = []
        for turn in reversed(range(count)):
            if parents[at][turn] >= 0:  # the loop ran this iteration
                if tokens[at][turn] >= 0:
                    text.insert(0, tokens[at][turn])
                at = parents[at][turn]
        source = beams[at]
        after.append(Beam(source.window + text, live[k], source.cached, (*source.text, *text),
                          score))
    return after
