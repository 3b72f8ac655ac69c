"""Tables of text with aligned columns."""

from __future__ import annotations

import pytest

from ztorch.terminal.text_table import aligned_table


def test_columns_are_aligned_and_lines_have_no_blanks_at_their_end() -> None:
    rows = [("name", "size", ""), ("a", "1", "x"), ("longer", "22", "")]
    assert aligned_table(rows).split("\n") == ["name    size", "a       1     x", "longer  22"]
    assert aligned_table(iter(rows), "  ").split("\n")[1] == "  a       1     x"
    assert aligned_table([]) == ""


def test_rows_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        aligned_table([("a", "b"), ("c",)])
