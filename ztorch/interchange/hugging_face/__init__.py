"""Folders as transformers saves models: config.json beside safetensors."""

from ztorch.interchange.hugging_face.load import load_folder

__all__ = ["load_folder"]
