"""ONNX files: `zt.onnx.load` reads a model, `load_layer` any graph, `save` writes a model."""

from __future__ import annotations

from typing import Any

from ztorch.errors import nearest
from ztorch.interchange.onnx.load import load
from ztorch.interchange.onnx.load_layer import load_layer
from ztorch.interchange.onnx.save import save

__all__ = ["load", "load_layer", "save"]


def __getattr__(name: str) -> Any:
    hint = "; here it is zt.onnx.save" if name == "export" else nearest(name, __all__)
    raise AttributeError(f"module 'ztorch.onnx' has no attribute {name!r}{hint}")
