"""ztorch generate: a model of letters continues a text."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ztorch.commands.programs import need_trained
from ztorch.data import verse
from ztorch.errors import ConfigError, DataError
from ztorch.program.program import Program, load
from ztorch.sources.find import find, is_artifact

TEMPERATURE = 0.5  # the default; letters are mostly likely ones


def generate(name: str, *, text: str, length: int, stop: str, beams: int | None,
             alphabet: str | None, weights: str | None, device: str, threads: int | None,
             **drawing: Any) -> None:
    """Prints a text and its continuation, letter by letter. Options that are None in `drawing` keep
    their defaults."""
    program = _program(name, weights, device, threads, beams or True)
    letters = verse.ALPHABET if alphabet is None else alphabet
    prompt = encode(text, letters)
    arguments = {key: value for key, value in drawing.items() if value is not None}
    if beams is None:
        arguments = {"temperature": TEMPERATURE, "stream": True, **arguments}
    numbers = program.generate(prompt, length, stop=encode(stop, letters), beams=beams, **arguments)
    vocabulary = program.executable.functions["generate"].inputs["stops"].shape[0]
    if vocabulary != len(letters):
        raise ConfigError(f"{name} generates {vocabulary} different numbers, and the alphabet has "
                          f"{len(letters)} letters; pass --alphabet with a letter for each number")
    _print(text, letters, numbers)


def _program(name: str, weights: str | None, device: str, threads: int | None,
             rows: bool | int) -> Program:
    if is_artifact(name):
        if weights:
            raise ConfigError(f"{name} has weights; --weights is for a model that is compiled now")
        return load(name, threads)
    recipe = find(name)
    if weights:
        recipe.model.load_weights(weights)
    need_trained(name, recipe, "give its weights: --weights FILE")
    return recipe.model.compile(device, batch_size=1, threads=threads, decode=rows)


def encode(text: str, letters: str) -> list[int]:
    """The number of each letter of a text. An upper-case letter without a number counts as the
    lower-case one.

    >>> encode("Ab", "abc")
    [0, 1]
    """
    number = {letter: k for k, letter in enumerate(letters)}
    numbers = [number.get(c, number.get(c.lower())) for c in text]
    missing = sorted({c for c, k in zip(text, numbers, strict=True) if k is None})
    if missing:
        raise DataError(f"the model does not know {', '.join(map(repr, missing))}; its letters are "
                        f"{letters!r}")
    return [k for k in numbers if k is not None]


def _print(text: str, letters: str, numbers: Iterable[int]) -> None:
    sys.stdout.write(text)
    for k in numbers:
        sys.stdout.write(letters[k])
        sys.stdout.flush()
    sys.stdout.write("\n")
