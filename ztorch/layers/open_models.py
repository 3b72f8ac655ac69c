"""Models with open axes: where rows may be padded to a larger size, and where they may not, since
layers combine positions in ways that cannot leave padding out."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.layers.context import Context, States
from ztorch.layers.real_positions import Padding
from ztorch.real_sizes import OpenAxis, Step, followed, real_size

Axes = Mapping[str, Mapping[int, OpenAxis]]  # axes of rows, by tensor and by number
PROBES = (0, 32, 31, 33)  # added to the size of an axis, to see how axes of outputs follow it


def begin_padding(model: Any, x: Mapping[str, Value], padding: Padding) -> None:
    """Records which axes of the inputs of a model are padded: the open ones, if they may be."""
    for name, axes in ({} if model.mixes_open_axes else model.open_axes).items():
        padding.begin(x[name], {k + 1: axis for k, axis in axes.items()})


def keep_rows_whole(model: Any) -> None:
    """Marks a model whose layers would mix padding into results: its rows are never padded, and it
    is compiled for each size of the data. Other models stay as they are."""
    if model.mixes_open_axes:
        return
    try:
        model.build()
        sizes = model.traced_sizes
        context = Context(states=States(data=False, root=model.path), padding=Padding(sizes))
        for y in model.called(model.leaves(1, sizes=sizes), context).values():
            context.padding.of(y)
    except Unsupported as error:
        model.mixes_open_axes = str(error)


def open_outputs(model: Any) -> dict[str, dict[int, OpenAxis]]:
    """The axes of rows of outputs whose sizes follow from that of an open axis, for a model whose
    rows are whole."""
    axes: dict[str, dict[int, OpenAxis]] = {}
    for axis in model.traced_sizes:
        shapes = [_output_shapes(model, axis, more) for more in PROBES]
        for name, shape in shapes[0].items():
            of_output = axes.setdefault(name, {})
            for k in range(1, len(shape)):
                step = _step(int(model.traced_sizes[axis]), [probe[name][k] for probe in shapes])
                if step is not None:
                    of_output[k - 1] = OpenAxis(axis, followed((), step))
    return axes


def _output_shapes(model: Any, axis: str, more: int) -> dict[str, tuple[int, ...]]:
    """The shapes of outputs where an open axis is longer than the others by `more`."""
    sizes = {name: int(size) + (more if name == axis else 0)
             for name, size in model.traced_sizes.items()}
    context = Context(states=States(data=False, root=model.path), padding=Padding(sizes))
    outputs = model.called(model.leaves(1, sizes=sizes), context)
    return {name: y.shape for name, y in outputs.items()}


def _step(size: int, seen: list[int]) -> Step | None:
    """The only step that leads from a size, and from those longer by PROBES, to the sizes seen;
    None if there is none, or several."""
    growth = Fraction(seen[1] - seen[0], PROBES[1] - PROBES[0])
    times, over = growth.numerator, growth.denominator
    first = seen[0] * over - size * times
    steps = [(times, first + plus, over) for plus in range(over) if times > 0]
    fitting = [step for step in steps if all(
        (size + more) * times + step[1] >= 0 and real_size(size + more, [step]) == n
        for more, n in zip(PROBES, seen, strict=True))]
    return fitting[0] if len(fitting) == 1 else None
