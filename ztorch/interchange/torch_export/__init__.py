"""Programs of torch.export (.pt2): `zt.torch_export.load` reads a model, `load_layer` any graph,
without PyTorch; `zt.load_torch` takes a module in memory."""

from __future__ import annotations

from ztorch.interchange.torch_export.load import load, load_layer

__all__ = ["load", "load_layer"]
