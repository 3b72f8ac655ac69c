"""Layers as nodes of a tree: their names, and the settings that they inherit from enclosing layers.

The modules below `layer.py` know only this interface of a layer.
"""

from __future__ import annotations

from typing import Any

from ztorch.config import Named


class LayerNode(Named, abstract=True):
    """A layer, as seen by weights, contexts and symbolic tensors. `Layer` is the only subclass."""

    takes_many = False  # whether it is called on a list of tensors
    is_plain = False  # whether it is written as in Keras: its call takes no context
    is_network = False  # whether it is a model, which builds the layers inside
    is_wrapper = False  # whether names omit it: the inner layer has its path

    name: str  # unique among its siblings
    given_name: str | None  # None: the name is derived from the class
    trainable: bool  # whether an optimizer may change the weights
    name_in_path: str | None = None  # where a sibling has the same name; None: the name
    makes_weights: bool  # whether its class has a `build` of its own
    building = False  # whether its `build` is running
    adopter: LayerNode | None  # the model or layer that adopted this one
    calls: list[Any]  # calls on symbolic tensors, in order

    @property
    def keeps_name(self) -> bool:
        """Whether the name is final: it was given, or a model uses it."""
        return self.given_name is not None or self.adopter is not None

    @property
    def path(self) -> str:
        """The name within the model: `encoder/dense` for an inner layer."""
        if self.adopter is not None and self.adopter.is_wrapper:
            return self.adopter.path
        above = self.adopter.path if self.adopter is not None else ""
        name = self.name_in_path or self.name
        return f"{above}/{name}" if above else name

    @property
    def trains(self) -> bool:
        """Whether neither this layer nor an enclosing one is frozen."""
        return self.trainable and (self.adopter is None or self.adopter.trains)

    @property
    def model_seed(self) -> int:
        """The seed of the model that the layer belongs to."""
        return self.adopter.model_seed if self.adopter is not None else 0

    def call(self, x: Any, context: Any) -> Any:
        """The output for x, a tensor whose axis 0 is the batch."""
        raise NotImplementedError(f"{type(self).__name__}.call")

    def __call__(self, *inputs: Any, context: Any = None, **keywords: Any) -> Any:
        """Traces the layer, and builds it first if necessary."""
        raise NotImplementedError
