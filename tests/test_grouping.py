"""Cases that share an item of pytest are still tests of their own."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cases import inner_loop, turns
from tests.cases.grouping import Group, run_cases, together

RNG = np.random.default_rng(0)
seen: list[Any] = []


def items(test: Any) -> dict[str, Group]:
    [mark] = [m for m in test.pytestmark if m.name == "parametrize"]
    return {p.id: p.values[0] for p in mark.args[1]}


def request_of(test: str) -> Any:
    node = SimpleNamespace(nodeid=f"tests/test_grouping.py::{test}[all]", user_properties=[])
    return SimpleNamespace(node=node, module=SimpleNamespace(RNG=RNG))


def test_an_item_for_each_value_with_the_names_that_pytest_gives() -> None:
    @together(by="d", of=2)
    @pytest.mark.parametrize("d", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
    @pytest.mark.parametrize(("op", "number"), [("add", 1), ("add", 1), (len, None)])
    def tried(op: Any, number: int, d: str) -> None:
        """Never called."""

    made = items(tried)
    assert {title: list(group) for title, group in made.items()} == {
        "f32-0": ["add-1-f32", "add-1-f321"], "f32-1": ["len-None-f32"],
        "f64-0-slow": ["add-1-f64", "add-1-f641"], "f64-1-slow": ["len-None-f64"]}
    assert made["f32-1"]["len-None-f32"] == {"op": len, "number": None, "d": "f32"}


def test_a_failure_does_not_stop_other_cases() -> None:
    def tried(number: int) -> None:
        seen.append(number)
        assert number % 2 == 0, f"{number} is odd"

    seen.clear()
    request = request_of("tried")
    with pytest.raises(AssertionError) as caught:
        run_cases(request, tried, {f"case {n}": {"number": n} for n in range(1, 5)})
    assert seen == [1, 2, 3, 4]
    assert str(caught.value).startswith("2 of 4 cases failed, 'case 1' as above:\n  case 1: AssertionError: 1 is odd")
    assert "case 3: AssertionError: 3 is odd" in str(caught.value) and "case 2" not in str(caught.value)
    assert "--case 'case 1'" in str(caught.value)


def test_a_case_draws_the_same_numbers_in_any_order() -> None:
    def tried() -> None:
        seen.append(RNG.random())

    seen.clear()
    run_cases(request_of("tried"), tried, {"a": {}, "b": {}})
    run_cases(request_of("tried"), tried, {"b": {}})
    assert seen[1] == seen[2] != seen[0]


def test_only_where_all_cases_are_skipped_the_item_is() -> None:
    def tried(why: str) -> None:
        if why:
            pytest.skip(why)

    request = request_of("tried")
    run_cases(request, tried, {"a": {"why": "no device"}, "b": {"why": ""}})
    assert request.node.user_properties == [("cases", 1)]
    with pytest.raises(pytest.skip.Exception, match="no device"):
        run_cases(request, tried, {"a": {"why": "no device"}})


def test_options_choose_cases() -> None:
    group = Group({"a": {"x": 1}, "b": {"x": 2}})

    def chosen(*marks: str, **options: Any) -> list[str]:
        config = SimpleNamespace(getoption={"case": "", "few": False, **options}.__getitem__)
        item = SimpleNamespace(config=config, get_closest_marker=dict.fromkeys(marks, True).get)
        return list(group.chosen(item))  # type: ignore[arg-type]

    assert chosen() == ["a", "b"] and chosen(few=True) == ["a"] and chosen(case="b") == ["b"]
    assert chosen("cheap", few=True) == ["a", "b"]


class Item:
    """What turns ask an item of pytest for."""

    def __init__(self, name: str, group: Group | None = None):
        self.nodeid = name
        self.callspec = SimpleNamespace(params={"group": group})


def test_consecutive_turns_run_each_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PARTS", {"tests/a": 2, "tests/a/test_c.py::test_d": 3})
    all_ = [Item(f"tests/{test}[{k}]") for test in ("a/test_b.py::test_b", "a/test_c.py::test_d", "test_e.py::test_e")
            for k in range(5)]
    kept = [[i.nodeid for i in all_ if i not in turns.left_for_other_days(all_, turn)] for turn in range(6)]
    for test, parts in (("a/test_b", 2), ("a/test_c", 3)):
        taken = [name for turn in kept[:parts] for name in turn if test in name]
        assert len(taken) == len(set(taken)) == 5
    assert all(len([n for n in turn if "test_e" in n]) == 5 for turn in kept)


def test_a_selected_group_runs_all_its_cases_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PARTS", {"tests/test_a.py": 2})
    taken = []
    for turn in range(2):
        group = Group({name: {} for name in "abcde"})
        assert not turns.left_for_other_days([Item("tests/test_a.py::test_a[all]", group)], turn)
        taken += group
    assert sorted(taken) == [*"abcde"]


def test_every_entry_of_the_turns_exists() -> None:
    root = Path(__file__).parents[1]
    for name in turns.PARTS:
        path, _, test = name.partition("::")
        assert (root / path).exists() and f"def {test}" in ((root / path).read_text() if test else "def "), name


def test_the_inner_loop_leaves_out_tests_that_exist() -> None:
    names = inner_loop.left_out()
    assert len(names) > 100
    root = Path(__file__).parents[1]

    def everything_in(path: Path) -> str:
        """The text of a file and of those in tests/cases from which it imports everything."""
        text = path.read_text()
        shared = re.findall(r"^from tests\.cases\.(\w+) import \*", text, re.MULTILINE)
        return "\n".join([text, *(everything_in(root / f"tests/cases/{name}.py") for name in shared)])

    def exists(name: str) -> bool:
        path, _, test = name.partition("::")
        last = test.rpartition(".")[2]  # of the name of an example
        text = everything_in(root / path)
        return f"def {last}(" in text or f"class {last}" in text or Path(path).stem == last

    assert [name for name in sorted(names) if not exists(name)] == []
