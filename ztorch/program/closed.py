"""A program after `close`."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError


class ClosedProgram:
    """Replaces the executable of a closed program."""

    device = "nothing: closed"

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        raise ConfigError(f"program {self.name!r} is closed; compile or load it again")
