"""Draws the layers of a model as boxes connected by arrows."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

from ztorch.arguments import checked
from ztorch.errors import ConfigError, Unsupported
from ztorch.files.atomic import write_atomic
from ztorch.files.figures import add_rectangle, new_figure, save_figure
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.layers.wiring import Wiring
from ztorch.names.keras_calls import as_in_keras

_WIDTH, _HEIGHT = 2.4, 0.7  # of a box, in inches
_GAP = 0.45  # between boxes
_DIRECTIONS = ("TB", "LR", "BT", "RL")  # of a drawing by Graphviz


@as_in_keras(ignored="show_dtype rankdir expand_nested dpi show_layer_activations show_trainable "
                     "splines")
@checked
def plot_model(model: Network, to_file: str | os.PathLike[str] | None = "model.png",
               show_shapes: bool = False, show_layer_names: bool = True) -> Any:
    """Draws a model: a box per layer, and arrows from each layer to the next.

    Args:
        model: A model whose inputs are known.
        to_file: A PNG, SVG or PDF file to write; None writes no file. Default: `"model.png"`.
        show_shapes: Whether boxes show the shapes of outputs. Default: `False`.
        show_layer_names: Whether boxes show the names of layers. Default: `True`.

    Returns:
        The matplotlib figure.

    Raises:
        ConfigError: matplotlib is not installed, or the inputs of the model are unknown.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(2)])
        >>> figure = plot_model(model, None)
        >>> [text.get_text() for text in figure.axes[0].texts][:2]
        ['input (Input)', 'dense (Dense)']
    """
    boxes, edges, shapes = _graph(model)
    rows = _rows(boxes, edges)
    widest = max(map(len, rows))
    width, height = widest * (_WIDTH + _GAP) + _GAP, len(rows) * (_HEIGHT + _GAP) + _GAP
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    at: dict[Layer, tuple[float, float]] = {}  # the top center of each box
    for k, row in enumerate(rows):
        for n, layer in enumerate(row):
            x = width / 2 + (n - (len(row) - 1) / 2) * (_WIDTH + _GAP)
            y = _GAP + k * (_HEIGHT + _GAP)
            at[layer] = (x, y)
            add_rectangle(axes, x - _WIDTH / 2, y, _WIDTH, _HEIGHT, facecolor="#eef3fc",
                          edgecolor="#2f6fdb")
            lines = _lines(layer, shapes, show_shapes, show_layer_names)
            axes.text(x, y + _HEIGHT / 2, "\n".join(lines), ha="center", va="center", fontsize=8)
    for source, target in edges:
        (x0, y0), (x1, y1) = at[source], at[target]
        axes.annotate("", (x1, y1), (x0, y0 + _HEIGHT), arrowprops={"arrowstyle": "->",
                                                                    "color": "#555555"})
    if to_file is not None:
        save_figure(figure, to_file)
    return figure


class DotText:
    """A graph in the language DOT, which Graphviz draws."""

    def __init__(self, lines: list[str]):
        self._lines = lines

    def to_string(self) -> str:
        """The text of the graph."""
        return "\n".join(["digraph G {", *(f"  {line};" for line in self._lines), "}", ""])

    def write(self, path: str | os.PathLike[str], prog: str = "dot", format: str = "raw") -> bool:
        """Writes the text to a file.

        Args:
            path: The file.
            prog: Has no effect. Default: `"dot"`.
            format: "raw" or "dot", which are the text. Default: `"raw"`.

        Returns:
            True.

        Raises:
            Unsupported: Another format, which Graphviz makes of the text.
        """
        if format not in ("raw", "dot"):
            raise Unsupported(f"model_to_dot writes text, and Graphviz makes {format!r} of it: "
                              f"dot -T{format} FILE; zt.utils.plot_model draws without Graphviz")
        write_atomic(path, self.to_string().encode())
        return True


@as_in_keras(ignored="show_dtype expand_nested dpi subgraph show_layer_activations "
                     "show_trainable splines")
@checked
def model_to_dot(model: Network, show_shapes: bool = False, show_layer_names: bool = True,
                 rankdir: str = "TB") -> DotText:
    """A model as a graph in the language DOT, which Graphviz draws: a box for each layer.

    Args:
        model: A model whose inputs are known.
        show_shapes: Whether boxes have the shapes of outputs. Default: `False`.
        show_layer_names: Whether boxes have the names of layers. Default: `True`.
        rankdir: "TB" draws from the top to the bottom, "LR" from left to right; "BT" and "RL"
            are their reverse. Default: `"TB"`.

    Returns:
        An object with `to_string()` and `write(path)`.

    Raises:
        ConfigError: The inputs of the model are not known, or there is no such direction.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(2)])
        >>> print(model_to_dot(model).to_string(), end="")
        digraph G {
          rankdir=TB;
          node [shape=record];
          0 [label="input (Input)"];
          1 [label="dense (Dense)"];
          0 -> 1;
        }
    """
    if rankdir not in _DIRECTIONS:
        raise ConfigError(f"model_to_dot(rankdir={rankdir!r}) must be one of "
                          f"{', '.join(_DIRECTIONS)}")
    boxes, edges, shapes = _graph(model)
    number = {layer: k for k, layer in enumerate(boxes)}
    labels = ["|".join(map(_escaped, _lines(layer, shapes, show_shapes, show_layer_names)))
              for layer in boxes]
    return DotText([f"rankdir={rankdir}", "node [shape=record]",
                    *(f'{k} [label="{label}"]' for k, label in enumerate(labels)),
                    *(f"{number[a]} -> {number[b]}" for a, b in edges)])


def _escaped(text: str) -> str:
    """A text without characters that mean something in a label of DOT.

    >>> print(_escaped('a"; {b}'))
    a\\"; \\{b\\}
    """
    return re.sub(r'([\\"{}|<>])', r"\\\1", text)


def _graph(model: Network) -> tuple[list[Layer], list[tuple[Layer, Layer]], dict[Any, Any]]:
    """The boxes of a model, its arrows, and the shapes of outputs by layer."""
    model.build()
    edges = _edges(model)
    inputs = model.inputs_by_name.values()
    shapes = {row.layer: row.shape for row in model.traced_layers() if row.depth == 0}
    shapes |= {x: x.row_shape for x in inputs}
    return list(dict.fromkeys([*inputs, *(b for edge in edges for b in edge)])), edges, shapes


def _lines(layer: Layer, shapes: dict[Any, Any], show_shapes: bool,
           show_layer_names: bool) -> list[str]:
    """The text in a box."""
    kind = type(layer).__name__
    lines = [f"{layer.name} ({kind})" if show_layer_names else kind]
    return [*lines, str(shapes.get(layer, ""))] if show_shapes else lines


def _edges(model: Network) -> list[tuple[Layer, Layer]]:
    """Pairs of layers of which the first is an input of the second."""
    wiring = getattr(model, "wiring", None)
    if not isinstance(wiring, Wiring):  # a chain of layers, or layers in the order of attributes
        row: list[Layer] = [*model.inputs_by_name.values(), *model.layers]
        return list(itertools.pairwise(row))
    edges: dict[tuple[Layer, Layer], None] = {}
    for call in wiring.calls:
        for symbol in call.inputs:
            assert isinstance(symbol.layer, Layer) and isinstance(call.layer, Layer)
            edges[symbol.layer, call.layer] = None
    return list(edges)


def _rows(boxes: list[Layer], edges: list[tuple[Layer, Layer]]) -> list[list[Layer]]:
    """The boxes, by their distance from the inputs."""
    depth = dict.fromkeys(boxes, 0)
    for _ in boxes:  # the longest path has at most this many steps
        deeper = {b: max(depth[b], depth[a] + 1) for a, b in edges
                  if not isinstance(b, Input) and depth[b] <= depth[a]}
        if not deeper or max(deeper.values()) > len(boxes):
            break
        depth.update(deeper)
    return [[b for b in boxes if depth[b] == k] for k in range(max(depth.values()) + 1)]
