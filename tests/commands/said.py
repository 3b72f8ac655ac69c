"""A command run in this process, and what is asked of every result."""

from __future__ import annotations

import re
from collections.abc import Callable

from click.testing import Result

Run = Callable[..., Result]


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(result: Result, message: str, status: int = 1) -> None:
    """One clean line on standard error, and nothing of Python."""
    assert result.exit_code == status, result.output
    assert re.search(message, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    if status == 1:
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
