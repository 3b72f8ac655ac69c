"""The summary of a model: output shape, parameters, arithmetic and memory of each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ztorch.dtypes import DType, f32
from ztorch.graph.flops import flops
from ztorch.layers.axes import whole_axes, whole_axes_reasons
from ztorch.layers.network import Network
from ztorch.layers.weight import Weight
from ztorch.runtime.snapshot import LayerRow
from ztorch.runtime.spec import spelled


def layer_rows(model: Network, kept_as: Callable[[Weight], DType],
               sizes: Mapping[str, int] | None = None) -> tuple[LayerRow, ...]:
    """One row per layer, for an input of one example. A layer that is made of
    layers has a row without what these count in theirs, so the rows add up.

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


def print_summary(model: Network, print_fn: Callable[[str], Any] = print,
                  show_trainable: bool = False) -> None:
    """Prints the table of a model's layers, with totals, for float32."""
    rows = layer_rows(model, lambda w: f32)
    table: list[tuple[str, ...]] = [
        ("Layer (type)", "Output shape", "Parameters", "FLOPs", "Bytes",
         *(("Trainable",) if show_trainable else ()))]
    for r in rows:
        name = "  " * r.depth + r.name.rpartition("/")[2]
        table.append((f"{name} ({r.class_})", spelled(r.output_shape, "batch"),
                      f"{r.parameters:,}", "?" if whole_axes(model) else f"{r.flops:,}",
                      f"{r.bytes:,}", *(("yes" if r.trainable else "no",) if show_trainable
                                        else ())))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))

    def show(line: tuple[str, ...]) -> str:
        cells = [c.ljust(w) if k < 2 else c.rjust(w)
                 for k, (c, w) in enumerate(zip(line, widths, strict=True))]
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


def _without_names(shape: Any) -> tuple[Any, ...]:
    """A shape, or the shapes of several outputs, which may have names."""
    return tuple(shape.values() if isinstance(shape, dict) else shape)


def _size(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} bytes" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
