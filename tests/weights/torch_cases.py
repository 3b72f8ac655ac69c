"""Layers of ours and PyTorch modules with the same arguments, and inputs for both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests import references
from ztorch import layers as L
from ztorch.model.sequential import Sequential

EPS = 1e-5  # PyTorch's epsilon of normalizations


@dataclass(frozen=True)
class Case:
    """`ours` and `theirs` are layers by name; `theirs` takes torch. Images of ours have their
    channels last, theirs first."""

    shape: tuple[int, ...]
    ours: Callable[[], dict[str, Any]]
    theirs: Callable[[Any], dict[str, Any]]
    images: bool = False
    ids: int = 0
    flatten_from: str | None = None

    def model(self, named: bool) -> Sequential:
        """Our model, with the names of PyTorch's modules or with default names."""
        layers = self.ours()
        for name, layer in layers.items():
            if named:
                layer.name = layer.given_name = name
        return Sequential([L.Input(self.shape, dtype="int32" if self.ids else None),
                           *layers.values()])

    def module(self, torch: Any) -> Any:
        """Their model in float64, with random numbers everywhere."""
        torch.manual_seed(1)
        module = torch.nn.Sequential(OrderedDict(self.theirs(torch))).double().eval()
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                random = torch.randn_like(tensor) * 0.5
                tensor.copy_(random.abs() + 0.5 if name.endswith("running_var") else random)
        return module

    def rows(self) -> np.ndarray:
        random = np.random.default_rng(2)
        if self.ids:
            return random.integers(0, self.ids, (3, *self.shape)).astype(np.int32)
        return random.normal(size=(3, *self.shape))

    def expected(self, torch: Any, module: Any, x: np.ndarray) -> np.ndarray:
        first = np.moveaxis(x, -1, 1) if self.images else x
        tensor = torch.tensor(np.ascontiguousarray(first))
        with torch.no_grad():
            y = module(tensor.long() if self.ids else tensor).numpy()
        return np.moveaxis(y, 1, -1) if self.images and y.ndim > 2 else y


def predicted(model: Any, x: np.ndarray) -> np.ndarray:
    """The model's output for x, in float64, without the compiler."""
    run = references.Run(model.trace(len(x), dtype="float64").functions["predict"])
    return next(iter(run(x=x).values()))


def output_only(kind: Any) -> Any:
    """A recurrent or attention module whose forward gives the outputs alone."""
    def forward(self: Any, x: Any) -> Any:
        return (kind.forward(self, x, x, x) if kind.__name__ == "MultiheadAttention" else
                kind.forward(self, x))[0]

    return type(kind.__name__, (kind,), {"forward": forward})


def recurrent(torch: Any, kind: str, *size: int, **how: Any) -> Any:
    return output_only(getattr(torch.nn, kind))(*size, batch_first=True, **how)


def frames(torch: Any) -> dict[str, Any]:
    """A convolution for each frame of a film, flattened, then an LSTM over the frames."""
    class Each(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:  # (batch, frames, rows, columns, channels)
            images = x.flatten(0, 1).permute(0, 3, 1, 2)
            return torch.relu(super().forward(images)).flatten(1).unflatten(0, x.shape[:2])

    return {"a": Each(2, 3, 2), "b": recurrent(torch, "LSTM", 18, 4)}


CASES = {
    "dense": Case((4,), lambda: {"a": L.Dense(5, "tanh"), "b": L.Dense(3, use_bias=False)},
                  lambda t: {"a": t.nn.Linear(4, 5), "t": t.nn.Tanh(),
                             "b": t.nn.Linear(5, 3, bias=False)}),
    "equal dense": Case((4,), lambda: {f"a{k}": L.Dense(4, "tanh") for k in range(12)},
                        lambda t: {f"{n}{k}": t.nn.Linear(4, 4) if n == "a" else t.nn.Tanh()
                                   for k in range(12) for n in "at"}),
    "conv1d": Case((9, 3), lambda: {"a": L.Conv1D(4, 3, 2)},
                   lambda t: {"a": t.nn.Conv1d(3, 4, 3, 2)}, images=True),
    "conv2d": Case((7, 6, 4), lambda: {"a": L.Conv2D(6, (3, 2), padding="valid", groups=2)},
                   lambda t: {"a": t.nn.Conv2d(4, 6, (3, 2), groups=2)}, images=True),
    "depthwise": Case((7, 6, 4), lambda: {"a": L.DepthwiseConv2D(3, depth_multiplier=2)},
                      lambda t: {"a": t.nn.Conv2d(4, 8, 3, groups=4)}, images=True),
    "separable": Case((7, 6, 4), lambda: {"a": L.SeparableConv2D(5, 3, depth_multiplier=2)},
                      lambda t: {"a": t.nn.Sequential(OrderedDict(
                          depthwise=t.nn.Conv2d(4, 8, 3, groups=4, bias=False),
                          pointwise=t.nn.Conv2d(8, 5, 1)))}, images=True),
    "conv2d transposed": Case((4, 5, 3), lambda: {"a": L.Conv2DTranspose(2, (3, 4), 2)},
                              lambda t: {"a": t.nn.ConvTranspose2d(3, 2, (3, 4), 2)}, images=True),
    "conv1d transposed": Case((4, 3), lambda: {"a": L.Conv1DTranspose(2, 3, 2)},
                              lambda t: {"a": t.nn.ConvTranspose1d(3, 2, 3, 2)}, images=True),
    "batch norm": Case((4, 5, 3), lambda: {"a": L.BatchNormalization(epsilon=EPS)},
                       lambda t: {"a": t.nn.BatchNorm2d(3)}, images=True),
    "layer norm": Case((4, 5), lambda: {"a": L.LayerNormalization(epsilon=EPS)},
                       lambda t: {"a": t.nn.LayerNorm(5)}),
    "layer norm of images": Case(
        (5, 5, 3), lambda: {"a": L.Conv2D(4, 2), "b": L.LayerNormalization((1, 2, 3), EPS)},
        lambda t: {"a": t.nn.Conv2d(3, 4, 2), "b": t.nn.LayerNorm((4, 4, 4))}, images=True),
    "group norm": Case((4, 5, 6), lambda: {"a": L.GroupNormalization(3, epsilon=EPS)},
                       lambda t: {"a": t.nn.GroupNorm(3, 6)}, images=True),
    "instance norm": Case((4, 5, 6), lambda: {"a": L.GroupNormalization(-1, epsilon=EPS)},
                          lambda t: {"a": t.nn.InstanceNorm2d(6, affine=True)}, images=True),
    "rms norm": Case((4, 5), lambda: {"a": L.RMSNormalization(epsilon=EPS)},
                     lambda t: {"a": t.nn.RMSNorm(5, eps=EPS)}),
    "prelu": Case((4, 5, 3), lambda: {"a": L.PReLU(shared_axes=(1, 2))},
                  lambda t: {"a": t.nn.PReLU(3)}, images=True),
    "embedding": Case((6,), lambda: {"a": L.Embedding(9, 4)},
                      lambda t: {"a": t.nn.Embedding(9, 4)}, ids=9),
    "attention": Case((5, 6), lambda: {"a": L.MultiHeadAttention(3)},
                      lambda t: {"a": output_only(t.nn.MultiheadAttention)(
                          6, 3, batch_first=True)}),
    "attention without bias": Case((5, 6), lambda: {"a": L.MultiHeadAttention(2, use_bias=False)},
                                   lambda t: {"a": output_only(t.nn.MultiheadAttention)(
                                       6, 2, bias=False, batch_first=True)}),
    **{kind: Case((5, 3), lambda ours=ours: {"a": getattr(L, ours)(4, return_sequences=True)},
                  lambda t, kind=kind: {"a": recurrent(t, kind, 3, 4)})
       for kind, ours in (("RNN", "SimpleRNN"), ("LSTM", "LSTM"), ("GRU", "GRU"))},
    **{f"{kind} without bias": Case(
        (5, 3), lambda kind=kind: {"a": getattr(L, kind)(4, use_bias=False, return_sequences=True)},
        lambda t, kind=kind: {"a": recurrent(t, kind, 3, 4, bias=False)})
       for kind in ("LSTM", "GRU")},
    **{f"{kind} both ways": Case(
        (5, 3), lambda kind=kind: {"a": L.Bidirectional(getattr(L, kind)(
            4, return_sequences=True))},
        lambda t, kind=kind: {"a": recurrent(t, kind, 3, 4, bidirectional=True)})
       for kind in ("LSTM", "GRU")},
    **{f"encoder, norms {where}": Case(
        (5, 8), lambda first=first: {f"a{k}": L.TransformerEncoder(12, 2, normalize_first=first)
                                     for k in range(2)},
        lambda t, first=first: {f"a{k}": t.nn.TransformerEncoderLayer(
            8, 2, 12, 0.0, batch_first=True, norm_first=first) for k in range(2)})
       for first, where in ((True, "first"), (False, "last"))},
    # -- where the order of channels shows ---------------------------------------------------------
    "flattened images": Case(
        (6, 5, 2), lambda: {"a": L.Conv2D(3, 2, activation="relu"), "p": L.MaxPooling2D(2),
                            "f": L.Flatten(), "d": L.Dropout(0.5), "b": L.Dense(4)},
        lambda t: {"a": t.nn.Conv2d(2, 3, 2), "r": t.nn.ReLU(), "p": t.nn.MaxPool2d(2),
                   "f": t.nn.Flatten(), "b": t.nn.Linear(12, 4)}, images=True),
    "flattened and normalized": Case(
        (4, 5, 2), lambda: {"a": L.Conv2D(3, 2), "n": L.BatchNormalization(epsilon=EPS),
                            "f": L.Flatten(), "m": L.BatchNormalization(epsilon=EPS),
                            "r": L.ReLU(), "b": L.Dense(4), "c": L.Dense(2)},
        lambda t: {"a": t.nn.Conv2d(2, 3, 2), "n": t.nn.BatchNorm2d(3), "f": t.nn.Flatten(),
                   "m": t.nn.BatchNorm1d(36), "r": t.nn.ReLU(), "b": t.nn.Linear(36, 4),
                   "c": t.nn.Linear(4, 2)}, images=True),
    "flattened sequences": Case(
        (9, 2), lambda: {"a": L.Conv1D(3, 2), "f": L.Flatten(), "b": L.Dense(4)},
        lambda t: {"a": t.nn.Conv1d(2, 3, 2), "f": t.nn.Flatten(), "b": t.nn.Linear(24, 4)},
        images=True),
    "flattened states": Case(
        (4, 2), lambda: {"a": L.LSTM(3, return_sequences=True), "f": L.Flatten(),
                         "b": L.Dense(4)},
        lambda t: {"a": recurrent(t, "LSTM", 2, 3), "f": t.nn.Flatten(),
                   "b": t.nn.Linear(12, 4)}),
    "flattened pixels": Case(
        (3, 4, 2), lambda: {"f": L.Flatten(), "b": L.Dense(4)},
        lambda t: {"f": t.nn.Flatten(), "b": t.nn.Linear(24, 4)}, images=True,
        flatten_from="channels_first"),
    "images from features": Case(
        (5,), lambda: {"a": L.Dense(24), "n": L.BatchNormalization(epsilon=EPS), "r": L.ReLU(),
                       "s": L.Reshape((2, 4, 3)), "b": L.Conv2DTranspose(2, 2, 2),
                       "f": L.Flatten(), "c": L.Dense(3)},
        lambda t: {"a": t.nn.Linear(5, 24), "n": t.nn.BatchNorm1d(24), "r": t.nn.ReLU(),
                   "s": t.nn.Unflatten(1, (3, 2, 4)), "b": t.nn.ConvTranspose2d(3, 2, 2, 2),
                   "f": t.nn.Flatten(), "c": t.nn.Linear(64, 3)}),
    "channels first": Case(
        (2, 6, 5), lambda: {"a": L.Conv2D(3, 2, data_format="channels_first"), "f": L.Flatten(),
                            "b": L.Dense(4)},
        lambda t: {"a": t.nn.Conv2d(2, 3, 2), "f": t.nn.Flatten(), "b": t.nn.Linear(60, 4)}),
    "flattened frames": Case(
        (3, 4, 3, 2), lambda: {"a": L.TimeDistributed(L.Conv2D(3, 2, activation="relu")),
                               "f": L.TimeDistributed(L.Flatten()),
                               "b": L.LSTM(4, return_sequences=True)}, frames),
}
