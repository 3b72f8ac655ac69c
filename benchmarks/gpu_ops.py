"""Single ops for benchmarks.gpu, each in the words of all who take part, and chains of launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import gpu_peers, peers
from benchmarks.gpu_cases import Case, Measured, Sizes, measured, resident
from benchmarks.gpu_predictions import beside
from benchmarks.programs import Arrays, fill, input_like
from benchmarks.timing import Effort
from ztorch.compile import pipeline
from ztorch.compile.targeting import target_for
from ztorch.graph.op import OPS
from ztorch.graph.value import Graph, Value
from ztorch.runtime.devices import ListedDevice, resolve

ALLOWED = {"float32": 1e-4, "float16": 2e-3}  # errors beside NumPy; the latter rounds its result
Make = Callable[[], tuple[Value, Arrays, Callable[[], np.ndarray]]]


def _op(d: ListedDevice, name: str, make: Make, torch: Callable[[Any, dict[str, Any]], Any],
        work: float, unit: str, dtype: str = "float32") -> Case:
    """An op: its value and inputs with NumPy's way, which `make` gives, and PyTorch's."""

    def run(effort: Effort) -> Measured:
        y, arrays, numpy = make()
        graph = {"predict": Graph({"y": y})}
        ours = pipeline.build(graph, d.id, "op").bind("predict")
        fill(ours, arrays)
        want = np.asarray(numpy(), np.float64)
        errors = {"ztorch": peers.worst(ours.outputs["y"], want)}
        runs: dict[str, Callable[[], object]] = {"ztorch": resident(ours),
                                                 "ztorch with copies": ours}
        torch_module = gpu_peers.torch_on(d)
        if torch_module:
            tensors = {n: torch_module.from_numpy(np.ascontiguousarray(a)).cuda()
                       for n, a in arrays.items()}
            errors["PyTorch"] = peers.worst(torch(torch_module, tensors).cpu(), want)
            runs |= gpu_peers.both(lambda: torch(torch_module, tensors))
        else:
            cpu = pipeline.build(graph, "cpu", "op").bind("predict")
            fill(cpu, arrays)
            errors["ztorch on cpu"] = peers.worst(cpu.outputs["y"], want)
            runs |= {"ztorch on cpu": cpu, "numpy": numpy}
        error = peers.checked(f"{name} on {d.id}", ALLOWED[dtype], **errors)
        return measured(runs, error, effort, work, unit)._replace(
            predicted=beside(graph, d, "predict"))

    return Case(name, run)


def products(d: ListedDevice, z: Sizes) -> list[Case]:
    """Square products, and few rows by a layer's weights."""

    def make(m: int, n: int, k: int, dtype: str) -> tuple[Value, Arrays, Callable[[], np.ndarray]]:
        random = np.random.default_rng(1)
        a, b = (random.standard_normal(shape, np.float32).astype(dtype)
                for shape in ((m, k), (k, n)))
        wide = [x.astype(np.float32) for x in (a, b)]  # NumPy multiplies no halves in hardware
        y = OPS.matmul(input_like("a", a), input_like("b", b))
        return y, {"a": a, "b": b}, lambda: wide[0] @ wide[1]

    n = z.product
    cases = [(s, "float32") for s in ((n, n, n), (n // 4, n // 4, n // 4), (8, n, n))]
    cases += [((n, n, n), "float16")] * z.halves
    return [_op(d, f"{'x'.join(map(str, s))} {dtype}", partial(make, *s, dtype),
                lambda t, h: h["a"] @ h["b"], 2e-9 * s[0] * s[1] * s[2], "GFLOP/s", dtype)
            for s, dtype in cases]


def rows(d: ListedDevice, z: Sizes) -> list[Case]:
    """Softmax and layer norm, which read and write each number once."""

    def array() -> np.ndarray:
        return np.random.default_rng(2).standard_normal(z.rows, np.float32)

    def softmax() -> tuple[Value, Arrays, Callable[[], np.ndarray]]:
        x = array()
        return OPS.softmax(input_like("x", x)), {"x": x}, lambda: _softmax(x)

    def norm() -> tuple[Value, Arrays, Callable[[], np.ndarray]]:
        x = array()

        def numpy() -> np.ndarray:
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

        return OPS.standardize(input_like("x", x), axis=-1, epsilon=1e-5), {"x": x}, numpy

    label, traffic = f"{z.rows[0]}x{z.rows[1]}", 2e-9 * 4 * z.rows[0] * z.rows[1]
    return [_op(d, f"softmax {label}", softmax, lambda t, h: t.softmax(h["x"], -1), traffic,
                "GB/s"),
            _op(d, f"layer norm {label}", norm, lambda t, h: t.nn.functional.layer_norm(
                h["x"], z.rows[1:], eps=1e-5), traffic, "GB/s")]


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    result: np.ndarray = e / e.sum(-1, keepdims=True)
    return result


def attention(d: ListedDevice, z: Sizes) -> list[Case]:
    """softmax(q k' / sqrt(n)) v over heads."""
    size = 64

    def make() -> tuple[Value, Arrays, Callable[[], np.ndarray]]:
        random = np.random.default_rng(3)
        arrays = {n: random.standard_normal((2, 8, z.length, size), np.float32) for n in "qkv"}
        q, k, v = arrays.values()

        def numpy() -> np.ndarray:
            scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(size))
            result: np.ndarray = _softmax(scores) @ v
            return result

        return OPS.attention(*(input_like(n, a) for n, a in arrays.items())), arrays, numpy

    return [_op(d, f"2x8x{z.length}x{size}", make, lambda t, h:
                t.nn.functional.scaled_dot_product_attention(h["q"], h["k"], h["v"]),
                4e-9 * 16 * z.length**2 * size, "GFLOP/s")]


def convolution(d: ListedDevice, z: Sizes) -> list[Case]:
    """3x3, same padding, channels last."""

    def make() -> tuple[Value, Arrays, Callable[[], np.ndarray]]:
        random = np.random.default_rng(4)
        x = random.standard_normal((z.images, 28, 28, z.channels), np.float32)
        w = random.standard_normal((3, 3, z.channels, z.channels), np.float32)

        def numpy() -> np.ndarray:
            padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
            return np.einsum("nhwcij,ijco->nhwo", windows, w, optimize=True)

        y = OPS.conv2d(input_like("x", x), input_like("w", w), padding="same")
        return y, {"x": x, "w": w}, numpy

    def torch(t: Any, h: dict[str, Any]) -> Any:
        image = h["x"].permute(0, 3, 1, 2)  # which is how channels last looks to PyTorch
        kernel = h["w"].permute(3, 2, 0, 1).contiguous(memory_format=t.channels_last)
        return t.nn.functional.conv2d(image, kernel, padding=1).permute(0, 2, 3, 1)

    return [_op(d, f"{z.images}x28x28x{z.channels}", make, torch,
                2e-9 * z.images * 784 * 9 * z.channels**2, "GFLOP/s")]


def launches(d: ListedDevice, z: Sizes) -> list[Case]:
    """The cost of a call beside its work: one kernel of one number, and chains of dependent
    ones."""

    def run(count: int, effort: Effort) -> Measured:
        x = np.ones((1,), np.float32)
        y = input_like("x", x)
        for _ in range(count):
            y = y + 1.0
        place = resolve(d.id)
        target = target_for(place)
        # without fusion, each addition is a kernel
        compiled = pipeline.compile_functions({"predict": Graph({"y": y})}, target, "chain",
                                              fusion=False)
        if (kernels := len(compiled.plans["predict"].steps)) != count:
            raise RuntimeError(f"{count} additions became {kernels} kernels")
        executable = pipeline.start(compiled.spec, compiled.code, compiled.params, None,
                                    place.ordinal)
        ours = executable.bind("predict")
        fill(ours, {"x": x})
        error = peers.checked(f"{count} launches", 1e-6,
                              ztorch=abs(float(ours.outputs["y"][0]) - 1 - count))
        runs: dict[str, Callable[[], object]] = {"ztorch": resident(ours),
                                                 "ztorch with copies": ours}
        torch_module = gpu_peers.torch_on(d)

        def chain(x: Any) -> Any:
            for _ in range(count):
                x = x + 1.0
            return x

        if torch_module:
            on_device = torch_module.ones(1).cuda()
            runs |= gpu_peers.both(lambda: chain(on_device))
        else:
            runs["numpy"] = lambda: chain(x)
        return measured(runs, error, effort, count, "launches/s")

    return [Case(f"{count} kernel{'s' * (count > 1)} in a row", partial(run, count))
            for count in (1, 10, 100)]
