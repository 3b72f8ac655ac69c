"""Figures: the only module that imports matplotlib."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Mapping
from typing import Any

from ztorch.errors import ConfigError
from ztorch.files.atomic import write_atomic

_CSS_DPI = 96  # CSS pixels per inch


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches.

    >>> new_figure(4, 3).get_size_inches().tolist()
    [4.0, 3.0]
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('plots need matplotlib: pip install "ztorch[plot]"') from None
    # Not through pyplot, which keeps global state and may need a display.
    figure = _displayed(Figure)(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@functools.cache
def _displayed(figure: Any) -> Any:
    """A class of figures that notebooks display; by default, they display only those of pyplot."""

    class DisplayedFigure(figure):
        """A figure that notebooks display as a picture."""

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            image = io.BytesIO()
            self.savefig(image, format="png")
            width, height = (round(_CSS_DPI * inches) for inches in self.get_size_inches())
            return image.getvalue(), {"width": width, "height": height}

    return DisplayedFigure


def whole_ticks(axis: Any) -> None:
    """Puts the ticks of an axis at integers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def add_rectangle(axes: Any, x: float, y: float, width: float, height: float, **style: Any) -> None:
    """Draws a rectangle from its lower left corner; `style` goes to matplotlib."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, **style))


def add_legend(figure: Any, colors: Mapping[str, str]) -> None:
    """Adds a legend of colors below the figure."""
    from matplotlib.patches import Patch

    patches = [Patch(color=color, label=label) for label, color in colors.items()]
    if patches:
        figure.legend(handles=patches, loc="outside lower left", ncols=6, frameon=False,
                      fontsize=8)


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes a figure atomically, in the format that the suffix of the path names."""
    name, image = os.fspath(path), io.BytesIO()
    suffix = os.path.splitext(name)[1][1:].lower()
    if suffix not in figure.canvas.get_supported_filetypes():
        raise ConfigError(f"cannot plot to {name!r}: the name must end in .png, .svg or .pdf")
    figure.savefig(image, format=suffix)
    write_atomic(path, image.getvalue())
