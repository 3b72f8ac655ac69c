"""Layers with Keras' names and arguments, one file for each family.

Defining a subclass of `Layer` registers it. The file of a layer loads when the layer is first
named. Layers that encode texts and categories run on the host, before a model, and are not part
of it.
"""

from __future__ import annotations

import importlib
from typing import Any

from ztorch.errors import unknown
from ztorch.layers.context import Context, States
from ztorch.layers.input_spec import InputSpec
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight
from ztorch.layers.wrapper import Wrapper
from ztorch.names.member_names import SHARED, file_named, shared

LAYERS = Layer.known
_ELSEWHERE = {  # names that are no layers of a model, and their files
    **dict.fromkeys(("add", "average", "concatenate", "dot", "maximum", "minimum", "multiply",
                     "subtract"), "layers.merge_functions"),
    **dict.fromkeys(("CategoryEncoding", "Discretization", "Hashing"), "tabular.categories"),
    **dict.fromkeys(("IntegerLookup", "StringLookup"), "tabular.lookups"),
    "TextVectorization": "tabular.vectorization"}
__all__ = ["LAYERS", "Context", "InputSpec", "Layer", "States", "Weight", "Wrapper",
           *sorted({*_ELSEWHERE, *LAYERS})]


def __getattr__(name: str) -> Any:
    if (file := file_named(__name__, name)) is not None:
        return file
    if name in SHARED:
        return shared(name)
    if name in LAYERS:
        return LAYERS.ours(name)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"ztorch.{_ELSEWHERE[name]}"), name)
    helpers = ("LAYERS", "Context", "Layer", "States", "Weight")
    raise AttributeError(str(unknown("layer", name, [n for n in __all__ if n not in helpers])))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
