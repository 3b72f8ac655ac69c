"""The costs of a function's kernels on a processor, as a table, as data or as a picture."""

from __future__ import annotations

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
    bytes: int  # bytes that a run reads and writes, each buffer once
    cycles: float  # cycles of a run, estimated by the compiler
    least_cycles: float  # minimum cycles of a run, for its FLOPs or its bytes
    bound: str  # which of them gives the minimum: compute or memory
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
        """The table of kernels, the most expensive first.

        Args:
            rows: The number of kernels in the table. Default: `20`.
            why: Whether lines below each kernel show its schedule and the limits of fusion.
                Default: `True`.
        """
        longest = sorted(self.kernels, key=lambda k: -k.cost)
        lines = aligned_table(
            [_headings(self), *(_cells(k, self) for k in longest[:rows])]).split("\n")
        text = [f"{self.name} on {self.device} ({self.processor}), {_how(self)}", "", lines[0]]
        for k, line in zip(longest, lines[1:], strict=False):
            text.append(line)
            if why:
                tuned = " (found by tune)" * k.tuned
                text += [f"    {line}" for line in (f"{k.schedule}{tuned}", *k.why)]
        if len(longest) > rows:
            text.append(f"... and {len(longest) - rows} more kernels")
        return "\n".join((*text, "", _totals(self)))

    def plot(self, path: str) -> Any:
        """Draws a roofline plot of the kernels.

        Args:
            path: A PNG, SVG or PDF file to write.

        Returns:
            The matplotlib figure.
        """
        points = [Point(k.name, k.flops, k.bytes, k.seconds, k.cost / self.total)
                  for k in sorted(self.kernels, key=lambda k: -k.cost)
                  if k.flops and k.bytes and k.seconds]
        if self.peaks is None or not points:
            raise ConfigError(f"{self.name}: a roofline plot needs measured kernels with "
                              "arithmetic; explain with measure=True")
        return draw_roofline(f"{self.name} on {self.device}", points, self.peaks, path)


def _how(f: FunctionTimes) -> str:
    if f.peaks is None:
        return "estimated: cycles of one worker; measure=True or --measure runs the kernels"
    return f"measured, {f.threads} thread{'s' * (f.threads > 1)} at most"


def _headings(f: FunctionTimes) -> tuple[str, ...]:
    time = ("us each", "at best") if f.measured else ("cycles", "at best")
    return ("kernel", "runs", *time, "share", "MFLOP", "kB", "bound", "of best")


def _cells(k: KernelTime, f: FunctionTimes) -> tuple[str, ...]:
    if k.seconds is None or k.least_seconds is None:
        each, least = f"{k.cycles:,.0f}", f"{k.least_cycles:,.0f}"
    else:
        each, least = f"{k.seconds * 1e6:,.2f}", f"{k.least_seconds * 1e6:,.2f}"
    return (k.name, f"{k.runs:,}", each, least, f"{k.cost / (f.total or 1.0):.0%}",
            f"{k.flops / 1e6:,.3g}", f"{k.bytes / 1e3:,.4g}", k.bound, f"{k.share:.0%}")


def _totals(f: FunctionTimes) -> str:
    work, moved = (sum(getattr(k, field) * k.runs for k in f.kernels)
                   for field in ("flops", "bytes"))
    runs = sum(k.runs for k in f.kernels)
    amount = f"{runs:,} kernels, {work / 1e9:,.4g} GFLOP, {moved / 1e6:,.4g} MB"
    if f.peaks is None:
        return f"{amount}, {f.total:,.0f} cycles"
    rates = ", ".join(f"{rate / 1e9:,.0f} from {size >> 10:,} KiB" for size, rate in f.peaks.reads)
    return (f"{amount}, {f.total * 1e6:,.1f} us\n"
            f"one thread here: {f.peaks.flops / 1e9:,.1f} GFLOP/s; GB/s: {rates}")
