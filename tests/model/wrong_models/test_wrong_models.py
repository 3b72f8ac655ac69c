"""Every wrong model gets a message of its own, which a file beside this one holds for review.

After changing a message: python -m pytest tests/model/wrong_models --update-goldens, and read the diff.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.cases.grouping import together
from ztorch.errors import ZtorchError

HERE = Path(__file__).parent
FAMILIES = ("plain", "images", "sequences", "branches", "graphs", "training", "sizes")
CASES = {family: importlib.import_module(f"tests.model.wrong_models.{family}").CASES
         for family in FAMILIES}
EACH = [(family, name) for family, cases in CASES.items() for name in cases]


def golden(family: str) -> Path:
    return HERE / "goldens" / f"{family}.txt"


def goldens(family: str) -> dict[str, str]:
    """The messages of a family by the names of its cases: a line each, the message indented."""
    if not golden(family).exists():
        return {}
    lines = golden(family).read_text().splitlines()
    return {name: message.strip() for name, message in zip(lines[::3], lines[1::3], strict=True)}


def message(family: str, name: str) -> str:
    """The error that a case raises, with its kind."""
    with pytest.raises(ZtorchError) as caught:
        CASES[family][name]()
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("family", FAMILIES)
def test_messages(family: str, request: pytest.FixtureRequest) -> None:
    actual = {name: message(family, name) for name in CASES[family]}
    if request.config.getoption("--update-goldens"):
        text = "\n".join(f"{name}\n    {said}\n" for name, said in actual.items())
        golden(family).write_text(text)
    assert actual == goldens(family)


@together(by="family")
@pytest.mark.parametrize(("family", "name"), EACH, ids=[f"{f}: {n}" for f, n in EACH])
def test_each_message_helps(family: str, name: str) -> None:
    """One line of limited length for this case, without anything specific to this machine."""
    kind, _, said = goldens(family)[name].partition(": ")
    assert kind != "ZtorchError" and 20 < len(said) < 420 and "\n" not in said
    assert not re.search(r"0x[0-9a-f]{6}|/tmp/|/home/|object at", said)
    assert any(sign in said for sign in (";", ",", ":", " must ")), f"{said!r} names no fix"


def test_no_two_cases_share_a_message() -> None:
    """All differ, and not only by the names, numbers and shapes of the case."""
    messages = [m for f in FAMILIES for m in goldens(f).values()]
    assert len(messages) == len(EACH) >= 80
    assert not [m for m in messages if messages.count(m) > 1]
    kinds = {re.sub(r"'[^']*'|[\d.]+|\([^a-z]*\)", "_", m) for m in messages}
    assert len(kinds) >= 0.75 * len(messages)
