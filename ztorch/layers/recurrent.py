"""The loop of recurrent layers: a step for each element of a sequence, with a state between steps.

The graph holds one step, whatever the length of the sequence. Values that depend only on the input,
such as its product with the kernel, are computed before the loop, for all steps at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.errors import UnknownName, Unsupported
from ztorch.graph.body import CARRY, SLICE
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.trees import flatten, map_tree, unflatten
from ztorch.graph.value import Value, topological
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.decoding import in_rows
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import leaves
from ztorch.ops.control import scan

Tree = Any  # of states: a list of tensors, or of such lists


class RecurrentLayer(Layer, abstract=True):
    """Base class of layers that iterate over a sequence `(batch, steps, ...)`.

    A subclass defines `step` and `first_states`. The call takes `x` and `initial_state=`, a list of
    tensors, or, as in Keras, a list `[x, *states]`.
    """

    takes_many = True
    needs_floats = True
    supports_masking = True
    return_sequences: bool
    return_state: bool
    go_backwards: bool
    stateful: bool
    zero_output_for_mask: bool

    def set_loop(self, return_sequences: bool, return_state: bool, go_backwards: bool,
                 stateful: bool, zero_output_for_mask: bool) -> None:
        """Stores the arguments that all recurrent layers share."""
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful = go_backwards, stateful
        self.zero_output_for_mask = zero_output_for_mask

    @property
    def reverses_steps(self) -> bool:  # type: ignore[override]
        """Whether outputs start with the last step."""
        return self.go_backwards and self.return_sequences

    @classmethod
    def refuse(cls, wrong: Mapping[str, Any]) -> None:
        if "unroll" in wrong:
            raise UnknownName(f"unknown argument of {cls.__name__} 'unroll': its steps are one "
                              "compiled loop, which is as fast and has no limit; omit it")
        super().refuse(wrong)

    # -- attributes that a subclass defines --------------------------------------------------------

    def step(self, x: Value, states: Tree, context: Context) -> tuple[Value, Tree]:
        """The output of one step and the next states, from one element of the sequence."""
        raise NotImplementedError

    def first_states(self, x: Value) -> Tree:
        """The states before the first step: zeros, in the structure that `step` returns."""
        raise NotImplementedError

    @property
    def output_state(self) -> int | None:
        """The index (among the leaves) of the state that is also the output; `None` if unknown."""
        return 0

    def output_size_of(self, states: Tree) -> Shape:
        """The shape of an output, without the batch."""
        shape: Shape = flatten(states)[0][self.output_state or 0].shape[1:]
        return shape

    def need_fit(self, x: Value) -> None:
        """Raises a ShapeError if the layer was built for other features."""

    # -- the call ----------------------------------------------------------------------------------

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        super().prepare(leaves(x)[0])

    def call(self, x: Any, context: Context, initial_state: Any = None, *,
             mask: Any = None) -> Any:
        if not isinstance(x, Value):
            x, *listed = leaves(x)
            if listed and initial_state is not None:
                raise shape_error("called on [x, *states] and with initial_state=",
                                  fix="pass the states once")
            initial_state = listed or initial_state
            mask = leaves(mask)[0]
        self.need_fit(x)
        zeros = self.first_states(x)
        if mask is not None:
            self._need_fitting(mask, x, self.output_size_of(zeros))
        if context.decoding is not None or context.prefill is not None:
            if initial_state is not None:
                raise Unsupported(f"layer {self.path!r}: a model that generates starts its "
                                  "recurrent layers with zeros; omit initial_state, or decode=True")
            return self._generated(x, zeros, context)
        states = zeros
        if initial_state is not None:
            states = self._checked(initial_state, zeros, x)
        elif self.stateful:
            states = self._remembered(zeros, context)
        output, last = self._loop(x, states, mask, context)
        if self.stateful:
            for k, v in enumerate(flatten(last)[0]):
                context.remember_state(self, f"state_{k}", v)
        return [output, *last] if self.return_state else output

    def _generated(self, x: Value, zeros: Tree, context: Context) -> Value:
        """The output while the model generates. The states after a position are cached."""
        flat, structure = flatten(zeros)
        caches = [context.cache(f"{self.path}/state_{k}", v.shape) for k, v in enumerate(flat)]
        old = [context.updates.get(cache, cache) for cache in caches]
        if context.prefill is not None:
            rows = context.prefill.rows
            output, last = self._loop(x, zeros, context.prefill.before(), context)
        else:
            assert context.decoding is not None
            rows = context.decoding.rows
            states = unflatten(structure, map(context.decoding.resumed, old, flat))
            output, last = self.step(x[:, 0], states, context)
            output = OPS.expand_dims(output, 1)
        for cache, before, new in zip(caches, old, flatten(last)[0], strict=True):
            context.updates[cache] = in_rows(rows, new, before)
        return output

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        return leaves(mask)[0] if self.return_sequences else None

    def _loop(self, x: Value, states: Tree, mask: Value | None,
              context: Context) -> tuple[Value, Tree]:
        """The output, and the states after the last step."""
        own = self.output_state
        # A masked step repeats the last output, which is zero before the first step. If the output
        # is a state that starts at zero, the state provides it; otherwise the loop carries it.
        if mask is not None and own is not None and not is_zero(flatten(states)[0][own]):
            own = None
        carries_output = own is None and (mask is not None or not self.return_sequences)
        before = (OPS.full((x.shape[0], *self.output_size_of(states)), 0.0, x.dtype)
                  if carries_output else None)
        rows = OPS.transpose(x, (1, 0, *range(2, x.rank)))
        counts = None if mask is None else OPS.transpose(mask, (1, 0, *range(2, mask.rank)))

        def turn(carried: Any, element: Any) -> Any:
            states, before = carried
            x, counts = element
            output, new = self.step(x, states, context)
            shown_output = output
            if counts is not None:
                new = map_tree(lambda v, old: where(counts, v, old), new, states)
                last = flatten(new)[0][own] if own is not None else where(counts, output, before)
                shown_output = (where(counts, output, OPS.zeros_like(output))
                                if self.zero_output_for_mask else last)
                output = last
            return ((new, output if carries_output else None),
                    shown_output if self.return_sequences else None)

        updates, terms = dict(context.updates), len(context.losses)
        (last, output), every = scan(turn, (states, before), (rows, counts),
                                     reverse=self.go_backwards)
        self._need_no_writes(context, updates, terms)
        if self.return_sequences:
            every = OPS.flip(every, 0) if self.go_backwards else every
            return OPS.transpose(every, (1, 0, *range(2, every.rank))), last
        output = flatten(last)[0][own] if own is not None else output
        if mask is not None and self.zero_output_for_mask:
            end = mask[:, 0 if self.go_backwards else mask.shape[1] - 1]
            output = where(end, output, OPS.zeros_like(output))
        return output, last

    def _need_fitting(self, mask: Value, x: Value, output_size: Shape) -> None:
        """Raises a ShapeError if a mask is neither for steps, nor for positions in them, such as
        the pixels of images."""
        sizes = mask.shape[1:]
        if not sizes or sizes[1:] != output_size[:len(sizes) - 1]:
            each = (f", or {(*x.shape[1:2], *output_size[:-1])}, one for each position of an output"
                    if len(output_size) > 1 else "")
            raise shape_error("inputs and their mask do not fit:", x.shape[1:], sizes,
                              fix=f"the mask must be {x.shape[1:2]}, a bool for each step{each}")

    def _need_no_writes(self, context: Context, before: dict[Value, Value], terms: int) -> None:
        """Raises an error if a step changes a weight or adds a loss: the graph has one step."""
        new = [v for s, v in context.updates.items() if before.get(s) is not v]
        for v in topological([*new, *context.losses[terms:]]):
            if v.op.kind == "leaf" and v.attrs["role"] in (CARRY, SLICE):
                raise Unsupported(f"layer {self.path!r}: a layer within its step changes a weight "
                                  "or adds a loss, such as BatchNormalization; put it before or "
                                  "after the recurrent layer")

    # -- states ------------------------------------------------------------------------------------

    def _remembered(self, zeros: Tree, context: Context) -> Tree:
        """The states of the last call."""
        flat, shape = flatten(zeros)
        states = [context.remembered_state(self, f"state_{k}", v.shape)
                  for k, v in enumerate(flat)]
        return unflatten(shape, iter(states))

    def _checked(self, initial_state: Any, zeros: Tree, x: Value) -> Tree:
        """The given states, in the structure of the layer's own."""
        states, (own_states, shape) = leaves(initial_state), flatten(zeros)
        shapes = " and ".join(str(v.shape[1:]) for v in own_states)
        if len(states) != len(own_states):
            many = "state" if len(own_states) == 1 else "states"
            raise shape_error(f"takes {len(own_states)} {many} of {shapes}, not {len(states)}",
                              fix="initial_state takes the states that return_state=True adds "
                                  "to the output")
        for k, (v, w) in enumerate(zip(states, own_states, strict=True)):
            if v.shape[:1] != x.shape[:1]:
                raise shape_error(f"initial state {k} has {v.shape[0]} rows, but inputs have "
                                  f"{x.shape[0]}", fix="each row of the batch has its own state")
            if v.shape != w.shape or v.dtype != w.dtype:
                raise shape_error(f"initial state {k} is {v.dtype}{list(v.shape[1:])}, but the "
                                  f"layer has {w.dtype}{list(w.shape[1:])}",
                                  fix=f"its states have shapes {shapes}")
        return unflatten(shape, iter(states))


def where(counts: Value, x: Value, otherwise: Value) -> Value:
    """x in the rows that count, otherwise the previous value."""
    return OPS.where(OPS.reshape(counts, (*counts.shape, *(1,) * (x.rank - counts.rank))), x,
                     otherwise)


def is_zero(v: Value) -> bool:
    """Whether a value is known to be zero."""
    return v.op.name == "full" and v.attrs["value"] == 0.0


def state_shapes(state_size: Any) -> list[Any]:
    """Shapes of states without the batch, nested like `state_size`.

    >>> state_shapes(4), state_shapes([4, 4]), state_shapes([[4, 4], 3])
    ([(4,)], [(4,), (4,)], [[(4,), (4,)], [(3,)]])
    """
    if isinstance(state_size, (list, tuple)) and any(
            isinstance(n, (list, tuple)) for n in state_size):
        return [state_shapes(n) for n in state_size]
    sizes = state_size if isinstance(state_size, (list, tuple)) else [state_size]
    return [(int(n),) for n in sizes]


def zero_states(shapes: Sequence[Any], x: Value) -> Tree:
    """Zero states for the rows of x."""
    return [zero_states(s, x) if isinstance(s, list) else
            OPS.full((x.shape[0], *s), 0.0, x.dtype) for s in shapes]
