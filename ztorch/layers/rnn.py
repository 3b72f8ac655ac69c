"""RNN: a loop over any cell, and stacked cells."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.trees import flatten, map_tree, unflatten
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.cells import GatedCell
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.recurrent import RecurrentLayer, state_shapes, zero_states
from ztorch.layers.symbol import leaves


class RNN(RecurrentLayer):
    """Applies a cell to each step of a sequence.

    A cell is a layer whose `call(x, context, states)` takes the features of a step and a list of
    states, and returns the output and the list of the next states. Its `state_size` is the size of
    the state, or a list of sizes. Its `output_size` is that of the output, by default the size of
    the first state. `get_initial_state(batch_size)` returns the first states, by default zeros.

    Args:
        cell: The cell, or a list of cells, as for `StackedRNNCells`.
        return_sequences: Whether to return the output of every step rather than the last one.
            Default: `False`.
        return_state: Whether to return a list of the output and the states after the last step.
            Default: `False`.
        go_backwards: Whether to read the sequence from its end. Outputs come in the order in which
            steps are read. Default: `False`.
        stateful: Whether each batch starts with the final states of the last one, row by row.
            `reset_states()` sets them to zero. Default: `False`.
        zero_output_for_mask: Whether the output of a masked step is zero rather than the output of
            the step before. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, ...)`. The call also takes `initial_state=`, a list of states, and `mask=`,
        `(batch, steps)`.

    Output shape:
        The shape of the cell's output, with the steps after the batch for `return_sequences`. With
        `return_state`, a list of it and the states.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Input, Layer
        >>> class Leaky(Layer):
        ...     state_size = 4
        ...     def __init__(self, **common):
        ...         super().__init__(**common)
        ...         self.dense = self.adopt(Dense(4))
        ...     def call(self, x, context, states):
        ...         h = states[0] * 0.9 + self.dense(x, context)
        ...         return h, [h]
        >>> Sequential([Input((5, 3)), RNN(Leaky())]).output_shape
        (None, 4)
    """

    def __init__(self, cell: Any, return_sequences: bool = False, return_state: bool = False,
                 go_backwards: bool = False, stateful: bool = False,
                 zero_output_for_mask: bool = False, **common: Any):
        super().__init__(**common)
        cell = StackedRNNCells(cell) if isinstance(cell, (list, tuple)) else cell
        self.cell = self.adopt(checked_cell("RNN", cell))
        self.set_loop(return_sequences, return_state, go_backwards, stateful, zero_output_for_mask)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            self.need_rank(input_shape, 2, "(steps, features)",
                           "add a time axis, for example by a Reshape before it")

    @property
    def output_state(self) -> int | None:
        return getattr(self.cell, "output_state", None)

    def output_size_of(self, states: Any) -> Shape:
        size = getattr(self.cell, "output_size", None)
        if size is None:
            return super().output_size_of(states)
        return tuple(size) if isinstance(size, (list, tuple)) else (size,)

    def first_states(self, x: Value) -> list[Any]:
        return initial_states(self.cell, x)

    def step(self, x: Value, states: Any, context: Context) -> tuple[Value, Any]:
        result = self.cell(x, states, context=context)
        if not isinstance(result, (list, tuple)) or len(result) != 2:
            raise shape_error(f"its cell {self.cell.name!r} must return (output, new_states)",
                              fix="such as `return h, [h]`")
        new, (old, shape) = leaves(result[1]), flatten(states)
        if len(new) != len(old):
            many = "state" if len(old) == 1 else "states"
            raise shape_error(f"its cell {self.cell.name!r} takes {len(old)} {many} and returns "
                              f"{len(new)}", fix="return one per entry of state_size")
        return result[0], unflatten(shape, iter(new))


class StackedRNNCells(Layer):
    """Several cells as one: each takes the output of the one before.

    Args:
        cells: A list of cells; see `RNN`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, features)`, and a list of the states of each cell.

    Output shape:
        That of the last cell, and a list of the next states of each cell.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import RNN, GRUCell, Input, LSTMCell
        >>> cells = StackedRNNCells([LSTMCell(4), GRUCell(2)])
        >>> Sequential([Input((5, 3)), RNN(cells)]).output_shape
        (None, 2)
    """

    def __init__(self, cells: Iterable[Layer], **common: Any):
        super().__init__(**common)
        if isinstance(cells, Layer) or not isinstance(cells, Iterable):
            raise ConfigError(f"StackedRNNCells takes a list of cells, not {cells!r}")
        for cell in cells:
            self.adopt(checked_cell("StackedRNNCells", cell))
        if not self.adopted:
            raise ConfigError("StackedRNNCells takes at least one cell, such as LSTMCell(8)")

    @property
    def cells(self) -> list[Layer]:
        """The cells, in order."""
        return list(self.adopted)

    @property
    def state_size(self) -> list[Any]:
        """The state sizes of each cell."""
        return [cell.state_size for cell in self.adopted]

    @property
    def output_size(self) -> Any:
        """The size of the last cell's output."""
        last = self.adopted[-1]
        size = getattr(last, "output_size", None)
        return state_shapes(last.state_size)[0] if size is None else size

    @property
    def output_state(self) -> int | None:
        """The index of the state that is also the output."""
        own = getattr(self.adopted[-1], "output_state", None)
        if own is None:
            return None
        return own + sum(len(leaves(state_shapes(cell.state_size))) for cell in self.adopted[:-1])

    def call(self, x: Value, context: Context,  # type: ignore[override]
             states: Any) -> tuple[Value, list[Any]]:
        if not isinstance(states, (list, tuple)) or len(states) != len(self.adopted):
            raise shape_error("it takes a list with the states of each cell",
                              fix=f"there are {len(self.adopted)} cells")
        new_states = []
        for cell, own in zip(self.adopted, states, strict=True):
            x, new = cell(x, own, context=context)
            new_states.append(new)
        return x, new_states


def checked_cell(kind: str, cell: Any) -> Layer:
    """The cell, or a ConfigError that explains what a cell needs."""
    layer = Layer.get(cell) if isinstance(cell, dict) else cell
    if not isinstance(layer, Layer) or "states" not in inspect.signature(layer.call).parameters:
        raise ConfigError(f"{kind} takes a cell, such as LSTMCell(8), not {cell!r}; a cell is a "
                          "layer with call(self, x, context, states)")
    if not hasattr(layer, "state_size"):
        raise ConfigError(f"{kind}: cell {layer.name!r} has no state_size; set it to the size of "
                          "its state, or to a list of sizes")
    return layer


def initial_states(cell: Layer, x: Value) -> list[Any]:
    """The states of a cell before the first step, for the rows of x."""
    if isinstance(cell, StackedRNNCells):
        return [initial_states(inner, x) for inner in cell.adopted]
    make = getattr(cell, "get_initial_state", None)
    if make is None or getattr(type(cell), "get_initial_state", None) is (
            GatedCell.get_initial_state):  # zeros with the dtype of x
        return zero_states(state_shapes(cell.state_size), x)
    states = make(x.shape[0])
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    return [map_tree(lambda v: OPS.cast(v, x.dtype), state) for state in states]
