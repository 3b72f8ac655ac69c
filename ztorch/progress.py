"""How training tells how far it is: a bar that redraws itself on a terminal, else plain lines."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from ztorch.errors import ConfigError

INTERVAL = 0.1  # seconds between redraws: smooth to the eye, nothing beside the work
WIDTH = 20


class Progress:
    """Reports one run of fit, evaluate or predict.

    verbose 0 is silent, 1 draws a bar, 2 writes one line an epoch; "auto" is 1 on a terminal and
    2 elsewhere. A bar asked for where nothing can be redrawn becomes one line an epoch.

    >>> progress = Progress(2, epochs=3, stream=sys.stdout)
    >>> progress.begin(0, steps=4); progress.end({"loss": 0.25})  # doctest: +ELLIPSIS
    Epoch 1/3 - 4/4 - ...s/step - loss: 0.2500
    """

    def __init__(self, verbose: int | str = "auto", epochs: int | None = None,
                 stream: TextIO | None = None):
        if verbose not in (0, 1, 2, "auto"):
            raise ConfigError(f"verbose={verbose!r} must be 0, 1, 2 or 'auto'")
        self._out = stream or sys.stdout or io.StringIO()  # None where it is closed
        tty = bool(getattr(self._out, "isatty", lambda: False)())
        wanted = 1 if verbose == "auto" else int(verbose)
        self.silent = wanted == 0
        self.live = wanted == 1 and tty  # redrawn while an epoch runs
        self.due = 0.0  # the loop compares the clock with this, and calls draw when it is past
        self._epochs = epochs
        self._label = ""
        self._steps: int | None = None
        self._done = 0
        self._start = 0.0
        self._stepping: float | None = None  # seconds of steps, without validation
        self._shown = 0
        self._full, self._empty = _blocks(self._out)

    def begin(self, epoch: int = 0, steps: int | None = None) -> None:
        """A new epoch (or a whole evaluation) of so many steps, where that is known."""
        self._start, self._stepping = time.perf_counter(), None
        self._steps, self._done, self._shown = steps, 0, 0
        self.due = self._start + INTERVAL
        if self._epochs is not None:
            self._label = f"Epoch {epoch + 1}/{self._epochs}"
            if self.live:
                self._write(self._label + "\n")

    def draw(self, done: int, logs: Mapping[str, float]) -> None:
        """Redraws the bar; the loop calls this only when `due` is past."""
        now = time.perf_counter()
        self.due = now + INTERVAL
        self._done = done
        if self.live:
            self._line(self._bar() + f" {self._left(now)} {self._pace(now)}{_values(logs)}")

    def trained(self, done: int) -> None:
        """The steps are over; what follows (validation) does not count into the pace."""
        self._done = done
        self._stepping = time.perf_counter() - self._start

    def end(self, logs: Mapping[str, float]) -> None:
        """The epoch is over, with its final values."""
        if self.silent:
            return
        now = time.perf_counter()
        if not self._done:
            self._done = self._steps or 0
        seconds = f"{now - self._start:.0f}s"
        if self.live:
            self._line(f"{self._bar()} {seconds} {self._pace(now)}{_values(logs)}", last=True)
            self.close()
            return
        count = f"{self._done}/{self._steps or self._done}"
        parts = [p for p in (self._label, count, seconds, self._pace(now)) if p]
        self._write(" - ".join(parts) + _values(logs) + "\n")

    def say(self, text: str) -> None:
        """A line of text, clear of the bar."""
        self.close()
        self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        """Leaves the bar as it stands; what is printed next begins a line of its own."""
        if self._shown:
            self._write("\n")
            self._shown = 0

    # -- pieces -----------------------------------------------------------------------------------

    def _bar(self) -> str:
        if not self._steps:
            return f"{self._done:>7}/?"
        digits = len(str(self._steps))
        full = min(WIDTH, WIDTH * self._done // self._steps)
        return (f"{self._done:>{digits}}/{self._steps} "
                f"{self._full * full}{self._empty * (WIDTH - full)}")

    def _pace(self, now: float) -> str:
        spent = now - self._start if self._stepping is None else self._stepping
        each = spent / self._done if self._done else 0.0
        if each >= 1:
            return f"{each:.0f}s/step"
        return f"{each * 1e3:.0f}ms/step" if each >= 1e-3 else f"{each * 1e6:.0f}us/step"

    def _left(self, now: float) -> str:
        if not self._steps or not self._done:
            return f"{now - self._start:.0f}s"
        left = int((now - self._start) / self._done * (self._steps - self._done))
        if left > 3600:
            return f"{left // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}"
        return f"{left // 60}:{left % 60:02d}" if left > 60 else f"{left}s"

    def _line(self, text: str, last: bool = False) -> None:
        import shutil  # with it come all compressors, which nothing else here needs

        # A line wider than the terminal would wrap, and the return would not reach its start; the
        # last one may, as nothing is drawn over it.
        text = text if last else text[:shutil.get_terminal_size().columns - 1]
        self._write("\r" + text + " " * (self._shown - len(text)))
        self._shown = len(text)

    def _write(self, text: str) -> None:
        if not self.silent:
            self._out.write(text)
            self._out.flush()


def number(value: float) -> str:
    """A value as progress and messages show it.

    >>> number(0.5), number(0.00012)
    ('0.5000', '1.2000e-04')
    """
    return f"{value:.4f}" if abs(value) > 1e-3 or value == 0 else f"{value:.4e}"


def _values(logs: Mapping[str, float]) -> str:
    return "".join(f" - {name}: {number(value)}" for name, value in logs.items())


def _blocks(stream: TextIO) -> tuple[str, str]:
    try:
        "━╺".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "=", "."
    return "━", "╺"
