"""Networks of images as PyTorch modules with random weights: families that the zoo does not have,
with the layers, sizes and numbers of weights of their papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import peers

Sizes = tuple[int, ...]


def _nn() -> Any:
    return peers.module("torch").nn


def module_of(forward: Callable[..., Any], **parts: Any) -> Any:
    """A module of parts, and what it does with them: `forward(parts, x)`."""

    class Module(_nn().Module):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Module()


def _conv(into: int, out: int, size: int = 3, stride: int = 1, groups: int = 1, act: Any = None,
          norm: bool = True) -> list[Any]:
    """A padded convolution, its normalisation and activation."""
    nn = _nn()
    conv = nn.Conv2d(into, out, size, stride, size // 2, groups=groups, bias=not norm)
    return [conv, *([nn.BatchNorm2d(out)] if norm else []), *([act()] if act else [])]


def _residual(main: Sequence[Any], short: Sequence[Any] = (), last: Any = None) -> Any:
    nn = _nn()
    return module_of(lambda m, x: m.last(m.main(x) + m.short(x)), main=nn.Sequential(*main),
               short=nn.Sequential(*short), last=last or nn.Identity())


def lenet() -> Any:
    """LeNet-5 for 28 x 28 x 1."""
    nn = _nn()
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10))


def resnet_block() -> Any:
    """Two convolutions of 64 channels with a residual connection."""
    relu = _nn().ReLU
    return _residual([*_conv(64, 64, act=relu), *_conv(64, 64)], last=relu())


def depthwise_block() -> Any:
    """The block of a MobileNet: a window for each channel, then a mixture of channels."""
    relu = _nn().ReLU6
    return _nn().Sequential(*_conv(64, 64, groups=64, act=relu), *_conv(64, 128, 1, act=relu))


def resnet(blocks: Sizes, wide: bool) -> Any:
    """ResNet-18 with plain blocks, ResNet-50 with wide ones: He et al. (2015)."""
    nn = _nn()
    relu, each, channels = nn.ReLU, 4 if wide else 1, 64
    layers = [*_conv(3, 64, 7, 2, act=relu), nn.MaxPool2d(3, 2, 1)]
    for k, count in enumerate(blocks):
        width = 64 << k
        for n in range(count):
            stride = 2 if k and not n else 1
            main = [*_conv(channels, width, 1, act=relu), *_conv(width, width, 3, stride, act=relu),
                    *_conv(width, width * 4, 1)] if wide else [
                *_conv(channels, width, 3, stride, act=relu), *_conv(width, width)]
            short = _conv(channels, width * each, 1, stride) if (
                stride > 1 or channels != width * each) else []
            layers.append(_residual(main, short, relu()))
            channels = width * each
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def densenet(blocks: Sizes = (6, 12, 24, 16), growth: int = 32) -> Any:
    """DenseNet-121: Huang et al. (2017). Each layer reads all before it in its block."""
    nn, torch = _nn(), peers.module("torch")
    channels = 64
    layers = [*_conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for k, count in enumerate(blocks):
        for _ in range(count):
            new = nn.Sequential(
                nn.BatchNorm2d(channels), nn.ReLU(), *_conv(channels, 4 * growth, 1, act=nn.ReLU),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
            layers.append(module_of(lambda m, x: torch.cat([x, m.new(x)], 1), new=new))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if k + 1 < len(blocks):
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def _squeeze(channels: int, inner: int, act: Any, gate: Any) -> Any:
    """Channels times a factor that depends on the mean of each of them."""
    nn = _nn()
    return module_of(lambda m, x: x * m.factor(x), factor=nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), act(),
        nn.Conv2d(inner, channels, 1), gate()))


def _inverted(into: int, wide: int, out: int, size: int, stride: int, act: Any,
              squeeze: Any) -> Any:
    """A block that widens, moves a window over each channel, and narrows."""
    main = [*(_conv(into, wide, 1, act=act) if wide != into else []),
            *_conv(wide, wide, size, stride, groups=wide, act=act), *squeeze, *_conv(wide, out, 1)]
    return _residual(main) if stride == 1 and into == out else _nn().Sequential(*main)


def mobilenet_v3_small() -> Any:
    """MobileNetV3-small: Howard et al. (2019)."""
    nn = _nn()
    rows = ((3, 16, 16, 1, nn.ReLU, 2), (3, 72, 24, 0, nn.ReLU, 2), (3, 88, 24, 0, nn.ReLU, 1),
            (5, 96, 40, 1, nn.Hardswish, 2), (5, 240, 40, 1, nn.Hardswish, 1),
            (5, 240, 40, 1, nn.Hardswish, 1), (5, 120, 48, 1, nn.Hardswish, 1),
            (5, 144, 48, 1, nn.Hardswish, 1), (5, 288, 96, 1, nn.Hardswish, 2),
            (5, 576, 96, 1, nn.Hardswish, 1), (5, 576, 96, 1, nn.Hardswish, 1))
    layers, channels = _conv(3, 16, 3, 2, act=nn.Hardswish), 16
    for size, wide, out, squeezed, act, stride in rows:
        inner = (max(8, (wide // 4 + 4) // 8 * 8))
        squeeze = [_squeeze(wide, inner, nn.ReLU, nn.Hardsigmoid)] if squeezed else []
        layers.append(_inverted(channels, wide, out, size, stride, act, squeeze))
        channels = out
    return nn.Sequential(
        *layers, *_conv(96, 576, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))


def efficientnet_b0() -> Any:
    """EfficientNet-B0: Tan and Le (2019)."""
    nn = _nn()
    rows = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
            (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))
    layers, channels = _conv(3, 32, 3, 2, act=nn.SiLU), 32
    for factor, size, stride, out, count in rows:
        for n in range(count):
            wide = channels * factor
            squeeze = [_squeeze(wide, channels // 4, nn.SiLU, nn.Sigmoid)]
            layers.append(_inverted(channels, wide, out, size, 1 if n else stride, nn.SiLU,
                                    squeeze))
            channels = out
    return nn.Sequential(*layers, *_conv(channels, 1280, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(1280, 1000))


def unet(width: int = 16, depth: int = 3) -> Any:
    """A U-Net for classes of pixels: Ronneberger et al. (2015), padded."""
    nn, torch = _nn(), peers.module("torch")

    def pair(into: int, out: int) -> list[Any]:
        return [*_conv(into, out, act=nn.ReLU), *_conv(out, out, act=nn.ReLU)]

    def level(into: int, out: int, left: int) -> Any:
        if not left:
            return nn.Sequential(*pair(into, out))
        return module_of(lambda m, x: m.up(torch.cat([y := m.down(x), m.below(y)], 1)),
                   down=nn.Sequential(*pair(into, out)),
                   below=nn.Sequential(nn.MaxPool2d(2), level(out, 2 * out, left - 1),
                                       nn.ConvTranspose2d(2 * out, out, 2, 2)),
                   up=nn.Sequential(*pair(2 * out, out)))

    return nn.Sequential(level(3, width, depth), nn.Conv2d(width, 4, 1))


# How a network is made, and the shape of its inputs.
NETWORKS: dict[str, tuple[Callable[[], Any], Sizes]] = {
    "LeNet": (lenet, (1, 1, 28, 28)),
    "LeNet, batch 64": (lenet, (64, 1, 28, 28)),
    "ResNet block, 64 x 56 x 56": (resnet_block, (1, 64, 56, 56)),
    "depthwise block, 64 x 56 x 56": (depthwise_block, (1, 64, 56, 56)),
    "ResNet-18": (lambda: resnet((2, 2, 2, 2), False), (1, 3, 224, 224)),
    "ResNet-50": (lambda: resnet((3, 4, 6, 3), True), (1, 3, 224, 224)),
    "DenseNet-121": (densenet, (1, 3, 224, 224)),
    "MobileNetV3-small": (mobilenet_v3_small, (1, 3, 224, 224)),
    "EfficientNet-B0": (efficientnet_b0, (1, 3, 224, 224)),
    "U-Net, 128 x 128": (unet, (1, 3, 128, 128)),
}


def _of_torchvision(name: str, **more: Any) -> Any:
    """A network of torchvision with random weights; of a segmentation its classes of pixels."""
    torchvision = peers.module("torchvision")
    section, _, function = name.rpartition(".")
    models = getattr(torchvision.models, section) if section else torchvision.models
    net = getattr(models, function)(weights=None, **more)
    return module_of(lambda m, x: m.net(x)["out"], net=net) if section else net


_SIDE = (1, 3, 224, 224)
# Networks that only torchvision has here: left out where it is not installed.
TORCHVISION: dict[str, tuple[Callable[[], Any], Sizes]] = {
    "MNASNet": (lambda: _of_torchvision("mnasnet1_0"), _SIDE),
    "DeepLabV3-MobileNet": (lambda: _of_torchvision(
        "segmentation.deeplabv3_mobilenet_v3_large", weights_backbone=None), _SIDE),
    "ConvNeXt-T": (lambda: _of_torchvision("convnext_tiny"), _SIDE),
    "Inception-V3": (lambda: _of_torchvision(
        "inception_v3", init_weights=False, aux_logits=False), (1, 3, 299, 299)),
    "FCN-ResNet-50": (lambda: _of_torchvision(
        "segmentation.fcn_resnet50", weights_backbone=None), _SIDE),
    "VGG-11": (lambda: _of_torchvision("vgg11"), _SIDE),
}
