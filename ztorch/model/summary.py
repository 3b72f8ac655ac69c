"""The summary of a model: output shape, parameters, arithmetic and memory of each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ztorch.config import flag, positive
from ztorch.dtypes import DType, f32
from ztorch.errors import ConfigError, unknown
from ztorch.graph.flops import flops
from ztorch.layers.axes import whole_axes, whole_axes_reasons
from ztorch.layers.network import Network
from ztorch.layers.weight import Weight
from ztorch.runtime.snapshot import LayerRow
from ztorch.runtime.spec import shape_text

GAP = 2  # characters between columns


def layer_rows(model: Network, kept_as: Callable[[Weight], DType],
               sizes: Mapping[str, int] | None = None) -> tuple[LayerRow, ...]:
    """One row per layer, for an input of one example. A layer that consists of other layers has a
    row with only its own weights, so the rows add up.

    Args:
        model: The model.
        kept_as: The dtype in which a weight is stored.
        sizes: The sizes of open axes by name; None leaves them open. Default: `None`.
    """
    rows = []
    for traced in model.traced_layers(sizes):
        layer = traced.layer
        count = sum(w.size for w in layer.own_weights)
        rows.append(LayerRow(
            name=layer.path.removeprefix(f"{model.path}/"), class_=type(layer).__name__,
            depth=traced.depth, output_shape=_without_names(traced.shape),
            parameters=count, trainable=layer.trains,
            flops=sum(flops(v) for v in traced.nodes),
            bytes=sum(w.size * kept_as(w).bytes for w in layer.own_weights),
        ))
    return tuple(rows)


@dataclass(frozen=True)
class Shown:
    """How much of a table is shown, as in Keras.

    >>> Shown(line_length=20, positions=[0.5, 1.0]).widths([30, 4]), Shown(20).widths([30, 4])
    ([10, 8], [14, 4])
    """

    line_length: int | None = None  # characters
    positions: Sequence[float] | None = None  # where columns end
    expand_nested: bool = True
    layer_range: Sequence[str] | None = None  # names of the first and last layer

    def __post_init__(self) -> None:
        if self.line_length is not None:
            positive("summary(line_length=...)", self.line_length)
        for label, items, kinds in (("positions", self.positions, (int, float)),
                                    ("layer_range", self.layer_range, str)):
            if items is not None and not (isinstance(items, (list, tuple)) and items
                                          and all(isinstance(x, kinds) for x in items)):
                raise ConfigError(f"summary({label}={items!r}) must be a list of " + (
                    "numbers" if label == "positions" else "two names"))
        flag("summary(expand_nested=...)", self.expand_nested)
        if self.layer_range is not None and len(self.layer_range) != 2:
            raise ConfigError(f"summary(layer_range={self.layer_range!r}) takes two names")

    def widths(self, longest: Sequence[int]) -> list[int]:
        """The widths of columns, of which the longest cells are known."""
        if self.positions is None:
            rest = sum(longest[1:]) + GAP * (len(longest) - 1)
            first = longest[0] if self.line_length is None else max(1, self.line_length - rest)
            return [first, *longest[1:]]
        scale = (self.line_length or 80) if max(self.positions) <= 1 else 1
        ends = [0, *(round(p * scale) for p in self.positions)]
        set_here = [max(1, b - a - (GAP if k else 0)) for k, (a, b) in enumerate(pairwise(ends))]
        return [*set_here[:len(longest)], *longest[len(set_here):]]

    def rows(self, rows: Sequence[LayerRow]) -> list[LayerRow]:
        """The rows that are shown."""
        if self.layer_range is not None:
            names = [r.name for r in rows]
            if missing := [name for name in self.layer_range if name not in names]:
                raise unknown("layer", missing[0], names)
            first, last = map(names.index, self.layer_range)
            rows = rows[first:last + 1]
        return [r for r in rows if self.expand_nested or r.depth == 0]


def print_summary(model: Network, print_fn: Callable[[str], Any] = print,
                  show_trainable: bool = False, shown: Shown | None = None) -> None:
    """Prints the table of a model's layers, with totals, for float32."""
    shown = shown or Shown()
    rows = layer_rows(model, lambda w: f32)
    table: list[tuple[str, ...]] = [
        ("Layer (type)", "Output shape", "Parameters", "FLOPs", "Bytes",
         *(("Trainable",) if show_trainable else ()))]
    for r in shown.rows(rows if shown.expand_nested else _with_inner(rows)):
        name = "  " * r.depth + r.name.rpartition("/")[2]
        table.append((f"{name} ({r.class_})", shape_text(r.output_shape, "batch"),
                      f"{r.parameters:,}", "?" if whole_axes(model) else f"{r.flops:,}",
                      f"{r.bytes:,}", *(("yes" if r.trainable else "no",) if show_trainable
                                        else ())))
    widths = shown.widths([max(map(len, column)) for column in zip(*table, strict=True)])
    rule = "─" * (sum(widths) + GAP * (len(widths) - 1))

    def show(line: tuple[str, ...]) -> str:
        cells = [c.ljust(w) if k < 2 else c.rjust(w)
                 for k, (c, w) in enumerate((c if len(c) <= w else f"{c[:w - 1]}…", w)
                                            for c, w in zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    total = sum(r.parameters for r in rows)
    trainable = sum(w.size for w in model.weights if w.trains)
    size = sum(r.bytes for r in rows)
    print_fn(f"Model: {model.name}")
    print_fn("\n".join([rule, show(table[0]), rule, *map(show, table[1:]), rule]))
    print_fn(f"Parameters: {total:,} ({_size(size)} as float32), of them {trainable:,} trainable")
    sizes = model.traced_sizes
    for reason in whole_axes_reasons(model):
        print_fn(f"Rows are never filled up along {' and '.join(sizes)}: {reason}")
    if whole_axes(model):
        print_fn(f"FLOPs depend on the sizes of {' and '.join(sizes)}: the summary of a program "
                 "tells")
        return
    steps = f" of size {max(map(int, sizes.values()))} along {' and '.join(sizes)}" if sizes else ""
    print_fn(f"FLOPs for one example{steps}: {sum(r.flops for r in rows):,} (a multiply-add is 2)")


def _with_inner(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """The rows, in which layers of the model count the weights of the layers inside them."""
    groups: list[list[LayerRow]] = []
    for r in rows:
        groups.append([r]) if r.depth == 0 else groups[-1].append(r)
    return [first.replace(parameters=sum(r.parameters for r in (first, *inner)),
                          flops=sum(r.flops for r in (first, *inner)),
                          bytes=sum(r.bytes for r in (first, *inner)))
            for first, *inner in groups]


def _without_names(shape: Any) -> tuple[Any, ...]:
    """A shape, or the shapes of several outputs, which may have names."""
    return tuple(shape.values() if isinstance(shape, dict) else shape)


def _size(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} bytes" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
