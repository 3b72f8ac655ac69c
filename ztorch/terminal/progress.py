"""The progress of fit, evaluate and predict: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from ztorch.errors import ConfigError

INTERVAL = 0.1  # seconds between redraws: looks smooth and costs almost nothing
NOTEBOOK_INTERVAL = 0.5  # seconds between redraws in a notebook, where each is a message
MOST_LINES = 20  # epochs with a line each in a notebook; more epochs share one line
WIDTH = 20  # characters of the bar
MOST_NUMBERS = 4  # of a score


class Progress:
    """Reports one run of fit, evaluate or predict.

    Args:
        verbose: 0 prints nothing, 1 a bar, 2 one line per epoch; "auto" means 1 on a terminal or in
            a notebook, and 2 elsewhere. 1 becomes 2 where nothing can be redrawn. Default:
            `"auto"`.
        epochs: Number of epochs; None outside training. Default: `None`.
        stream: Where to write; None: standard output. Default: `None`.

    Examples:
        >>> progress = Progress(2, epochs=3, stream=sys.stdout)
        >>> progress.begin(0, steps=4); progress.end({"loss": 0.25})  # doctest: +ELLIPSIS
        Epoch 1/3 - 4/4 - ...s/step - loss: 0.2500
    """

    def __init__(self, verbose: int | str = "auto", epochs: int | None = None,
                 stream: TextIO | None = None):
        if verbose not in (0, 1, 2, "auto"):
            raise ConfigError(f"verbose={verbose!r} must be 0, 1, 2 or 'auto'")
        self._out = stream or sys.stdout or io.StringIO()  # stdout may be None, if it is closed
        tty = bool(getattr(self._out, "isatty", lambda: False)())
        level = 1 if verbose == "auto" else int(verbose)
        self.silent = level == 0
        self._notebook = type(self._out).__module__.startswith("ipykernel.")
        self.live = level == 1 and (tty or self._notebook)  # redrawn while an epoch runs
        self.due = 0.0  # time of the next redraw; loops then call `draw`
        self._epochs = epochs
        self._interval = NOTEBOOK_INTERVAL if self._notebook else INTERVAL
        self._shares_line = self._notebook and (epochs or 0) > MOST_LINES  # with all epochs
        self._last = True  # whether this is the last epoch
        self._label = ""
        self._steps: int | None = None
        self._done = 0  # steps
        self._start = 0.0
        self._step_seconds: float | None = None  # of all steps, without validation
        self._line_length = 0  # of the bar on the terminal
        self._full, self._empty = blocks(self._out)

    def begin(self, epoch: int = 0, steps: int | None = None) -> None:
        """Starts an epoch or an evaluation; `steps` is None if unknown."""
        self._start, self._step_seconds = time.perf_counter(), None
        self._steps, self._done = steps, 0
        self.due = self._start + self._interval
        if self._epochs is not None:
            self._label = f"Epoch {epoch + 1}/{self._epochs}"
            self._last = epoch + 1 == self._epochs
            if self.live and not self._notebook:
                self._write(self._label + "\n")

    def draw(self, done: int, logs: Mapping[str, Any]) -> None:
        """Redraws the bar. Loops call this when `due` has come."""
        now = time.perf_counter()
        self.due = now + self._interval
        self._done = done
        if self.live:
            self._line(self._bar() + f" {self._left(now)} {self._pace(now)}{_values(logs)}")

    def trained(self, done: int) -> None:
        """All steps are done. The time of the validation that follows is not counted as steps."""
        self._done = done
        self._step_seconds = time.perf_counter() - self._start

    def end(self, logs: Mapping[str, Any]) -> None:
        """Ends the epoch, with these scores."""
        if self.silent:
            return
        now = time.perf_counter()
        if not self._done:
            self._done = self._steps or 0
        seconds = f"{now - self._start:.0f}s"
        if self.live:
            bar = f"{self._count()} -" if self._notebook else self._bar()  # lines there are short
            self._line(f"{bar} {seconds} {self._pace(now)}{_values(logs)}", last=True)
            if not self._shares_line or self._last:
                self.close()
            return
        count = f"{self._done}/{self._steps or self._done}"
        parts = [p for p in (self._label, count, seconds, self._pace(now)) if p]
        self._write(" - ".join(parts) + _values(logs) + "\n")

    def say(self, text: str) -> None:
        """Prints a line of text below the bar."""
        self.close()
        self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        """Ends the line of the bar, so that later output starts a new line."""
        if self._line_length:
            self._write("\n")
            self._line_length = 0

    # -- pieces -----------------------------------------------------------------------------------

    def _bar(self) -> str:
        if not self._steps:
            return f"{self._done:>7}/?"
        full = min(WIDTH, WIDTH * self._done // self._steps)
        return f"{self._count()} {self._full * full}{self._empty * (WIDTH - full)}"

    def _count(self) -> str:
        """The steps so far, of all."""
        return f"{self._done:>{len(str(self._steps or 0))}}/{self._steps or self._done}"

    def _pace(self, now: float) -> str:
        seconds = now - self._start if self._step_seconds is None else self._step_seconds
        per_step = seconds / self._done if self._done else 0.0
        if per_step >= 1:
            return f"{per_step:.0f}s/step"
        return (f"{per_step * 1e3:.0f}ms/step" if per_step >= 1e-3 else
                f"{per_step * 1e6:.0f}us/step")

    def _left(self, now: float) -> str:
        if not self._steps or not self._done:
            return f"{now - self._start:.0f}s"
        left = int((now - self._start) / self._done * (self._steps - self._done))
        if left > 3600:
            return f"{left // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}"
        return f"{left // 60}:{left % 60:02d}" if left > 60 else f"{left}s"

    def _line(self, text: str, last: bool = False) -> None:
        import shutil  # slow: it imports all compressors

        # A line wider than the terminal would wrap, and the carriage return would not reach its
        # start. The last line may wrap: nothing is drawn over it.
        if self._notebook:
            text = f"{self._label} - {text}" if self._label else text
        elif not last:
            text = text[:shutil.get_terminal_size().columns - 1]
        self._write("\r" + text + " " * (self._line_length - len(text)))
        self._line_length = len(text)

    def _write(self, text: str) -> None:
        if not self.silent:
            self._out.write(text)
            self._out.flush()


def numbers_of(scores: Mapping[str, Any]) -> dict[str, float]:
    """Scores as numbers by name: those of an array are numbered.

    >>> numbers_of({"loss": 0.5, "f1": [0.25, 0.75]})
    {'loss': 0.5, 'f1_0': 0.25, 'f1_1': 0.75}
    """
    numbers: dict[str, float] = {}
    for name, score in scores.items():
        single = not hasattr(score, "__len__")
        numbers |= {name if single else f"{name}_{k}": x for k, x in enumerate(_flat(score))}
    return numbers


def _flat(score: Any) -> Iterator[float]:
    """The numbers of a score: of an array, or of nested lists."""
    if not hasattr(score, "__len__"):
        yield float(score)
        return
    for part in score:
        yield from _flat(part)


def format_number(value: Any) -> str:
    """A score as progress and messages show it.

    >>> format_number(0.5), format_number(0.00012), format_number([0.5, 1.0])
    ('0.5000', '1.2000e-04', '[0.5000, 1.0000]')
    >>> format_number([0.25] * 100)
    '[0.2500, 0.2500, 0.2500, 0.2500, ... of 100]'
    """
    if hasattr(value, "__len__"):
        each = list(_flat(value))
        shown = ", ".join(map(format_number, each[:MOST_NUMBERS]))
        return f"[{shown}{f', ... of {len(each)}' * (len(each) > MOST_NUMBERS)}]"
    return f"{value:.4f}" if abs(value) > 1e-3 or value == 0 else f"{value:.4e}"


def _values(logs: Mapping[str, Any]) -> str:
    return "".join(f" - {name}: {format_number(value)}" for name, value in logs.items())


def blocks(stream: TextIO) -> tuple[str, str]:
    """The characters of the full and the empty part of a bar, which the stream can encode."""
    try:
        "━╺".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "=", "."
    return "━", "╺"
