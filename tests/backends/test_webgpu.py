"""WebGPU alone: the search for the drivers below it."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

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
