"""Progress in a terminal, in a log file and in a silent run."""

from __future__ import annotations

import io
import re
import time
from itertools import pairwise
from typing import Any

import pytest

import ztorch as zt
from tests.programs import classifier, flowers
from ztorch.errors import ConfigError
from ztorch.terminal import progress as P
from ztorch.training import loop


class Screen(io.StringIO):
    """A terminal that handles carriage returns."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        shown = []
        for line in self.getvalue().split("\n"):
            cells: list[str] = []
            for part in line.split("\r"):
                cells[:len(part)] = part
            shown.append("".join(cells).rstrip())
        return shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(P.time, "perf_counter", lambda: now[0])
    return now


def test_a_bar_redraws_itself(clock: list[float]) -> None:
    screen = Screen()
    bar = P.Progress("auto", epochs=2, stream=screen)
    assert bar.live
    bar.begin(0, steps=40)
    clock[0] += 1.0
    bar.draw(10, {"loss": 1.25})
    assert screen.lines() == [
        "Epoch 1/2", "10/40 ━━━━━╺╺╺╺╺╺╺╺╺╺╺╺╺╺╺ 3s 100ms/step - loss: 1.2500"]
    clock[0] += 3.0
    bar.trained(40)
    clock[0] += 4.0  # validation is not part of the pace
    bar.end({"loss": 0.5, "val_loss": 0.00012})
    assert screen.lines() == [
        "Epoch 1/2",
        "40/40 ━━━━━━━━━━━━━━━━━━━━ 8s 100ms/step - loss: 0.5000 - val_loss: 1.2000e-04", ""]


def test_a_log_gets_one_line_an_epoch(clock: list[float]) -> None:
    for verbose in ("auto", 1, 2):
        log = io.StringIO()
        bar = P.Progress(verbose, epochs=2, stream=log)
        for epoch in range(2):
            bar.begin(epoch, steps=4)
            clock[0] += 0.01
            bar.draw(2, {"loss": 1.0})
            bar.end({"loss": 0.5})
        assert log.getvalue() == ("Epoch 1/2 - 2/4 - 0s - 5ms/step - loss: 0.5000\n"
                                  "Epoch 2/2 - 2/4 - 0s - 5ms/step - loss: 0.5000\n")


def test_messages_do_not_hit_the_bar(clock: list[float]) -> None:
    screen = Screen()
    bar = P.Progress(1, stream=screen)
    bar.begin(steps=2)
    bar.draw(1, {})
    bar.say("saved")
    assert screen.lines()[-2:] == ["saved", ""]
    bar.end({})
    assert screen.lines()[2].startswith("1/2")


def test_a_line_never_wraps(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    bar = P.Progress(1, stream=screen)
    bar.begin(steps=3)
    bar.draw(1, {f"metric_{k}": 0.5 for k in range(9)})
    assert 35 < len(screen.lines()[-1]) <= 39
    bar.end({f"metric_{k}": 0.5 for k in range(9)})
    assert "metric_8: 0.5000" in screen.getvalue()  # but no final value is cut off


def test_unknown_length_and_plain_encodings(clock: list[float]) -> None:
    screen = Screen()
    screen.encoding = "ascii"
    bar = P.Progress(1, stream=screen)
    bar.begin()
    bar.draw(3, {})
    assert screen.lines()[-1] == "      3/? 0s 0us/step"
    bar.end({})
    bar.begin()
    bar.end({})  # an epoch without a step
    assert screen.lines()[-2] == "      0/? 0s 0us/step"
    bar.begin(steps=2)
    bar.draw(1, {})
    assert "==========.........." in screen.lines()[-1]


@pytest.mark.cheap
@pytest.mark.parametrize(("seconds", "text"), [(30, "29s"), (62, "60s"), (63, "1:01"), (3674, "60:00"), (3675, "1:00:01"), (5000, "1:21:40")])
def test_time_left(clock: list[float], seconds: int, text: str) -> None:
    screen = Screen()
    bar = P.Progress(1, stream=screen)
    bar.begin(steps=50)
    clock[0] += seconds / 50
    bar.draw(1, {})
    assert f" {text} " in screen.lines()[-1]


def test_fit_is_silent_if_verbose_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = flowers()
    program = classifier()
    program.fit(x, y, verbose=0, validation_data=(x, y))
    program.predict(x)
    assert capsys.readouterr().out == ""
    program.fit(x, y, epochs=2, verbose=2, validation_data=(x, y))
    program.evaluate(x, y)
    program.predict(x, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].startswith("Epoch 1/2 - 8/8 - 0s - ")
    assert "val_accuracy" in lines[1] and lines[2].startswith("8/8 - 0s - ")


def test_a_callback_shows_the_progress_in_place_of_fit(
        capsys: pytest.CaptureFixture[str]) -> None:
    def shown(callbacks: list[Any]) -> list[str]:
        program = classifier()
        for verbose in (0, 2):
            program.fit(*flowers(), epochs=2, verbose=verbose, validation_split=0.5,
                        callbacks=callbacks)
            program.evaluate(*flowers(), verbose=verbose, callbacks=callbacks)
            program.predict(flowers()[0], verbose=verbose, callbacks=callbacks)
        return re.sub(r"[0-9]+(s|[mu]s/step)", "?", capsys.readouterr().out).splitlines()

    plain = shown([])
    assert len(plain) == 4 and "val_accuracy" in plain[0]
    assert shown([zt.callbacks.ProgbarLogger()]) == plain


def test_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is None if the parent process closed it."""
    monkeypatch.setattr("sys.stdout", None)
    progress = P.Progress(1, epochs=2)
    progress.begin(0, steps=3)
    progress.say("a line")
    progress.end({"loss": 1.0})
    assert not progress.live


@pytest.mark.slow
def test_fit_redraws_about_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that goes on by a millisecond whenever it is read, which is once a step and a few
    times besides."""
    screen, now, drawn = Screen(), [100.0], []
    monkeypatch.setattr(P.sys, "stdout", screen)

    def read() -> float:
        now[0] += 0.001
        return now[0]

    monkeypatch.setattr(time, "perf_counter", read)
    monkeypatch.setattr(loop, "perf_counter", read)
    draw = P.Progress.draw

    def counted(self: P.Progress, *given: Any) -> None:
        drawn.append(now[0])
        draw(self, *given)

    monkeypatch.setattr(P.Progress, "draw", counted)
    classifier().fit(*flowers(2000), epochs=2)
    assert "Epoch 2/2" in screen.lines()
    assert len(drawn) >= 2 and min(b - a for a, b in pairwise(drawn)) >= P.INTERVAL


def test_impossible_verbosity() -> None:
    with pytest.raises(ConfigError, match="verbose='loud'"):
        P.Progress("loud")


class Notebook(io.StringIO):
    """Like the standard output of a notebook."""

    def isatty(self) -> bool:
        return False


Notebook.__module__ = "ipykernel.iostream"


@pytest.mark.parametrize(("epochs", "lines"), [(3, 3), (1000, 1)])
def test_a_notebook_has_few_lines(epochs: int, lines: int) -> None:
    out = Notebook()
    progress = P.Progress("auto", epochs, out)
    for epoch in range(epochs):
        progress.begin(epoch, 4)
        progress.draw(2, {"loss": 1.0})
        progress.trained(4)
        progress.end({"loss": 0.5})
    assert progress.live and out.getvalue().count("\n") == lines
    shown = [line.rpartition("\r")[2] for line in out.getvalue().splitlines()[-1:]]
    assert shown[0].startswith(f"Epoch {epochs}/{epochs} - 4/4 ") and "loss: 0.5000" in shown[0]
