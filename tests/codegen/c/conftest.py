"""C as users compile it: other tests leave out optimization."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def as_for_users(optimized_c: None) -> None:
    """With all flags."""
