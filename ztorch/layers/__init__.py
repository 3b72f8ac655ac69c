"""Layers with Keras' names and arguments, one file for each family.

Defining a subclass of `Layer` registers it. Layers that encode texts and categories run on the
host, before a model, and are not part of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ztorch.errors import unknown
from ztorch.layers.context import Context, States
from ztorch.layers.input_spec import InputSpec
from ztorch.layers.layer import Layer
from ztorch.layers.merge_functions import (
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)
from ztorch.layers.weight import Weight
from ztorch.layers.wrapper import Wrapper
from ztorch.names.member_names import SHARED, shared
from ztorch.tabular.categories import CategoryEncoding, Discretization, Hashing
from ztorch.tabular.lookups import IntegerLookup, StringLookup
from ztorch.tabular.vectorization import TextVectorization

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

LAYERS = Layer.known
globals().update(LAYERS)
__all__ = ["LAYERS", "CategoryEncoding", "Context", "Discretization", "Hashing", "InputSpec",
           "IntegerLookup", "Layer", "States", "StringLookup", "TextVectorization", "Weight",
           "Wrapper", "add", "average",
           "concatenate", "dot", "maximum", "minimum", "multiply", "subtract", *sorted(LAYERS)]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name in SHARED:
        return shared(name)
    if name in LAYERS:
        return LAYERS[name]
    helpers = ("LAYERS", "Context", "Layer", "States", "Weight")
    raise AttributeError(str(unknown("layer", name, [n for n in __all__ if n not in helpers])))
