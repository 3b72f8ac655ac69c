"""ONNX in and out: `zt.onnx.load` makes a model of a file, `zt.onnx.save` a file of a model."""

from __future__ import annotations

from ztorch.interchange.onnx.load import load
from ztorch.interchange.onnx.save import save

__all__ = ["load", "save"]
