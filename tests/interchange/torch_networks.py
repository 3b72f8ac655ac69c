"""PyTorch's networks of all kinds, and their ONNX files. Tests import this file when they run: PyTorch takes
a second to import."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module, shortcut: nn.Module | None = None):
        super().__init__()
        self.layers, self.shortcut = nn.Sequential(*layers), shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        short = x if self.shortcut is None else self.shortcut(x)
        return torch.relu(self.layers(x) + short)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.deep = nn.Conv2d(4, 8, 3, padding=1, dilation=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.end = nn.Conv2d(12, 3, 1)
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.norm(self.down(x)))
        deep = nn.functional.silu(self.deep(nn.functional.avg_pool2d(wide, 2)))
        both = torch.cat([self.up(deep), self.larger(deep)[:, :4], wide], 1)
        return torch.softmax(self.end(both), 1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(6, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
        self.end = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places
        mask = torch.triu(torch.full((6, 6), float("-inf")), 1)
        return self.end(self.block(x, src_mask=mask).mean(1))


class Reader(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.read = kind(5, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.end = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.log_softmax(self.end(self.read(x)[0][:, -1]), -1)


class Windows(nn.Module):
    """Shifted windows with a mask that is written into, and elements looked up by two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.places = nn.Parameter(torch.randn(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.roll(x, (-1, -2), (1, 2))
        x = x.clone()
        x[:, 1:3, ::2] = x[:, 1:3, ::2] * 2 + 1
        mask = torch.zeros(4, 4)
        mask[:2, 2:] = -1.0
        at = torch.arange(16).reshape(4, 4) % 9
        scores = self.query(x) @ x.transpose(1, 2) + self.places[at] + mask
        y = torch.softmax(scores, -1) @ x
        return y[:, torch.tensor([0, 3, 1]), torch.tensor([2, 2, 0])]


def lenet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10),
                         nn.Softmax(-1))


def resnet() -> nn.Module:
    def conv(i: int, o: int, s: int = 1, k: int = 3) -> list[nn.Module]:
        return [nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o)]

    return nn.Sequential(*conv(3, 8), nn.ReLU(),
                         Residual(*conv(8, 8), nn.ReLU(), *conv(8, 8)),
                         Residual(*conv(8, 16, 2), nn.ReLU(), *conv(16, 16),
                                  shortcut=nn.Sequential(*conv(8, 16, 2, 1))),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def mobilenet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(),
                         nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8),
                         nn.Hardswish(), nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.SiLU(),
                         nn.Flatten(2), nn.LayerNorm(16), nn.Flatten(), nn.Linear(256, 5))


def autoencoder() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ELU(), nn.Linear(8, 3), nn.LeakyReLU(),
                         nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 12), nn.Sigmoid(),
                         nn.Unflatten(1, (3, 4)))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lenet, (1, 12, 12)), "resnet": (resnet, (3, 8, 8)),
    "mobilenet": (mobilenet, (3, 8, 8)), "unet": (UNet, (2, 8, 8)), "encoder": (Encoder, (6,)),
    "lstm": (lambda: Reader(nn.LSTM), (4, 5)), "gru": (lambda: Reader(nn.GRU), (4, 5)),
    "rnn": (lambda: Reader(nn.RNN), (4, 5)), "autoencoder": (autoencoder, (3, 4)),
    "windows": (Windows, (4, 4)),
}


def exported(name: str, dynamo: bool, path: Path, dynamic: bool = True
             ) -> tuple[nn.Module, torch.Tensor]:
    """A network with random weights and statistics, written to a file. No two are equal: the older
    exporter writes equal weights, like the ones and zeros that norms begin with, as one."""
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    net = make().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        for weight in net.parameters():
            weight += 0.1 * torch.randn_like(weight)
    x = torch.randint(0, 20, (3, *shape)) if name == "encoder" else torch.randn(3, *shape)
    how = ({} if not dynamic else {"dynamic_shapes": [{0: torch.export.Dim("batch")}]} if dynamo
           else {"dynamic_axes": {"x": {0: "batch"}}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), str(path), dynamo=dynamo, input_names=["x"], **how)
    return net, x
