"""docs/ops.md agrees with the registry."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tools.vocabulary import vocabulary
from ztorch.graph.op import REGISTRY

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


@functools.cache
def page() -> str:
    return vocabulary()


def rows() -> dict[str, list[str]]:
    result = {}
    for line in page().splitlines():
        if line.startswith("| `"):
            cells = [c.strip() for c in line.replace("\\|", "\0").strip("|").split("|")]
            result[cells[0].strip("`").partition("(")[0]] = cells
    return result


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tools.vocabulary > docs/ops.md"


def test_every_op_has_its_row() -> None:
    assert set(rows()) == set(REGISTRY)
    assert all(len(cells) == 7 for cells in rows().values())


@pytest.mark.parametrize(("name", "cell", "text"), [
    ("mul", 3, "`g * b, g * a`"), ("tanh", 3, "`g * (1 - y * y)`"), ("less", 3, "no"),
    ("div", 3, "`g / b, -(g * y / b)`"), ("softmax", 3, "yes"), ("argmax", 3, "no"),
    ("matmul", 4, "f64[3, 5], f64[5, 4] → f64[3, 4]"), ("matmul", 5, "120"), ("matmul", 6, "376"),
    ("exp", 5, "15"), ("sum", 5, "15"), ("transpose", 5, "0"), ("bitwise_and", 2, "sub"),
    ("top_k", 4, "f64[3, 5] → f64[3, 2], i32[3, 2]"), ("gemv", 5, "30"),
    ("where", 4, "bool[3, 5], f64[3, 5], f64[3, 5] → f64[3, 5]"),
])
def test_what_a_row_says(name: str, cell: int, text: str) -> None:
    assert rows()[name][cell] == text
