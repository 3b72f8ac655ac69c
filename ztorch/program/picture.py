"""Draws a compiled function: its kernels in order, and its buffers in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ztorch.errors import ConfigError, unknown
from ztorch.files.figures import add_legend, add_rectangle, new_figure, save_figure
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, public_functions

_COLORS = ("#2f6fdb", "#e8702a", "#2a9d62", "#b23a8e", "#c9a227", "#7a5cd6", "#d0312d", "#1f9aa8",
           "#8a6d3b", "#5b7083")
_NO_LAYER = "#9aa3ad"  # of kernels without a layer
_MOST_NAMES = 70  # with more kernels, their names would overlap


def draw_plan(spec: ProgramSpec, function: str,
              path: str | os.PathLike[str] | None = None) -> Any:
    """Draws the plan of a function. Three panels share the kernels as their axis: the estimated
    fraction of work of each, the buffers as rectangles (lifetime by place in the arena), and the
    bytes in use.

    Args:
        spec: Describes the program.
        function: The name of the function.
        path: A PNG, SVG or PDF file to write; None writes no file. Default: `None`.

    Returns:
        The matplotlib figure.

    Examples:
        ```python
        draw_plan(program.executable.spec, "train", "plan.svg")
        ```
    """
    if function not in spec.functions:
        raise unknown("function", function, public_functions(spec.functions))
    f = spec.functions[function]
    if not f.kernels:
        raise ConfigError(f"{function} of {spec.name!r} has no plan to draw")
    layers = layers_of(f)
    colors = {layer: _COLORS[k % len(_COLORS)] for k, layer in enumerate(layers)}
    width = min(40.0, max(8.0, 3.0 + 0.32 * len(f.kernels)))
    figure = new_figure(width, 8.5)
    work, arena, alive = figure.subplots(3, 1, sharex=True,
                                         gridspec_kw={"height_ratios": (1.3, 3.2, 1.2)})
    _work(work, f, layers, colors)
    _arena(arena, f, colors)
    _alive(alive, f)
    for axes in (work, arena, alive):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, axis="y", color="#e3e3e3", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
    _names(alive, f)
    _legend(figure, colors)
    figure.suptitle(f"{spec.name}: {function} on {spec.where}", x=0.01, ha="left",
                    fontsize=13, fontweight="bold")
    if path is not None:
        save_figure(figure, path)
    return figure


def layers_of(f: FunctionSpec) -> list[str]:
    """The layers that buffers and kernels name, in order of their first kernel."""
    layers = {label.partition(":")[0] for label, *_ in f.buffers if ":" in label}
    computed = dict.fromkeys(layer_of(name, layers) for name, _ in f.kernels)
    return [layer for layer in (*computed, *sorted(layers - set(computed))) if layer]


def layer_of(kernel: str, layers: Iterable[str]) -> str:
    """The layer in the name of a kernel; empty if it is none of these.

    >>> layer_of("k3_dense_1_matmul_add", ["dense", "dense_1"])
    'dense_1'
    """
    words = kernel.partition("_")[2]
    fits = [layer for layer in layers if words == layer or words.startswith(f"{layer}_")]
    return max(fits, key=len, default="")


def alive(buffers: Iterable[tuple[str, int, int, int, int]], kernels: int) -> list[int]:
    """The bytes in use while each kernel runs.

    >>> alive([("a", 64, 0, 1, 0), ("b", 32, 1, 2, 64)], 3)
    [64, 96, 32]
    """
    total = [0] * kernels
    for _, size, first, last, _ in buffers:
        for k in range(first, min(last, kernels - 1) + 1):
            total[k] += size
    return total


def _work(axes: Any, f: FunctionSpec, layers: Sequence[str], colors: dict[str, str]) -> None:
    cycles = [c for _, c in f.kernels]
    total = sum(cycles) or 1.0
    axes.bar(range(len(cycles)), [100 * c / total for c in cycles], width=0.86,
             color=[colors.get(layer_of(name, layers), _NO_LAYER) for name, _ in f.kernels])
    for k, c in enumerate(cycles):
        if c >= 0.01 * total:
            axes.annotate(f"{100 * c / total:.0f}%", (k, 100 * c / total), ha="center",
                          va="bottom", fontsize=7, xytext=(0, 1), textcoords="offset points")
    axes.set_ylabel("share of cycles, %", fontsize=9)
    axes.margins(y=0.12)
    axes.set_title(f"{len(cycles)} kernels, about {_count(total)} cycles of one worker",
                   loc="left", fontsize=9.5)


def _arena(axes: Any, f: FunctionSpec, colors: dict[str, str]) -> None:
    n = len(f.kernels)
    top = max((at + size for _, size, _, _, at in f.buffers), default=0)
    scale, unit = _unit(top)
    per_kernel = axes.figure.get_figwidth() * 72 / (n + 2)  # points
    for label, size, first, last, at in f.buffers:
        color = colors.get(label.partition(":")[0], _NO_LAYER)
        width, height = last - first + 0.86, size / scale
        add_rectangle(axes, first - 0.43, at / scale, width, height, facecolor=color, alpha=0.75,
                      edgecolor="white", linewidth=0.6)
        text = f"{label}  {_bytes(size)}"
        # Text only where it fits: the panel is about 260 points high, a character 3.6 points wide.
        upright = width * per_kernel < 3.6 * len(text)
        tall, long = (3.6 * len(text), 7) if upright else (8, 3.6 * len(text))
        if top and 260 * size / top >= tall and width * per_kernel >= long:
            axes.text(first - 0.43 + width / 2, at / scale + height / 2, text, color="white",
                      ha="center", va="center", fontsize=6.5, rotation=90 if upright else 0)
    axes.set_ylim(0, top / scale * 1.03 if top else 1)
    axes.set_xlim(-0.6, n - 0.4)
    axes.set_ylabel(f"place in the arena, {unit}", fontsize=9)
    if f.buffers:
        axes.set_title(f"{len(f.buffers)} buffers in an arena of {_bytes(top)}; unshared they "
                       f"would take {_bytes(sum(size for _, size, *_ in f.buffers))}", loc="left",
                       fontsize=9.5)
    else:
        axes.set_title("no buffers: every result is written to its final place", loc="left",
                       fontsize=9.5)


def _alive(axes: Any, f: FunctionSpec) -> None:
    n = len(f.kernels)
    total = alive(f.buffers, n)
    most = max(total)
    scale, unit = _unit(most)
    heights = [t / scale for t in total]
    edges = [k - 0.5 for k in range(n + 1)]
    axes.stairs(heights, edges, fill=True, color="#cdd9ef")
    axes.stairs(heights, edges, color="#2f4f8f", linewidth=1.4)
    axes.set_ylabel(f"alive, {unit}", fontsize=9)
    axes.set_ylim(0, most / scale * 1.3 if most else 1)
    if most:
        at = total.index(most)
        axes.axhline(most / scale, color="#b03030", linewidth=0.8, linestyle="--")
        right = at > n / 2
        axes.annotate(f"peak {_bytes(most)} in {f.kernels[at][0]}", (at, most / scale),
                      xytext=(0, 4), textcoords="offset points", fontsize=8, color="#b03030",
                      ha="right" if right else "left")


def _names(axes: Any, f: FunctionSpec) -> None:
    n = len(f.kernels)
    if n <= _MOST_NAMES:
        labels = [f"{k}  {name.partition('_')[2]}" for k, (name, _) in enumerate(f.kernels)]
        axes.set_xticks(range(n), labels, rotation=90, fontsize=7)
    else:
        axes.set_xlabel("kernel", fontsize=9)


def _legend(figure: Any, colors: dict[str, str]) -> None:
    add_legend(figure, dict(list(colors.items())[:12]))


def _unit(most: int) -> tuple[int, str]:
    for scale, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if most >= 2 * scale:
            return scale, unit
    return 1, "bytes"


def _bytes(size: int) -> str:
    scale, unit = _unit(size)
    return f"{size / scale:.4g} {unit}"


def _count(x: float) -> str:
    for scale, word in ((1e9, "billion"), (1e6, "million")):
        if x >= scale:
            return f"{x / scale:.3g} {word}"
    return f"{x:,.0f}"
