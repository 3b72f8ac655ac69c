"""The summary of a program: its layers, its functions, and the memory of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.runtime.spec import public_functions, shape_text

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful


def print_summary(program: Stateful, print_fn: Callable[[str], Any]) -> None:
    """Prints the summary, line by line."""
    states = program.executable.states.values()
    rows = [("Layer (type)", "Output shape", "Parameters")]
    for layer in program.metadata.layers:
        rows.append((f"{layer.name} ({layer.class_})",
                     shape_text(layer.output_shape, program.batch_size),
                     f"{layer.parameters:,}"))
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    sizes = "; ".join(f"{name} {' or '.join(map(str, axis))}"
                      for name, axis in program.buckets.axes.items())
    print_fn(f"Program: {program.name} on {program.device}, {sizes}" if len(program.buckets) > 1
             else f"Program: {program.name} on {program.device}, {program.batch_size} rows at a "
                  "time")
    for row in rows:
        print_fn(f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}")
    size = sum(int(np.prod(s.shape, dtype=np.int64)) * s.dtype.bytes for s in states)
    functions = ", ".join(public_functions(program.executable.functions))
    print_fn(f"Functions: {functions}; {len(states)} states of {size / 1024:,.1f} KiB in all")
