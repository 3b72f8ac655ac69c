"""WebGPU alone: the search for the drivers below it."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.cases.available import device
from ztorch.backends.drivers import webgpu


@pytest.mark.parametrize("own", [None, "/run/user/1000"])
def test_mesa_finds_no_reason_to_complain(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so on standard error where the variable is not a path; users' own stays as it is."""
    seen: list[str | None] = []

    def adapters() -> list[object]:
        seen.append(os.environ.get("XDG_RUNTIME_DIR"))
        return []

    monkeypatch.setitem(sys.modules, "wgpu", SimpleNamespace(
        gpu=SimpleNamespace(enumerate_adapters_sync=adapters)))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if own:
        monkeypatch.setenv("XDG_RUNTIME_DIR", own)
    assert webgpu._adapters.__wrapped__() == []
    assert seen == [own or "/nonexistent"] and os.environ.get("XDG_RUNTIME_DIR") == own


USED = """
import numpy as np
import ztorch as zt
from ztorch.backends.drivers import webgpu

with zt.device("webgpu"):
    y = zt.ops.matmul(np.ones((4, 8), np.float32), np.ones((8, 2), np.float32))
    print(np.asarray(y).sum())
webgpu.os = None  # as where the interpreter clears this module before the objects
"""


def test_a_process_ends_in_silence() -> None:
    """wgpu's objects outlive the modules that release them."""
    device("webgpu")
    done = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["64.0"], "")
