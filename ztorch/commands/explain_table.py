"""The output of `ztorch explain`: a line for each kernel, and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.commands.table import table

if TYPE_CHECKING:
    from ztorch.performance.step import FunctionPrediction, LaunchPrediction

HEADINGS = ("kernel", "launches", "µs each", "share", "bound", "TFLOP/s", "GB/s", "groups",
            "registers", "occupancy", "lines/request", "conflicts")
MEASURED = ("measured µs", "of predicted")  # the columns where a GPU of this machine ran them


def as_text(title: str, device: str, predicted: FunctionPrediction, rows: int) -> str:
    """The table of kernels, those that take longest first, and the totals of a call."""
    work = sum(_seconds(k) for k in predicted.kernels) or 1.0
    longest = sorted(predicted.kernels, key=_taken, reverse=True)
    lines = [_line(k, work) for k in longest[:rows]]
    here = predicted.measured_seconds
    headings = HEADINGS if here is None else (*HEADINGS, *MEASURED)
    left = predicted.kernels[rows:] and f"\n... and {len(predicted.kernels) - rows} more kernels"
    bounds = {"launches": predicted.gaps}
    for k in predicted.kernels:
        bounds[k.kernel.bound] = bounds.get(k.kernel.bound, 0.0) + _seconds(k)
    whole = sum(bounds.values())
    shares = ", ".join(f"{bound} {seconds / whole:.0%}" for bound, seconds in sorted(
        bounds.items(), key=lambda item: -item[1]))
    resident = "; all data fit its shared cache" * predicted.cached
    totals = (
        *((("measured", f"{here * 1e6:,.1f} µs"),) if here is not None else ()),
        ("time", f"{predicted.seconds * 1e6:,.1f} µs, of them {predicted.gaps * 1e6:,.1f} between "
                 "launches"),
        ("launches", f"{predicted.launches:,} in {predicted.waves:,} waves, which read and write "
         f"{predicted.moved_bytes / predicted.launches / 1e3:,.4g} KB each on average"),
        ("work", f"{predicted.flops / 1e9:,.4g} GFLOP, {predicted.memory_bytes / 1e6:,.4g} MB of "
                 f"memory{resident}"),
        ("bound", shares))
    return "\n".join((f"{title} on {predicted.gpu.name} ({device}), "
                      f"{'predicted, not measured' if here is None else 'predicted and measured'}",
                      "", table([headings, *lines]) + (left or ""), "", table(totals)))


def _seconds(k: LaunchPrediction) -> float:
    return k.kernel.seconds * k.launches


def _taken(k: LaunchPrediction) -> float:
    """Seconds by which kernels are sorted: measured where that was done."""
    return k.launches * (k.kernel.seconds if k.measured_seconds is None else k.measured_seconds)


def _line(k: LaunchPrediction, work: float) -> tuple[str, ...]:
    p = k.kernel
    registers = f"{p.registers}" if p.spilled is None else f"{p.registers}, {p.spilled} B spilled"
    return (p.name, f"{k.launches}", f"{p.seconds * 1e6:.2f}", f"{_seconds(k) / work:.0%}", p.bound,
            f"{p.flops / p.seconds / 1e12:.3g}", f"{p.memory_bytes / p.seconds / 1e9:.0f}",
            f"{p.groups:,}", registers, f"{p.occupancy:.0%}", f"{p.transactions:.1f}",
            f"{p.conflicts:.2f}", *_measured(k))


def _measured(k: LaunchPrediction) -> tuple[str, ...]:
    if k.measured_seconds is None:
        return ()
    return (f"{k.measured_seconds * 1e6:.2f}",
            f"{k.measured_seconds / k.kernel.seconds:.2f}" if k.kernel.seconds else "–")
