"""Models with open axes: where rows may be padded to a larger size, and where they may not, since
layers combine positions in ways that cannot leave padding out."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from ztorch.errors import ShapeError, Unsupported
from ztorch.graph.value import Value
from ztorch.layers.axis_numbers import number_of_size
from ztorch.layers.context import Context, States
from ztorch.layers.real_positions import Padding
from ztorch.names.class_names import is_ours
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
        traced_padding(model)
    except Unsupported as error:
        model.mixes_open_axes = str(error)


def traced_padding(model: Any) -> Padding:
    """The padding of a trace of a model, whose open axes are as long as when it was built.

    Raises:
        Unsupported: A layer would mix padding of an open axis into results, or computes with its
            size.
    """
    outputs, padding = _outputs(model, {})
    for y in outputs.values() if padding.sizes else ():
        padding.of(y)
    if padding.sizes and not model.mixes_open_axes:
        try:
            longer = _outputs(model, dict.fromkeys(padding.sizes, PROBES[1]))[0]
        except ShapeError:  # not all sizes fit
            return padding
        own = {layer.path for _, layer in model.walk() if not is_ours(type(layer).call)
               or hasattr(layer, "function")}
        counting = number_of_size(outputs.values(), longer.values(), own | {""})
        if counting is not None:
            where = f"layer {counting.layer!r}" if counting.layer else "the model"
            raise Unsupported(f"{where} computes with the size of an open axis "
                              f"({', '.join(padding.sizes)}), which padding enlarges, as in "
                              "x * ops.shape(x)[1]; give the Input a fixed size, or let fit and "
                              "predict compile for the sizes of the data")
    return padding


def _outputs(model: Any, more: Mapping[str, int]) -> tuple[dict[str, Value], Padding]:
    """The outputs of a trace of one row, whose open axes are longer by `more` than when the model
    was built."""
    sizes = {name: int(size) + more.get(name, 0) for name, size in model.traced_sizes.items()}
    context = Context(states=States(data=False, root=model.path), padding=Padding(sizes))
    return model.called(model.leaves(1, sizes=sizes), context), context.padding


def open_outputs(model: Any) -> dict[str, dict[int, OpenAxis]]:
    """The axes of rows of outputs whose sizes follow from that of an open axis, for a model whose
    rows are whole."""
    axes: dict[str, dict[int, OpenAxis]] = {}
    for axis in model.traced_sizes:
        shapes = [{name: y.shape for name, y in _outputs(model, {axis: more})[0].items()}
                  for more in PROBES]
        for name, shape in shapes[0].items():
            of_output = axes.setdefault(name, {})
            for k in range(1, len(shape)):
                step = _step(int(model.traced_sizes[axis]), [probe[name][k] for probe in shapes])
                if step is not None:
                    of_output[k - 1] = OpenAxis(axis, followed((), step))
    return axes


def _step(size: int, seen: list[int]) -> Step | None:
    """The only step that leads from a size, and from those longer by PROBES, to the sizes seen;
    None if there is none, or several."""
    growth, per = seen[1] - seen[0], PROBES[1] - PROBES[0]
    times, over = growth // gcd(growth, per), per // gcd(growth, per)
    first = seen[0] * over - size * times
    steps = [(times, first + plus, over) for plus in range(over) if times > 0]
    fitting = [step for step in steps if all(
        (size + more) * times + step[1] >= 0 and real_size(size + more, [step]) == n
        for more, n in zip(PROBES, seen, strict=True))]
    return fitting[0] if len(fitting) == 1 else None
