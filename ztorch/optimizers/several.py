"""Optimizers that wrap others: one for each group of weights, and one with a scaled loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from ztorch.config import described, number, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope
from ztorch.optimizers.optimizer import Optimizer


class OptimizerMap(MutableMapping[str, Optimizer]):
    """Optimizers by the names of their weights.

    Args:
        default_optimizer: The optimizer of all other weights.
        optimizer_map: Optimizers by the path of a weight, or by a regular expression that matches
            the whole path, such as "encoder/.*". Default: `None`.

    Examples:
        >>> from ztorch.optimizers import SGD, Adam
        >>> optimizers = OptimizerMap(Adam(), {"encoder/.*": SGD(0.1)})
        >>> optimizers["encoder/dense/kernel"].learning_rate
        0.1
    """

    def __init__(self, default_optimizer: Any, optimizer_map: Mapping[str, Any] | None = None):
        self.default_optimizer: Optimizer = Optimizer.get(default_optimizer)
        self.patterns = {p: Optimizer.get(o) for p, o in (optimizer_map or {}).items()}

    def __getitem__(self, key: str) -> Optimizer:
        fitting = [key] if key in self.patterns else [
            p for p in self.patterns if re.fullmatch(p, key)]
        if len(fitting) > 1:
            raise ConfigError(f"OptimizerMap: weight {key!r} matches {' and '.join(fitting)}; each "
                              "weight has one optimizer")
        return self.patterns[fitting[0]] if fitting else self.default_optimizer

    def __setitem__(self, key: str, optimizer: Any) -> None:
        if key in self.patterns:
            raise ConfigError(f"OptimizerMap has an optimizer for {key!r} already")
        self.patterns[key] = Optimizer.get(optimizer)

    def __delitem__(self, key: str) -> None:
        del self.patterns[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.patterns)

    def __len__(self) -> int:
        return len(self.patterns)


class MultiOptimizer(Optimizer, names=("multi_optimizer",)):
    """Trains each group of weights with its own optimizer.

    Each optimizer clips the gradients of its weights and has its own learning rate.

    Args:
        optimizer_map: An `OptimizerMap`, or a function from the path of a weight to an optimizer.
        loss_scale_factor: Factor of the loss during the computation of gradients. `None` means 1.
            Default: `None`.

    Examples:
        >>> from ztorch.optimizers import SGD, Adam
        >>> groups = OptimizerMap(Adam(), {"encoder/.*": SGD(0.1)})
        >>> [type(o).__name__ for o in MultiOptimizer(groups).optimizers]
        ['SGD', 'Adam']
    """

    def __init__(self, optimizer_map: OptimizerMap | Callable[[str], Optimizer] | dict[str, Any],
                 loss_scale_factor: float | None = None):
        super().__init__(loss_scale_factor=loss_scale_factor)
        if isinstance(optimizer_map, dict) and "config" in optimizer_map:  # from a config
            optimizer_map = OptimizerMap(**optimizer_map["config"])
        if not isinstance(optimizer_map, OptimizerMap) and not callable(optimizer_map):
            raise ConfigError("MultiOptimizer(optimizer_map=...) takes an OptimizerMap or a "
                              f"function, not {optimizer_map!r}")
        self.optimizer_map = optimizer_map
        self.optimizers: list[Optimizer] = []
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in (*optimizer_map.patterns.values(), optimizer_map.default_optimizer):
                self._place(optimizer)

    def _place(self, optimizer: Any) -> int:
        """The index of an optimizer among all of them."""
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, MultiOptimizer):
            raise ConfigError(f"MultiOptimizer takes optimizers that are not MultiOptimizers, not "
                              f"{optimizer!r}")
        for k, known in enumerate(self.optimizers):
            if known is optimizer:
                return k
        self.optimizers.append(optimizer)
        return len(self.optimizers) - 1

    def of_weight(self, path: str) -> Optimizer:
        """The optimizer of a weight.

        Args:
            path: Its name, such as "dense/kernel".
        """
        chosen = self.optimizer_map
        return chosen[path] if isinstance(chosen, OptimizerMap) else chosen(path)

    def new_values(self, params: Sequence[Value], grads: Sequence[Value], step: Value,
                   written: Mapping[Value, Value] | None = None) -> dict[Value, Value]:
        places = [self._place(self.of_weight(w.attrs["name"])) for w in params]
        updates: dict[Value, Value] = {}
        for k, optimizer in enumerate(self.optimizers):
            mine = [i for i, place in enumerate(places) if place == k]
            if mine:
                optimizer.states_under = f"{self.states_under}/{k}"
                updates |= optimizer.new_values([params[i] for i in mine],
                                                [grads[i] for i in mine], step, written)
        with layer_scope("optimizer"):
            return updates | {step: OPS.add(step, 1)}

    def get_config(self) -> dict[str, Any]:
        chosen = self.optimizer_map
        if not isinstance(chosen, OptimizerMap):
            raise ConfigError("a MultiOptimizer that is defined by a function has no config; use "
                              "an OptimizerMap")
        return {"optimizer_map": {"class_name": "OptimizerMap", "config": {
            "default_optimizer": described(chosen.default_optimizer, "OptimizerMap"),
            "optimizer_map": {
                p: described(o, "OptimizerMap") for p, o in chosen.patterns.items()}}},
                "loss_scale_factor": self.loss_scale_factor}


class LossScaleOptimizer(Optimizer, names=("loss_scale_optimizer",)):
    """An optimizer with a scaled loss: as large as gradients stay finite.

    An overflow halves the scale and updates no weight; many steps without one double it.
    `dtype="mixed_float16"` does this with any optimizer.

    Args:
        inner_optimizer: The optimizer.
        initial_scale: The scale of the first step. Default: `32768.0`.
        dynamic_growth_steps: Number of steps without overflow after which the scale doubles.
            Default: `2000`.
        name: Its name in `get_config`. `None` derives it from the class. Default: `None`.

    Examples:
        >>> from ztorch.optimizers import SGD
        >>> LossScaleOptimizer(SGD(0.1)).learning_rate
        0.1
    """

    def __init__(self, inner_optimizer: Any, initial_scale: float = 32768.0,
                 dynamic_growth_steps: int = 2000, name: str | None = None):
        self.inner_optimizer = Optimizer.get(inner_optimizer)
        super().__init__(self.inner_optimizer.learning_rate, name=name)
        self.initial_scale = number("LossScaleOptimizer(initial_scale=...)", initial_scale, above=0)
        self.dynamic_growth_steps = positive("LossScaleOptimizer(dynamic_growth_steps=...)",
                                             dynamic_growth_steps)
        self.dynamic_scale = self.initial_scale, self.dynamic_growth_steps

    def new_values(self, params: Sequence[Value], grads: Sequence[Value], step: Value,
                   written: Mapping[Value, Value] | None = None) -> dict[Value, Value]:
        self.inner_optimizer.states_under = self.states_under
        return self.inner_optimizer.new_values(params, grads, step, written)

    def get_config(self) -> dict[str, Any]:
        return {"inner_optimizer": described(self.inner_optimizer, "LossScaleOptimizer"),
                "initial_scale": self.initial_scale,
                "dynamic_growth_steps": self.dynamic_growth_steps, "name": self.name}
