"""Models: declared with layers, traced into graphs, compiled to programs."""

# Both are registered as layers by being defined: a model may be a layer of another one.
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

__all__ = ["Model", "Sequential"]
