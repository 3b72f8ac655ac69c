"""Masks: which steps of a sequence count. They travel with tensors from layer to layer.

The context of a trace stores the mask of each masked tensor, a bool tensor `(batch, steps)`. The
padding of a sequence of variable size is masked as well.
"""

from __future__ import annotations

from typing import Any

from ztorch.arguments import parameter_names
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.symbol import leaves, nested


class WithMasks:
    """The part of a layer that handles masks.

    A layer whose `call` has an argument `mask` gets the mask of its input. If `supports_masking` is
    true, the output has a mask as well: that of the input, unless the layer defines `compute_mask`.
    Other layers drop masks.
    """

    supports_masking = False  # whether the output has the mask of `compute_mask`
    takes_mask = False  # whether `call` has an argument `mask`
    reverses_steps = False  # whether the last step of the input is the first of the output
    before_mask = 0  # number of arguments of `call` between its context and `mask`

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "compute_mask" in vars(cls) and "supports_masking" not in vars(cls):
            cls.supports_masking = True
        if "call" in vars(cls):
            names = parameter_names(vars(cls)["call"])[3:]
            cls.takes_mask = "mask" in names
            cls.before_mask = names.index("mask") if cls.takes_mask else 0

    def without_mask(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call without `mask`, if the layer uses masks or passes them on."""
        uses = self.takes_mask or self.supports_masking or bool(vars(self)["adopted"])
        return {name: x for name, x in keywords.items() if name != "mask" or not uses}

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        """The mask of the output, for a layer with `supports_masking`.

        Args:
            x: The input: a tensor, or a list of them.
            mask: A bool tensor `(batch, steps)`, false where the input is padding; for a list of
                inputs, a list of masks. `None` means that all steps count. Default: `None`.

        Returns:
            The mask of the output, or `None`; a list for a list of outputs.

        Examples:
            >>> from ztorch.graph.op import leaf
            >>> from ztorch.layers import Embedding
            >>> ids = leaf("input", "ids", (2, 7), "int32")
            >>> Embedding(10, 4, mask_zero=True).compute_mask(ids).shape
            (2, 7)
        """
        return mask

    def called_masked(self, x: Any, *more: Any, context: Context, mask: Any = None,
                      **keywords: Any) -> Any:
        """The result of `call`; its mask is recorded in the context.

        Args:
            x: The input: a tensor, or a list of them.
            *more: Other arguments of `call`.
            context: Context of the trace.
            mask: The mask of x, instead of the one that travels with it. Default: `None`.
            **keywords: Other arguments of `call`.
        """
        tensors = leaves(x)
        masks = [None for _ in tensors] if mask is None else leaves(mask)
        if len(masks) != len(tensors):
            raise shape_error(f"called with {len(tensors)} tensors and {len(masks)} masks",
                              fix="pass a mask or None for each tensor")
        with context.masked(tensors, masks):
            # Layers that only pass masks on need them only for traveling masks: padding is
            # followed through the graph.
            mask = nested(context.mask_of if self.takes_mask else context.masks.get, x)
            if self.takes_mask and len(more) <= self.before_mask:
                keywords["mask"] = mask
            layer: Any = self
            y = layer.call(x, context, *more, **keywords)
            if not leaves(y) or not all(isinstance(v, Value) for v in leaves(y)):
                raise shape_error(f"its call returned {type(y).__name__} {y!r}",
                                  fix="return a tensor made with zt.ops")
            computed = leaves(self.compute_mask(x, mask)) if self.supports_masking else []
        if "mask" in keywords:
            first = int(self.reverses_steps)  # padding would come first in the output
            context.padding.hidden(tensors, leaves(y)[first:], computed[first:])
        for v, m in zip(leaves(y), computed, strict=False):
            if m is not None:
                context.set_mask(v, m)
        return y
