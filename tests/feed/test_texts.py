"""Rows of texts from users: what they may be, and the row of one that is no text."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.errors import DataError
from ztorch.feed.texts import texts


def test_rows_of_texts_have_the_shape_of_a_row() -> None:
    assert texts(["a", b"\xc3\xa9", np.str_("c")], (1,), "x").tolist() == [["a"], ["é"], ["c"]]
    assert texts([["a", "b"], ["c", "d"]], (2,), "x").tolist() == [["a", "b"], ["c", "d"]]


@pytest.mark.cheap
@pytest.mark.parametrize(("value", "row", "message"), [
    ("a", (1,), r"x is a single text; pass a list of texts, such as \[x\]"),
    ([["a", "b"], ["c", None]], (2,), "x holds None in row 1, which is not text"),
    ([["a", 3.5], ["c", "d"]], (2,), "x holds 3.5 in row 0, which is not text"),
    ([["a", "b", "c"]], (2,), r"x has shape \(1, 3\), but the model takes texts of"),
])
def test_what_is_no_text_is_named(value: object, row: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        texts(value, row, "x")
