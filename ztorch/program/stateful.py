"""The state of a program: native calls, weights, snapshots, checkpoints, the learning rate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import number
from ztorch.dtypes import dtype, from_storage
from ztorch.errors import ConfigError, DataError, WeightsError
from ztorch.feed.adapter import DataAdapter
from ztorch.feed.call_pool import BorrowedCall, CallPool
from ztorch.feed.columns import as_array
from ztorch.locks import new_lock
from ztorch.program.running_optimizer import RunningOptimizer
from ztorch.runtime.buckets import BATCH, Buckets
from ztorch.runtime.spec import RESULTS, public_functions, score_of

if TYPE_CHECKING:
    from ztorch.layers.weight import Weight
    from ztorch.program.model_weights import ModelWeights
    from ztorch.program.weight_tables import ProgramWeights
    from ztorch.runtime.loaded_program import LoadedProgram
    from ztorch.runtime.snapshot import Curves, Metadata, Snapshot, Training
    from ztorch.training.history import History

Path = str | os.PathLike[str]


class Stateful:
    """The state that a program keeps between calls and sessions."""

    def __init__(self, executable: LoadedProgram, metadata: Metadata,
                 weights: Mapping[str, Weight] | None = None):
        self.executable = executable
        self.metadata = metadata
        self.name = metadata.name
        predict = executable.functions["predict"]
        rows = next(iter(predict.inputs.values())).shape[0]
        self.buckets = Buckets(metadata.axes or {BATCH: (rows,)}, metadata.whole_batches,
                               metadata.whole_axes, metadata.multiples)
        self.batch_size = self.buckets.batch_size  # maximum rows per call
        stateful = next((name.rpartition("/")[0] for name, state in executable.states.items()
                         if state.role == "memory"), "")
        self.adapter = DataAdapter.of(executable.functions, metadata, self.buckets, stateful)
        self.calls = CallPool(executable, self.buckets)
        self.generate_lock = new_lock()  # held while `generate` runs, because there is one cache
        self.fit_lock = new_lock()  # held while `fit` runs
        self.stop_training = False  # a callback sets it to end training
        self.seed = metadata.seed
        self.epoch = 0  # the next epoch of this run
        self.epochs_trained = 0  # in all runs; with the seed, it determines the next shuffling
        self._resumed = False  # whether the next fit continues a loaded run
        self._curves: Curves | None = None  # the history of that run
        self.model_weights: ModelWeights | None = None
        if weights is not None:
            from ztorch.program.model_weights import ModelWeights

            self.model_weights = ModelWeights(executable, self.fit_lock, weights)

    @cached_property
    def history(self) -> History:
        """The history of the last fit."""
        from ztorch.training.history import History

        return History() if self._curves is None else History.from_state(vars(self._curves))

    @property
    def device(self) -> str:
        """The device on which this program runs."""
        return self.executable.device

    @property
    def recomputed(self) -> dict[str, tuple[str, ...]]:
        """The kernels that run a second time instead of storing their results, by function; for a
        `Checkpoint` layer or `memory_limit` of compile."""
        functions = public_functions(self.executable.spec.functions)
        return {name: f.recomputed for name, f in functions.items()}

    @property
    def metrics_names(self) -> list[str]:
        """The names of the scores that `evaluate` returns, in order."""
        return self.score_names("evaluate")

    def score_names(self, function: str) -> list[str]:
        """The names of the scores of "train" or "evaluate", starting with the loss."""
        names = dict.fromkeys(map(score_of, self.need(function).outputs))
        return sorted(names, key=lambda name: name != "loss")

    def results(self, totals: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The metrics that are computed from totals over batches, by name: numbers, or arrays."""
        with self.borrow(RESULTS) as call:
            for name, total in totals.items():
                if name in call.inputs:  # a result may not need all sums of its metric
                    call.inputs[name][...] = total
            call()
            return {name: y.copy() if np.ndim(y) else y.item()
                    for name, y in call.outputs.items()}

    @property
    def resumed(self) -> bool:
        """Whether the next `fit` continues the run of a checkpoint."""
        return self._resumed

    def borrow(self, function: str) -> BorrowedCall:
        """A native call of a function, for a `with` block, in which its buffers belong to the
        caller."""
        return self.calls.borrow(function)

    # -- weights ---------------------------------------------------------------------------------

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, `layer/kernel`, in Keras' order."""
        order = {w.name: k for k, w in enumerate(self.metadata.weights)}
        names = [n for n, spec in self.executable.states.items() if spec.role == "weight"]
        return sorted(names, key=lambda n: order.get(n, len(order)))

    @property
    def weights(self) -> ProgramWeights:
        """The weights by name, as `zt.Tensor`s on the program's device. Reading an item returns the
        current weight, unaffected by later training; setting an item sets the weight."""
        from ztorch.program.weight_tables import ProgramWeights

        return ProgramWeights(self)

    def weight_arrays(self) -> dict[str, np.ndarray]:
        """Copies of the weights by name; those stored in 16 bits are returned as float32."""
        states = self.executable.states
        arrays = {n: from_storage(states[n].dtype, self.executable.state(n))
                  for n in self.weight_names}
        return {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in arrays.items()}

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights in Keras' order; those stored in 16 bits are returned as
        float32."""
        return list(self.weight_arrays().values())

    @checked
    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights, in Keras' order; all are checked before any is changed."""
        if not isinstance(weights, Iterable):
            raise WeightsError("set_weights takes a list of arrays, in the order of get_weights, "
                               f"not {weights!r}")
        names, values = self.weight_names, list(weights)
        if len(values) != len(names):
            raise WeightsError(f"set_weights got {len(values)} arrays; the model has {len(names)} "
                               f"weights: {', '.join(names)}")
        from ztorch.training.checkpoint import fit_state

        arrays = {}
        for k, (name, value) in enumerate(zip(names, values, strict=True)):
            array = as_array(value, f"set_weights()[{k}]")
            if array.dtype.kind != "f":
                array = array.astype(np.float32)
            arrays[name] = fit_state(name, array, dtype(array.dtype), self.executable.states[name],
                                     f"set_weights()[{k}]")
        self.executable.restore(arrays)

    @checked
    def save_weights(self, path: Path) -> None:
        """Writes the weights to a safetensors file, atomically."""
        from ztorch.weights import own_files

        own_files.write(path, self.weight_arrays(), self.name)

    @checked
    def load_weights(self, path: Path) -> None:
        """Reads weights from a safetensors file or a checkpoint."""
        from ztorch.weights import own_files

        shapes = {n: tuple(self.executable.states[n].shape) for n in self.weight_names}
        self.set_weights(list(own_files.read(path, shapes, self.name).values()))

    # -- training --------------------------------------------------------------------------------

    def start_at(self, epoch: int) -> None:
        """Starts a training run; `fit` calls it once all its arguments are checked."""
        self.epoch, self._resumed, self.stop_training = epoch, False, False

    def take_weights(self) -> None:
        """Updates weights that are newer in the model."""
        if self.model_weights is not None:
            self.model_weights.take()

    def lend_weights(self) -> None:
        """Makes this program the home of the model's weights."""
        if self.model_weights is not None:
            self.model_weights.move_in()

    # -- all of it ----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The current state of the program, with everything that its next step depends on;
        artifacts and checkpoints are written from it. Further training does not change it."""
        from ztorch.runtime.snapshot import Snapshot

        executable = self.executable
        with executable.lock:
            params = executable.params.copy()
        training = self.training_state() if "train" in executable.functions else None
        return Snapshot(executable.spec, executable.code, params, self.metadata, training)

    def training_state(self) -> Training:
        """The position of the training run, besides the states of the program."""
        from ztorch.runtime.snapshot import Curves, Training

        return Training(1, self.epoch, self.epochs_trained, self.seed, self.batch_size,
                        Curves(**self.history.state()), self._resumed)

    def resume(self, training: Training, resumed: bool = True) -> None:
        """Restores the position of a training run. If `resumed`, the next fit continues that run,
        as after `load_checkpoint`."""
        self.epoch, self.epochs_trained = training.epoch, training.passes
        self.seed, self._resumed, self._curves = training.seed, resumed, training.history
        vars(self).pop("history", None)  # created again from the curves on demand

    @checked
    def save(self, path: Path) -> None:
        """Writes the compiled artifact, which runs without the compiler."""
        from ztorch.artifact.write import write_artifact

        write_artifact(path, self.snapshot())

    @checked
    def save_checkpoint(self, path: Path) -> None:
        """Writes weights, optimizer, random step, epoch and history to one file, atomically."""
        from ztorch.training.checkpoint import write_checkpoint

        self.need("train")
        write_checkpoint(path, self.snapshot())

    @checked
    def load_checkpoint(self, path: Path) -> None:
        """Restores a checkpoint. `fit(epochs=n)` then trains the remaining epochs up to n, bit for
        bit as if training had never stopped."""
        from ztorch.training.checkpoint import read_checkpoint

        values, training = read_checkpoint(path, self.executable.states, self.name)
        self.executable.restore(values)
        self.resume(training)

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

    def need(self, function: str) -> Any:
        """The spec of "train" or "evaluate", or an error that shows how to compile it."""
        spec = self.executable.functions.get(function)
        if spec is None:
            needs = "loss= and optimizer=" if function == "train" else "loss="
            lacks = "an optimizer" if "evaluate" in self.executable.functions else "a loss"
            raise ConfigError(f"program {self.name!r} cannot {function}: it was compiled without "
                              f"{lacks}; compile with {needs}, such as compile(..., "
                              "optimizer='adam', loss='mse')")
        return spec

    def need_one_batch(self, rows: int) -> None:
        """Raises an error if there are more rows than a batch holds."""
        if rows > self.batch_size:
            raise DataError(f"x has {rows} rows, but this program is compiled for batches of "
                            f"{self.batch_size}; use fit, evaluate or predict for more")
