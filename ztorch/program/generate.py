"""Generation: continues sequences of numbers. One native call makes many numbers for several rows.

A row is one sequence. The model sees a window of it. All of the window except the last number is in
the caches of the program, which `prefill` fills and `generate` extends. When a window is as long as
the caches, its older half is dropped and the newer half is read again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.config import number, positive, whole_numbers, whole_seed
from ztorch.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful


@dataclass(frozen=True)
class Drawing:
    """Options of drawing numbers: arguments of `generate`, checked on construction.

    Examples:
        >>> Drawing(stop=3).stop
        (3,)
    """

    temperature: float = 1.0  # divides the logits; 0 takes the most likely number
    top_k: int | None = None  # draws only from this many of the most likely numbers
    top_p: float | None = None  # draws only from the most likely ones with this total
    repetition_penalty: float = 1.0  # above 1, repeated numbers become less likely
    stop: Any = ()  # numbers that end a row
    seed: int = 0  # of the random numbers; row k has seed + k

    def __post_init__(self) -> None:
        number("generate(temperature=...)", self.temperature, least=0)
        if self.top_k is not None:
            positive("generate(top_k=...)", self.top_k)
        if self.top_p is not None and not 0 < number("generate(top_p=...)", self.top_p) <= 1:
            raise ConfigError("generate(top_p=...) must be a number above 0 and at most 1, not "
                              f"{self.top_p!r}")
        number("generate(repetition_penalty=...)", self.repetition_penalty, above=0)
        object.__setattr__(self, "stop", stop_numbers(self.stop))
        whole_seed(self.seed)

    def changed(self) -> list[str]:
        """The names of the arguments that differ from their defaults, except `stop`."""
        return [f.name for f in fields(self) if f.name != "stop"
                and getattr(self, f.name) != f.default]


def stop_numbers(stop: Any) -> tuple[int, ...]:
    """Numbers that end a row: one integer, or a list of integers."""
    if stop is None:
        return ()
    values = [stop] if np.ndim(stop) == 0 else stop
    values = values.tolist() if isinstance(values, np.ndarray) else values
    try:
        return whole_numbers("generate(stop=...)", list(values))
    except (ConfigError, TypeError):
        raise ConfigError("generate(stop=...) must be an integer or a list of integers, not "
                          f"{stop!r}") from None


@dataclass
class Continuation:
    """A sequence that is being continued."""

    window: list[int]  # the numbers that the model sees; the last one is not in the caches
    live: bool = True  # whether it continues
    cached: bool = False  # whether the caches hold the window

    def cut(self, capacity: int) -> None:
        """Drops the older half of a window that is longer than the caches."""
        if len(self.window) > capacity:
            self.window = self.window[capacity - capacity // 2:]
            self.cached = False


class RowGenerator:
    """The native functions of a program for generation, for one group of rows at a time."""

    def __init__(self, program: Stateful):
        functions = program.executable.functions
        if "generate" not in functions:
            raise ConfigError(f"program {program.name!r} cannot generate: it was compiled without "
                              "decode; compile a causal model with decode=True")
        self.program = program
        inputs = functions["generate"].inputs
        self.rows = inputs["x"].shape[0]  # at once
        self.classes = inputs["stops"].shape[0]
        self.turns = functions["generate"].outputs["tokens"].shape[1]  # maximum per call
        self.capacity = functions["predict"].inputs["x"].shape[1]  # of the caches
        # A device runs all iterations of a loop, even if fewer are needed.
        self.least_turns = 1 if program.executable.spec.backend == "cpu" else self.turns

    def prompt(self, numbers: Any) -> Continuation:
        """A row that starts with a prompt."""
        return Continuation(self._checked(numbers)[-self.capacity:])

    def _checked(self, prompt: Any) -> list[int]:
        try:
            tokens = np.asarray(prompt)
        except ValueError:  # lists of different lengths
            tokens = np.empty(0, object)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not tokens.size:
            raise DataError("generate takes a list of one or more integers to continue, or a "
                            f"list of such lists, not {tokens.dtype} of shape {tokens.shape}")
        limits = self.program.metadata.input_range.get("")
        if limits and not (limits.low <= tokens.min() and tokens.max() <= limits.high):
            raise DataError(f"the prompt has numbers from {tokens.min()} to {tokens.max()}, but "
                            f"layer {limits.layer!r} takes {limits.low} to {limits.high}")
        return [int(token) for token in tokens]

    def stops(self, drawing: Drawing) -> np.ndarray:
        """Which numbers end a row, a bool array."""
        mask = np.zeros(self.classes, bool)
        for token in drawing.stop:
            if not 0 <= token < self.classes:
                raise ConfigError(f"generate(stop=...) has {token}, but this model generates 0 to "
                                  f"{self.classes - 1}")
            mask[token] = True
        return mask

    def room(self, rows: Sequence[Continuation]) -> int:
        """The number of iterations that fit into the caches, limited to those of one call."""
        longest = max(len(row.window) for row in rows if row.live)
        return min(self.turns, self.capacity - longest + 1)

    def fill(self, rows: Sequence[Continuation]) -> None:
        """Fills the caches with the windows of all rows, except their last numbers."""
        for row in rows:
            row.cut(self.capacity)
        late = [k for k, row in enumerate(rows) if row.live and not row.cached]
        if "prefill" in self.program.executable.functions and any(
                len(rows[k].window) > 1 for k in late):
            with self.program.borrow("prefill") as call:
                call.inputs["x"][...] = 0
                call.inputs["length"][...] = 0
                for k in late:
                    window = rows[k].window
                    call.inputs["x"][k, :len(window)] = window
                    call.inputs["length"][k] = len(window)
                call()
        for k in late:
            rows[k].cached = True

    def go_on(self, rows: Sequence[Continuation], inputs: dict[str, np.ndarray]) -> None:
        """Sets the inputs for the position of each row."""
        inputs["live"][...] = False
        inputs["x"][...] = 0
        inputs["position"][...] = 0
        for k, row in enumerate(rows):
            inputs["x"][k] = row.window[-1]
            inputs["position"][k] = len(row.window) - 1
            inputs["live"][k] = row.live


def generate(program: Stateful, prompt: Any, length: int, drawing: Drawing,
             stream: bool = False) -> Any:
    """The numbers that follow a prompt, or each of several prompts; see `Predictor.generate`."""
    generator = RowGenerator(program)
    positive("generate(length=...)", length)
    stops = generator.stops(drawing)
    if not is_several(prompt):
        calls = _numbers(generator, [generator.prompt(prompt)], length, drawing, stops, 0,
                         generator.least_turns if stream else generator.turns)
        numbers = _flat(calls)
        return numbers if stream else np.array(list(numbers), np.int32)
    if stream:
        raise ConfigError("generate(stream=True) takes one prompt, not a list of prompts; omit "
                          "stream, or call it for each")
    rows = [generator.prompt(one) for one in prompt]
    texts: list[list[int]] = [[] for _ in rows]
    for first in range(0, len(rows), generator.rows):
        group = rows[first:first + generator.rows]
        for call in _numbers(generator, group, length, drawing, stops, first, generator.turns):
            for k, tokens in enumerate(call):
                texts[first + k] += tokens
    return [np.array(text, np.int32) for text in texts]


def is_several(prompt: Any) -> bool:
    """Whether a prompt is a list of prompts.

    >>> is_several([1, 2]), is_several([[1, 2], [3]])
    (False, True)
    """
    if isinstance(prompt, np.ndarray):
        return prompt.ndim > 1
    return isinstance(prompt, (list, tuple)) and bool(prompt) and all(
        isinstance(one, (list, tuple, np.ndarray)) for one in prompt)


def _flat(calls: Generator[list[list[int]], None, None]) -> Iterator[int]:
    """The numbers of a single row, one by one."""
    with closing(calls):
        for [tokens] in calls:
            yield from tokens


def _numbers(generator: RowGenerator, rows: list[Continuation], length: int, drawing: Drawing,
             stops: np.ndarray, first: int, turns: int) -> Generator[list[list[int]], None, None]:
    """The numbers of each row, in calls of a limited number of iterations. The first row has index
    `first` among all prompts."""
    program = generator.program
    present = np.zeros((generator.rows, generator.classes), bool)
    for k, row in enumerate(rows):
        present[k, [token for token in row.window if token < generator.classes]] = True
    with alone(program), program.borrow("generate") as call:
        written = 0
        while written < length and any(row.live for row in rows):
            generator.fill(rows)
            count = min(turns, length - written, generator.room(rows))
            generator.go_on(rows, call.inputs)
            _choose(call.inputs, drawing, stops, first)
            call.inputs["seen"][...] = present
            call.inputs["step"][...] = written % 2**32
            call.inputs["count"][...] = count
            call()
            written += count
            yield [_follow(row, tokens[:count].tolist(), drawing.stop, present[k])
                   for k, (row, tokens) in enumerate(
                       zip(rows, call.outputs["tokens"], strict=False))]


def _choose(inputs: dict[str, np.ndarray], drawing: Drawing, stops: np.ndarray,
            first: int) -> None:
    """Sets the inputs for how numbers are drawn."""
    inputs["temperature"][...] = drawing.temperature
    inputs["top_k"][...] = min(drawing.top_k or len(stops), len(stops))
    inputs["top_p"][...] = 1.0 if drawing.top_p is None else drawing.top_p
    inputs["repetition_penalty"][...] = drawing.repetition_penalty
    inputs["stops"][...] = stops
    for k in range(inputs["seeds"].shape[1]):
        seed = whole_seed(drawing.seed) + first + k
        inputs["seeds"][:, k] = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF


def _follow(row: Continuation, tokens: list[int], stop: Sequence[int],
            present: np.ndarray) -> list[int]:
    """Appends a call's numbers to a row, up to one that ends it."""
    if not row.live:
        return []
    end = next((k for k, token in enumerate(tokens) if token in stop), None)
    if end is not None:
        tokens, row.live = tokens[:end + 1], False
    row.window += tokens
    present[tokens] = True
    return tokens


@contextmanager
def alone(program: Stateful) -> Iterator[None]:
    """A block in which a program generates for only one caller: it has one cache."""
    if not program.generate_lock.acquire(blocking=False):
        raise ConfigError(f"program {program.name!r} is already generating, and has one cache; "
                          "end the other generation first, or load the program twice")
    try:
        yield
    finally:
        program.generate_lock.release()
