"""Products of bytes in int32, quantized convolutions and a quantized network, against
torch._int_mm, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.from_onnx import openvino
from benchmarks.programs import call, input_like, weight
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.op import OPS
from ztorch.interchange.onnx.load import load

SHAPES = ((64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024),
          (1, 512, 784), (32, 512, 784))  # (M, N, K)
SIZES = (784, 512, 512, 512)  # of the network's layers
BATCHES = (1, 32)
# Of convolutions: (channels, rows and columns, channels of the result, rows and columns of windows)
IMAGES = ((64, 28, 64, 1), (64, 56, 64, 1), (256, 14, 256, 1), (128, 28, 512, 1), (64, 28, 64, 3))


def run(threads: list[int], effort: Effort) -> Section:
    """Sums of products of bytes, and a network that quantizes and dequantizes each operand."""
    s = Section("integers", "Products of bytes in int32, and quantized networks",
                "the rate of the instruction that multiplies four bytes: four times as many "
                "operations as float32 with AVX-512 VNNI, twice as many without. `weights` means "
                "that B is a weight, which compilers arrange once; torch._int_mm has no such "
                "chance. Networks and convolutions (`QLinearConv`, channels first) are called by "
                "their public methods: ours take up to 12 µs beside the work, a fifth of the "
                "smallest convolution, whose product alone is at 86 % of the limit. Without VNNI "
                "sums take an instruction of their own, and products are at 65 % of the limit; "
                "ONNX Runtime has VNNI at every level. Peers that compute wrongly at a level are "
                "left out of its rows.")
    shapes = SHAPES[:4] if effort.least <= 3 else SHAPES
    for n in threads:
        peers.set_threads(n)
        for left in ("int8", "uint8"):
            for shape in shapes:
                _product(s, left, *shape, n, effort)
        for batch in BATCHES:
            _network(s, batch, n, effort)
        for image in IMAGES[:2] if effort.least <= 3 else IMAGES:
            _convolution(s, *image, n, effort)
    return s


def _product(s: Section, left: str, m: int, n: int, k: int, threads: int, effort: Effort) -> None:
    random, info = np.random.default_rng(1), np.iinfo(left)
    a = random.integers(info.min, info.max, (m, k), left, True)
    b = random.integers(-128, 127, (k, n), np.int8, True)
    x, w = input_like("a", a), weight("b", b)
    fixed, free = (call(OPS.matmul(OPS.cast(x, "int32"), OPS.cast(y, "int32")), arrays, threads)
                   for y, arrays in ((w, {"a": a}), (input_like("b", b), {"a": a, "b": b})))
    true = a.astype(np.int64) @ b
    contestants = [Contestant("ztorch, weights", fixed), Contestant("ztorch", free)]
    errors = {"ztorch": peers.worst(fixed.outputs["y"], true),
              "ztorch without weights": peers.worst(free.outputs["y"], true)}
    torch = peers.module("torch")
    if torch and left == "int8" and m > 16:  # it takes no fewer rows
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        contestants.append(Contestant("torch._int_mm", lambda: torch._int_mm(ta, tb)))
        errors["torch._int_mm"] = peers.worst(torch._int_mm(ta, tb), true)
    if runtime := peers.onnx_op("MatMulInteger", {"a": a}, threads, weights={"b": b},
                                result="int32"):
        contestants.append(Contestant("ONNX Runtime, weights", runtime))
        errors["ONNX Runtime"] = peers.worst(runtime(), true)
    contestants = _right(s, f"{left} {m}x{n}x{k}", contestants, errors, 0.0)
    error = max(errors[c] for c in errors if c.startswith("ztorch"))
    timings = compare(contestants, threads == 1, effort)
    rate = 2.0 * m * n * k / timings[0].seconds / 1e9
    s.compared(f"{left} {m}x{n}x{k}", threads, timings, error, **{"Gop/s": f"{rate:.0f}"})


def _right(s: Section, case: str, contestants: list[Contestant], errors: dict[str, float],
           tolerance: float) -> list[Contestant]:
    """Those whose numbers are right; our own have to be. Without VNNI some peers add up pairs of
    products of bytes in 16 bits, where large ones saturate."""
    ours = {name: error for name, error in errors.items() if name.startswith("ztorch")}
    peers.checked(case, tolerance, **ours)
    wrong = {name for name, error in errors.items() if not error <= tolerance}
    for name in sorted(wrong):
        s.note(f"{case}: {name} is left out: it is wrong by {errors[name]:.0%}")
    return [c for c in contestants if c.name.removesuffix(", weights") not in wrong]


def _network(s: Section, batch: int, threads: int, effort: Effort) -> None:
    x = np.random.default_rng(2).standard_normal((batch, SIZES[0])).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantized.onnx")
        true = _write(x, path)
        if true is not None:  # codes of hidden layers may be the next ones where rounding decides
            _raced(s, f"network, batch {batch}", path, x, true, 0.02, threads, effort)


def _raced(s: Section, case: str, path: Path, x: np.ndarray, true: np.ndarray, tolerance: float,
           threads: int, effort: Effort) -> None:
    """The line of a file with one input, x."""
    program = load(path).compile("cpu", batch_size=len(x), threads=threads)
    calls = {"ztorch": lambda: program.predict_on_batch(x)}
    if session := peers.onnx_session(path, threads):
        calls["ONNX Runtime"] = lambda: session.run(None, {"x": x})[0]
    if vino := openvino(path, threads):
        calls["OpenVINO"] = lambda: vino(x)[0]
    errors = {name: peers.worst(call().astype(np.float64), true) for name, call in calls.items()}
    contestants = [Contestant(name, call) for name, call in calls.items()]
    timings = compare(_right(s, case, contestants, errors, tolerance), threads == 1, effort)
    s.compared(case, threads, timings, errors["ztorch"])


def _convolution(s: Section, channels: int, size: int, filters: int, window: int, threads: int,
                 effort: Effort) -> None:
    onnx = peers.module("onnx")
    if not onnx:
        return
    random = np.random.default_rng(4)
    x = random.integers(0, 256, (1, channels, size, size)).astype(np.uint8)
    w = random.integers(-127, 128, (filters, channels, window, window), np.int8)
    stored: dict[str, Any] = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "w": w, "ws": np.float32(0.005),
        "wz": np.int8(0), "ys": np.float32(0.005 * window * np.sqrt(channels)),
        "yz": np.uint8(120), "b": random.integers(-1000, 1000, filters).astype(np.int32)}
    byte = onnx.TensorProto.UINT8
    node = onnx.helper.make_node("QLinearConv", ["x", *stored], ["y"], pads=[window // 2] * 4)
    graph = onnx.helper.make_graph(
        [node], "conv", [onnx.helper.make_tensor_value_info("x", byte, list(x.shape))],
        [onnx.helper.make_tensor_value_info("y", byte, [1, filters, size, size])],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()])
    sums = _correlated(x[0].astype(np.float64) - 128, w.astype(np.float64)) + (
        stored["b"].astype(np.float64)[:, None, None])
    scale = np.float32(stored["xs"] * stored["ws"]) / stored["ys"]
    true = np.clip(np.rint(sums.astype(np.float32) * scale) + 120, 0, 255)[None]
    case = f"{window}x{window} convolution of {channels}x{size}x{size} to {filters}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "conv.onnx")
        onnx.save(onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(path))
        _raced(s, case, path, x, true, 1 / 250, threads, effort)  # one code


def _correlated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sums of windows of an image, which has a border of zeros."""
    size, half = x.shape[-1], w.shape[-1] // 2
    wide = np.pad(x, ((0, 0), (half, half), (half, half)))
    return np.sum([np.tensordot(w[:, :, i, j], wide[:, i:i + size, j:j + size], 1)
                   for i in range(w.shape[-2]) for j in range(w.shape[-1])], axis=0)


def _write(x: np.ndarray, path: Path) -> np.ndarray | None:
    """Writes the network, whose scales suit x; returns its results, or None without ONNX."""
    onnx = peers.module("onnx")
    if not onnx:
        return None
    helper, random = onnx.helper, np.random.default_rng(3)
    nodes: list[Any] = []
    stored: dict[str, np.ndarray] = {}
    h, name = x.astype(np.float64), "x"
    for k, (rows, columns) in enumerate(pairwise(SIZES)):
        step = np.float32((h.max() - min(h.min(), 0)) / 255)
        zero = np.uint8(np.clip(np.rint(-h.min() / step), 0, 255))
        w = random.integers(-127, 128, (rows, columns), np.int8)
        scale = (random.uniform(0.5, 1, columns) / (64 * np.sqrt(rows))).astype(np.float32)
        stored |= {f"step{k}": step, f"zero{k}": zero, f"w{k}": w, f"scale{k}": scale,
                   f"none{k}": np.zeros(columns, np.int8)}
        at = [f"step{k}", f"zero{k}"]
        nodes += [helper.make_node("QuantizeLinear", [name, *at], [f"q{k}"]),
                  helper.make_node("DequantizeLinear", [f"q{k}", *at], [f"d{k}"]),
                  helper.make_node("DequantizeLinear", [f"w{k}", f"scale{k}", f"none{k}"],
                                   [f"f{k}"], axis=1),
                  helper.make_node("MatMul", [f"d{k}", f"f{k}"], [f"m{k}"]),
                  helper.make_node("Relu", [f"m{k}"], [f"h{k}"])]
        codes = np.clip(np.rint((h / step).astype(np.float32)) + zero, 0, 255) - zero
        h, name = np.maximum(codes * np.float64(step) @ (w * scale.astype(np.float64)), 0), f"h{k}"
    f32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "quantized", [helper.make_tensor_value_info("x", f32, list(x.shape))],
        [helper.make_tensor_value_info(name, f32, list(h.shape))],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              str(path))
    return h
