"""The command: `python -m benchmarks.gpu [--quick] [--devices cuda:0,opencl:0] [--only matmul]`.

Every device that is here, beside the peer that runs there: PyTorch on CUDA; on drivers that only
imitate a GPU on the CPU, NumPy, and our own code for the CPU, to keep them honest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import gpu_peers, machine, peers
from benchmarks.programs import Arrays, fill, given
from benchmarks.report import Section, duration
from benchmarks.timing import FULL, QUICK, Contestant, Effort, compare
from models import digits_cnn, digits_mlp, tiny_gpt
from ztorch import compile as pipeline
from ztorch.graph.op import OPS
from ztorch.graph.value import Graph, Value
from ztorch.runtime.devices import SOURCES, Device, devices

RESULTS = Path(__file__).parent / "results"
Runs = Mapping[str, Callable[[], object]]
MODELS = {"digits_mlp": digits_mlp, "digits_cnn": digits_cnn, "tiny_gpt": tiny_gpt}


def resident(call: Any) -> Callable[[], object]:
    """A run whose inputs are on the device already and whose outputs stay there."""
    device, recording = call.program.target, call._recording

    def run() -> None:
        device.run(recording)
        device.synchronise()

    return run


def _op(s: Section, d: Device, case: str, y: Value, arrays: Arrays, numpy: Callable[[], Any],
        torch: Callable[[Any, dict[str, Any]], Any], effort: Effort, work: str) -> None:
    """One op on a device, beside its peers; right before it is timed."""
    graph = {"predict": Graph({"y": y})}
    ours = pipeline.build(graph, d.id, "op").bind("predict")
    fill(ours, arrays)
    want = np.asarray(numpy(), np.float64)
    error = peers.checked(f"{case} on {d.id}", 1e-3, ztorch=peers.worst(ours.outputs["y"], want))
    runs: dict[str, Callable[[], object]] = {"ztorch": resident(ours), "ztorch with copies": ours}
    found = gpu_peers.cuda()
    if found and d.id.startswith("cuda"):
        held = {n: found.from_numpy(np.ascontiguousarray(a)).cuda() for n, a in arrays.items()}
        theirs = peers.worst(torch(found, held).cpu(), want)
        peers.checked(f"{case} in PyTorch", 1e-2, ztorch=theirs)
        runs["PyTorch eager"] = gpu_peers.waiting(lambda: torch(found, held))
        runs["PyTorch CUDA graph"] = gpu_peers.waiting(
            gpu_peers.captured(lambda: torch(found, held)))
    else:
        cpu = pipeline.build(graph, "cpu", "op").bind("predict")
        fill(cpu, arrays)
        runs |= {"ztorch on cpu": cpu, "numpy": numpy}
    _compared(s, d, case, runs, error, effort, work)


def _compared(s: Section, d: Device, case: str, runs: Runs, error: float, effort: Effort,
              work: str = "") -> None:
    timings = compare([Contestant(n, r) for n, r in runs.items()], False, effort)
    amount, _, unit = work.partition(" ")
    rate = f"{float(amount) / timings[0].seconds:.3g} {unit}" if work else "–"
    s.compared(case, None, timings, error, device=d.id, rate=rate)


def _large(d: Device, effort: Effort, large: int, small: int) -> int:
    """A size for GPUs, and one for what imitates them."""
    return large if d.kind in ("gpu", "integrated") and effort is FULL else small


def run_matmul(d: Device, s: Section, effort: Effort) -> None:
    """Square products, and few rows by a layer's weights."""
    random = np.random.default_rng(1)
    n = _large(d, effort, 4096, 128)
    for shape in ((n, n, n), (n // 4, n // 4, n // 4), (8, n, n)):
        a = random.standard_normal(shape[::2], dtype=np.float32)
        b = random.standard_normal(shape[:0:-1], dtype=np.float32)
        _op(s, d, "x".join(map(str, shape)), OPS.matmul(given("a", a), given("b", b)),
            {"a": a, "b": b}, lambda a=a, b=b: a @ b,  # type: ignore[misc]
            lambda t, h: h["a"] @ h["b"], effort, f"{2e-9 * np.prod(shape)} GFLOP/s")


def run_rows(d: Device, s: Section, effort: Effort) -> None:
    """Softmax and layer norm, which read and write each number once."""
    shape = (_large(d, effort, 8192, 256), _large(d, effort, 4096, 512))
    x = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
    traffic = f"{2e-9 * x.nbytes} GB/s"

    def softmax() -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def norm() -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    label = f"{shape[0]}x{shape[1]}"
    _op(s, d, f"softmax {label}", OPS.softmax(given("x", x)), {"x": x}, softmax,
        lambda t, h: t.softmax(h["x"], -1), effort, traffic)
    _op(s, d, f"layer norm {label}", OPS.standardize(given("x", x), axis=-1, epsilon=1e-5),
        {"x": x}, norm, lambda t, h: t.nn.functional.layer_norm(h["x"], shape[1:], eps=1e-5),
        effort, traffic)


def run_attention(d: Device, s: Section, effort: Effort) -> None:
    """softmax(q k' / sqrt(n)) v over heads."""
    random, length, size = np.random.default_rng(3), _large(d, effort, 1024, 64), 64
    q, k, v = (random.standard_normal((2, 8, length, size), dtype=np.float32) for _ in "qkv")

    def numpy() -> np.ndarray:
        w = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(size))
        e = np.exp(w - w.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    _op(s, d, f"2x8x{length}x{size}",
        OPS.attention(given("q", q), given("k", k), given("v", v)), {"q": q, "k": k, "v": v},
        numpy, lambda t, h: t.nn.functional.scaled_dot_product_attention(h["q"], h["k"], h["v"]),
        effort, f"{4e-9 * 16 * length**2 * size} GFLOP/s")


def run_conv(d: Device, s: Section, effort: Effort) -> None:
    """3x3, same padding, channels last."""
    random = np.random.default_rng(4)
    n, channels = _large(d, effort, 32, 2), _large(d, effort, 128, 16)
    x = random.standard_normal((n, 28, 28, channels), dtype=np.float32)
    w = random.standard_normal((3, 3, channels, channels), dtype=np.float32)

    def numpy() -> np.ndarray:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        return np.einsum("nhwcij,ijco->nhwo", windows, w, optimize=True)

    def torch(t: Any, h: dict[str, Any]) -> Any:
        image = h["x"].permute(0, 3, 1, 2)  # which is how channels last looks to PyTorch
        kernel = h["w"].permute(3, 2, 0, 1).contiguous(memory_format=t.channels_last)
        return t.nn.functional.conv2d(image, kernel, padding=1).permute(0, 2, 3, 1)

    _op(s, d, f"{n}x28x28x{channels}", OPS.conv2d(given("x", x), given("w", w), padding="same"),
        {"x": x, "w": w}, numpy, torch, effort,
        f"{2e-9 * n * 784 * 9 * channels**2} GFLOP/s")


def run_models(d: Device, s: Section, effort: Effort) -> None:
    """A prediction and a training step with Adam, the batch on the device already."""
    random = np.random.default_rng(5)
    for name, module in MODELS.items():
        model = module.build()
        batch = 8 if d.kind == "cpu" else 32
        how: dict[str, Any] = {"batch_size": batch, "optimizer": "adam", "loss": module.LOSS}
        ours, cpu = (model.compile(place, **how).executable for place in (d.id, "cpu"))
        for function in ("predict", "train"):
            here, there = ours.bind(function), cpu.bind(function)
            for port, array in there.inputs.items():
                array[...] = 1 if port == "w" else random.random(array.shape) if (
                    array.dtype.kind == "f") else random.integers(0, 10, array.shape)
                here.inputs[port][...] = array
            here()
            there()
            out = "y" if function == "predict" else "loss"
            error = peers.checked(f"{name} {function} on {d.id}", 1e-3,
                                  ztorch=peers.worst(here.outputs[out], there.outputs[out]))
            runs: dict[str, Callable[[], object]] = {
                "ztorch": resident(here), "ztorch with copies": here}
            if d.id.startswith("cuda"):
                x, y = there.inputs["x"], there.inputs.get("y", np.zeros(batch, np.int64))
                runs |= gpu_peers.contestants(name, x, y, function == "train")
            runs["ztorch on cpu"] = there
            _compared(s, d, f"{name} {function}, batch {batch}", runs, error, effort,
                      f"{batch} rows/s")


def run_launches(d: Device, s: Section, effort: Effort) -> None:
    """What a call costs beside its work: one kernel of one number, and chains of dependent ones."""
    x = np.ones((1,), np.float32)
    for count in (1, 10, 100):
        y = given("x", x)
        for _ in range(count):
            y = y + 1.0
        made = pipeline.compile_functions  # without fusion, each addition is a kernel
        target = pipeline.targets.target(pipeline.resolve(d.id).target)
        compiled = made({"predict": Graph({"y": y})}, target.on(dict(d.limits)), "chain",
                        fusion=False)
        ours = pipeline.start(compiled.spec, compiled.code, compiled.params, None,
                              int(d.id.partition(":")[2])).bind("predict")
        fill(ours, {"x": x})
        error = peers.checked(f"{count} launches", 1e-6, ztorch=abs(
            float(ours.outputs["y"][0]) - 1 - count))
        _compared(s, d, f"{len(compiled.plans['predict'].steps)} kernels in a row",
                  {"ztorch": resident(ours), "ztorch with copies": ours}, error, effort,
                  "1 calls/s")


SECTIONS: dict[str, tuple[str, str, Callable[[Device, Section, Effort], None]]] = {
    "matmul": ("Matrix products, float32", "arithmetic; for few rows reading the matrix. PyTorch "
               "takes its default precision, which is full float32.", run_matmul),
    "rows": ("Softmax and layer norm", "reading and writing each number once", run_rows),
    "attention": ("Attention, float32", "arithmetic of the two products", run_attention),
    "conv": ("Convolution 3x3", "arithmetic", run_conv),
    "models": ("Models of the zoo", "the launches of small kernels", run_models),
    "launches": ("Launch overhead", "the driver", run_launches),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the sections asked for on the devices that are here; prints and writes their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="small sizes, a few turns: shows that all works")
    parser.add_argument("--devices", help="such as cuda:0,opencl:0; all if left out")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    here = [d for d in devices() if d.available and d.id.split(":")[0] not in
            ("cpu", *SOURCES, "dummy")]
    if asked.devices:
        here = [d for d in here if d.id in asked.devices.split(",")]
    if not here:
        parser.error("none of these devices is here; `ztorch devices` lists those that are")
    effort, facts, sections, begun = QUICK if asked.quick else FULL, machine.describe(), [], \
        perf_counter()
    path = asked.out / f"{facts['date']}-{machine.slug()}-devices{'-quick' * asked.quick}.md"
    asked.out.mkdir(parents=True, exist_ok=True)
    for key in asked.only.split(","):
        title, limit, run = SECTIONS[key]
        print(f"\n[{key}] after {perf_counter() - begun:.0f} s", flush=True)
        section = Section(key, title, limit)
        for d in here:
            run(d, section, effort)
        sections.append(section)
        path.write_text(page(facts, here, sections, asked.quick), encoding="utf-8")
    print(f"written: {path}, after {duration(perf_counter() - begun)}")
    return 0


def page(facts: dict[str, Any], here: list[Device], sections: list[Section], quick: bool) -> str:
    """All tables in Markdown, with the machine and the devices they were made on."""
    about = [f"- {k}: {', '.join(f'{n} {w}' for n, w in v.items()) if isinstance(v, dict) else v}"
             for k, v in facts.items()]
    about += [f"- {d.id}: {d.name} ({d.kind}), {d.driver}" for d in here]
    warning = ["**A smoke run: far too few turns for the figures to mean anything.**", ""] * quick
    return "\n".join([
        f"# Devices, {facts['date']}", "", *warning, *about, "",
        "`ztorch` runs on what is on the device already, as the peers do; `with copies` also "
        "brings inputs there and outputs back. Wall-clock medians of interleaved blocks with the "
        "10th and 90th percentile, each run waited for; `xN` is the contestant's time over ours. "
        "A device of kind cpu imitates a GPU in software and says nothing about the speed of one.",
        "",
        *(s.markdown() for s in sections)])


if __name__ == "__main__":
    sys.exit(main())
