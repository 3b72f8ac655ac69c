"""ONNX files: `zt.onnx.load` reads a model, `load_layer` any graph, `save` writes a model."""

from __future__ import annotations

from ztorch.interchange.onnx.load import load, load_layer
from ztorch.interchange.onnx.save import save

__all__ = ["load", "load_layer", "save"]
