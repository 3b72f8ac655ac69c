"""Checkpoints: safetensors files with everything that the next epoch depends on.

A file holds every state (weights, optimizer slots, counters, the random step). Its metadata holds
the position of the run: the epoch, the history and the seed of shuffling. The whole file is checked
before any of it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ztorch.dtypes import DType, from_storage, to_storage
from ztorch.errors import WeightsError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name
from ztorch.files.kinds import BadValue, Whole
from ztorch.files.schema import Record, field
from ztorch.runtime.snapshot import Training

if TYPE_CHECKING:
    from ztorch.runtime.spec import StateSpec

FORMAT = "ztorch checkpoint"
VERSION = 1  # of the format; the previous version can be read, too


class TrainingHeader(Record):
    """The header of every version of the training data."""

    version: int = field(Whole(1, 1 << 31))


def write_checkpoint(path: str | os.PathLike[str], name: str, states: safetensors.Tensors,
                     training: Training) -> None:
    """Writes everything that training depends on, atomically: the name of the program, its states
    and the position of the run.

        write_checkpoint("run.safetensors", "digits", snapshot.states(), snapshot.training)
    """
    need_name(path, "a checkpoint", (".safetensors", ".ckpt"), "name it .safetensors, or save the "
              "whole program with program.save('NAME.zt')")
    safetensors.write(path, states, {
        "format": FORMAT, "model": name, "training": json.dumps(training.to_json())})


def read_checkpoint(path: str | os.PathLike[str], states: Mapping[str, StateSpec],
                    program: str) -> tuple[dict[str, np.ndarray], Training]:
    """The values of all states of a program, and the position of the run; errors name the program
    by `program`.

        values, training = read_checkpoint("run.safetensors", program.executable.states, "digits")
    """
    tensors, metadata = safetensors.read(path)
    where = os.fspath(path)
    if metadata.get("format") != FORMAT:
        raise WeightsError(f"{where} is not a checkpoint; load weights with load_weights")
    return _values(tensors, states, program, where), _training(metadata.get("training", ""), where)


def _training(text: str, where: str) -> Training:
    try:
        value = json.loads(text)
        version = TrainingHeader.from_json(value).version
        if version > VERSION:
            raise WeightsError(f"{where} holds training data of version {version}; this ztorch "
                               f"reads up to {VERSION}: install a newer one")
        return Training.from_json(value)
    except (BadValue, ValueError, RecursionError) as error:
        raise WeightsError(f"{where} has damaged training data ({error}); use another file, or "
                           "load_weights for its weights alone") from None


def _values(tensors: safetensors.Tensors, states: Mapping[str, StateSpec], program: str,
            where: str) -> dict[str, np.ndarray]:
    """The value of each stored state, or an error that names the first state that does not fit."""
    values: dict[str, np.ndarray] = {}
    for name, state in states.items():
        if state.derived:
            continue
        if name not in tensors:
            extra = [n for n in tensors if n not in states]
            hint = f"; it has {extra[0]!r}, which the model lacks" if extra else ""
            fix = ("load it into a model with the layers and names it comes from"
                   if state.role == "weight" else
                   "compile with the optimizer it was saved with, or use load_weights")
            raise WeightsError(f"{where} has no {state.role} {name!r}{hint}; {fix}")
        d, array = tensors[name]
        values[name] = fit_state(name, array, d, state, where)
    for name in tensors:
        if name not in values:
            raise WeightsError(f"{where} has {name!r}, which program {program!r} lacks; compile "
                               "with the same settings as when it was saved, or use load_weights")
    return values


def fit_state(name: str, array: np.ndarray, d: DType, state: StateSpec, where: str) -> np.ndarray:
    """A stored array of dtype d in the form of the state, or an error that shows both shapes."""
    if tuple(array.shape) != tuple(state.shape):
        raise WeightsError(f"{state.role} {name!r} has shape {tuple(state.shape)} in the model but "
                           f"{tuple(array.shape)} in {where}; change the layer to match, or load "
                           "a file of this model")
    if d == state.dtype:
        return array
    if d.is_float != state.dtype.is_float:
        raise WeightsError(f"{state.role} {name!r} is {state.dtype} in the model but {d} in "
                           f"{where}; load a file of this model")
    return to_storage(state.dtype, from_storage(d, array).astype(state.dtype.working))
