"""The table of `ztorch explain`: the order of its kernels, their shares, and how many are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ztorch.commands.explain_table import as_text
from ztorch.machines.gpus import gpu
from ztorch.performance.prediction import KernelPrediction
from ztorch.performance.step import FunctionPrediction, LaunchPrediction

MICRO = 1e-6


def launch(name: str, seconds: float, launches: int, bound: str,
           measured: float | None = None) -> LaunchPrediction:
    kernel = KernelPrediction(name, "H200", 1, 32, 16, None, 0, 1, 0.5, 1e6, 1e12, 1e3, 1e3, 0.0, seconds, seconds, bound,
                              {}, ())
    return LaunchPrediction(kernel, launches, True, measured)


def page(rows: int, *measured: float | None) -> list[str]:
    kernels = tuple(launch(name, seconds * MICRO, launches, bound, m) for (name, seconds, launches, bound), m in zip(
        (("short", 2, 1, "memory"), ("repeated", 3, 5, "compute"), ("long", 10, 1, "memory")),
        measured or (None,) * 3, strict=True))
    total = sum(measured) if measured else None  # type: ignore[arg-type]
    return as_text("predict of m", "cuda:sm_90a", FunctionPrediction("predict", gpu("H200"), False, kernels,
                                                                     measured_seconds=total), rows).splitlines()


@pytest.mark.parametrize(("rows", "names", "more"), [
    (3, ["repeated", "long", "short"], ""), (4, ["repeated", "long", "short"], ""),
    (2, ["repeated", "long"], "... and 1 more kernels"), (1, ["repeated"], "... and 2 more kernels")])
def test_kernels_are_listed_by_the_time_of_all_their_launches(rows: int, names: list[str], more: str) -> None:
    lines = page(rows)
    assert lines[0] == "predict of m on H200 (cuda:sm_90a), predicted, not measured"
    assert [line.split()[0] for line in lines[3:3 + len(names)]] == names
    assert lines[3 + len(names)] == more
    assert lines[3].split()[:4] == ["repeated", "5", "3.00", "56%"]  # 15 of 27


def test_bounds_are_added_up() -> None:
    [bound] = [line for line in page(3) if line.startswith("bound")]
    shares = {part.split()[0]: int(part.split()[1][:-1]) for part in bound.removeprefix("bound").split(",")}
    assert shares["compute"] / shares["memory"] == pytest.approx(15 / 12, rel=0.1)
    assert [*shares.values()] == sorted(shares.values(), reverse=True) and abs(sum(shares.values()) - 100) <= 2


def test_measured_times_give_the_order() -> None:
    lines = page(3, 40 * MICRO, 1 * MICRO, 10 * MICRO)
    assert lines[0].endswith("predicted and measured") and [line.split()[0] for line in lines[3:6]] == [
        "short", "long", "repeated"]
    assert lines[3].split()[-2:] == ["40.00", "20.00"] and lines[5].split()[-2:] == ["1.00", "0.33"]


def test_parts_of_a_launch_are_listed_below_it() -> None:
    """At most eight, those that would take longest alone; a launch with parts is one of the rows."""
    parts = tuple(launch(f"part_{k}", k * MICRO, 1, "latency").kernel for k in range(1, 11))
    whole = launch("whole", 12 * MICRO, 1, "memory")
    whole = replace(whole, kernel=replace(whole.kernel, joined=parts))
    other = launch("other", 3 * MICRO, 1, "memory")
    lines = as_text("predict of m", "cuda:sm_90a", FunctionPrediction(
        "predict", gpu("H200"), False, (other, whole)), 1).splitlines()
    assert lines[3].split()[:4] == ["whole", "1", "12.00", "80%"]
    assert [line.split()[:3] for line in lines[4:12]] == [
        [f"part_{k}", "part", f"{k}.00"] for k in range(10, 2, -1)]
    assert all(line.startswith("  part_") for line in lines[4:12])
    assert lines[12:14] == ["  ... and 2 more parts", "... and 1 more kernels"]
