"""Convolutions, pooling, frames and normalizations in PyTorch's words, and what all layers' words
share. torch_words.py has the other layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import references
from ztorch.layers import Layer

Tensor = Any

ACTIVATIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "celu": lambda f, x: f.celu(x), "elu": lambda f, x: f.elu(x),
    "exponential": lambda f, x: x.exp(), "gelu": lambda f, x: f.gelu(x),
    "glu": lambda f, x: f.glu(x), "hard_shrink": lambda f, x: f.hardshrink(x),
    "hard_sigmoid": lambda f, x: f.relu6(x + 3) / 6, "hard_silu": lambda f, x: f.hardswish(x),
    "hard_swish": lambda f, x: f.hardswish(x), "hard_tanh": lambda f, x: f.hardtanh(x),
    "leaky_relu": lambda f, x: f.leaky_relu(x, 0.2), "linear": lambda f, x: x,
    "log_sigmoid": lambda f, x: f.logsigmoid(x), "log_softmax": lambda f, x: f.log_softmax(x, -1),
    "mish": lambda f, x: f.mish(x), "relu": lambda f, x: f.relu(x),
    "relu6": lambda f, x: f.relu6(x), "selu": lambda f, x: f.selu(x),
    "sigmoid": lambda f, x: x.sigmoid(), "silu": lambda f, x: f.silu(x),
    "soft_shrink": lambda f, x: f.softshrink(x), "softmax": lambda f, x: f.softmax(x, -1),
    "softplus": lambda f, x: f.softplus(x, threshold=50), "softsign": lambda f, x: f.softsign(x),
    "sparse_plus": lambda f, x: (x + 1).clamp(0, 2).square() / 4 + (x - 1).clamp(0),
    "sparse_sigmoid": lambda f, x: ((x + 1) / 2).clamp(0, 1),
    "squareplus": lambda f, x: (x + (x.square() + 4).sqrt()) / 2,
    "swish": lambda f, x: f.silu(x), "tanh": lambda f, x: x.tanh(),
    "tanh_shrink": lambda f, x: f.tanhshrink(x), "threshold": lambda f, x: f.threshold(x, 0, 0),
}


class Speaker:
    """Layers by their weights, tensors by path; `training` as in a training step."""

    def __init__(self, weights: dict[str, Tensor], training: bool = False, seed: int = 0,
                 draws: str = "float64"):
        self.torch = references.torch()
        self.f = self.torch.nn.functional
        self.weights, self.training, self.seed = weights, training, seed
        self.draws = draws  # the dtype of the model whose random numbers these are
        self.step = 0  # how many training steps there have been
        self.streams = 0
        self.moved: dict[str, Tensor] = {}  # statistics after this step

    def __call__(self, layer: Layer, x: Tensor) -> Tensor:
        """One pass through a layer, and through those inside."""
        self.streams, self.moved = 0, {}
        return self.run(layer, x)

    def run(self, layer: Layer, x: Tensor) -> Tensor:
        return getattr(self, f"_{type(layer).__name__}")(layer, x)

    def get(self, layer: Layer, name: str) -> Tensor:
        return self.weights[f"{layer.path}/{name}"]

    def activated(self, layer: Any, y: Tensor) -> Tensor:
        return ACTIVATIONS[layer.activation](self.f, y) if layer.activation else y

    def biased(self, layer: Any, y: Tensor, axis: int = -1) -> Tensor:
        if layer.use_bias:
            bias = self.get(layer, "bias")
            y = y + bias.reshape([-1 if k == axis % y.ndim else 1 for k in range(y.ndim)])
        return self.activated(layer, y)


class Images(Speaker):
    """Convolution, pooling and normalization layers."""

    # -- windows: PyTorch has channels first -------------------------------------------------------

    def turned(self, layer: Any, x: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        """work on x with channels first, in the layer's format."""
        if layer.data_format == "channels_first":
            return work(x)
        return work(x.movedim(-1, 1)).movedim(1, -1)

    def framed(self, layer: Any, x: Tensor, size: tuple[int, ...], fill: float = 0.0) -> Tensor:
        """x with the padding of "same" and "causal"; the odd element goes behind."""
        frame: list[int] = []
        if not isinstance(layer.padding, str):
            return self.f.pad(x, [n for pair in reversed(layer.padding) for n in pair])
        dilation = getattr(layer, "dilation_rate", (1,) * layer.axes)
        for n, k, s, d in zip(x.shape[2:], size, layer.strides, dilation, strict=True):
            wide = (k - 1) * d
            total = {"valid": 0, "causal": wide}.get(layer.padding,
                                                     max((-(-n // s) - 1) * s + wide + 1 - n, 0))
            before = total if layer.padding == "causal" else total // 2
            frame[:0] = [before, total - before]
        return self.f.pad(x, frame, value=fill)

    def convolved(self, layer: Any, x: Tensor, kernel: Tensor, groups: int) -> Tensor:
        return getattr(self.f, f"conv{layer.axes}d")(
            self.framed(layer, x, layer.kernel_size), kernel, stride=layer.strides,
            dilation=layer.dilation_rate, groups=groups)

    def _Conv2D(self, layer: Any, x: Tensor) -> Tensor:
        kernel = self.get(layer, "kernel").movedim((-1, -2), (0, 1))
        return self.turned(layer, x, lambda x: self.biased(
            layer, self.convolved(layer, x, kernel, layer.groups), 1))

    def _DepthwiseConv2D(self, layer: Any, x: Tensor) -> Tensor:
        return self.turned(layer, x, lambda x: self.biased(layer, self.depthwise(
            layer, x, self.get(layer, "kernel")), 1))

    def depthwise(self, layer: Any, x: Tensor, kernel: Tensor) -> Tensor:
        kernel = kernel.movedim((-2, -1), (0, 1)).flatten(0, 1)[:, None]
        return self.convolved(layer, x, kernel, x.shape[1])

    def _SeparableConv2D(self, layer: Any, x: Tensor) -> Tensor:
        mixing = self.get(layer, "pointwise_kernel").movedim((-1, -2), (0, 1))
        return self.turned(layer, x, lambda x: self.biased(layer, getattr(
            self.f, f"conv{layer.axes}d")(self.depthwise(layer, x, self.get(
                layer, "depthwise_kernel")), mixing), 1))

    def _Conv2DTranspose(self, layer: Any, x: Tensor) -> Tensor:
        kernel = self.get(layer, "kernel").movedim((-1, -2), (0, 1))
        size = [(k - 1) * d + 1 for k, d in zip(layer.kernel_size, layer.dilation_rate, strict=True)]

        def work(x: Tensor) -> Tensor:
            """Keras' part of all that windows reach, or more where they reach too little."""
            y = getattr(self.f, f"conv_transpose{layer.axes}d")(
                x, kernel, stride=layer.strides, dilation=layer.dilation_rate)
            for axis, (k, s) in enumerate(zip(size, layer.strides, strict=True), 2):
                more = layer.output_padding and layer.output_padding[axis - 2]
                cut, least = (k - 1, k % 2) if layer.padding == "same" else (0, k)
                more = max(s - least, 0) if more is None else more
                length = (x.shape[axis] - 1) * s + least + more
                start = max(cut - (k + k % 2 - 1 + more) // 2, 0)
                missing = max(start + length - y.shape[axis], 0)
                y = self.f.pad(y, (0, 0) * (y.ndim - 1 - axis) + (0, missing))
                y = y.narrow(axis, start, length)
            return self.biased(layer, y, 1)

        return self.turned(layer, x, work)

    _Conv1D, _DepthwiseConv1D, _SeparableConv1D = _Conv2D, _DepthwiseConv2D, _SeparableConv2D
    _Conv1DTranspose = _Conv3DTranspose = _Conv2DTranspose
    _Conv3D = _Conv2D

    def _MaxPooling2D(self, layer: Any, x: Tensor) -> Tensor:
        pool = getattr(self.f, f"max_pool{layer.axes}d")
        return self.turned(layer, x, lambda x: pool(
            self.framed(layer, x, layer.pool_size, -math.inf), layer.pool_size, layer.strides))

    def _AveragePooling2D(self, layer: Any, x: Tensor) -> Tensor:
        def pool(x: Tensor) -> Tensor:
            return getattr(self.f, f"avg_pool{layer.axes}d")(
                self.framed(layer, x, layer.pool_size), layer.pool_size, layer.strides)

        return self.turned(layer, x, lambda x: pool(x) / pool(self.torch.ones_like(x)))

    def _AdaptiveAveragePooling2D(self, layer: Any, x: Tensor) -> Tensor:
        kind = "max" if type(layer).__name__.startswith("AdaptiveMax") else "avg"
        pool = getattr(self.f, f"adaptive_{kind}_pool{layer.axes}d")
        return self.turned(layer, x, lambda x: pool(x, layer.output_size))

    _AdaptiveAveragePooling1D = _AdaptiveAveragePooling3D = _AdaptiveAveragePooling2D
    _AdaptiveMaxPooling1D = _AdaptiveMaxPooling2D = _AdaptiveMaxPooling3D = (
        _AdaptiveAveragePooling2D)

    def overall(self, layer: Any, x: Tensor, reduce: str) -> Tensor:
        first = 2 if layer.data_format == "channels_first" else 1
        return getattr(x, reduce)(tuple(range(first, first + layer.axes)), keepdim=layer.keepdims)

    def _GlobalAveragePooling2D(self, layer: Any, x: Tensor) -> Tensor:
        return self.overall(layer, x, "mean")

    def _GlobalMaxPooling2D(self, layer: Any, x: Tensor) -> Tensor:
        return self.overall(layer, x, "amax")

    _MaxPooling1D = _MaxPooling3D = _MaxPooling2D
    _AveragePooling1D = _AveragePooling3D = _AveragePooling2D
    _GlobalAveragePooling1D = _GlobalAveragePooling3D = _GlobalAveragePooling2D
    _GlobalMaxPooling1D = _GlobalMaxPooling3D = _GlobalMaxPooling2D

    def _UpSampling1D(self, layer: Any, x: Tensor) -> Tensor:
        return self.f.interpolate(x.mT, scale_factor=float(layer.size)).mT

    def _UpSampling3D(self, layer: Any, x: Tensor) -> Tensor:
        return self.turned(layer, x, lambda x: self.f.interpolate(
            x, scale_factor=tuple(map(float, layer.size))))

    def _UpSampling2D(self, layer: Any, x: Tensor) -> Tensor:
        return self.turned(layer, x, lambda x: self.f.interpolate(
            x, scale_factor=tuple(map(float, layer.size)), mode=layer.interpolation))

    def _Resizing(self, layer: Any, x: Tensor) -> Tensor:
        mode = {"nearest": "nearest-exact"}.get(layer.interpolation, layer.interpolation)
        return self.turned(layer, x, lambda x: self.f.interpolate(
            x, (layer.height, layer.width), mode=mode, antialias=layer.antialias))

    def _CenterCrop(self, layer: Any, x: Tensor) -> Tensor:
        def work(x: Tensor) -> Tensor:
            for axis, n in ((2, layer.height), (3, layer.width)):
                x = x.narrow(axis, (x.shape[axis] - n) // 2, n)
            return x

        return self.turned(layer, x, work)

    def _ZeroPadding2D(self, layer: Any, x: Tensor) -> Tensor:
        pairs = layer.padding if layer.axes > 1 else (layer.padding,)
        return self.turned(layer, x, lambda x: self.f.pad(
            x, [n for pair in reversed(pairs) for n in pair]))

    def _Cropping2D(self, layer: Any, x: Tensor) -> Tensor:
        pairs = layer.cropping if layer.axes > 1 else (layer.cropping,)
        return self.turned(layer, x, lambda x: self.f.pad(
            x, [-n for pair in reversed(pairs) for n in pair]))

    _ZeroPadding1D = _ZeroPadding3D = _ZeroPadding2D
    _Cropping1D = _Cropping3D = _Cropping2D

    # -- normalization -----------------------------------------------------------------------------

    def at_the_end(self, layer: Any, x: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
        """x with the layer's axes last, where they were, and where they are."""
        layer_axes = layer.axis if isinstance(layer.axis, (list, tuple)) else (layer.axis,)
        axes = tuple(a % x.ndim for a in layer_axes)
        last = tuple(range(x.ndim - len(axes), x.ndim))
        return x.movedim(axes, last), axes, last

    def _LayerNormalization(self, layer: Any, x: Tensor) -> Tensor:
        x, axes, last = self.at_the_end(layer, x)
        gamma, beta = self.scales(layer)
        y = self.f.layer_norm(x, x.shape[last[0]:], gamma, beta, layer.epsilon)
        return y.movedim(last, axes)

    def scales(self, layer: Any) -> tuple[Tensor | None, Tensor | None]:
        beta = self.get(layer, "beta") if layer.center else None
        return (self.get(layer, "gamma") if layer.scale else
                None if beta is None else self.torch.ones_like(beta)), beta

    def _RMSNormalization(self, layer: Any, x: Tensor) -> Tensor:
        x, axes, last = self.at_the_end(layer, x)
        scale = self.get(layer, "scale")
        return self.f.rms_norm(x, scale.shape, scale, layer.epsilon).movedim(last, axes)

    def _UnitNormalization(self, layer: Any, x: Tensor) -> Tensor:
        x, axes, last = self.at_the_end(layer, x)
        y = self.f.normalize(x.flatten(last[0]), dim=-1).reshape(x.shape)
        return y.movedim(last, axes)

    def _GroupNormalization(self, layer: Any, x: Tensor) -> Tensor:
        x = x.movedim(layer.axis, 1)
        groups = x.shape[1] if layer.groups == -1 else layer.groups
        return self.f.group_norm(x, groups, *self.scales(layer), layer.epsilon).movedim(
            1, layer.axis)

    def _BatchNormalization(self, layer: Any, x: Tensor) -> Tensor:
        """Moves its statistics by the variance of the population, as Keras does."""
        x = x.movedim(layer.axis, 1)
        learns = self.training and layer.trains
        mean, variance = (self.get(layer, f"moving_{n}") for n in ("mean", "variance"))
        if learns:
            with self.torch.no_grad():
                rest = (0, *range(2, x.ndim))
                for name, old, now in (("mean", mean, x.mean(rest)),
                                       ("variance", variance, x.var(rest, unbiased=False))):
                    self.moved[f"{layer.path}/moving_{name}"] = (
                        layer.momentum * old + (1 - layer.momentum) * now)
        y = self.f.batch_norm(x, None if learns else mean, None if learns else variance,
                              *self.scales(layer), training=learns, eps=layer.epsilon)
        return y.movedim(1, layer.axis)

    def _Normalization(self, layer: Any, x: Tensor) -> Tensor:
        if layer.input_mean is None:
            mean, variance = self.get(layer, "mean"), self.get(layer, "variance")
        else:
            mean, variance = (self.torch.tensor(np.array(n), dtype=x.dtype)
                              for n in (layer.input_mean, layer.input_variance))
        axes = layer.axis if isinstance(layer.axis, (list, tuple)) else (layer.axis,)
        kept = [] if layer.axis is None else [a % x.ndim for a in axes]
        spread = [n if k in kept else 1 for k, n in enumerate(x.shape)]
        mean, variance = (v.reshape(spread) if v.ndim else v for v in (mean, variance))
        deviation = variance.sqrt().clamp(1e-7)
        return x * deviation + mean if layer.invert else (x - mean) / deviation
