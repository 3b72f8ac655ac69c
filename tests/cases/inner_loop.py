"""The tests that `--few` leaves out: those whose first case takes long, listed in `inner_loop.txt`.

Where files or folders are named, as in `python -m pytest --few tests/lower`, none of their tests is left
out. `python -m pytest --few --update-few` runs all and writes the list anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_suffix(".txt")
LONG = 0.1  # seconds: quicker tests stay in the inner loop
LONGEST = 0.45  # seconds from which on the quickest test of a file does not stay, either


def name_of(nodeid: str) -> str:
    """The test of an item, without its case.

    >>> name_of("tests/test_house.py::test_floors[ztorch/abi.py]")
    'tests/test_house.py::test_floors'
    """
    return nodeid.partition("[")[0]


def runs_every_case(item: pytest.Item) -> bool:
    """Whether all cases of a test are in the inner loop: it is marked as `cheap`."""
    return item.get_closest_marker("cheap") is not None


def first_value(values: Iterable[Any], ids: Any = None, **options: Any) -> dict[str, Any]:
    """The arguments of a `parametrize` with only the first value that is not marked as slow or for --full: a run
    of first cases need not make items for the others.

    >>> first_value([pytest.param(3, marks=pytest.mark.slow), 4, 5], ["a", "b", "c"])
    {'argvalues': [4], 'ids': ['b']}
    """
    values = list(values)
    at = next((k for k, v in enumerate(values) if not any(
        m.name in ("slow", "full") for m in getattr(v, "marks", ()))), 0)
    return {"argvalues": values[at:at + 1], "ids": ids if ids is None or callable(ids) else [*ids][at:at + 1], **options}


def left_out() -> set[str]:
    """The tests of the list."""
    return set(LIST.read_text().split())


def too_long(seconds: dict[str, float]) -> list[str]:
    """Those of these tests that take long; of each file the quickest stays, unless it takes seconds.

    >>> too_long({"a.py::f": 3.0, "a.py::g": 0.4, "b.py::f": 0.1, "c.py::f": 2.0})
    ['a.py::f', 'c.py::f']
    """
    quickest: dict[str, str] = {}
    for name in sorted(seconds, key=seconds.__getitem__):
        quickest.setdefault(name.partition("::")[0], name)
    return sorted(n for n, s in seconds.items() if s >= (LONGEST if n in quickest.values() else LONG))


class Stopwatch:
    """A plugin that measures each test and writes the list."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = name_of(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):  # workers of xdist report to the process that writes
            LIST.write_text("".join(f"{name}\n" for name in too_long(self.seconds)))
