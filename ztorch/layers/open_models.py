"""Models with open axes: where rows may be padded to a larger size, and where they may not, since
layers combine positions in ways that cannot leave padding out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.layers.context import Context, States
from ztorch.layers.real_positions import Padding

Axes = Mapping[str, Mapping[int, str]]  # the names of axes of rows, by tensor and by number
STEP = 32  # between two sizes of an axis that tell which axes of outputs follow from it


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


def open_outputs(model: Any) -> dict[str, dict[int, str]]:
    """The axes of rows of outputs that are as long as an open axis, for a model whose rows are
    whole."""
    shapes = []
    for more in (0, STEP):
        sizes = {name: int(size) + more for name, size in model.traced_sizes.items()}
        context = Context(states=States(data=False, root=model.path), padding=Padding(sizes))
        outputs = model.called(model.leaves(1, sizes=sizes), context)
        shapes.append({name: y.shape for name, y in outputs.items()})
    axes: dict[str, dict[int, str]] = {}
    for name, pairs in ((name, zip(shape, shapes[1][name], strict=True))
                        for name, shape in shapes[0].items()):
        axes[name] = {k - 1: axis for k, pair in enumerate(pairs)
                      for axis, size in model.traced_sizes.items()
                      if k and pair == (int(size), int(size) + STEP)}
    return axes
