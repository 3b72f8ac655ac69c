"""The output of `ztorch explain`: a line for each kernel, and totals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ztorch.terminal.text_table import aligned_table

if TYPE_CHECKING:
    from ztorch.performance.step import FunctionPrediction, LaunchPrediction

HEADINGS = ("kernel", "launches", "µs each", "share", "bound", "TFLOP/s", "GB/s", "groups",
            "registers", "occupancy", "lines/request", "conflicts")
PARTS = 8  # that are listed of a launch that joins several kernels
MEASURED_HEADINGS = ("measured µs", "of predicted")  # if a GPU of this machine ran the kernels


def as_text(title: str, device: str, predicted: FunctionPrediction, rows: int) -> str:
    """The table of kernels, those that take longest first, and the totals of a call."""
    total_seconds = sum(_predicted_seconds(k) for k in predicted.kernels) or 1.0
    longest = sorted(predicted.kernels, key=_seconds, reverse=True)
    lines = [line for k in longest[:rows] for line in (_cells(k, total_seconds), *_part_cells(k))]
    measured = predicted.measured_seconds
    headings = HEADINGS if measured is None else (*HEADINGS, *MEASURED_HEADINGS)
    remaining = len(predicted.kernels) - rows
    more = f"\n... and {remaining} more kernels" if remaining > 0 else ""
    bounds = {"launches": predicted.gaps}
    for k in predicted.kernels:
        bounds[k.kernel.bound] = bounds.get(k.kernel.bound, 0.0) + _predicted_seconds(k)
    sum_of_bounds = sum(bounds.values())
    shares = ", ".join(f"{bound} {seconds / sum_of_bounds:.0%}" for bound, seconds in sorted(
        bounds.items(), key=lambda item: -item[1]))
    resident = "; all data fit its shared cache" * predicted.cached
    totals = (
        *((("measured", f"{measured * 1e6:,.1f} µs"),) if measured is not None else ()),
        ("time", f"{predicted.seconds * 1e6:,.1f} µs, of them {predicted.gaps * 1e6:,.1f} between "
                 "launches"),
        ("launches", f"{predicted.launches:,} in {predicted.waves:,} waves, which read and write "
         f"{predicted.moved_bytes / predicted.launches / 1e3:,.4g} KB each on average"),
        ("work", f"{predicted.flops / 1e9:,.4g} GFLOP, {predicted.memory_bytes / 1e6:,.4g} MB of "
                 f"memory{resident}"),
        ("bound", shares))
    kind = "predicted, not measured" if measured is None else "predicted and measured"
    return "\n".join((f"{title} on {predicted.gpu.name} ({device}), {kind}", "",
                      aligned_table([headings, *lines]) + more, "", aligned_table(totals)))


def _predicted_seconds(k: LaunchPrediction) -> float:
    return k.kernel.seconds * k.launches


def _seconds(k: LaunchPrediction) -> float:
    """The seconds by which kernels are sorted: measured ones if there are any."""
    return k.launches * (k.kernel.seconds if k.measured_seconds is None else k.measured_seconds)


def _cells(k: LaunchPrediction, total_seconds: float) -> tuple[str, ...]:
    p = k.kernel
    registers = f"{p.registers}" if p.spilled is None else f"{p.registers}, {p.spilled} B spilled"
    share = _predicted_seconds(k) / total_seconds
    return (p.name, f"{k.launches}", f"{p.seconds * 1e6:.2f}", f"{share:.0%}", p.bound,
            f"{p.flops / p.seconds / 1e12:.3g}", f"{p.memory_bytes / p.seconds / 1e9:.0f}",
            f"{p.groups:,}", registers, f"{p.occupancy:.0%}", f"{p.transactions:.1f}",
            f"{p.conflicts:.2f}", *_measured(k))


def _part_cells(k: LaunchPrediction) -> list[tuple[str, ...]]:
    """A line for each part of a launch that joins several kernels, with its time if it were alone;
    only those that take longest."""
    parts = sorted(k.kernel.joined, key=lambda p: -p.seconds)
    lines = [_cells(replace(k, kernel=replace(p, name=f"  {p.name}"), launches=1,
                            measured_seconds=None), math.inf) for p in parts[:PARTS]]
    lines = [(name, "part", us, "", *cells) for name, _, us, _, *cells in lines]
    if len(parts) > PARTS:
        lines.append((f"  ... and {len(parts) - PARTS} more parts", *[""] * (len(lines[0]) - 1)))
    return lines


def _measured(k: LaunchPrediction) -> tuple[str, ...]:
    if k.measured_seconds is None:
        return ()
    return (f"{k.measured_seconds * 1e6:.2f}",
            f"{k.measured_seconds / k.kernel.seconds:.2f}" if k.kernel.seconds else "–")
