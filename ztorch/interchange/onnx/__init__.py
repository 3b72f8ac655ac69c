"""ONNX files: `zt.onnx.load` reads a model, `zt.onnx.save` writes one."""

from __future__ import annotations

from ztorch.interchange.onnx.load import load
from ztorch.interchange.onnx.save import save

__all__ = ["load", "save"]
