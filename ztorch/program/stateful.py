"""The state of a program between calls and sessions: training run, checkpoints, learning rate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.locks import new_lock
from ztorch.program.running_optimizer import RunningOptimizer
from ztorch.program.weight_access import Path, WeightAccess

if TYPE_CHECKING:
    from ztorch.feed.other_sizes import OtherSizes
    from ztorch.layers.weight import Weight
    from ztorch.runtime.loaded_program import LoadedProgram
    from ztorch.runtime.snapshot import Curves, Metadata, Snapshot, Training
    from ztorch.training.history import History


class Stateful(WeightAccess):
    """A program with the state of a training run."""

    # Returns the programs of the model that this one was compiled from; None if it no longer
    # exists.
    relatives: Callable[[], Any] | None = None

    def __init__(self, executable: LoadedProgram, metadata: Metadata,
                 weights: Mapping[str, Weight] | None = None):
        super().__init__(executable, metadata, weights)
        self.generate_lock = new_lock()  # held while `generate` runs, because there is one cache
        self.stop_training = False  # a callback sets it to end training
        self.seed = metadata.seed
        self.epoch = 0  # the next epoch of this run
        self.epochs_trained = 0  # in all runs; with the seed, it determines the next shuffling
        self._resumed = False  # whether the next fit continues a loaded run
        self._curves: Curves | None = None  # the history of that run

    @cached_property
    def history(self) -> History:
        """The history of the last fit."""
        from ztorch.training.history import History

        return History() if self._curves is None else History.from_state(vars(self._curves))

    @property
    def resumed(self) -> bool:
        """Whether the next `fit` continues the run of a checkpoint."""
        return self._resumed

    def start_at(self, epoch: int) -> None:
        """Starts a training run; `fit` calls it once all its arguments are checked.

        Args:
            epoch: The first epoch to train.
        """
        self.epoch, self._resumed, self.stop_training = epoch, False, False

    # -- snapshots and files -----------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The current state of the program, with everything that its next step depends on;
        artifacts are written from it. Further training does not change it. If the
        program calls other libraries of this machine, it is compiled with our kernels for it."""
        from ztorch.runtime.snapshot import Snapshot

        executable = self.executable
        training = self.training_state() if "train" in executable.functions else None
        if executable.own_kernels is not None:
            own = executable.own_kernels()
            params = own.params(executable.states_snapshot())
            return Snapshot(own.spec, own.code, params, self.metadata, training)
        with executable.lock:
            params = executable.params.copy()
        return Snapshot(executable.spec, executable.code, params, self.metadata, training)

    def training_state(self) -> Training:
        """The position of the training run, besides the states of the program."""
        from ztorch.runtime.snapshot import Curves, Training

        return Training(1, self.epoch, self.epochs_trained, self.seed, self.batch_size,
                        Curves(**self.history.state()), self._resumed)

    def resume(self, training: Training, resumed: bool = True) -> None:
        """Restores the position of a training run.

        Args:
            training: The position.
            resumed: Whether the next fit continues that run, as after `load_checkpoint`. Default:
                `True`.
        """
        self.epoch, self.epochs_trained = training.epoch, training.passes
        self.seed, self._resumed, self._curves = training.seed, resumed, training.history
        vars(self).pop("history", None)  # created again from the curves on demand

    def take_states(self, source: Stateful) -> None:
        """Copies the states of another program of the model: weights, slots, random numbers.

        Args:
            source: The program. States of rows stay its own, since batches differ.
        """
        states = source.executable.states_snapshot()
        self.executable.restore({
            name: states[name] for name, state in self.executable.states.items()
            if name in states and states[name].shape == tuple(state.shape)
            and state.role != "memory"})

    def other_sizes(self, function: str, more_rows: bool) -> OtherSizes | None:
        """Runs a function on batches of sizes that the program was not compiled for: of longer
        rows, where the data determine their sizes. None where its model no longer exists.

        Args:
            function: The function, such as "train".
            more_rows: Whether to run those of more rows, too.
        """
        from ztorch.feed.other_sizes import OtherSizes

        programs = None if self.relatives is None else self.relatives()
        if programs is None:
            return None
        longer_rows = programs.follows_data and not self.adapter.stateful
        return OtherSizes(self, function, functools.partial(programs.for_sizes, self, function),
                          more_rows, longer_rows)

    @checked
    def save(self, path: Path) -> None:
        """Writes the program as an artifact, which runs without the compiler and continues
        training.

        Args:
            path: The file, named .zt.

        Raises:
            ConfigError: The file has another suffix.
            FileError: It cannot be written.

        Examples:
            ```python
            program.save("digits.zt")
            same = zt.load("digits.zt")
            ```
        """
        from ztorch.artifact.write import write_artifact

        write_artifact(path, self.snapshot())

    @checked
    def save_checkpoint(self, path: Path) -> None:
        """Writes weights, optimizer, random step, epoch and history to one file, atomically.

        Args:
            path: The file, named .safetensors or .ckpt.

        Raises:
            ConfigError: The program does not train, or the file has another suffix.
            FileError: The file cannot be written.

        Examples:
            ```python
            program.fit(x, y, epochs=3)
            program.save_checkpoint("third.safetensors")
            ```
        """
        from ztorch.training.checkpoint import write_checkpoint

        self.need("train")
        training, specs = self.training_state(), self.executable.states
        states = {name: (specs[name].dtype, value)
                  for name, value in self.executable.states_snapshot().items()
                  if not specs[name].derived}
        write_checkpoint(path, self.executable.spec.name, states, training)

    @checked
    def load_checkpoint(self, path: Path) -> None:
        """Restores a checkpoint. `fit(epochs=n)` then trains the remaining epochs up to n, bit for
        bit as if training had never stopped.

        Args:
            path: A file of `save_checkpoint`.

        Raises:
            WeightsError: The file is damaged, or of another model.

        Examples:
            ```python
            program.load_checkpoint("third.safetensors")
            program.fit(x, y, epochs=10)    # trains seven more
            ```
        """
        from ztorch.training.checkpoint import read_checkpoint

        values, training = read_checkpoint(path, self.executable.states, self.name)
        self.executable.restore(values)
        self.resume(training)

    # -- learning rate -----------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The optimizer's learning rate, which can be set during training. Under a schedule it is
        the rate of the next step, and read-only."""
        self.need("train")
        scheduled = None if self._rate_state() else RunningOptimizer(self).scheduled_rate()
        return (float(self.executable.state(self._rate_name())) if scheduled is None
                else scheduled)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        name = self._rate_name()
        rate = number("learning_rate", rate, least=0)
        spec = self.executable.states[name]
        self.executable.set_state(name, np.full(tuple(spec.shape), rate, spec.dtype.numpy))

    def learning_rate_or_none(self) -> float | None:
        """The learning rate, or None if it follows a schedule."""
        return self.learning_rate if self._rate_state() else None

    def _rate_state(self) -> str | None:
        rates = [n for n in self.executable.states if n.endswith("/learning_rate")]
        return "optimizer/learning_rate" if "optimizer/learning_rate" in rates else (
            rates[0] if len(rates) == 1 else None)

    def _rate_name(self) -> str:
        self.need("train")
        name = self._rate_state()
        if name is None and any(n.endswith("/learning_rate") for n in self.executable.states):
            raise ConfigError("there are several optimizers, each with its own learning rate; use "
                              "schedules: SGD(zt.schedules.ExponentialDecay(...))")
        if name is None:
            raise ConfigError("the learning rate follows the schedule it was compiled with; to "
                              "set it, compile with a number: optimizer=Adam(1e-3)")
        return name
