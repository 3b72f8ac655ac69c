"""The models of the zoo in PyTorch's words: the same layers, by `torch.nn.functional` alone, on
weights of the same names. It knows the layers that the zoo uses, without their dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests import references
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.layers import Layer
from ztorch.model.model import Model

Tensor = Any
ACTIVATIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "relu": lambda torch, x: torch.relu(x), "tanh": lambda torch, x: torch.tanh(x),
    "sigmoid": lambda torch, x: torch.sigmoid(x), "silu": lambda torch, x: x * torch.sigmoid(x),
    "gelu": lambda torch, x: torch.nn.functional.gelu(x),
    "softmax": lambda torch, x: torch.softmax(x, -1),
}


class Twin:
    """A model with float64 copies of its weights, which training changes."""

    def __init__(self, model: Model, weights: dict[str, np.ndarray]):
        self.torch = references.torch()
        self.model = model
        self.learns = {n: w.trains for n, w in model.named_weights().items()}
        self.weights = {n: self.torch.tensor(a, dtype=self.torch.float64,
                                             requires_grad=self.learns[n])
                        for n, a in weights.items()}
        self.added: list[Tensor] = []  # losses of layers
        self.step = 0

    def __call__(self, x: np.ndarray) -> Tensor:
        """The model's output while it trains."""
        self.added = []
        tensor = self.torch.tensor(x)
        return self.run(self.model, tensor if x.dtype.kind == "i" else tensor.double())

    def run(self, layer: Layer, x: Tensor) -> Tensor:
        kind = type(layer).__name__
        method = getattr(self, f"_{kind}", None)
        assert method, f"tests/zoo/twins.py has no {kind}: add a method _{kind} to {type(self).__name__}"
        return method(layer, x)

    def get(self, layer: Layer, name: str) -> Tensor:
        return self.weights[f"{layer.path}/{name}"]

    def activated(self, layer: Any, y: Tensor) -> Tensor:
        return ACTIVATIONS[layer.activation](self.torch, y) if layer.activation else y

    # -- containers --------------------------------------------------------------------------------

    def _Sequential(self, layer: Any, x: Tensor) -> Tensor:
        for inner in layer.layers:
            x = self.run(inner, x)
        return x

    def _Residual(self, layer: Any, x: Tensor) -> Tensor:
        short = x if layer.shortcut is None else self.run(layer.shortcut, x)
        return self._Sequential(layer, x) + short

    def _Add(self, layer: Any, x: Tensor) -> Tensor:
        return sum(self.run(branch, x) for branch in layer.adopted)

    def _Concatenate(self, layer: Any, x: Tensor) -> Tensor:
        return self.torch.cat([self.run(branch, x) for branch in layer.adopted], layer.axis)

    def _Identity(self, layer: Any, x: Tensor) -> Tensor:
        return x

    _Dropout = _Identity

    # -- shapes ------------------------------------------------------------------------------------

    def _Flatten(self, layer: Any, x: Tensor) -> Tensor:
        return x.flatten(1)

    def _Reshape(self, layer: Any, x: Tensor) -> Tensor:
        return x.reshape(len(x), *layer.target_shape)

    def _ZeroPadding2D(self, layer: Any, x: Tensor) -> Tensor:
        (top, bottom), (left, right) = layer.padding
        return self.torch.nn.functional.pad(x, (0, 0, left, right, top, bottom))

    def _Cropping1D(self, layer: Any, x: Tensor) -> Tensor:
        before, after = layer.cropping
        return x[:, before:x.shape[1] - after]

    # -- dense and recurrent -----------------------------------------------------------------------

    def _Dense(self, layer: Any, x: Tensor) -> Tensor:
        return self.activated(layer, x @ self.get(layer, "kernel") + self.get(layer, "bias"))

    def _ReLU(self, layer: Any, x: Tensor) -> Tensor:
        return x.clamp(0, layer.max_value)

    def _Bidirectional(self, layer: Any, x: Tensor) -> Tensor:
        ways = layer.forward_way, layer.backward_way
        return self.torch.cat([self.run(way, x) for way in ways], -1)

    def _LSTM(self, layer: Any, x: Tensor) -> Tensor:
        """The last output, by PyTorch's own LSTM, whose gates are in the same order."""
        torch = self.torch
        bias = self.get(layer, "bias")
        cell = torch.nn.LSTM(x.shape[-1], layer.units, batch_first=True).double()
        _, (h, _) = torch.func.functional_call(cell, {
            "weight_ih_l0": self.get(layer, "kernel").T,
            "weight_hh_l0": self.get(layer, "recurrent_kernel").T,
            "bias_ih_l0": bias, "bias_hh_l0": torch.zeros_like(bias)},
            x.flip(1) if layer.go_backwards else x)
        return h[0]

    # -- images ------------------------------------------------------------------------------------

    def _convolved(self, layer: Any, x: Tensor, kernel: Tensor, groups: int) -> Tensor:
        """x with channels last; "same" puts the odd element of the frame behind."""
        torch, frame = self.torch, [0, 0]
        if layer.padding == "same":
            for n, k, s in zip(x.shape[1:3], layer.kernel_size, layer.strides, strict=True):
                total = max((-(-n // s) - 1) * s + k - n, 0)
                frame[:0] = [total // 2, total - total // 2]
            frame = frame[:4]
        else:
            frame = [0, 0, 0, 0]
        x = torch.nn.functional.pad(x.permute(0, 3, 1, 2), frame)
        y = torch.nn.functional.conv2d(x, kernel, stride=layer.strides, groups=groups)
        y = y.permute(0, 2, 3, 1)
        return self.activated(layer, y + self.get(layer, "bias") if layer.use_bias else y)

    def _Conv2D(self, layer: Any, x: Tensor) -> Tensor:
        return self._convolved(layer, x, self.get(layer, "kernel").permute(3, 2, 0, 1), 1)

    def _DepthwiseConv2D(self, layer: Any, x: Tensor) -> Tensor:
        kernel = self.get(layer, "kernel")
        height, width, channels, each = kernel.shape
        kernel = kernel.permute(2, 3, 0, 1).reshape(channels * each, 1, height, width)
        return self._convolved(layer, x, kernel, channels)

    def _Conv2DTranspose(self, layer: Any, x: Tensor) -> Tensor:
        """Only "valid", whose result is as PyTorch's without padding."""
        assert layer.padding == "valid" and layer.kernel_size == layer.strides
        y = self.torch.nn.functional.conv_transpose2d(
            x.permute(0, 3, 1, 2), self.get(layer, "kernel").permute(3, 2, 0, 1),
            stride=layer.strides).permute(0, 2, 3, 1)
        return self.activated(layer, y + self.get(layer, "bias"))

    def _MaxPooling2D(self, layer: Any, x: Tensor) -> Tensor:
        y = self.torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), layer.pool_size,
                                                layer.strides)
        return y.permute(0, 2, 3, 1)

    def _GlobalAveragePooling2D(self, layer: Any, x: Tensor) -> Tensor:
        return x.mean((1, 2))

    def _GlobalAveragePooling1D(self, layer: Any, x: Tensor) -> Tensor:
        return x.mean(1)

    # -- normalization -----------------------------------------------------------------------------

    def _BatchNormalization(self, layer: Any, x: Tensor) -> Tensor:
        """Moves its statistics as well, by the variance of the population, as Keras does."""
        torch, rest = self.torch, tuple(range(x.ndim - 1))
        with torch.no_grad():
            for name, now in (("moving_mean", x.mean(rest)),
                              ("moving_variance", x.var(rest, unbiased=False))):
                old = self.get(layer, name)
                old.copy_(layer.momentum * old + (1 - layer.momentum) * now)
        y = torch.nn.functional.batch_norm(
            x.movedim(-1, 1), None, None, self.get(layer, "gamma"), self.get(layer, "beta"),
            training=True, eps=layer.epsilon)
        return y.movedim(1, -1)

    def _LayerNormalization(self, layer: Any, x: Tensor) -> Tensor:
        return self.torch.nn.functional.layer_norm(
            x, x.shape[-1:], self.get(layer, "gamma"), self.get(layer, "beta"), layer.epsilon)

    # -- text --------------------------------------------------------------------------------------

    def _Embedding(self, layer: Any, x: Tensor) -> Tensor:
        return self.torch.nn.functional.embedding(x, self.get(layer, "embeddings"))

    def _PositionEmbedding(self, layer: Any, x: Tensor) -> Tensor:
        return x + self.get(layer, "position_embeddings")[:x.shape[1]]

    def _MultiHeadAttention(self, layer: Any, x: Tensor) -> Tensor:
        torch = self.torch
        q, k, v = (torch.einsum("blf,fhd->bhld", x, self.get(layer, f"{name}/kernel"))
                   + self.get(layer, f"{name}/bias")[:, None] for name in ("query", "key", "value"))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v,
                                                             is_causal=layer.use_causal_mask)
        return (torch.einsum("bhld,hdf->blf", y, self.get(layer, "attention_output/kernel"))
                + self.get(layer, "attention_output/bias"))

    def _TransformerEncoder(self, layer: Any, x: Tensor) -> Tensor:
        attention, first = layer.self_attention, layer.self_attention_norm
        dense, second = (layer.intermediate, layer.output), layer.feedforward_norm

        def feed(x: Tensor) -> Tensor:
            return self.run(dense[1], self.run(dense[0], x))

        if layer.normalize_first:
            x = x + self.run(attention, self.run(first, x))
            return x + feed(self.run(second, x))
        x = self.run(first, x + self.run(attention, x))
        return self.run(second, x + feed(x))

    _TransformerDecoder = _TransformerEncoder

    # -- the variational autoencoder ---------------------------------------------------------------

    def _Latent(self, layer: Any, x: Tensor) -> Tensor:
        """Draws with the very numbers of the compiled program."""
        torch = self.torch
        mean, log_variance = x.chunk(2, -1)
        normal = torch.distributions.Normal
        drawn = normal(mean, torch.exp(0.5 * log_variance))
        apart = torch.distributions.kl_divergence(drawn, normal(torch.zeros_like(mean),
                                                                torch.ones_like(mean)))
        self.added.append(layer.weight * apart.sum(-1))
        seed = leaf("input", "seed", (2,), "uint32")
        step = leaf("input", "step", (), "uint32")
        noise = OPS.random_normal(tuple(mean.shape), seed, step, 0, "float64")
        [numbers] = evaluate([noise], {seed: np.array([self.model.seed, 0], np.uint32),
                                       step: np.uint32(self.step)})
        return drawn.loc + drawn.scale * torch.tensor(numbers)


def loss(torch: Any, name: str, y_true: np.ndarray, y: Tensor) -> Tensor:
    """The mean over rows, of probabilities where the model gives such."""
    true = torch.tensor(y_true)
    if name == "sparse_categorical_crossentropy":
        return -torch.log(y).gather(-1, true.long()[..., None]).mean()
    function = {"mse": torch.nn.functional.mse_loss,
                "binary_crossentropy": torch.nn.functional.binary_cross_entropy}[name]
    return function(y, true.double())


def train(twin: Twin, loss_name: str, rate: float, x: np.ndarray, y: np.ndarray) -> list[float]:
    """One step of Adam, as Keras has it, for each batch in x and y; gives the losses."""
    torch = twin.torch
    learning = [w for n, w in twin.weights.items() if twin.learns[n]]
    adam = torch.optim.Adam(learning, lr=rate)
    losses = []
    for xs, ys in zip(x, y, strict=True):
        total = loss(torch, loss_name, ys, twin(xs)) + sum(a.mean() for a in twin.added)
        adam.zero_grad()
        total.backward()
        twin.step += 1
        # PyTorch adds epsilon to the corrected second moment, Keras to the other one.
        adam.param_groups[0]["eps"] = 1e-7 / (1 - 0.999 ** twin.step) ** 0.5
        adam.step()
        losses.append(float(total.detach()))
    return losses
