"""Makes the layers of a model, and loads their weights from the tensors of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch import layers as L
from ztorch.errors import Unsupported, WeightsError
from ztorch.interchange.hugging_face.folder import Config, Source, Tensors
from ztorch.layers.layer import Layer

_APPROXIMATE = {"approximate": True}
_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {  # our ops, with their arguments
    "gelu": ("gelu", {}), "relu": ("relu", {}), "silu": ("silu", {}), "swish": ("silu", {}),
    "tanh": ("tanh", {}), "gelu_new": ("gelu", _APPROXIMATE), "gelu_fast": ("gelu", _APPROXIMATE),
    "gelu_pytorch_tanh": ("gelu", _APPROXIMATE),
}


class LayerMaker:
    """Makes layers named as their modules in transformers, and remembers where weights come from.

    Args:
        config: The settings of the model.
    """

    def __init__(self, config: Config):
        self.config = config
        self.sources: list[tuple[Layer, Mapping[str, Source]]] = []

    def add(self, layer: Layer, sources: Mapping[str, Source]) -> Any:
        """Returns a layer, and remembers the source of each of its weights, by its name there."""
        self.sources.append((layer, sources))
        return layer

    def load(self, tensors: Tensors) -> None:
        """Sets all weights."""
        for layer, sources in self.sources:
            for weight in layer.own_weights:
                array = sources[weight.name](tensors)
                if array.shape != weight.shape:
                    raise WeightsError(f"{tensors.path}: {layer.name!r} has {weight.name} of shape "
                                       f"{array.shape}, but its config needs {weight.shape}")
                weight.value = np.ascontiguousarray(array)

    # -- layers ------------------------------------------------------------------------------------

    def dense(self, name: str, units: int, use_bias: bool = True, transposed: bool = True) -> Any:
        """A linear module; `transposed`: its matrix is stored as (out, in)."""
        return self.add(L.Dense(units, use_bias=use_bias, name=name), {
            "kernel": lambda t: t(f"{name}.weight").T if transposed else t(f"{name}.weight"),
            "bias": lambda t: t(f"{name}.bias")})

    def embedding(self, name: str, rows: int, width: int) -> Any:
        """A table of vectors."""
        return self.add(L.Embedding(rows, width, name=name),
                        {"embeddings": lambda t: t(f"{name}.weight")})

    def positions(self, name: str, rows: int, table: Source) -> Any:
        """Learned vectors that are added to each position."""
        return self.add(L.PositionEmbedding(rows, name=name), {"position_embeddings": table})

    def norm(self, name: str, epsilon: float) -> Any:
        """A normalization over features."""
        return self.add(L.LayerNormalization(epsilon=epsilon, name=name), {
            "gamma": lambda t: t(f"{name}.weight"), "beta": lambda t: t(f"{name}.bias")})

    def batch_norm(self, name: str) -> Any:
        """A batch normalization with PyTorch's default momentum and epsilon."""
        return self.add(L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name), {
            "gamma": lambda t: t(f"{name}.weight"), "beta": lambda t: t(f"{name}.bias"),
            "moving_mean": lambda t: t(f"{name}.running_mean"),
            "moving_variance": lambda t: t(f"{name}.running_var")})

    def rms_norm(self, name: str, epsilon: float) -> Any:
        """A normalization by the root of the mean square."""
        return self.add(L.RMSNormalization(epsilon=epsilon, name=name),
                        {"scale": lambda t: t(f"{name}.weight")})

    def conv(self, kind: Any, name: str, filters: int, kernel_size: int, strides: int = 1,
             use_bias: bool = True) -> Any:
        """A convolution without padding."""
        layer = kind(filters, kernel_size, strides=strides, use_bias=use_bias, name=name)
        return self.add(layer, {
            "kernel": lambda t: np.moveaxis(t(f"{name}.weight"), (1, 0), (-2, -1)),
            "bias": lambda t: t(f"{name}.bias")})

    def attention(self, name: str, width: int, heads: int, modules: Mapping[str, str],
                  shared: int | None = None, dim: int | None = None, **more: Any) -> Any:
        """Attention whose query, key, value and output are the modules of these names. A module
        without a bias gets zeros where others have one."""
        shared = shared or heads
        dim = dim or self.divided(width, heads)
        shapes = {"query": (width, heads, dim), "key": (width, shared, dim),
                  "value": (width, shared, dim), "attention_output": (heads, dim, width)}

        def kernel(part: str) -> Source:
            return lambda t: self.reshaped(t(f"{modules[part]}.weight").T, shapes[part])

        def bias(part: str) -> Source:
            shape = shapes[part][1:] if part != "attention_output" else (width,)
            name = f"{modules[part]}.bias"
            return lambda t: self.reshaped(t(name), shape) if name in t else np.zeros(
                shape, np.float32)

        return self.add(
            L.MultiHeadAttention(heads, key_dim=dim, num_key_value_heads=shared, name=name, **more),
            {f"{part}/{kind}": source(part) for part in shapes
             for kind, source in (("kernel", kernel), ("bias", bias))})

    # -- settings ----------------------------------------------------------------------------------

    def reshaped(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """An array in the shape of a weight."""
        if array.size != np.prod(shape):
            raise WeightsError(f"{self.config.path} needs a tensor of shape {shape}, but the "
                               f"folder's has {array.shape}")
        return array.reshape(shape)

    def divided(self, width: int, heads: int) -> int:
        """The features of a head."""
        if width % heads:
            raise WeightsError(f"{self.config.path}: {heads} heads do not divide {width} features")
        return width // heads

    def activated(self, setting: str, default: str, x: Any) -> Any:
        """x after the activation that a setting names."""
        name = self.config.text(setting, default)
        if name not in _ACTIVATIONS:
            raise Unsupported(f"{self.config.path}: {setting}={name!r}; ztorch reads "
                              f"{', '.join(_ACTIVATIONS)}")
        op, arguments = _ACTIVATIONS[name]
        return getattr(x, op)(**arguments)

    def dropout(self, setting: str, default: float, x: Any) -> Any:
        """x after the dropout of a setting."""
        rate = self.config.number(setting, default)
        return L.Dropout(rate)(x) if rate else x
