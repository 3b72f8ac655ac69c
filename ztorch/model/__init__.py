"""Models: declared with layers, traced into graphs, compiled to programs."""

# Importing them registers them as layers: a model may be a layer of another one.
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

__all__ = ["Model", "Sequential"]
