"""Which arguments of Keras' layers ours take, and which of the others may be left out."""

from __future__ import annotations

import inspect
from typing import Any

from ztorch.config import Named
from ztorch.layers.layer import Layer

# Arguments that ours lack and that never change a result.
_INDIFFERENT = {"unroll", "synchronized", "implementation", "use_cudnn", "flash_attention",
                "supports_masking", "optional", "batch_shape", "batch_input_shape",
                "build_input_shape", "attention_axes", "renorm_momentum"}
# Arguments that ours lack, with the value at which they have no effect.
_NEUTRAL = {"time_major": False, "rms_scaling": False, "renorm": False, "use_gate": False,
            "sparse": False, "ragged": False, "data_format": "channels_last", "autocast": True}


def accepted_arguments(layer_class: type[Layer]) -> set[str]:
    """The names of all arguments that a class of layers takes, those of its bases included."""
    parameters = {name for c in layer_class.__mro__
                  if issubclass(c, Named) and "__init__" in vars(c)
                  for name in inspect.signature(c.__init__).parameters}
    return parameters - {"self"} | {*layer_class.more_arguments()}


def may_be_left_out(name: str, value: Any) -> bool:
    """Whether an argument that ours lack has no effect on the results of a layer."""
    return value is None or name in _INDIFFERENT or (name in _NEUTRAL and value == _NEUTRAL[name])


def short(value: Any) -> str:
    """A value of a config for messages."""
    if isinstance(value, dict) and "class_name" in value:
        value = value["config"] if value["class_name"] == "function" else value["class_name"]
    return str(value)[:60]
