"""Whole epochs of `fit`: a model of each family on its own data, beside the loop that users of
PyTorch write, and Keras' `fit` of the same model."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu_peers, peers, recurrent
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch import Sequential, data, optimizers
from ztorch.errors import Unsupported

MODELS = ("digits_mlp", "digits_cnn", "lstm_classifier", "tiny_gpt")
ROWS, BATCH, RATE = 1433, 32, 1e-3  # no more rows than the digits have
EPSILON = 1e-12  # Keras and PyTorch put it at different places of Adam's formula


def run(threads: list[int], effort: Effort) -> Section:
    """An epoch of 1433 rows in batches of 32, shuffled."""
    s = Section("fit", f"An epoch of fit: {ROWS} rows, batch {BATCH}, Adam",
                "for us the FMA peak and the copy of each batch into place; for the peers the "
                "overhead of a few dozen calls a step. Losses of an unshuffled epoch are "
                "compared first. PyTorch's loop is written by hand, with rows gathered from "
                "one tensor: faster than a DataLoader. Nothing is dropped out.")
    for n in threads:
        peers.set_threads(n)
        for name in MODELS[:1] if effort.least <= 3 else MODELS:
            _case(s, name, n, effort)
    return s


def _case(s: Section, name: str, threads: int, effort: Effort) -> None:
    module = importlib.import_module(f"models.{name}")
    (x, y), _ = data.load(module.DATA)
    x, y = x[:ROWS], y[:ROWS]
    model = module.build()
    without_dropout(model)
    weights = [w.copy() for w in model.get_weights()]  # training changes the model's
    program = model.compile("cpu", batch_size=BATCH, threads=threads, loss=module.LOSS,
                            optimizer=optimizers.Adam(RATE, epsilon=EPSILON))
    first = program.executable.states_snapshot()

    def restore() -> None:
        program.executable.restore(first)

    losses = {"ztorch": program.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"][0]}
    restore()
    ours = Contestant("ztorch fit", lambda: program.fit(x, y, epochs=1, verbose=0), restore)
    contestants = [ours]
    if peers.module("torch"):
        for label, fused in (("PyTorch eager loop", False), ("PyTorch loop, fused Adam", True)):
            epoch = _torch_epoch(_torch(name, model), x, y, fused)
            losses[label] = epoch(shuffle=False)
            contestants.append(Contestant(label, epoch))
    if peers.module("keras"):
        model.set_weights(weights)
        theirs = _keras_epoch(model, x, y, module.LOSS)
        if theirs:
            losses["Keras fit"] = theirs(shuffle=False)
            contestants.append(Contestant("Keras fit", theirs))
    error = peers.checked(f"an epoch of {name}", 2e-3, **{
        label: abs(loss / losses["ztorch"] - 1) for label, loss in losses.items()})
    timings = compare(contestants, threads == 1, effort)
    error = max(abs(loss / losses["ztorch"] - 1) for loss in losses.values())
    s.compared(name, threads, timings, error, **{"rows/s": f"{len(x) / timings[0].seconds:,.0f}"})


def without_dropout(layer: Any) -> None:
    """Drops nothing, in place: all draw other numbers, and results would not compare."""
    for name in ("rate", "dropout"):
        if isinstance(getattr(layer, name, None), float):
            setattr(layer, name, 0.0)
    for part in getattr(layer, "adopted", ()):
        without_dropout(part)


def _torch(name: str, model: Sequential) -> Any:
    """The model in PyTorch's words, with its weights."""
    torch = peers.module("torch")
    if name != "lstm_classifier":
        return gpu_peers.build(name, model)
    *reader, kernel, bias = model.get_weights()
    ways = [recurrent.as_torch("LSTM", reader[at:at + 3]) for at in (0, 3)]
    for layer in ways:  # ours has one bias, PyTorch two that would both learn
        layer.bias_hh_l0.requires_grad_(False)
    both = torch.nn.LSTM(*reader[0].shape[:1], len(reader[1]), batch_first=True, bidirectional=True)
    for suffix, layer in zip(("", "_reverse"), ways, strict=True):
        for parameter, value in layer.named_parameters():
            there = getattr(both, parameter + suffix)
            there.data.copy_(value.data)
            there.requires_grad_(value.requires_grad)
    head = torch.nn.Linear(*kernel.shape)
    head.weight.data.copy_(torch.from_numpy(kernel.T))
    head.bias.data.copy_(torch.from_numpy(bias))

    class Classifier(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        """The last state of each way through the rows of an image, and a dense layer."""

        def __init__(self) -> None:
            super().__init__()
            self.both, self.head = both, head

        def forward(self, x: Any) -> Any:
            _, (last, _) = self.both(x.flatten(2))
            return self.head(last.transpose(0, 1).flatten(1))

    return Classifier()


def _torch_epoch(net: Any, x: np.ndarray, y: np.ndarray, fused: bool) -> Callable[..., float]:
    torch = peers.module("torch")
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=RATE,
                                 eps=EPSILON, fused=fused)
    tx, ty = gpu_peers.inputs(x), torch.from_numpy(y.astype(np.int64))
    if not isinstance(net, torch.nn.Sequential):
        tx = torch.from_numpy(x)
    elif isinstance(net[0], torch.nn.Linear):
        tx = torch.from_numpy(x.reshape(len(x), -1))

    def epoch(shuffle: bool = True) -> float:
        rows = torch.randperm(len(tx)) if shuffle else torch.arange(len(tx))
        total = torch.zeros(())
        for batch in rows.split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(net(tx[batch]).flatten(0, -2),
                                                     ty[batch].flatten())
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        return float(total) / len(tx)

    return epoch


def _keras_epoch(model: Sequential, x: np.ndarray, y: np.ndarray,
                 loss: str) -> Callable[..., float] | None:
    """Keras' epoch, unless the model has layers that Keras has not."""
    keras = peers.module("keras")
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save(Path(folder) / "model.keras")
        except Unsupported as error:
            print(f"  without Keras: {' '.join(str(error).split())}", flush=True)
            return None
        theirs = keras.models.load_model(Path(folder) / "model.keras")
    theirs.compile(optimizer=keras.optimizers.Adam(RATE, epsilon=EPSILON), loss=loss)

    def epoch(shuffle: bool = True) -> float:
        history = theirs.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, shuffle=shuffle).history
        return float(history["loss"][0])

    return epoch
