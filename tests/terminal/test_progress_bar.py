"""`zt.utils.Progbar`: means of values, on one line, in any encoding."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest

from ztorch.terminal.progress import numbers_of
from ztorch.terminal.progress_bar import Progbar


def test_values_are_means_over_steps(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progbar(8, verbose=2, stateful_metrics=["rate"])
    bar.update(2, [("loss", 1.0), ("rate", 0.5)])
    bar.add(5, [("loss", 0.5), ("rate", 0.25)])
    assert capsys.readouterr().out == ""
    bar.add(1, [("loss", 0.25), ("rate", 0.125)])
    assert capsys.readouterr().out == f"8/8 - loss: {(2 * 1 + 5 * 0.5 + 0.25) / 8:.4f} - rate: 0.1250\n"


@pytest.mark.parametrize(("target", "current", "finalize", "out"), [
    (4, 1, None, "\r1/4 ━━━━━               "), (4, 4, None, "\r4/4 ━━━━━━━━━━━━━━━━━━━━\n"),
    (4, 1, True, "\r1/4 ━━━━━               \n"), (4, 4, False, "\r4/4 ━━━━━━━━━━━━━━━━━━━━"),
    (None, 3, None, "\r3/? ━━━━━━━━━━━━━━━━━━━━"), (0, 0, None, "\r0/? ━━━━━━━━━━━━━━━━━━━━\n")])
def test_the_bar(target: int | None, current: int, finalize: bool | None, out: str,
                 capsys: pytest.CaptureFixture[str]) -> None:
    Progbar(target, interval=0).update(current, finalize=finalize)
    assert capsys.readouterr().out == out


def test_a_stream_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    Progbar(2, width=4, interval=0).update(1)
    stream.flush()
    assert stream.buffer.getvalue() == b"\r1/2 ==  "  # type: ignore[attr-defined]


def test_a_score_that_is_not_a_number_keeps_its_name() -> None:
    numbers = numbers_of({"loss": np.float32("nan"), "f1": np.float32([0.5, 0.25])})
    assert [*numbers] == ["loss", "f1_0", "f1_1"] and math.isnan(numbers["loss"])
