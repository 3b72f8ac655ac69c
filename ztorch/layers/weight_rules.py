"""Regularizers and constraints of layers.

A layer with an initializer such as `kernel_initializer` also accepts `kernel_regularizer` and
`kernel_constraint`, as in Keras. Every layer accepts `activity_regularizer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ztorch import constraints, dispatch, regularizers
from ztorch.arguments import parameter_names
from ztorch.config import described
from ztorch.constraints import Constraint
from ztorch.errors import ConfigError, UnknownName, ZtorchError
from ztorch.graph.value import Value
from ztorch.initializers.initializer import Initializer
from ztorch.layers.context import Context
from ztorch.layers.symbol import leaves
from ztorch.layers.weight import Weight, tracing
from ztorch.regularizers import Regularizer

_GET: dict[str, Any] = {"regularizer": regularizers.get, "constraint": constraints.get}


def with_initializers_checked(init: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of a layer with a check of the names of its initializers: without it, a wrong
    one would be an error only when the weights are created."""
    names = [n for n in parameter_names(init) if n.endswith("initializer")]
    if not names or not init.__module__.startswith("ztorch."):
        return init

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **keywords: Any) -> None:
        init(self, *args, **keywords)
        for name in names:
            spec = getattr(self, name, None)
            if isinstance(spec, str):
                try:
                    Initializer.get(spec)
                except UnknownName as error:
                    raise UnknownName(f"{type(self).__name__}({name}=...): {error}") from None

    return checked


class WithWeightRules:
    """The part of a layer that stores its regularizers and constraints."""

    weights: Any

    initializes_inner = False  # whether its initializers belong to inner layers

    @classmethod
    def more_arguments(cls) -> list[str]:
        """The regularizers and constraints that the layer accepts, besides its other arguments.

        >>> from ztorch.layers import Embedding
        >>> Embedding.more_arguments()
        ['activity_regularizer', 'embeddings_regularizer', 'embeddings_constraint']
        """
        return ["activity_regularizer", *(f"{name}_{rule}" for name in cls._initialized()
                                          for rule in _GET)]

    @classmethod
    @functools.lru_cache(maxsize=256)  # Python takes a third of a layer's creation to answer this
    def _initialized(cls) -> tuple[str, ...]:
        """The weights with an initializer: kernel, bias ..."""
        if cls.initializes_inner:
            return ()
        names = [n.removesuffix("_initializer") for n in parameter_names(cls.__init__)
                 if n.endswith("_initializer")]
        return tuple(n for n in names if not n.startswith("moving_"))

    def take_rules(self, arguments: dict[str, Any]) -> None:
        """Removes regularizers and constraints from the arguments of the layer; they become
        attributes."""
        self.rules: dict[str, Regularizer | Constraint] = {}
        names = self.more_arguments()
        for name in [n for n in arguments if n in names]:
            spec = arguments.pop(name)
            if spec is None:
                continue
            try:
                self.rules[name] = _GET[name.rpartition("_")[2]](spec)
            except ZtorchError as error:
                raise type(error)(f"{type(self).__name__}({name}=...): {error}") from None
        for name in names:
            setattr(self, name, self.rules.get(name))

    def set_rules(self, weight: Weight, regularizer: Any, constraint: Any) -> None:
        """Sets the regularizer and the constraint of a weight: those passed for it, or the layer's
        own for its name."""
        weight.regularizer = (self._rule(weight.name, "regularizer") if regularizer is None else
                              regularizers.get(regularizer))
        weight.constraint = (self._rule(weight.name, "constraint") if constraint is None else
                             constraints.get(constraint))

    def _rule(self, weight: str, rule: str) -> Any:
        """The layer's rule for a weight with this name; None if it has none."""
        if not self.rules:
            return None
        name = weight.rpartition("/")[2]
        names = [name, name.removesuffix("_kernel"), *(["depthwise"] if name == "kernel" else [])]
        initialized = self._initialized()
        return next((self.rules.get(f"{n}_{rule}") for n in names if n in initialized), None)

    def rules_config(self) -> dict[str, Any]:
        """Regularizers and constraints, as values for JSON."""
        return {name: described(rule, name) for name, rule in self.rules.items()}

    def add_activity_losses(self, outputs: Any, context: Context) -> None:
        """Adds the penalties of outputs to the loss."""
        regularizer = self.rules["activity_regularizer"]
        assert isinstance(regularizer, Regularizer)
        for y in leaves(outputs):
            if isinstance(y, Value):
                context.add_loss(regularizer.of_rows(y))

    @property
    def losses(self) -> list[Any]:
        """The scalar terms that the last call of this layer, with the layers inside it, added to
        the loss (`add_loss`), and those of regularizers of trainable weights.

        >>> import ztorch as zt
        >>> layer = zt.layers.Dense(2, kernel_regularizer=zt.regularizers.L2(0.5),
        ...                         kernel_initializer="ones")
        >>> _ = layer(zt.ones((1, 3)))
        >>> [penalty.item() for penalty in layer.losses]
        [3.0]
        """
        traced = tracing.get() is not None
        added = [] if traced else dispatch.added_losses(self)
        return [*added, *(w.regularizer(w if traced else w.value)
                          for w in self.weights if w.trains and w.regularizer is not None)]

    def add_loss(self, loss: Any) -> None:
        """Adds a term to the loss, in `call`, as in Keras.

        Args:
            loss: A scalar tensor; or a tensor with one number per row of the batch, of which the
                mean is added.

        Raises:
            ConfigError: It was not called within a `call`.

        Examples:
            >>> import ztorch as zt
            >>> class Sparse(zt.layers.Layer):
            ...     def call(self, x):
            ...         self.add_loss(0.01 * zt.ops.sum(zt.ops.abs(x)))
            ...         return x
            >>> Sparse()(zt.layers.Input((4,))).shape
            (None, 4)
        """
        context = tracing.get()
        if not isinstance(context, Context):
            raise ConfigError(f"{type(self).__name__}.add_loss must be called within call, "
                              "which has tensors to compute a loss from")
        context.add_loss(loss)
