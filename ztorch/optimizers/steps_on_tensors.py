"""What optimizers offer to training loops of one's own: steps on tensors, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch import dispatch


class StepsOnTensors:
    """The part of `Optimizer` that training loops call; `arrays/` implements it."""

    def update(self, params: Any, grads: Any) -> Any:
        """The parameters after one step, for custom training loops.

        The optimizer keeps its states (slots, step counter) for parameters of this tree and these
        shapes, and advances them at each call, also in functions made by `zt.compiled`. There, all
        settings except the learning rate are compiled in. Two sets of parameters of equal structure
        need separate optimizers. For `exclude_from_weight_decay`, a parameter's name is its path of
        keys: "dense/kernel".

        Args:
            params: Tensors, or dicts and lists of them.
            grads: The gradient of each, in the same tree, as `zt.grad` returns it.

        Returns:
            The new parameters, in the same tree.

        Examples:
            >>> import ztorch as zt
            >>> params = {"w": zt.tensor([1.0, 2.0])}
            >>> zt.optimizers.SGD(0.5).update(params, {"w": zt.tensor([2.0, 0.0])})["w"].tolist()
            [0.0, 2.0]
        """
        return dispatch.update(self, params, grads)

    def get_state(self) -> list[dict[str, Any]]:
        """The states that `update` keeps: slots and step counters. The learning rate is not one.

        Returns:
            A dict of tensors by name for each tree of parameters, in the order of their first
            `update`. `zt.save_tensors` writes it to a file.

        Examples:
            >>> import ztorch as zt
            >>> adam = zt.optimizers.Adam()
            >>> _ = adam.update({"w": zt.tensor([1.0])}, {"w": zt.tensor([2.0])})
            >>> sorted(adam.get_state()[0])
            ['optimizer/step', 'optimizer/w/m', 'optimizer/w/v']
        """
        return dispatch.optimizer_state(self)

    def set_state(self, state: Sequence[Any]) -> None:
        """Goes on from states of another run, or another optimizer with the same settings.

        Args:
            state: The result of `get_state`; tensors or arrays of any device.

        Raises:
            ShapeError: They belong to other parameters. If parameters are not known yet, the next
                `update` raises it.

        Examples:
            >>> import ztorch as zt
            >>> adam, again = zt.optimizers.Adam(), zt.optimizers.Adam()
            >>> params = adam.update({"w": zt.tensor([1.0])}, {"w": zt.tensor([2.0])})
            >>> again.set_state(adam.get_state())
            >>> again.get_state()[0]["optimizer/step"].item()
            1
        """
        dispatch.set_optimizer_state(self, state)
