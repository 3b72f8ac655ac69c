"""The progress line of long tasks: on terminals alone, in time, and gone when it ends."""

from __future__ import annotations

import io
import re
import sys
import threading
import time

import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.host.settings import using
from ztorch.terminal import work_line
from ztorch.terminal.work_line import at, counted, say, working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error of this test from now on."""
    monkeypatch.setattr(work_line, "PATIENCE", 0.01)
    monkeypatch.setattr(work_line, "INTERVAL", 0.005)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def wait_for(stream: Terminal, text: str) -> None:
    end = time.perf_counter() + 10
    while text not in stream.getvalue() and time.perf_counter() < end:
        time.sleep(0.002)
    assert text in stream.getvalue()


def test_it_counts_and_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    threads = threading.active_count()
    with working("compile digits"):
        wait_for(terminal, "\rcompile digits, 0 s")
        with working("load"):  # the line of the outermost block stays
            for part in counted("assemble kernels", ["a", "b"]):
                if part == "b":
                    wait_for(terminal, "\rcompile digits: assemble kernels 1/2, 0 s")
        at("load")
        wait_for(terminal, "\rcompile digits: load, 0 s      ")  # over a longer text
    assert terminal.getvalue().split("\r")[-2].strip() == "" and terminal.getvalue()[-1] == "\r"
    assert threading.active_count() == threads
    with working("again"):
        wait_for(terminal, "\ragain, 0 s")
        say("a word")
        assert re.search(r"\r +\ra word\n", terminal.getvalue())  # not behind the line


def test_an_interrupted_block_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with pytest.raises(KeyboardInterrupt), working("verify"):
        wait_for(terminal, "verify, 0 s")
        raise KeyboardInterrupt
    assert terminal.getvalue()[-1] == "\r" and work_line._line is None


def test_short_work_and_pipes_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        if not stream.isatty():
            monkeypatch.setattr(work_line, "PATIENCE", 0.0)
        with working("compile"):
            at("plan", 1, 2)
            time.sleep(0.01)
        assert stream.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)
    with working("compile"):
        at("plan")


def test_compile_shows_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []
    for module in ("model.trace", "compile.pipeline", "lower.plan", "codegen.assemble", "compile.cpu_code",
                   "terminal.work_line"):
        monkeypatch.setattr(f"ztorch.{module}.at", lambda stage, done=0, total=0: stages.append(
            f"{stage} {done}/{total}"))
    with using(cache=None):  # else it may be found there
        zt.Sequential([L.Input((3,)), L.Dense(2)]).compile("cpu:scalar", batch_size=2)
    assert [s for s in stages if s.endswith("0/0")] == [
        "trace 0/0", "simplify graphs 0/0", "fuse predict 0/0", "assemble functions 0/0", "load 0/0"]
    assert {"plan predict 0/1", "plan predict 1/1", "assemble kernels 0/1"} <= {*stages}


def test_a_long_line_leaves_the_last_column_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character in the last column would wrap in some terminals."""
    monkeypatch.setenv("COLUMNS", "20")
    terminal = terminal_for(monkeypatch)
    with working("abcdefghijklmnopqrstuvwxyz"):
        wait_for(terminal, "\rabcdefghijklmnopqrs")
    assert max(map(len, terminal.getvalue().split("\r"))) == 19
