"""The result of a command that ran in this process, and the rules for every result."""

from __future__ import annotations

import re
from collections.abc import Callable

from click.testing import Result

Run = Callable[..., Result]


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(result: Result, message: str, status: int = 1) -> None:
    """Fails with one line on standard error, and without a traceback."""
    assert result.exit_code == status, result.output
    assert re.search(message, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    if status == 1:
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
