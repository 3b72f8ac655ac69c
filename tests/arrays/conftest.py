"""Shared by tests of arrays: programs that are counted, and programs that NumPy evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.arrays import evaluated
from ztorch.arrays import programs


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of programs compiled from now on; none were compiled before."""
    programs.forget()
    names: list[str] = []
    real = programs.build

    def counted(functions: Any, device: str, name: str) -> Any:
        names.append(name)
        return real(functions, device, name)

    monkeypatch.setattr(programs, "build", counted)
    return names


@pytest.fixture(scope="module")
def by_numpy() -> Iterator[None]:
    """NumPy evaluates the programs of this file's tests; nothing is compiled."""
    with evaluated.by_numpy():
        yield
