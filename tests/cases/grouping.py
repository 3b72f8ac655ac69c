"""Many cases in one item of pytest, which costs three milliseconds an item beside the test itself.

    @together(by="op")
    @pytest.mark.parametrize("d", DTYPES, ids=repr)
    @pytest.mark.parametrize("op", OPS)
    def test_value(op, d): ...

has one item for each op. Each case is still a test of its own: it has the name and the random numbers that
it would have as an item, and one that fails keeps no other from running. The error lists all that failed,
`-k` finds an item by the names of its cases, and `--case NAME` runs one alone. The inner loop (`--few`)
runs the first case of the first item; all cases of all items, if the test is marked as `cheap`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.cases import inner_loop

Test = Callable[..., None]


class Group(dict[str, dict[str, Any]]):
    """The cases of one item by name: the arguments that a test is called with."""

    def chosen(self, item: pytest.Item) -> dict[str, dict[str, Any]]:
        """Those that this run asks for."""
        names = [name for name in self if item.config.getoption("case") in ("", name)]
        few = item.config.getoption("few") and not inner_loop.runs_every_case(item)
        return {name: self[name] for name in names[:1 if few else None]}

    def keep(self, turn: int, of: int) -> None:
        """Only each `of`-th case, beginning elsewhere in each turn."""
        for at, name in enumerate(list(self)):
            if (at - turn) % of:
                del self[name]


def group_of(item: pytest.Item) -> Group | None:
    """The cases of an item that has several."""
    callspec = getattr(item, "callspec", None)
    group = callspec.params.get("group") if callspec else None
    return group if isinstance(group, Group) else None


Row = tuple[str, dict[str, Any], tuple]  # a case's name, arguments and marks


def named(value: Any, argument: str, number: int, ids: Any) -> str:
    """As pytest would call a value."""
    how = ids(value) if callable(ids) else ids[number] if ids is not None else None
    if how is not None:
        return str(how)
    if value is None or isinstance(value, (str, int, float, bool, complex)):
        return str(value)
    return str(getattr(value, "__name__", f"{argument}{number}"))


def rows(mark: pytest.Mark) -> Iterator[Row]:
    """The cases of a `parametrize`."""
    arguments, values = mark.args
    names = [n.strip() for n in arguments.split(",")] if isinstance(arguments, str) else list(arguments)
    ids = mark.kwargs.get("ids")
    ids = ids if ids is None or callable(ids) else list(ids)
    for number, value in enumerate(values):
        marked = isinstance(value, type(pytest.param()))
        each = value.values if marked else (value,) if len(names) == 1 else tuple(value)
        name = (marked and value.id) or (ids[number] if ids is not None and not callable(ids) else "-".join(
            named(v, n, number, ids) for v, n in zip(each, names, strict=True)))
        yield str(name), dict(zip(names, each, strict=True)), tuple(value.marks) if marked else ()


def groups(marks: list[pytest.Mark], by: str | Callable[..., str], of: int) -> Iterator[Any]:
    """The product of all `parametrize`, cut into items. Cases that are marked otherwise (`slow`, `full`)
    are in other items."""
    items: dict[tuple, tuple[list, list[tuple[str, dict[str, Any]]]]] = {}
    seen: dict[str, int] = {}
    for parts in itertools.product(*(list(rows(mark)) for mark in marks)):
        name = "-".join(part[0] for part in parts)
        count = seen[name] = seen.get(name, -1) + 1
        arguments = {n: v for part in parts for n, v in part[1].items()}
        title = by(**arguments) if callable(by) else next((part[0] for part in parts if by in part[1]), "")
        marked = {repr(m.mark): m for part in parts for m in part[2]}  # marks have no hash
        key = title, tuple(marked)
        items.setdefault(key, ([*marked.values()], []))[1].append((f"{name}{count or ''}", arguments))
    for (title, _), (marks_of_all, members) in items.items():
        for first in range(0, len(members), of):
            number = str(first // of) if len(members) > of else ""
            label = "-".join(t for t in (title, number, *(m.name for m in marks_of_all)) if t)
            yield pytest.param(Group(members[first:first + of]), marks=marks_of_all, id=label or "all")


def together(*, by: str | Callable[..., str] = "", of: int = 1000) -> Callable[[Test], Test]:
    """Above the `parametrize` of a test: one item for each value of the argument `by`, or for each name
    that `by` gives to the arguments of a case, with at most `of` cases. Without `by`, for all."""

    def decorate(test: Test) -> Test:
        marks = [m for m in test.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]
        params = list(groups(marks, by, of))
        grouped = {n for p in params for case in p.values[0].values() for n in case}
        fixtures = [p for n, p in inspect.signature(test).parameters.items() if n not in grouped]

        @functools.wraps(test)
        def run(request: pytest.FixtureRequest, group: Group, **others: Any) -> None:
            __tracebackhide__ = True
            run_cases(request, test, {n: {**arguments, **others}
                                      for n, arguments in group.chosen(request.node).items()})

        own = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in ("request", "group")]
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*own, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in fixtures)])
        run.pytestmark = [m for m in test.pytestmark if m.name != "parametrize"]  # type: ignore[attr-defined]
        return pytest.mark.parametrize("group", params)(run)

    return decorate


def run_cases(request: pytest.FixtureRequest, test: Test, calls: dict[str, dict[str, Any]]) -> None:
    """Calls a test for each case, and raises one error for all that failed."""
    __tracebackhide__ = True
    failed: dict[str, BaseException] = {}
    skipped: dict[str, pytest.skip.Exception] = {}
    path = request.node.nodeid.partition("[")[0]
    for name, arguments in calls.items():
        reseed(request.module, f"{path}[{name}]")
        try:
            test(**arguments)
        except pytest.skip.Exception as reason:
            skipped[name] = reason
        except (Exception, pytest.fail.Exception) as error:
            failed[name] = error
    request.node.user_properties.append(("cases", len(calls) - len(skipped)))
    if failed:
        first = next(iter(failed))
        lines = [f"  {n}: {type(e).__name__}: {str(e).strip().partition(chr(10))[0]}"
                 for n, e in failed.items()]
        raise AssertionError("\n".join([
            f"{len(failed)} of {len(calls)} cases failed, {first!r} as above:", *lines,
            f"again: python -m pytest '{request.node.nodeid}' --case '{first}'"])) from failed[first]
    if len(skipped) == len(calls):
        raise next(iter(skipped.values()))


def reseed(module: ModuleType | None, name: str) -> None:
    """Seeds the generators of a test file, and those that Keras and PyTorch draw weights from, by the name of
    a test, or of a case: it draws the same numbers alone and after others."""
    seed = zlib.crc32(name.encode())
    for value in vars(module).values() if module else ():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
