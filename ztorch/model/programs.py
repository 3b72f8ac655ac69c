"""The programs of a model: the one that compile returned, and those for other batch sizes and for
weights of outputs and steps."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.layers.weight import Weight
from ztorch.locks import new_rlock
from ztorch.runtime.buckets import BATCH

if TYPE_CHECKING:
    from ztorch.layers.network import Network
    from ztorch.program.program import Program

# The arguments of compile that each function of another batch size needs.
_NEEDED = {"train": ("optimizer", "loss", "metrics", "loss_weights", "targets", "step_data"),
           "evaluate": ("loss", "metrics", "loss_weights", "targets", "step_data"),
           "predict": ()}
_TRAINING = _NEEDED["train"]
_Items = tuple[tuple[str, Any], ...]


class ModelPrograms:
    """Runs a model on batches of any size, always with the weights of the model.

    Args:
        model: The model.
        compiled: The program that compile returned.
        make: Compiles the model again with other arguments, passed by name.
        arguments: The arguments of compile.
        follows_data: Whether the data determine the sizes of open axes.
    """

    def __init__(self, model: Network, compiled: Program, make: Callable[..., Program],
                 arguments: dict[str, Any], follows_data: bool):
        self.compiled, self.follows_data = compiled, follows_data
        self._layers = [layer for _, layer in model.walk()]
        # As compile found them: what has a flag `trainable`, the flags, and the weights that train.
        self._with_flags: list[Any] = [*self._layers, *model.weights]
        self._flags = [x.trainable for x in self._with_flags]
        self._trained = {w for w in model.weights if w.trains}
        self._make, self.arguments = make, arguments
        # by batch size, function, outputs with weights, and other sizes of open axes
        self._others: dict[tuple[int, str, _Items, _Items], Program] = {}
        self._making = new_rlock()
        self.training = compiled  # the program that trains, if any
        compiled.relatives = weakref.ref(self)

    @property
    def all(self) -> list[Program]:
        """All existing programs."""
        return [self.compiled, *self._others.values()]

    def fit(self, model: Network) -> bool:
        """Whether the model still has the layers that were compiled."""
        return self._layers == [layer for _, layer in model.walk()]

    @contextmanager
    def running(self, function: str, batch_size: int | None, weighted: Mapping[str, int],
                sizes: Mapping[str, Any]) -> Iterator[Program]:
        """The program that runs a function on batches of this size, with the model's weights.
        Weights trained by another program go back to the one that compile returned. `weighted` are
        the axes of steps that weights of an output have, of outputs that have separate weights.
        `sizes` are those of open axes where another program is needed."""
        compiled = self.compiled
        if function != "predict":
            compiled.need(function)
        if function == "train":
            self._warn_of_changed_flags()
        if self.training is not compiled:  # a callback asks
            hand_over(self.training, compiled)
        compiled.take_weights()
        if sizes:
            program = self._other(function, batch_size or compiled.buckets.batch_size, weighted,
                                  sizes)
        else:
            program = self._weighted(function, batch_size, weighted) if weighted else self._sized(
                function, batch_size)
        if program is compiled:
            yield compiled
        elif function == "train":
            hand_over(compiled, program)
            self.training = program
            try:
                yield program
            finally:
                self.training = compiled
                hand_over(program, compiled)
                compiled.lend_weights()
        else:
            program.take_weights()
            yield program

    def _warn_of_changed_flags(self) -> None:
        """Warns where `trainable` has changed since compile, which alone reads it."""
        if self._flags == [x.trainable for x in self._with_flags]:
            return
        changed = {w.layer.path: w in self._trained for w in self._with_flags
                   if isinstance(w, Weight) and w.trains != (w in self._trained)}
        if changed:
            names = ", ".join(f"{path!r}, which {'still' if before else 'does not'} train"
                              f"{'s' * before}" for path, before in changed.items())
            warnings.warn(f"trainable has changed since model {self.compiled.name!r} was compiled, "
                          f"without effect on {names}; compile it again", stacklevel=4)

    def _sized(self, function: str, batch_size: int | None) -> Program:
        axis = self.compiled.buckets.axes[BATCH]
        if batch_size is None or batch_size == axis[-1] or batch_size in axis:
            return self.compiled
        size = positive("batch_size", batch_size)
        if len(axis) > 1 and size < axis[-1]:
            return self.compiled
        if layer := self.compiled.adapter.stateful:
            raise ConfigError(f"layer {layer!r} is stateful: it stores states for batches of "
                              f"{axis[-1]} rows, not of {size}; omit batch_size, or compile "
                              f"with batch_size={size}")
        return self._other(function, size, {}, {})

    def _weighted(self, function: str, batch_size: int | None,
                  weighted: Mapping[str, int]) -> Program:
        """A program that takes weights of outputs and steps. Models with layers that remember rows,
        or with several outputs and steps of their own, keep the one that they have, which refuses
        such weights."""
        whole = self.compiled.metadata.whole_batches
        if self.compiled.adapter.stateful or (whole and {*weighted} != {""}) or (
                weighted == self.arguments.get("weighted")):
            return self._sized(function, batch_size)
        size = positive("batch_size", batch_size or self.compiled.buckets.batch_size)
        return self._other(function, size, weighted, {})

    def for_sizes(self, program: Program, function: str, sizes: tuple[int, ...]) -> Program:
        """A program that runs a function as `program` does, on batches of at least these sizes; of
        exactly so many rows where the function combines them."""
        none: tuple[_Items, _Items] = (), ()
        weighted, lengths = next(
            (key[2:] for key, other in self._others.items() if other is program), none)
        buckets, rows = program.buckets, sizes[0]
        longer = {axis: buckets.size_for(axis, n)
                  for axis, n in zip([*buckets.axes][1:], sizes[1:], strict=True)}
        if any(n not in buckets.axes[axis] for axis, n in longer.items()):
            lengths = tuple(sorted((axis, (n,)) for axis, n in longer.items()))
        exact = function in self.compiled.metadata.whole_batches
        counts = [size for size, verb, *key in self._others if (*key,) == (weighted, lengths)
                  and size >= rows and {*_NEEDED[function]} <= {*_NEEDED[verb]}]
        if not exact and not counts and rows <= buckets.batch_size:
            rows = buckets.batch_size
        return self._other(function, rows if exact else min(counts, default=rows),
                           dict(weighted), dict(lengths))

    def _other(self, function: str, size: int, weighted: Mapping[str, int],
               sizes: Mapping[str, Any]) -> Program:
        with self._making:
            return self._made(function, size, weighted, sizes)

    def _made(self, function: str, size: int, weighted: Mapping[str, int],
              sizes: Mapping[str, Any]) -> Program:
        axes, lengths = tuple(sorted(weighted.items())), tuple(sorted(sizes.items()))
        for verb, needed in _NEEDED.items():
            program = self._others.get((size, verb, axes, lengths))
            if program is not None and set(_NEEDED[function]) <= set(needed):
                return program
        arguments = {k: v for k, v in self.arguments.items()
                     if k not in _TRAINING or k in _NEEDED[function]}
        more = {name: x for name, x in (("weighted", weighted), ("sizes", sizes)) if x}
        program = self._make(**{**arguments, "batch_size": size, "decode": False, **more})
        program.relatives = weakref.ref(self)
        self._others[size, function, axes, lengths] = program
        return program

    def __deepcopy__(self, memo: Any) -> None:
        """A copied model has no program and must be compiled again."""
        return


def hand_over(source: Program, target: Program) -> None:
    """Copies all that training depends on from another program: weights, optimizer,
    random numbers, the epoch and the history. States of rows stay, since batches differ."""
    target.take_states(source)
    target.resume(source.training_state(), source.resumed)
    target.stop_training = source.stop_training


def not_compiled(name: str, verb: str) -> ConfigError:
    """The error for a model that is not compiled to train or evaluate."""
    return ConfigError(f"model {name!r} cannot {verb} before it is compiled; write "
                       "model.compile(optimizer='adam', loss='mse'), with your loss")


def changed_since(name: str) -> ConfigError:
    """The error for a model whose program is out of date."""
    return ConfigError(f"the layers of model {name!r} have changed since it was compiled; compile "
                       "it again")
