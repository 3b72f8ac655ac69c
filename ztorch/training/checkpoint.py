"""Checkpoints: safetensors files with all that the next epoch depends on.

That is every state (weights, optimiser slots, counters, the random step), and as metadata the
epoch, the history and the shuffling seed. A file is checked whole before anything is changed.
"""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

import numpy as np

from ztorch.dtypes import DType, from_storage, to_storage
from ztorch.errors import WeightsError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name
from ztorch.training.history import History

_KIND = "ztorch checkpoint"
_VERSION = 1


class Trained(Protocol):
    """What a checkpoint takes from a program, and puts back."""

    name: str
    epoch: int
    epochs_trained: int
    seed: int
    batch_size: int
    @property
    def history(self) -> History: ...
    executable: Any

    def resume(self, epoch: int, epochs_trained: int, seed: int, history: History) -> None: ...


def save(program: Trained, path: str | os.PathLike[str]) -> None:
    """Writes all that training depends on, in one atomic step.

    >>> save(program, "run.safetensors")    # doctest: +SKIP
    """
    need_name(path, "a checkpoint", ".safetensors", "name it .safetensors, or write the "
                         "whole program with program.save('NAME.zt')")
    run = describe(program)
    states = program.executable.states
    snapshot = program.executable.states_snapshot()
    kept = {n: (states[n].dtype, a) for n, a in snapshot.items() if not states[n].derived}
    safetensors.write(path, kept,
                     {"format": _KIND, "model": program.name, "training": json.dumps(run)})


def load(program: Trained, path: str | os.PathLike[str]) -> None:
    """Puts a program where `save` left it; the next `fit` goes on from there."""
    tensors, metadata = safetensors.read(path)
    where = os.fspath(path)
    if metadata.get("format") != _KIND:
        raise WeightsError(f"{where} is not a checkpoint; for a file of weights use load_weights")
    try:
        run = json.loads(metadata.get("training", ""))
    except ValueError:
        run = None
    place = run_place(run, where)
    _assign(program, tensors, where)
    program.resume(*place)


def describe(program: Trained) -> dict[str, Any]:
    """Where a run stands, as JSON-able values; the weights and other states come beside it."""
    return {"version": _VERSION, "epoch": program.epoch, "passes": program.epochs_trained,
            "seed": program.seed, "batch_size": program.batch_size,
            "history": program.history.state()}


def run_place(run: Any, where: str) -> tuple[int, int, int, History]:
    """Epoch, epochs trained, seed and history that `describe` gave, each checked."""
    try:
        if int(run["version"]) > _VERSION:
            raise WeightsError(f"{where} holds training data of version {run['version']}; this "
                               f"ztorch reads up to {_VERSION}: install a newer one")
        place = int(run["epoch"]), int(run["passes"]), int(run["seed"])
        if min(place) < 0:
            raise ValueError("a count below zero")
        return *place, History.from_state(run["history"])
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{where} has damaged training data ({error!r}); use another "
                           "file, or load_weights for its weights alone") from None


def _assign(program: Trained, tensors: safetensors.Tensors, where: str) -> None:
    """All states from tensors, or an error that names the first wrong one and no change."""
    states = program.executable.states
    new: dict[str, np.ndarray] = {}
    for name in (n for n, spec in states.items() if not spec.derived):
        if name not in tensors:
            extra = [n for n in tensors if n not in states]
            hint = f"; it has {extra[0]!r}, which the model has not" if extra else ""
            fix = ("load it into a model with the layers and names it comes from"
                   if states[name].role == "weight" else
                   "compile with the optimizer it was saved with, or use load_weights")
            raise WeightsError(f"{where} has no {states[name].role} {name!r}{hint}; {fix}")
        d, array = tensors[name]
        new[name] = fit_state(name, array, d, states[name], where)
    extra = [n for n in tensors if n not in new]
    if extra:
        raise WeightsError(f"{where} has {extra[0]!r}, which program {program.name!r} has not; "
                           "compile as it was compiled when saved, or use load_weights")
    for name, array in new.items():
        program.executable.set_state(name, array)


def fit_state(name: str, array: np.ndarray, d: DType, spec: Any, where: str) -> np.ndarray:
    """A stored array of dtype d as the state stores it, or an error with both shapes."""
    if tuple(array.shape) != tuple(spec.shape):
        raise WeightsError(f"{spec.role} {name!r} has shape {tuple(spec.shape)} in the model but "
                           f"{tuple(array.shape)} in {where}; change the layer to match, or load "
                           "a file of this model")
    if d == spec.dtype:
        return array
    if d.is_float != spec.dtype.is_float:
        raise WeightsError(f"{spec.role} {name!r} is {spec.dtype} in the model but {d} in {where}; "
                           "load a file of this model")
    return to_storage(spec.dtype, from_storage(d, array).astype(spec.dtype.working))
