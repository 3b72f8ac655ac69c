"""One line on the terminal with the progress of a long task: stage, kernels, seconds.

The code that starts the work opens a block, and code inside reports progress:

    with working("compile digits"):
        for kernel in counted("assemble", kernels):
            ...

The line appears after a second, is redrawn while the work goes on, and is removed at the end.
Nothing is written unless standard error is a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

PATIENCE = 1.0  # seconds before the line appears
INTERVAL = 0.2  # seconds between redraws


class WorkLine:
    """The line of one task. A thread draws it, because the work may be in one native call.

    Args:
        label: The name of the task, at the start of the line.
        stream: The terminal.
    """

    def __init__(self, label: str, stream: TextIO):
        self.label, self._stream = label, stream
        self.stage, self.done, self.total = "", 0, 0
        self._start = time.perf_counter()
        self._ended = threading.Event()
        self._width = 0  # of the text on the terminal
        self._thread = threading.Thread(target=self._draw, name="ztorch-work-line", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The current text of the line."""
        count = f" {self.done}/{self.total}" if self.total else ""
        stage = f": {self.stage}{count}" if self.stage else ""
        return f"{self.label}{stage}, {time.perf_counter() - self._start:.0f} s"

    def end(self) -> None:
        """Removes the line."""
        self._ended.set()
        self._thread.join()
        self.clear()

    def clear(self) -> None:
        """Clears the line on the terminal until the next redraw."""
        self._write("")

    def _draw(self) -> None:
        wait = PATIENCE
        while not self._ended.wait(wait):
            self._write(self.text())
            wait = INTERVAL

    def _write(self, text: str) -> None:
        import shutil  # slow: it imports all compressors

        if not text and not self._width:
            return
        text = text[:shutil.get_terminal_size().columns - 1]
        try:
            self._stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._ended.set()
        self._width = len(text)


_line: WorkLine | None = None  # of the outermost block


@contextmanager
def working(label: str) -> Iterator[None]:
    """A task that may take long. Nested blocks share the line of the outermost one.

    >>> with working("compile digits"):
    ...     at("plan", 1, 4)
    """
    global _line
    stream = sys.stderr
    if _line is not None or stream is None or not stream.isatty():
        yield
        return
    line = _line = WorkLine(label, stream)
    try:
        yield
    finally:
        _line = None
        line.end()


def at(stage: str, done: int = 0, total: int = 0) -> None:
    """Reports the stage of the work, and how many of its parts are done."""
    line = _line
    if line is not None:
        line.stage, line.done, line.total = stage, done, total


def say(text: str) -> None:
    """Prints a line on standard error, above the line of the task."""
    if _line is not None:
        _line.clear()
    print(text, file=sys.stderr)


def counted(stage: str, parts: Collection[Any]) -> Iterator[Any]:
    """Yields the parts of a stage, while the line counts them.

    >>> list(counted("assemble", ["a", "b"]))
    ['a', 'b']
    """
    for k, part in enumerate(parts):
        at(stage, k, len(parts))
        yield part
    at(stage, len(parts), len(parts))
