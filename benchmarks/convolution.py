"""Convolutions against PyTorch: single ones, forward and with their gradients, and whole networks
of the zoo."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.programs import call, fill, input_like, weight
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch import layers as L
from ztorch import optimizers
from ztorch.compile import pipeline
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS
from ztorch.graph.value import Graph

# What: (batch, side, channels, filters, window, stride, groups), and the axes of an image if not 2
SHAPES: dict[str, tuple[int, ...]] = {
    "ResNet 3x3, 56x56x64": (4, 56, 64, 64, 3, 1, 1),
    "ResNet 3x3, 28x28x128": (4, 28, 128, 128, 3, 1, 1),
    "ResNet 3x3, 14x14x256": (4, 14, 256, 256, 3, 1, 1),
    "ResNet 3x3 by 2, 28x28x128": (4, 28, 128, 256, 3, 2, 1),
    "CIFAR 3x3, 32x32x16": (32, 32, 16, 16, 3, 1, 1),
    "MobileNet 1x1, 28x28x128": (4, 28, 128, 256, 1, 1, 1),
    "MobileNet depthwise, 56x56x128": (4, 56, 128, 128, 3, 1, 128),
    "MobileNet depthwise by 2, 56x56x128": (4, 56, 128, 128, 3, 2, 128),
    "volumes 3x3x3, 16x16x16x32": (4, 16, 32, 64, 3, 1, 1, 3),
    "volumes 3x3x3, 8x8x8x128": (2, 8, 128, 128, 3, 1, 1, 3),
}
NETWORKS = ("lenet", "cifar_resnet", "mobilenet")
LAYOUTS = {"PyTorch eager": ("contiguous_format",) * 2,
           "channels last": ("channels_last", "channels_last_3d")}  # of 2 axes and of 3
BATCH = 32
STEPS = 2  # after which losses are compared: more, and rounding alone drives MobileNets apart
RATE = 1e-3


def run(threads: list[int], effort: Effort) -> Section:
    """One convolution, its gradients, and whole networks, images as rows x columns x channels."""
    s = Section("conv", "Convolutions, float32",
                "the FMA peak, where there are many channels (`of peak` counts the operations of "
                "the sum as it is written: PyTorch may do with fewer, and we skip borders); for "
                "depthwise ones and the "
                "normalisations of networks the bandwidth of caches. Training a convolution is "
                "forward and both gradients, training a network a step with SGD on "
                f"{BATCH} images.")
    quick = effort.least <= 3
    for n in threads:
        peers.set_threads(n)
        for name in list(SHAPES)[-3:-1] if quick else SHAPES:
            for training in (False, True):
                _convolution(s, name, training, n, effort)
        for name in NETWORKS[:1] if quick else NETWORKS:
            for training in (False, True):
                _network(s, name, training, n, effort)
    return s


# -- one convolution -------------------------------------------------------------------------------


def _convolution(s: Section, name: str, training: bool, threads: int, effort: Effort) -> None:
    batch, side, channels, filters, window, stride, groups, *more = SHAPES[name]
    random, (axes,) = np.random.default_rng(2), more or [2]
    x = random.standard_normal((batch, *[side] * axes, channels), np.float32)
    kernel = random.standard_normal((*[window] * axes, channels // groups, filters), np.float32)
    edge = window // 2
    padding = ((edge, edge),) * axes  # PyTorch knows no other
    y = OPS.conv(input_like("x", x), weight("kernel", kernel), stride, padding, 1, groups)
    slope = random.standard_normal(y.shape, np.float32)
    if training:
        gx, gk = input_like("x", x), input_like("kernel", kernel)
        y = OPS.conv(gx, gk, stride, padding, 1, groups)
        dx, dk = gradients(OPS.sum(y * input_like("slope", slope)), [gx, gk])
        ours = pipeline.build({"predict": Graph({"y": y, "dx": dx, "dk": dk})}, "cpu", "op",
                              threads).bind("predict")
        fill(ours, {"x": x, "kernel": kernel, "slope": slope})
    else:
        ours = call(y, {"x": x}, threads)
    contestants, errors = [Contestant("ztorch", ours)], {"ztorch": 0.0}
    torch = peers.module("torch")
    if torch:
        options = {"stride": stride, "padding": edge, "groups": groups}
        arrays = (x, kernel, slope) if training else (x, kernel)
        true = [t.numpy() for t in _torch_call(torch, arrays, options, "contiguous_format", True)()]
        errors["ztorch"] = max(peers.worst(ours.outputs[k], t)
                               for k, t in zip(("y", "dx", "dk"), true, strict=False))
        for label, layouts in LAYOUTS.items():
            theirs = _torch_call(torch, arrays, options, layouts[axes - 2], False)
            errors[label] = max(peers.worst(f, t) for f, t in zip(theirs(), true, strict=True))
            contestants.append(Contestant(label, theirs))
    case = f"{name}, {'training' if training else 'forward'}"
    error = peers.checked(case, 1e-4, **errors)
    timings = compare([*contestants, machine.peak(threads)], threads == 1, effort)
    flops = 2.0 * y.size * kernel[..., 0].size * (3 if training else 1)
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    s.compared(case, threads, timings[:-1], error, **{"of peak": f"{share:.0%}"})


def _torch_call(torch: Any, arrays: tuple[np.ndarray, ...], options: dict[str, Any], layout: str,
                double: bool) -> Callable[[], list[Any]]:
    """y, and with a slope the gradients, in our order of axes (which costs PyTorch nothing)."""
    x, kernel, *slope = (torch.from_numpy(a).double() if double else torch.from_numpy(a)
                         for a in arrays)
    form, axes = {"memory_format": getattr(torch, layout)}, x.dim() - 2
    first, last = (0, axes + 1, *range(1, axes + 1)), (0, *range(2, axes + 2), 1)
    x, *slope = (t.permute(first).clone(**form) for t in (x, *slope))
    kernel = kernel.permute(axes + 1, axes, *range(axes)).clone(**form)
    conv = torch.nn.functional.conv2d if axes == 2 else torch.nn.functional.conv3d

    def forward() -> list[Any]:
        with torch.inference_mode():
            return [conv(x, kernel, **options).permute(last)]

    def training() -> list[Any]:
        y = conv(x, kernel, **options)
        dx, dk = torch.autograd.grad(y, (x, kernel), slope[0])
        return [y.detach().permute(last), dx.permute(last), dk.permute(*last[1:], 0)]

    if slope:
        x.requires_grad_(), kernel.requires_grad_()
    return training if slope else forward


# -- networks --------------------------------------------------------------------------------------


def _network(s: Section, name: str, training: bool, threads: int, effort: Effort) -> None:
    model = importlib.import_module(f"models.{name}").build()
    for layer in model.adopted:
        if isinstance(layer, L.Dropout):
            layer.rate = 0  # both draw other numbers, and results would not compare
    random = np.random.default_rng(3)
    x = random.random((BATCH, *model.input_shape[1:]), np.float32)
    y = random.integers(0, 10, BATCH).astype(np.int32)
    contestants, result = [], {}
    contestant, result["ztorch"] = _ours(model, x, y, training, threads)
    contestants.append(contestant)
    torch, true = peers.module("torch"), result["ztorch"]
    if torch:
        true = _theirs(torch, model, x, y, training, "contiguous_format", True)[1]
        for label, (layout, _) in LAYOUTS.items():
            step, result[label] = _theirs(torch, model, x, y, training, layout, False)
            contestants.append(Contestant(label, step))
    case = f"{name}, {'a step' if training else 'inference'}"
    error = peers.checked(case, 1e-2 if training else 1e-4, **{
        label: peers.worst(outputs, true) for label, outputs in result.items()})
    s.compared(case, threads, compare(contestants, threads == 1, effort), error, **{"of peak": ""})


def _ours(model: Any, x: np.ndarray, y: np.ndarray, training: bool,
          threads: int) -> tuple[Contestant, np.ndarray]:
    """The function to time, and the last loss or the predictions."""
    more: dict[str, Any] = {"optimizer": optimizers.SGD(RATE),
                            "loss": "sparse_categorical_crossentropy"} if training else {}
    executable = model.compile("cpu", batch_size=BATCH, threads=threads, **more).executable
    step = executable.bind("train" if training else "predict")
    step.inputs["x"][...] = x
    if training:
        step.inputs["y"][...] = y.reshape(step.inputs["y"].shape)
        step.inputs["w"][...] = step.inputs["real"][...] = 1.0
    else:
        step()
        return Contestant("ztorch", step), step.outputs["y"].copy()
    first = executable.states_snapshot()
    for _ in range(STEPS):
        step()
    loss = np.array(step.outputs["loss"])
    executable.restore(first)  # the model has the program's weights, and the peers take them
    return Contestant("ztorch", step, lambda: executable.restore(first)), loss


def _theirs(torch: Any, model: Any, x: np.ndarray, y: np.ndarray, training: bool, layout: str,
            double: bool) -> tuple[Callable[[], Any], np.ndarray]:
    form = {"memory_format": getattr(torch, layout)}
    net = torch.nn.Sequential(*modules(torch, model.adopted)).to(**form)
    tx = torch.from_numpy(x).permute(0, 3, 1, 2).clone(**form)
    ty = torch.from_numpy(y.astype(np.int64))
    if double:
        net, tx = net.double(), tx.double()
    if not training:
        net.eval()

        def predict() -> Any:
            with torch.inference_mode():
                return torch.softmax(net(tx), -1)

        return predict, predict().numpy()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(tx), ty)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step() for _ in range(STEPS)]
    return step, losses[-1].detach().numpy()


def modules(torch: Any, layers: Any) -> list[Any]:
    """The layers as PyTorch's, with the same weights; the last softmax is left to the loss."""
    return [module for layer in layers for module in _module(torch, layer)]


def _module(torch: Any, layer: Any) -> list[Any]:
    nn, kind = torch.nn, type(layer)
    relu = [nn.ReLU()] if getattr(layer, "activation", None) == "relu" else []
    if kind is L.Residual:
        main, short = (nn.Sequential(*modules(torch, part)) for part in (
            layer.layers, [layer.shortcut] if layer.shortcut else []))
        return [_sum(torch)(main, short)]
    if hasattr(layer, "adopted") and layer.adopted:
        return modules(torch, layer.adopted)
    weights = [torch.from_numpy(np.array(w.value)) for w in layer.own_weights]
    if kind in (L.Conv2D, L.DepthwiseConv2D):
        return [*_conv(torch, layer, weights), *relu]
    if kind is L.BatchNormalization:
        norm = nn.BatchNorm2d(len(weights[0]), layer.epsilon, 1 - layer.momentum)
        _set(torch, [norm.weight, norm.bias, norm.running_mean, norm.running_var], weights)
        return [norm]
    if kind is L.Dense:
        linear = nn.Linear(*weights[0].shape)
        _set(torch, [linear.weight, linear.bias], [weights[0].T, *weights[1:]])
        return [linear, *relu]
    return {L.ReLU: lambda: [nn.ReLU6() if layer.max_value else nn.ReLU()],
            L.MaxPooling2D: lambda: [nn.MaxPool2d(layer.pool_size, layer.strides)],
            L.GlobalAveragePooling2D: lambda: [nn.AdaptiveAvgPool2d(1), nn.Flatten()],
            L.Flatten: lambda: [_rows(torch)()],
            L.Dropout: lambda: [nn.Dropout(layer.rate)]}[kind]()


def _conv(torch: Any, layer: Any, weights: list[Any]) -> list[Any]:
    """With "same" padding for sides that are multiples of the stride, as those of the zoo are."""
    depthwise = isinstance(layer, L.DepthwiseConv2D)
    kernel = weights[0].permute(2, 3, 0, 1) if depthwise else weights[0].permute(3, 2, 0, 1)
    size, stride = tuple(kernel.shape[2:]), layer.strides
    groups = len(kernel) if depthwise else 1
    edges = [max(k - s, 0) if layer.padding == "same" else 0
             for k, s in zip(size, stride, strict=True)]
    even = all(e % 2 == 0 for e in edges)
    conv = torch.nn.Conv2d(kernel.shape[1] * groups, len(kernel), size, stride,
                           tuple(e // 2 for e in edges) if even else 0, groups=groups,
                           bias=len(weights) > 1)
    _set(torch, [conv.weight, *([conv.bias] if len(weights) > 1 else [])], [kernel, *weights[1:]])
    pad = [n for e in reversed(edges) for n in (e // 2, e - e // 2)]
    return [conv] if even else [torch.nn.ZeroPad2d(pad), conv]


def _set(torch: Any, parameters: list[Any], arrays: list[Any]) -> None:
    with torch.no_grad():
        for p, a in zip(parameters, arrays, strict=True):
            p.copy_(a)


def _sum(torch: Any) -> Any:
    class Sum(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        """The result of a branch for its input, plus that of the other."""

        def __init__(self, main: Any, short: Any):
            super().__init__()
            self.main, self.short = main, short

        def forward(self, x: Any) -> Any:
            return self.main(x) + self.short(x)

    return Sum


def _rows(torch: Any) -> Any:
    class Rows(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        """Images as rows, channels last, as our dense layers expect them."""

        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1).flatten(1)

    return Rows
