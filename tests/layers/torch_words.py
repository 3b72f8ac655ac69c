"""Every layer in PyTorch's words: the same computation by `torch.nn.functional` and modules of
`torch.nn`, on weights in our layouts, so that PyTorch's autograd gives gradients of the same shapes.

Where a layer draws random numbers, its words take the very numbers of ours: what is compared is what
becomes of them (the draws themselves are tested in tests/ops/test_random.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers.torch_images import Tensor
from tests.layers.torch_recurrent import Recurrent
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf


class Words(Recurrent):
    """All layers."""

    # -- shapes ------------------------------------------------------------------------------------

    def _Identity(self, layer: Any, x: Tensor) -> Tensor:
        return x

    def _Flatten(self, layer: Any, x: Tensor) -> Tensor:
        return (x.movedim(1, -1) if layer.data_format == "channels_first" else x).flatten(1)

    def _Reshape(self, layer: Any, x: Tensor) -> Tensor:
        return x.reshape(len(x), *layer.target_shape)

    def _Permute(self, layer: Any, x: Tensor) -> Tensor:
        return x.permute(0, *layer.dims)

    def _RepeatVector(self, layer: Any, x: Tensor) -> Tensor:
        return x[:, None].repeat(1, layer.n, 1)

    def _Rescaling(self, layer: Any, x: Tensor) -> Tensor:
        return x * layer.scale + layer.offset

    def _Lambda(self, layer: Any, x: Tensor) -> Tensor:
        return layer.function.torch(x)

    def _Kernel(self, layer: Any, x: Tensor) -> Tensor:
        return x * self.get(layer, "scale") + self.get(layer, "shift")

    # -- dense and activations ---------------------------------------------------------------------

    def _Dense(self, layer: Any, x: Tensor) -> Tensor:
        return self.biased(layer, x @ self.get(layer, "kernel"))

    def _Activation(self, layer: Any, x: Tensor) -> Tensor:
        return self.activated(layer, x)

    def _ReLU(self, layer: Any, x: Tensor) -> Tensor:
        t = layer.threshold
        high = self.f.threshold(x, t, 0.0)
        low = layer.negative_slope * (x - t).clamp(max=0)
        return (high if layer.max_value is None else high.clamp(max=layer.max_value)) + low

    def _LeakyReLU(self, layer: Any, x: Tensor) -> Tensor:
        return self.f.leaky_relu(x, layer.negative_slope)

    def _PReLU(self, layer: Any, x: Tensor) -> Tensor:
        return x.clamp(0) + self.get(layer, "alpha") * x.clamp(max=0)

    def _ELU(self, layer: Any, x: Tensor) -> Tensor:
        return self.f.elu(x, layer.alpha)

    def _Softmax(self, layer: Any, x: Tensor) -> Tensor:
        if isinstance(layer.axis, int):
            return x.softmax(layer.axis)
        return (x - x.logsumexp(layer.axis, keepdim=True)).exp()

    # -- layers of layers --------------------------------------------------------------------------

    def _Sequential(self, layer: Any, x: Tensor) -> Tensor:
        for inner in layer.layers:
            x = self.run(inner, x)
        return x

    def _Residual(self, layer: Any, x: Tensor) -> Tensor:
        short = x if layer.shortcut is None else self.run(layer.shortcut, x)
        return self._Sequential(layer, x) + short

    def _Parallel(self, layer: Any, x: Tensor) -> Tensor:
        parts = [self.run(branch, x) for branch in layer.adopted]
        return self.merged(layer.merging, parts)

    def _merge(self, layer: Any, x: Tensor) -> Tensor:
        return self.merged(layer, [self.run(branch, x) for branch in layer.adopted])

    _Add = _Subtract = _Multiply = _Average = _Maximum = _Minimum = _Concatenate = _Dot = _merge

    def merged(self, layer: Any, parts: list[Tensor]) -> Tensor:
        """A merge layer's output for several tensors."""
        torch, kind = self.torch, type(layer).__name__
        if kind == "Concatenate":
            return torch.cat(parts, layer.axis)
        if kind == "Dot":
            a, b = (v.movedim(axis, -1) for v, axis in zip(parts, layer.axes, strict=True))
            if layer.normalize:
                a, b = self.f.normalize(a, dim=-1), self.f.normalize(b, dim=-1)
            y = a.flatten(1, -2) @ b.flatten(1, -2).mT if a.ndim > 2 else (a * b).sum(-1)
            return y.reshape(len(y), *((*a.shape[1:-1], *b.shape[1:-1]) or (1,)))
        stacked = torch.stack(torch.broadcast_tensors(*parts))
        return {"Add": lambda: stacked.sum(0), "Subtract": lambda: stacked[0] - stacked[1],
                "Multiply": lambda: stacked.prod(0), "Average": lambda: stacked.mean(0),
                "Maximum": lambda: stacked.amax(0), "Minimum": lambda: stacked.amin(0)}[kind]()

    def _Checkpoint(self, layer: Any, x: Tensor) -> Tensor:
        return self.run(layer.layer, x)

    def _TimeDistributed(self, layer: Any, x: Tensor) -> Tensor:
        return self.run(layer.layer, x.flatten(0, 1)).unflatten(0, x.shape[:2])

    # -- text --------------------------------------------------------------------------------------

    def _Embedding(self, layer: Any, x: Tensor) -> Tensor:
        return self.f.embedding(x, self.get(layer, "embeddings"))

    def _Masking(self, layer: Any, x: Tensor) -> Tensor:
        return x * (x != layer.mask_value).any(-1, keepdim=True)

    def _PositionEmbedding(self, layer: Any, x: Tensor) -> Tensor:
        return x + self.get(layer, "position_embeddings")[:x.shape[1]]

    def turns(self, length: int, count: int, longest: float, like: Tensor) -> Tensor:
        """Angles by position and pair of features."""
        torch = self.torch
        rates = longest ** -(torch.arange(count, dtype=torch.float64) / count)
        return torch.outer(torch.arange(length, dtype=torch.float64), rates).to(like.dtype)

    def _SinusoidalPosition(self, layer: Any, x: Tensor) -> Tensor:
        angles = self.turns(x.shape[1], x.shape[2] // 2, layer.max_wavelength, x)
        return x + self.torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    def _RotaryEmbedding(self, layer: Any, x: Tensor) -> Tensor:
        return self.rotated(x.movedim(layer.sequence_axis, -2),
                            layer.max_wavelength).movedim(-2, layer.sequence_axis)

    def rotated(self, x: Tensor, longest: float = 10000.0) -> Tensor:
        """Pairs of features as complex numbers, times e ** (i * angle)."""
        torch = self.torch
        angles = self.turns(x.shape[-2], x.shape[-1] // 2, longest, x)
        y = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([y.real, y.imag], -1)

    def _MultiHeadAttention(self, layer: Any, x: Tensor) -> Tensor:
        torch = self.torch

        def biased(name: str, y: Tensor) -> Tensor:
            return y + self.get(layer, f"{name}/bias") if layer.use_bias else y

        q, k, v = (biased(name, torch.einsum("blf,fhd->blhd", x, self.get(
            layer, f"{name}/kernel"))).transpose(1, 2) for name in ("query", "key", "value"))
        if layer.rotary:
            q, k = self.rotated(q), self.rotated(k)
        y = self.f.scaled_dot_product_attention(q, k, v, is_causal=layer.use_causal_mask)
        return biased("attention_output", torch.einsum(
            "bhld,hdf->blf", y, self.get(layer, "attention_output/kernel")))

    def _TransformerEncoder(self, layer: Any, x: Tensor) -> Tensor:
        def feed(x: Tensor) -> Tensor:
            return self.run(layer.output, self.run(layer.intermediate, x))

        for part, norm in ((lambda x: self.run(layer.self_attention, x), layer.self_attention_norm),
                           (feed, layer.feedforward_norm)):
            x = (x + part(self.run(norm, x)) if layer.normalize_first else
                 self.run(norm, x + part(x)))
        return x

    _TransformerDecoder = _TransformerEncoder

    # -- chance ------------------------------------------------------------------------------------

    def drawn(self, layer: Any, x: Tensor, draw: Callable[..., Any]) -> Tensor:
        """The numbers that ours draw at this place and step, in float64."""
        own = getattr(layer, "seed", None)
        stream = self.streams if own is None else 1 << 31 | own
        self.streams += own is None
        seed, step = leaf("input", "seed", (2,), "uint32"), leaf("input", "step", (), "uint32")
        [result] = evaluate([draw(seed=seed, step=step, stream=stream)], {
            seed: np.array([self.seed, 0], np.uint32), step: np.uint32(self.step)})
        return self.torch.tensor(result, dtype=x.dtype)

    def kept(self, layer: Any, x: Tensor, noise: tuple[int, ...],
             rate: float | None = None) -> Tensor:
        """1 where dropout lets a number pass, else 0."""
        ones = OPS.full(tuple(x.shape), 1.0, self.draws)
        mask = self.drawn(layer, x, lambda **how: OPS.dropout(
            ones, rate=layer.rate if rate is None else rate, noise_shape=noise, **how))
        return (mask > 0).to(x.dtype)

    def _Dropout(self, layer: Any, x: Tensor) -> Tensor:
        if not self.training or not layer.rate:
            return x
        noise = tuple(n if m is None else m
                      for m, n in zip(layer.noise_shape or x.shape, x.shape, strict=True))
        return x * self.kept(layer, x, noise) / (1 - layer.rate)

    def _SpatialDropout2D(self, layer: Any, x: Tensor) -> Tensor:
        if not self.training:
            return x
        first = getattr(layer, "data_format", "") == "channels_first"
        noise = tuple(n if k in (0, 1 if first else x.ndim - 1) else 1
                      for k, n in enumerate(x.shape))
        return x * self.kept(layer, x, noise) / (1 - layer.rate)

    _SpatialDropout1D = _SpatialDropout3D = _SpatialDropout2D

    def _StochasticDepth(self, layer: Any, x: Tensor) -> Tensor:
        rate = layer.drop_path_rate
        noise = (len(x), *(1,) * (x.ndim - 1))
        return x * self.kept(layer, x, noise, rate) / (1 - rate) if self.training else x

    def _LayerScale(self, layer: Any, x: Tensor) -> Tensor:
        return x * self.get(layer, "gamma")

    def normal(self, layer: Any, x: Tensor) -> Tensor:
        return self.drawn(layer, x, lambda **how: OPS.random_normal(
            tuple(x.shape), dtype=self.draws, **how))

    def _GaussianNoise(self, layer: Any, x: Tensor) -> Tensor:
        return x + layer.stddev * self.normal(layer, x) if self.training else x

    def _GaussianDropout(self, layer: Any, x: Tensor) -> Tensor:
        deviation = math.sqrt(layer.rate / (1 - layer.rate))
        return x * (1 + deviation * self.normal(layer, x)) if self.training else x

    def _AlphaDropout(self, layer: Any, x: Tensor) -> Tensor:
        """As PyTorch's own, whose draws are others: a is its slope, b its shift."""
        if not self.training:
            return x
        low = self.f.selu(self.torch.tensor(-math.inf, dtype=x.dtype))
        noise = tuple(n if m is None else m
                      for m, n in zip(layer.noise_shape or x.shape, x.shape, strict=True))
        kept, q = self.kept(layer, x, noise), 1 - layer.rate
        a = (q + low.square() * q * (1 - q)) ** -0.5
        return a * (x * kept + low * (1 - kept)) - a * (1 - q) * low
