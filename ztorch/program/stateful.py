"""The states of a program: weights in and out, checkpoints, the learning rate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import number
from ztorch.dtypes import dtype, from_storage
from ztorch.errors import ConfigError, WeightsError
from ztorch.feed.columns import as_array

if TYPE_CHECKING:
    from ztorch.runtime.running import Running
    from ztorch.training.history import History

Path = str | os.PathLike[str]


class Stateful:
    """What a program keeps from call to call, and from session to session."""

    executable: Running
    name: str
    batch_size: int

    @cached_property
    def history(self) -> History:
        """The record of the last fit."""
        from ztorch.training.history import History

        return History()

    def __init__(self, executable: Running, metadata: Mapping[str, Any]):
        self.executable = executable
        self.metadata = dict(metadata)
        self.name = self.metadata.get("name", executable.name)
        self.seed = int(self.metadata.get("seed") or 0)
        self.epoch = 0  # where the next epoch of this run would be
        self.epochs_trained = 0  # in all runs: with the seed, it decides the next shuffling
        self._resumed = False

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, `layer/kernel`, in Keras' order."""
        order = {w["name"]: k for k, w in enumerate(self.metadata.get("weights", ()))}
        names = [n for n, spec in self.executable.states.items() if spec.role == "weight"]
        return sorted(names, key=lambda n: order.get(n, len(order)))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights by name; those stored in 16 bits come as float32."""
        states = self.executable.states
        found = {n: from_storage(states[n].dtype, self.executable.state(n))
                 for n in self.weight_names}
        return {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in found.items()}

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights in Keras' order."""
        return list(self.weights.values())

    @checked
    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights, given in Keras' order; all are checked before any is changed."""
        if not isinstance(weights, Iterable):
            raise WeightsError("set_weights takes a list of arrays, in the order of get_weights, "
                               f"not {weights!r}")
        names, given = self.weight_names, list(weights)
        if len(given) != len(names):
            raise WeightsError(f"set_weights got {len(given)} arrays; the model has {len(names)} "
                               f"weights: {', '.join(names)}")
        from ztorch.training import checkpoint

        new = {}
        for k, (name, value) in enumerate(zip(names, given, strict=True)):
            array = as_array(value, f"set_weights()[{k}]")
            if array.dtype.kind != "f":
                array = array.astype(np.float32)
            new[name] = checkpoint.fit_state(name, array, dtype(array.dtype),
                                             self.executable.states[name], f"set_weights()[{k}]")
        for name, array in new.items():
            self.executable.set_state(name, array)

    @checked
    def save_weights(self, path: Path) -> None:
        """Writes the weights to a safetensors file, atomically."""
        from ztorch.weights import own_files

        own_files.write(path, self.weights, self.name)

    @checked
    def load_weights(self, path: Path) -> None:
        """Reads the weights of a safetensors file or a checkpoint."""
        from ztorch.weights import own_files

        shapes = {n: tuple(self.executable.states[n].shape) for n in self.weight_names}
        self.set_weights(list(own_files.read(path, shapes, self.name).values()))

    @checked
    def save_checkpoint(self, path: Path) -> None:
        """Writes weights, optimiser, random step, epoch and history to one file, atomically."""
        from ztorch.training import checkpoint

        checkpoint.save(self, path)

    @checked
    def load_checkpoint(self, path: Path) -> None:
        """Goes back to a checkpoint: `fit(epochs=n)` then trains the epochs up to n that it lacks,
        bit for bit as if training had never stopped."""
        from ztorch.training import checkpoint

        checkpoint.load(self, path)

    def resume(self, epoch: int, epochs_trained: int, seed: int, history: History) -> None:
        """The place in a run at which the next fit goes on; load_checkpoint sets it."""
        self.epoch, self.epochs_trained, self.seed = epoch, epochs_trained, seed
        self.history, self._resumed = history, True

    def place(self) -> dict[str, Any]:
        """Where training stands beside its states, as JSON-able values; artifacts keep it."""
        from ztorch.training import checkpoint

        return {**checkpoint.describe(self), "resumed": self._resumed}

    @checked
    def save(self, path: Path) -> None:
        """Writes the compiled artifact, which runs without the compiler."""
        from ztorch.artifact.write import write_artifact

        executable = self.executable
        with executable.lock:
            params = executable.params.copy()
        training = self.place() if "train" in executable.functions else None
        write_artifact(path, executable.spec, executable.code, params,
                       {**self.metadata, "training": training})

    @property
    def learning_rate(self) -> float:
        """The optimiser's learning rate; settable while training."""
        return float(self.executable.state(self._rate_name()))

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        name = self._rate_name()
        rate = number("learning_rate", rate, least=0)
        spec = self.executable.states[name]
        self.executable.set_state(name, np.full(tuple(spec.shape), rate, spec.dtype.numpy))

    def learning_rate_or_none(self) -> float | None:
        """The learning rate, or None where it follows a schedule."""
        return self.learning_rate if self._rate_state() else None

    def _rate_state(self) -> str | None:
        return next((n for n in self.executable.states if n.endswith("/learning_rate")), None)

    def _rate_name(self) -> str:
        self._need("train")
        name = self._rate_state()
        if name is None:
            raise ConfigError("the learning rate follows the schedule it was compiled with; to "
                              "set it, compile with a number: optimizer=Adam(1e-3)")
        return name

    def _need(self, function: str) -> Any:
        found = self.executable.functions.get(function)
        if found is None:
            verb = {"train": "train", "evaluate": "evaluate"}[function]
            needs = "loss= and optimizer=" if function == "train" else "loss="
            raise ConfigError(f"program {self.name!r} cannot {verb}: it was compiled without; "
                              f"compile with {needs}, such as compile(..., optimizer='adam', "
                              "loss='mse')")
        return found
