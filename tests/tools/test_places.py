"""The table that says which file defines which layer, op, loss and so on."""

from __future__ import annotations

from tools.places import FILE, text


def test_the_table_is_that_of_the_source() -> None:
    assert FILE.read_text() == text(), "run: python -m tools.places --write"
