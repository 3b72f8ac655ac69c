"""The costs of a function's kernels on a processor, as a table, as data or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ztorch.errors import ConfigError
from ztorch.terminal.text_table import aligned_table
from ztorch.tune.peaks import Peaks
from ztorch.tune.roofline import Point, draw_roofline


@dataclass(frozen=True)
class KernelTime:
    """The cost of a kernel of a function."""

    name: str
    layers: tuple[str, ...]  # the layers whose values it computes
    runs: int  # number of runs in a call of the function, at most
    flops: int  # FLOPs of a run
    issues: int  # instructions of a run for its elements beside products, one for each lane
    bytes: int  # bytes that a run reads and writes, each buffer once
    cycles: float  # cycles of a run, estimated by the compiler
    least_cycles: float  # minimum cycles of a run, for its FLOPs, instructions or bytes
    bound: str  # which of them gives the minimum: compute, issue or memory
    schedule: str  # its schedule as text
    tuned: bool  # whether the schedule was found by `tune`
    why: tuple[str, ...]  # its fused ops, and the reasons for not fusing more
    seconds: float | None = None  # measured seconds of a run
    least_seconds: float | None = None  # minimum seconds of a run on this machine

    @property
    def share(self) -> float:
        """The reached share of the best possible speed: measured, else estimated."""
        if self.seconds is not None and self.least_seconds is not None:
            return self.least_seconds / self.seconds
        return self.least_cycles / max(self.cycles, self.least_cycles, 1.0)

    @property
    def cost(self) -> float:
        """The cost of all runs: seconds if they were measured, else cycles."""
        return self.runs * (self.cycles if self.seconds is None else self.seconds)


@dataclass(frozen=True)
class FunctionTimes:
    """The result of `explain`: the kernels of a function. It prints as a table."""

    name: str  # name of the function and its model
    device: str  # name of the target
    processor: str  # the row of `machines/processors.py` that was used
    kernels: tuple[KernelTime, ...]  # in the order of their runs
    threads: int  # number of worker threads
    peaks: Peaks | None = None  # peak rates of one thread; None if nothing was measured

    @property
    def measured(self) -> bool:
        """Whether the kernels were run."""
        return self.peaks is not None

    @property
    def total(self) -> float:
        """The cost of all kernels: seconds if they were measured, else cycles."""
        return sum(k.cost for k in self.kernels)

    def to_json(self) -> dict[str, Any]:
        """The result as data for JSON."""
        return {**asdict(self), "kernels": [{**asdict(k), "share": k.share} for k in self.kernels]}

    def __str__(self) -> str:
        return self.text()

    def text(self, rows: int = 20, why: bool = True) -> str:
        """The table of kernels, the most expensive first. Kernels of equal work, schedule and time,
        such as those of repeated blocks, share a row.

        Args:
            rows: The number of rows of the table. Default: `20`.
            why: Whether lines below each kernel show its schedule and the limits of fusion.
                Default: `True`.
        """
        groups = _groups(self.kernels)
        lines = aligned_table(
            [_headings(self), *(_cells(group, self) for group in groups[:rows])]).split("\n")
        text = [f"{self.name} on {self.device} ({self.processor}), {_how(self)}", "", lines[0]]
        for (k, *others), line in zip(groups, lines[1:], strict=False):
            text.append(line)
            if why:
                tuned = " (found by tune)" * k.tuned
                like_it = [f"like it: {_numbers(others)}"] if others else []
                text += [f"    {line}" for line in (f"{k.schedule}{tuned}", *like_it, *k.why)]
        if rest := sum(map(len, groups[rows:])):
            text.append(f"... and {rest} more kernels")
        return "\n".join((*text, "", _totals(self)))

    def plot(self, path: str) -> Any:
        """Draws a roofline plot of the kernels, with a point for each row of the table.

        Args:
            path: A PNG, SVG or PDF file to write.

        Returns:
            The matplotlib figure.
        """
        points = [Point(k.name + (f" and {len(others)} like it" if others else ""), k.flops,
                        k.bytes, k.seconds, (1 + len(others)) * k.cost / self.total)
                  for k, *others in _groups(self.kernels) if k.flops and k.bytes and k.seconds]
        if self.peaks is None or not points:
            raise ConfigError(f"{self.name}: a roofline plot needs measured kernels with "
                              "arithmetic; explain with measure=True")
        return draw_roofline(f"{self.name} on {self.device}", points, self.peaks, path)


def _groups(kernels: Sequence[KernelTime]) -> list[list[KernelTime]]:
    """Kernels of equal work, schedule and time, those that take longest together first."""
    groups: dict[tuple[object, ...], list[KernelTime]] = {}
    for k in kernels:
        fuses = [line for line in k.why if line.startswith("fuses")]
        groups.setdefault((k.schedule, k.tuned, k.runs, k.flops, k.bytes, k.cost, *fuses),
                          []).append(k)
    return sorted(groups.values(), key=lambda group: -sum(k.cost for k in group))


def _numbers(kernels: Sequence[KernelTime]) -> str:
    """The numbers with which the names of kernels begin, a few of them.

    >>> _numbers([])
    ''
    """
    shown = [k.name.partition("_")[0] for k in kernels]
    return ", ".join(shown if len(shown) < 14 else [*shown[:12], f"... ({len(shown)})"])


def _how(f: FunctionTimes) -> str:
    if f.peaks is None:
        return "estimated: cycles of one worker; measure=True or --measure runs the kernels"
    return f"measured, {f.threads} thread{'s' * (f.threads > 1)} at most"


def _headings(f: FunctionTimes) -> tuple[str, ...]:
    time = ("us each", "at best") if f.measured else ("cycles", "at best")
    return ("kernel", "runs", *time, "share", "MFLOP", "kB", "bound", "of best")


def _cells(group: Sequence[KernelTime], f: FunctionTimes) -> tuple[str, ...]:
    k = group[0]
    each, least = (f"{x:,.2f}" if f.measured else f"{x:,.0f}" for x in _each(k))
    cost = sum(k.cost for k in group)
    return (k.name, f"{k.runs * len(group):,}", each, least, f"{cost / (f.total or 1.0):.0%}",
            _short(k.flops / 1e6), _short(k.bytes / 1e3), k.bound, f"{k.share:.0%}")


def _each(k: KernelTime) -> tuple[float, float]:
    """The time of a run and the least that it can take: microseconds if measured, else cycles."""
    if k.seconds is None or k.least_seconds is None:
        return k.cycles, k.least_cycles
    return k.seconds * 1e6, k.least_seconds * 1e6


def _short(x: float) -> str:
    """A number with three digits or more, without an exponent if it is large.

    >>> _short(0.01234), _short(12345.6)
    ('0.0123', '12,346')
    """
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _totals(f: FunctionTimes) -> str:
    runs = sum(k.runs for k in f.kernels)
    work = sum(k.runs * k.flops for k in f.kernels)
    moved = sum(k.runs * k.bytes for k in f.kernels)
    least = sum(k.runs * _each(k)[1] for k in f.kernels)
    amount = f"{runs:,} kernels, {_short(work / 1e9)} GFLOP, {_short(moved / 1e6)} MB"
    if f.peaks is None:
        return f"{amount}, {f.total:,.0f} cycles; at best {least:,.0f}"
    rates = ", ".join(f"{rate / 1e9:,.0f} from {size >> 10:,} KiB" for size, rate in f.peaks.reads)
    total = f.total * 1e6
    return (f"{amount}, {total:,.1f} us: {_short(work / max(total, 1e-9) / 1e3)} GFLOP/s; at best "
            f"{least:,.1f} us, {least / max(total, 1e-9):.0%}\n"
            f"one thread here: {f.peaks.flops / 1e9:,.1f} GFLOP/s; GB/s: {rates}")
