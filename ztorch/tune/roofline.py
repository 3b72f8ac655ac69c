"""Draws a roofline plot: the speed of kernels under the limits of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.files.figures import new_figure, save_figure
from ztorch.tune.peaks import Peaks

LABELS = 12  # the number of kernels with a label: those that take longest


class Point(NamedTuple):
    """A kernel in the plot."""

    name: str
    flops: int  # FLOPs of a run
    bytes: int  # bytes of a run
    seconds: float  # seconds of a run
    share: float  # share of the total time


def draw_roofline(title: str, points: Sequence[Point], peaks: Peaks, path: str) -> Any:
    """Draws each kernel as a point under the roofs of one thread.

    The x axis is FLOPs per byte, the y axis GFLOP/s, and the area of a point its share of the time.

    Args:
        title: The program that the kernels belong to.
        points: The kernels, those that take longest first.
        peaks: The limits.
        path: A PNG, SVG or PDF file to write.

    Returns:
        The matplotlib figure.
    """
    figure = new_figure(10.5, 5.5)
    axes, names = figure.subplots(1, 2, gridspec_kw={"width_ratios": (3, 1)})
    x = np.array([p.flops / p.bytes for p in points])
    y = np.array([p.flops / p.seconds / 1e9 for p in points])
    along = np.geomspace(min(x.min(), 0.1) / 2, max(x.max(), 100.0) * 2, 200)
    for (size, rate), style in zip((peaks.reads[1], peaks.reads[-1]), ("-", "--"), strict=True):
        axes.plot(along, np.minimum(peaks.flops, along * rate) / 1e9, style, color="#5b7083",
                  linewidth=1.2, label=f"{rate / 1e9:,.0f} GB/s from {size >> 10:,} KiB")
    axes.scatter(x, y, [30 + 900 * p.share for p in points], color="#2f6fdb", alpha=0.55,
                 edgecolor="white")
    for p, at_x, at_y in list(zip(points, x, y, strict=True))[:LABELS]:
        axes.annotate(p.name.partition("_")[0], (at_x, at_y), fontsize=8, ha="center", va="center")
    names.axis("off")
    names.text(0, 1, "\n".join(f"{p.share:4.0%}  {p.name}" for p in points[:LABELS]), va="top",
               fontsize=7.5, family="monospace", linespacing=1.7)
    axes.set(xscale="log", yscale="log", xlabel="FLOPs for each byte", ylabel="GFLOP/s",
             title=f"{title}: one thread does {peaks.flops / 1e9:,.0f} GFLOP/s at best")
    axes.grid(True, color="#e3e3e3", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    save_figure(figure, path)
    return figure
