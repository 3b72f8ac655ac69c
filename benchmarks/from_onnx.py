"""Networks of PyTorch, imported from the ONNX files that it writes, beside the peers: a prediction
by the same file, and a step of training by the same weights."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, Timing, compare
from ztorch import onnx, optimizers

Calls = dict[str, Callable[[], Any]]
# Keras and PyTorch put Adam's epsilon at different places of the formula: here it is next to none.
RATE, EPSILON = 1e-3, 1e-12
STEPS = 3  # of training, before the losses of all are compared


def predict(s: Section, name: str, net: Any, x: np.ndarray, threads: int, effort: Effort,
            more: Mapping[str, Callable[[], Any]] | None = None, **facts: str) -> None:
    """The line of one network; `more` are other forms of it."""
    torch = peers.module("torch")
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        true = net.double()(_wide(torch, x)).numpy()
        net.float()
        path = exported(net, x, Path(folder))
        program = onnx.load(path).compile("cpu", batch_size=len(x), threads=threads)
        calls: Calls = {"ztorch": lambda: program.predict_on_batch(x),
                        **_of_torch(torch, net, torch.from_numpy(x)), **(more or {})}
        session, vino = peers.onnx_session(path, threads), openvino(path, threads)
        if session:
            calls["ONNX Runtime"] = lambda: session.run(None, {"x": x})[0]
        if vino:
            calls["OpenVINO"] = lambda: vino(x)[0]
        errors = {label: peers.worst(call(), true) for label, call in calls.items()}
        error = peers.checked(name, 1e-4, **errors)
        timings = compare([Contestant(label, call) for label, call in calls.items()],
                          threads == 1, effort)
    s.compared(name, threads, timings, error, best=f"{best(timings):.2f}", **facts)


def train(s: Section, name: str, net: Any, x: np.ndarray, threads: int, effort: Effort) -> None:
    """The line of a step of Adam that brings the outputs nearer to random numbers."""
    torch = peers.module("torch")
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(exported(net, x, Path(folder)))
    with torch.inference_mode():
        shape = tuple(net(torch.from_numpy(x)).shape)
    y = np.random.default_rng(2).standard_normal(shape, np.float32)
    first = {k: v.clone() for k, v in net.state_dict().items()}
    contestants, losses = [], {}
    ours, losses["ztorch"] = _step(model, x, y, threads)
    contestants.append(ours)
    kinds = ("eager", "fused", *(() if peers.no_compiler() else ("compile",)))
    for kind in kinds:
        theirs, losses[kind] = _torch_step(torch, net, first, x, y, kind)
        contestants.append(theirs)
    _, true = _torch_step(torch, net.double(), first, x, y, "double")
    net.float()
    error = peers.checked(f"{name}, a step", 1e-3, **{
        kind: abs(loss / true - 1) for kind, loss in losses.items()})
    timings = compare(contestants, threads == 1, effort)
    s.compared(name, threads, timings, error, best=f"{best(timings):.2f}")


def best(timings: list[Timing]) -> float:
    """The time of the best peer over ours, of those that keep to the level of the run."""
    hidden = "ATEN_CPU_CAPABILITY" in os.environ  # AVX-512, but not from ONNX Runtime
    return min(t.ratio for t in timings[1:] if not (hidden and t.name == "ONNX Runtime"))


def exported(net: Any, x: np.ndarray, folder: Path) -> Path:
    """The network's ONNX file, for inputs like x."""
    torch, path = peers.module("torch"), folder / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.from_numpy(x),), path, dynamo=False, input_names=["x"])
    return path


def openvino(path: Path, threads: int) -> Any:
    """A network compiled by OpenVINO in full precision, or None."""
    vino = peers.module("openvino")
    if not vino:
        return None
    core = vino.Core()
    return core.compile_model(core.read_model(str(path)), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})


def without_gradients(call: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
    """A call of PyTorch that keeps nothing for a backward pass."""
    torch = peers.module("torch")

    def run() -> Any:
        with torch.inference_mode():
            return call(*inputs)

    return run


def _of_torch(torch: Any, net: Any, x: Any) -> Calls:
    calls = {"PyTorch eager": without_gradients(net, x)}
    compiled = peers.compiled(net)
    if compiled is not None:
        calls["torch.compile"] = without_gradients(compiled, x)
    return calls


def _wide(torch: Any, x: np.ndarray) -> Any:
    there = torch.from_numpy(x)
    return there.double() if there.is_floating_point() else there


def _step(model: Any, x: np.ndarray, y: np.ndarray, threads: int) -> tuple[Contestant, float]:
    program = model.compile("cpu", batch_size=len(x), threads=threads, loss="mse",
                            optimizer=optimizers.Adam(RATE, epsilon=EPSILON))
    executable = program.executable
    step = executable.bind("train")
    for name, array in {"x": x, "y": y, "w": 1.0, "real": 1.0}.items():
        step.inputs[name][...] = array
    before = executable.states_snapshot()
    for _ in range(STEPS):
        step()
    loss = float(step.outputs["loss"])
    return Contestant("ztorch", step, lambda: executable.restore(before)), loss


def _torch_step(torch: Any, net: Any, first: Mapping[str, Any], x: np.ndarray, y: np.ndarray,
                kind: str) -> tuple[Contestant, float]:
    net.load_state_dict(first)
    inputs, ty = (_wide(torch, a) if kind == "double" else torch.from_numpy(a) for a in (x, y))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, eps=EPSILON,
                                 fused=kind == "fused" or None)
    loss_of: Callable[..., Any] = lambda: torch.nn.functional.mse_loss(net(inputs), ty)  # noqa: E731
    update: Callable[[], Any] = optimizer.step
    if kind == "compile":
        loss_of, update = peers.compiled(loss_of), torch.compile(update)  # type: ignore[assignment]

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        update()
        return loss

    losses = [float(step().detach()) for _ in range(STEPS)]
    label = {"eager": "PyTorch eager", "fused": "eager, fused optimizer",
             "compile": "torch.compile"}.get(kind, kind)
    return Contestant(label, step, lambda: net.load_state_dict(first)), losses[-1]
