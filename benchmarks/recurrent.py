"""Recurrent networks: LSTM and GRU over sequences, predictions and training steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import ztorch as zt
from benchmarks import peers
from benchmarks.recurrent_limits import LAYERS, NARROW, KernelBenchmark
from benchmarks.report import Section, duration
from benchmarks.timing import Contestant, Effort
from ztorch import layers as L
from ztorch.host.settings import using

CASES = ((32, 8, 64), (64, 32, 128), (100, 1, 128), (256, 64, 256), (1000, 16, 128))
RATE = 1e-3
STEPS = 3  # before the weights of all are compared
# In Keras' order of gates, the place of each of PyTorch's: i f g o, and r z n.
ORDERS = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}


def run(name: str, verb: str, threads: list[int], effort: Effort) -> Section:
    """One layer over whole sequences, through the calls that users make.

    Args:
        name: The layer.
        verb: `predict` or `train`.
        threads: Numbers of threads.
        effort: How long to measure.
    """
    s = Section(f"{name.lower()} {verb}", f"{name}, {verb}: sequences of (steps, batch, width)",
                "products at the FMA peak (a prediction has two, a step of training five), but "
                "those of a single step no faster than this cache delivers their weights, which "
                "decides at batch 1; and the gates, timed as a separate kernel. All three are "
                "measured in the same rounds. How fast workers meet tells whether their cores are "
                "on one die, which a virtual machine may change at any time. The goal is twice the "
                f"speed of the best peer up to a width of {NARROW}, else 1.3 times. The arena is "
                "counted in outputs of all steps.")
    for n in threads:
        peers.set_threads(n)
        for case in CASES:
            (_predict if verb == "predict" else _train)(s, name, case, n, effort)
    return s


def run_compile(threads: list[int], effort: Effort) -> Section:
    """Compile time over the number of steps."""
    s = Section("recurrent compile", "Compile time of an LSTM by the length of its sequences",
                "the graph and the code have one step, so the length changes only numbers in them.")
    for trains in (False, True):
        for steps in (10, 100, 1000):
            best = min(_compile_seconds(steps, trains) for _ in range(effort.least // 3))
            s.line({"function": "train" if trains else "predict", "steps": str(steps),
                    "seconds": duration(best)}, compile_seconds=best)
    return s


def _compile_seconds(steps: int, trains: bool) -> float:
    """Without the draw of an orthogonal matrix, whose threads spin where cores are shared."""
    model = zt.Sequential([L.Input((steps, 64)), L.LSTM(64, recurrent_initializer="normal")])
    more: dict[str, Any] = {"optimizer": "sgd", "loss": "mse"} if trains else {}
    with using(cache=None):  # else all but the first are found in the cache
        begun = process_time()  # all of it is the compiler's own work
        model.compile("cpu", batch_size=16, **more)
        return process_time() - begun


def _model(name: str, case: tuple[int, int, int]) -> zt.Sequential:
    steps, _, width = case
    return zt.Sequential([L.Input((steps, width)), getattr(L, name)(width)], seed=3)


def _data(case: tuple[int, int, int]) -> np.ndarray:
    steps, batch, width = case
    random = np.random.default_rng(4)
    return random.standard_normal((batch, steps, width), np.float32)


def _predict(s: Section, name: str, case: tuple[int, int, int], threads: int,
             effort: Effort) -> None:
    model, x = _model(name, case), _data(case)
    program = model.compile("cpu", batch_size=case[1], threads=threads)
    true = _torch_layer(name, model, double=True)(x)
    results = {"ztorch": program.predict(x)}
    contestants = [Contestant("ztorch", _bound(program, x))]
    torch = peers.module("torch")
    if torch:
        eager = _torch_layer(name, model)
        results["PyTorch eager"] = eager(x)
        contestants.append(Contestant("PyTorch eager", eager.prepared(x)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        zt.onnx.save(model, path, batch_size=case[1])
        session = peers.onnx_session(path, threads)
        if session:
            port = session.get_inputs()[0].name
            [results["ONNX Runtime"]] = session.run(None, {port: x})
            contestants.append(Contestant("ONNX Runtime", lambda: session.run(None, {port: x})))
        if peers.module("keras"):
            keras = _keras_model(name, model, case)
            results["Keras"] = np.asarray(keras(x).detach())
            contestants.append(Contestant("Keras", lambda: keras(x)))
        label = f"{name} {case}, predict"
        error = peers.checked(label, 1e-3, **{k: peers.worst(y, true)
                                              for k, y in results.items()})
        race = KernelBenchmark(name, case, threads, large=1, in_turns=1)
        race.enter(s, label, contestants, error, effort)


def _train(s: Section, name: str, case: tuple[int, int, int], threads: int,
           effort: Effort) -> None:
    model, x = _model(name, case), _data(case)
    y = np.random.default_rng(6).standard_normal((case[1], case[2]), np.float32)
    first_weights = [w.copy() for w in model.get_weights()]
    program = model.compile("cpu", batch_size=case[1], threads=threads, loss="mse",
                            optimizer=zt.optimizers.SGD(RATE))
    executable = program.executable
    step = executable.bind("train")
    for port, array in {"x": x, "y": y, "w": 1.0, "real": 1.0}.items():
        step.inputs[port][...] = array
    first = executable.states_snapshot()
    for _ in range(STEPS):
        step()
    results = {"ztorch": program.get_weights()}
    contestants = [Contestant("ztorch", step, lambda: executable.restore(first))]
    true = results["ztorch"]
    if peers.module("torch"):
        true, _ = _torch_training(name, first_weights, x, y, double=True)
        results["PyTorch eager"], contestant = _torch_training(name, first_weights, x, y)
        contestants.append(contestant)
    label = f"{name} {case}, train"
    error = peers.checked(label, 1e-2, **{
        k: _distance(w, true, first_weights) for k, w in results.items()})
    # Two products forward, three back: nobody asks for the gradient of the input.
    race = KernelBenchmark(name, case, threads, large=3, in_turns=2)
    stored = executable.spec.arena_bytes / (4 * case[0] * case[1] * case[2])
    race.enter(s, label, contestants, error, effort, arena=f"{stored:.1f}")


def _bound(program: Any, x: np.ndarray) -> Callable[[], object]:
    call = program.executable.bind("predict")
    call.inputs["x"][...] = x
    run_once: Callable[[], object] = call
    return run_once


def _distance(trained: list[np.ndarray], true: list[np.ndarray],
              first: list[np.ndarray]) -> float:
    """The distance from the true weights, relative to how far training moved them (L2)."""
    error = sum(float(np.square(f - t).sum()) for f, t in zip(trained, true, strict=True))
    moved = sum(float(np.square(t - w).sum()) for t, w in zip(true, first, strict=True))
    return float(np.sqrt(error / moved)) if moved else np.inf


# -- the same layer in other words -----------------------------------------------------------------


class _TorchLayer:
    """PyTorch's layer with the same weights; it returns the output of the last step."""

    def __init__(self, layer: Any, double: bool):
        self.layer, self.double = layer, double

    def __call__(self, x: np.ndarray) -> np.ndarray:
        torch = peers.module("torch")
        with torch.inference_mode():
            tx = torch.from_numpy(x)
            output: np.ndarray = self.layer(tx.double() if self.double else tx)[0][:, -1].numpy()
        return output

    def prepared(self, x: np.ndarray) -> Callable[[], object]:
        """A call on this input."""
        torch = peers.module("torch")
        tx = torch.from_numpy(x)

        def call() -> object:
            with torch.inference_mode():
                return self.layer(tx)[0][:, -1]

        return call


def _torch_layer(name: str, model: zt.Sequential, double: bool = False) -> _TorchLayer:
    return _TorchLayer(as_torch(name, model.get_weights(), double), double)


def as_torch(name: str, weights: list[np.ndarray], double: bool = False) -> Any:
    """PyTorch's layer with these weights, in our layout: kernels (in, gates * units)."""
    torch = peers.module("torch")
    kernel, recurrent, bias = weights
    units = recurrent.shape[0]
    layer = getattr(torch.nn, name)(kernel.shape[0], units, batch_first=True)
    biases = [bias, np.zeros_like(bias)] if bias.ndim == 1 else list(bias)
    with torch.no_grad():
        for parameter, array in (("weight_ih_l0", kernel.T), ("weight_hh_l0", recurrent.T),
                                 ("bias_ih_l0", biases[0]), ("bias_hh_l0", biases[1])):
            gates = array.reshape(LAYERS[name], units, *array.shape[1:])
            ordered = np.concatenate([gates[k] for k in ORDERS[name]])
            getattr(layer, parameter).copy_(torch.from_numpy(np.ascontiguousarray(ordered)))
    return layer.double() if double else layer


def _from_torch(name: str, layer: Any) -> list[np.ndarray]:
    """The weights of PyTorch's layer in our layout."""
    def ours(parameter: str) -> np.ndarray:
        array = getattr(layer, parameter).detach().numpy()
        gates = array.reshape(LAYERS[name], -1, *array.shape[1:])
        back = sorted(range(LAYERS[name]), key=lambda k: ORDERS[name][k])
        return np.concatenate([gates[k] for k in back])

    biases = [ours("bias_ih_l0"), ours("bias_hh_l0")]
    bias = biases[0] if name == "LSTM" else np.stack(biases)
    return [ours("weight_ih_l0").T, ours("weight_hh_l0").T, bias]


def _torch_training(name: str, weights: list[np.ndarray], x: np.ndarray, y: np.ndarray,
                    double: bool = False) -> tuple[list[np.ndarray], Contestant]:
    """The weights after some steps of PyTorch, and its step."""
    torch = peers.module("torch")
    layer = as_torch(name, weights, double)
    if name == "LSTM":  # ours has one bias, PyTorch two that would both learn
        layer.bias_hh_l0.requires_grad_(False)
    tx, ty = (torch.from_numpy(a).double() if double else torch.from_numpy(a) for a in (x, y))
    optimizer = torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=RATE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(layer(tx)[0][:, -1], ty).backward()
        optimizer.step()

    first = [p.detach().clone() for p in layer.parameters()]
    for _ in range(STEPS):
        step()
    after = _from_torch(name, layer)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def reset() -> None:
        for p, p0 in zip(layer.parameters(), first, strict=True):
            p.copy_(p0)

    return after, Contestant("PyTorch eager", step, reset)


def _keras_model(name: str, model: zt.Sequential, case: tuple[int, int, int]) -> Any:
    keras = peers.module("keras")
    steps, _, width = case
    theirs = keras.Sequential([keras.Input((steps, width)), getattr(keras.layers, name)(width)])
    theirs.set_weights(model.get_weights())
    return theirs
