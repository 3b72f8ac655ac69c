"""Turns the ops of a Keras model into functions of symbolic tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ztorch import ops
from ztorch.errors import Unsupported
from ztorch.layers.operation import Operation
from ztorch.weights.keras_ops import MODULES, OPS_OF_KERAS

# Arguments of Keras that ours lack, at the value which is ours.
_NEUTRAL = {"axis": -1, "decimals": 0, "sorted": True, "sparse": False}
# A layer of InceptionResNetV2: inputs[0] + inputs[1] * scale.
SCALED_SUM = ("keras.src.applications.inception_resnet_v2", "CustomScaleLayer")


def op_of(spec: dict[str, Any]) -> Callable[..., Any]:
    """The function of symbolic tensors for an op, or a scaled sum, in a Keras file.

    Raises:
        Unsupported: There is no such op here, or it has an argument that ours lacks.
    """
    name = spec["class_name"]
    config: dict[str, Any] = dict(spec["config"])
    label = config.pop("name", None)
    if (spec.get("module"), name) == SCALED_SUM:
        scale = config["scale"]
        return lambda tensors: Operation.of("fma", (tensors[1], scale, tensors[0]), {}, label)
    equivalent = OPS_OF_KERAS.get(name)
    if equivalent is None or spec.get("module") != f"{MODULES}{equivalent.module}":
        raise Unsupported(f"{spec.get('module')}.{name}")
    accepted = inspect.signature(getattr(ops, equivalent.op)).parameters
    keywords: dict[str, Any] = {}
    for key, value in config.items():
        ours = equivalent.renamed.get(key, key)
        if ours in accepted:
            keywords[ours] = tuple(value) if isinstance(value, list) else value
        elif value is not None and _NEUTRAL.get(key) != value:
            raise Unsupported(f"{name} {label!r} with {key}={value!r}")

    def call(*args: Any, **more: Any) -> Any:
        if equivalent.takes_list:
            args = tuple(args[0])
        if "subscripts" in keywords:  # the only argument before the tensors
            args = (keywords["subscripts"], *args)
        attrs = {k: v for k, v in keywords.items() if k != "subscripts"}
        return Operation.of(equivalent.op, args, attrs | more, label)

    return call
