"""The base class of optimizers: weight decay, clipping, and the states of each weight."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch import dispatch
from ztorch.config import Named, fraction, number, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, leaf
from ztorch.graph.running_step import running_step
from ztorch.graph.value import Value, layer_scope
from ztorch.ops.reduction import widened
from ztorch.optimizers.around import accumulated, averaged, shrunk
from ztorch.optimizers.slots import Slots
from ztorch.optimizers.steps_on_tensors import StepsOnTensors
from ztorch.schedules import LearningRateSchedule


class Optimizer(StepsOnTensors, Named, family="optimizer", such_as="sgd"):
    """Base class of optimizers. A subclass implements `step`, which returns the amount to subtract
    from a weight.

    At most one kind of clipping may be given.

    Args:
        learning_rate: A number, which can be changed during training, or a `LearningRateSchedule`.
            Default: `0.001`.
        weight_decay: Decoupled weight decay: before each step, `rate * weight_decay * weight` is
            subtracted from the weight. `None` means none. Default: `None`.
        clipnorm: Largest norm of the gradient of each weight. `None` means no limit. Default:
            `None`.
        clipvalue: Largest absolute value of each element of a gradient. `None` means no limit.
            Default: `None`.
        global_clipnorm: Largest norm of all gradients together. `None` means no limit. Default:
            `None`.
        use_ema: Whether to keep a moving average of each weight. It replaces the weight at the end
            of `fit`. Default: `False`.
        ema_momentum: Decay of the averages, from 0 to 1. Default: `0.99`.
        ema_overwrite_frequency: Number of steps after which averages replace the weights during
            training as well. `None` means never. Default: `None`.
        loss_scale_factor: Factor of the loss during the computation of gradients, which are then
            divided by it. It keeps gradients representable in float16; mixed precision chooses it
            automatically. `None` means no factor. Default: `None`.
        gradient_accumulation_steps: Number of batches whose gradients are averaged before each
            step. `None` means 1. Default: `None`.
        name: Its name in `get_config`, as in Keras. `None` derives it from the class. Default:
            `None`.
        **wrong: Collects unknown arguments for the error.

    Raises:
        ConfigError: A number is out of range, or there are two kinds of clipping.

    Examples:
        >>> from ztorch.optimizers import Adam
        >>> Adam(1e-3, clipnorm=1.0).get_config()["clipnorm"]
        1.0
    """

    states_under = "optimizer"  # prefix of the names of its counter and rate

    # Initial scale of the loss, and the number of steps after which it grows; None: never.
    dynamic_scale: tuple[float, int] | None = None

    def __init__(self, learning_rate: float | LearningRateSchedule | dict = 0.001, *,
                 weight_decay: float | None = None, clipnorm: float | None = None,
                 clipvalue: float | None = None, global_clipnorm: float | None = None,
                 use_ema: bool = False, ema_momentum: float = 0.99,
                 ema_overwrite_frequency: int | None = None,
                 loss_scale_factor: float | None = None,
                 gradient_accumulation_steps: int | None = None, name: str | None = None,
                 **wrong: Any):
        self.refuse(wrong)
        self.name = name or self._default_name
        self.learning_rate = _rate(type(self).__name__, learning_rate)
        self.weight_decay = weight_decay
        self.clipnorm, self.clipvalue = clipnorm, clipvalue
        self.global_clipnorm = global_clipnorm
        self.undecayed: tuple[str, ...] = ()
        clips = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        chosen = {k: v for k, v in clips.items() if v is not None}
        if len(chosen) > 1:
            raise ConfigError(f"{type(self).__name__} takes only one of clipnorm, clipvalue and "
                              f"global_clipnorm, not {' and '.join(chosen)}")
        for argument, x in chosen.items():
            number(f"{type(self).__name__}({argument}=...)", x, above=0)
        kind = type(self).__name__
        if weight_decay is not None:
            number(f"{kind}(weight_decay=...)", weight_decay, least=0)
        self.use_ema = use_ema
        self.ema_momentum = fraction(f"{kind}(ema_momentum=...)", ema_momentum, below_one=False)
        self.ema_overwrite_frequency = None if ema_overwrite_frequency is None else positive(
            f"{kind}(ema_overwrite_frequency=...)", ema_overwrite_frequency)
        self.loss_scale_factor = None if loss_scale_factor is None else number(
            f"{kind}(loss_scale_factor=...)", loss_scale_factor, above=0)
        self.gradient_accumulation_steps = None if gradient_accumulation_steps is None else (
            positive(f"{kind}(gradient_accumulation_steps=...)", gradient_accumulation_steps))

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        """The amount to subtract from the weight.

        Args:
            weight: The weight, after weight decay.
            gradient: Gradient of the loss with respect to the weight, clipped.
            rate: Learning rate, as `scaled_rate` returns it.
            slots: States of this weight.

        Returns:
            A tensor of the weight's shape.
        """
        raise NotImplementedError(
            f"optimizer {type(self).__name__} has no step(self, weight, gradient, rate, slots), "
            "which returns the amount to subtract from a weight; define it"
            + (", in place of update_step" if hasattr(self, "update_step") else ""))

    def scaled_rate(self, rate: Value, count: Value) -> Value:
        """The rate that `step` receives.

        Args:
            rate: The learning rate.
            count: Number of this step, 1 for the first.

        Returns:
            A scalar tensor.
        """
        return rate

    def new_values(self, params: Sequence[Value], grads: Sequence[Value], step: Value,
                   written: Mapping[Value, Value] | None = None) -> dict[Value, Value]:
        """The new value of every state that one training step changes.

        Args:
            params: The weights, as state leaves of the graph.
            grads: Gradient of each weight.
            step: The integer state that counts steps from 0.
            written: New values that layers have assigned to weights in this step; the optimizer
                starts from them. Default: `None`.

        Returns:
            A dict from each state to its new value.

        Examples:
            >>> from ztorch.graph.op import leaf
            >>> from ztorch.optimizers import SGD
            >>> w = leaf("state", "w", (3,), "float32", np.ones(3, np.float32))
            >>> step = leaf("state", "optimizer/step", (), "int32", np.int32(0))
            >>> sorted(s.attrs["name"] for s in SGD(0.1, momentum=0.9).new_values(
            ...     [w], [w], step))
            ['optimizer/step', 'optimizer/w/momentum', 'w']
        """
        with layer_scope("optimizer"):
            if self.gradient_accumulation_steps is None:
                updates = self._updates(params, grads, step, written or {})
            else:
                updates = accumulated(params, grads, step, self.gradient_accumulation_steps,
                                      self._updates, written or {})
            updates[step] = OPS.add(step, 1)
        return updates

    def apply(self, gradients: Sequence[Any], trainable_variables: Sequence[Any] | None = None,
              ) -> None:
        """Updates weights: in the `train_step` of a model, or in a training loop of one's own.

        Args:
            gradients: The gradient of each weight.
            trainable_variables: The weights, as `model.trainable_weights`. In a `train_step`, None
                means all trainable weights. Default: `None`.

        Raises:
            ConfigError: Another optimizer of the step updates one of the weights, or a loop does
                not name the weights.

        Examples:
            >>> import ztorch as zt
            >>> w = zt.Variable([1.0, 2.0])
            >>> slope = zt.grad(lambda w: (w * w).sum())(w.tensor)
            >>> zt.optimizers.SGD(0.25).apply([slope], [w])
            >>> w.numpy().tolist()
            [0.5, 1.0]
        """
        step = running_step.get()
        if step is None:
            dispatch.apply_gradients(self, gradients, trainable_variables)
        else:
            step.apply(self, gradients, trainable_variables)

    def apply_gradients(self, gradients_and_weights: Iterable[tuple[Any, Any]]) -> None:
        """`apply` for pairs of a gradient and a weight.

        Args:
            gradients_and_weights: Pairs, such as `zip(gradients, weights)`.
        """
        gradients, weights = zip(*gradients_and_weights, strict=True)
        self.apply(gradients, weights)

    def scale_loss(self, loss: Any) -> Any:
        """The loss times `loss_scale_factor`; `apply` divides the gradients by it.

        Args:
            loss: The loss of a step.

        Returns:
            The tensor to compute gradients of.
        """
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    def decay_of(self, weight: Value) -> float | None:
        """The weight decay of a weight."""
        name = weight.attrs["name"]
        return None if any(re.search(p, name) for p in self.undecayed) else self.weight_decay

    def _updates(self, params: Sequence[Value], grads: Sequence[Value], step: Value,
                 written: Mapping[Value, Value]) -> dict[Value, Value]:
        """The new values of weights and slots in the step with this number."""
        updates: dict[Value, Value] = {}
        d = params[0].dtype
        if isinstance(self.learning_rate, LearningRateSchedule):
            exact = widened(params[0]).dtype  # 16 bits count to 256 or 2048
            rate = OPS.cast(self.learning_rate.graph(OPS.cast(step, exact)), d)
        else:
            rate = leaf("state", f"{self.states_under}/learning_rate", (), d,
                        np.asarray(self.learning_rate, d.working), trainable=False,
                        kind="hyper")
        count = OPS.cast(step, d) + 1.0
        scaled = self.scaled_rate(rate, count)
        for w, g in zip(params, self._clipped(grads), strict=True):
            decay, slots = self.decay_of(w), Slots(w, updates, count)
            value = written.get(w, w)
            decayed = value - value * decay * rate if decay else value
            new = decayed - self.step(decayed, g, scaled, slots)
            updates[w] = averaged(new, step, slots, self) if self.use_ema else new
        return updates

    def exclude_from_weight_decay(self, var_names: Sequence[str]) -> None:
        """Excludes weights from weight decay whose names match patterns, such as `["bias",
        "gamma"]`. Replaces earlier patterns."""
        self.undecayed = tuple(var_names)

    def get_config(self) -> dict[str, Any]:
        base = {k: getattr(self, k) for k in (
            "weight_decay", "clipnorm", "clipvalue", "global_clipnorm")}
        rare = {"use_ema": False, "ema_momentum": 0.99, "ema_overwrite_frequency": None,
                "loss_scale_factor": None, "gradient_accumulation_steps": None}
        values = {k: getattr(self, k) for k in rare}
        takes_name = any(p.name == "name" or p.kind is p.VAR_KEYWORD for p in
                         inspect.signature(type(self).__init__).parameters.values())
        return {**({"name": self.name} if takes_name else {}), **super().get_config(), **base,
                **{k: x for k, x in values.items() if x != rare[k]}}

    @property
    def _default_name(self) -> str:
        return self.names[0] if self.names else type(self).__name__

    def __repr__(self) -> str:
        shown = {k: x for k, x in self.get_config().items()
                 if k != "name" or x != self._default_name}
        return f"{type(self).__name__}({', '.join(f'{k}={x!r}' for k, x in shown.items())})"

    def _clipped(self, grads: Sequence[Value]) -> list[Value]:
        if self.clipvalue is not None:
            return [OPS.clip(g, -self.clipvalue, self.clipvalue) for g in grads]
        if self.clipnorm is not None:
            return [shrunk([g], self.clipnorm)[0] for g in grads]
        if self.global_clipnorm is not None:
            return shrunk(grads, self.global_clipnorm)
        return list(grads)


def is_optimizer(x: Any) -> bool:
    """Whether x is an optimizer, or the name or class of one.

    >>> is_optimizer("adam"), is_optimizer("cpu")
    (True, False)
    """
    if isinstance(x, str):
        return x.lower() in {name.lower() for name in Optimizer.known}
    return isinstance(x, Optimizer) or (isinstance(x, type) and issubclass(x, Optimizer))


def _rate(of: str, x: Any) -> float | LearningRateSchedule:
    if isinstance(x, (LearningRateSchedule, dict)):
        return LearningRateSchedule.get(x)
    if callable(x) and not isinstance(x, type):
        raise ConfigError(f"{of}(learning_rate=...) is a function; write a subclass of "
                          "zt.schedules.LearningRateSchedule with graph(self, step), or use "
                          "zt.callbacks.LearningRateScheduler, which sets the rate of each epoch")
    return number(f"{of}(learning_rate=...)", x, least=0)
