"""Shared by tests of the tuner: an empty folder of schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from ztorch.compile import tuned_files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of schedules; assembled code stays in the cache of all tests."""
    monkeypatch.setattr(tuned_files, "folder", lambda: tmp_path / "tuned")
    return tmp_path / "tuned"
