"""A compiled model in memory: it trains, evaluates, predicts, and reads and writes its weights.

Loaded at the top is what `predict` needs. The rest is imported where it is used, so that a service
that loads an artifact and predicts starts quickly.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ztorch.config import fraction, number
from ztorch.dtypes import dtype
from ztorch.errors import ArtifactError, ConfigError, DataError, WeightsError
from ztorch.training import forward
from ztorch.training.intake import Intake, as_array, batch_agrees, is_stream, store

if TYPE_CHECKING:
    from ztorch.runtime.executable import Executable
    from ztorch.training.batches import Batches
    from ztorch.training.history import History
    from ztorch.training.hooks import Callback

Path = str | os.PathLike[str]
Scores = float | list[float] | dict[str, float]


class Program:
    """What `model.compile` returns.

        program = model.compile("cpu", batch_size=64, optimizer="adam", loss="mse")
        history = program.fit(x, y, epochs=5, validation_split=0.1)
        program.predict(x_new)

    `predict`, `evaluate` and their kin may be called from several threads at once.
    """

    def __init__(self, executable: Executable, metadata: Mapping[str, Any]):
        self.executable = executable
        self.metadata = dict(metadata)
        self.name: str = self.metadata.get("name", executable.name)
        self.seed = int(self.metadata.get("seed") or 0)
        self.batch_size: int = executable.functions["predict"].inputs["x"].shape[0]
        self.stop_training = False  # a callback sets it to end training
        self.epoch = 0  # where the next epoch of this run would be
        self.epochs_trained = 0  # in all runs: with the seed, it decides the next shuffling
        self._resumed = False
        self._calls = forward.Calls(executable)
        self._training = threading.Lock()
        self._intake = self._describe()

    def _describe(self) -> Intake:
        functions = self.executable.functions
        scored = functions.get("train") or functions.get("evaluate")
        x = functions["predict"].inputs["x"]
        y = scored.inputs["y"] if scored is not None else None
        loss = self.metadata.get("loss") or {}
        limits = self.metadata.get("input_range")
        return Intake(tuple(x.shape[1:]), dtype(x.dtype),
                      None if y is None else tuple(y.shape[1:]),
                      None if y is None else dtype(y.dtype),
                      self.metadata.get("classes"), str(loss.get("name", "")),
                      limits and (limits["low"], limits["high"], f"layer {limits['layer']!r}"),
                      bool(self.metadata.get("probabilities")))

    @cached_property
    def history(self) -> History:
        """The record of the last fit."""
        from ztorch.training.history import History

        return History()

    @property
    def device(self) -> str:
        """The device this program is bound to."""
        return self.executable.device

    @property
    def metrics_names(self) -> list[str]:
        """What evaluate returns, in its order."""
        scored = self._need("evaluate")
        return ["loss", *(n for n in scored.outputs if n != "loss")]

    # -- training ---------------------------------------------------------------------------------

    def fit(self, x: Any, y: Any = None, *, batch_size: int | None = None, epochs: int = 1,
            verbose: int | str = "auto", callbacks: Callback | Iterable[Callback] | None = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
            initial_epoch: int | None = None, steps_per_epoch: int | None = None,
            validation_freq: int | Collection[int] = 1,
            nan: Literal["stop", "ignore"] = "stop") -> History:
        """Trains for `epochs` passes over the data and returns the History.

        x and y are arrays (anything NumPy reads), or x is an iterator of (x, y[, weight]) batches
        of any size. Rows are shuffled by the program's seed, so a run repeats bit for bit.
        validation_split takes the last rows, before shuffling; class_weight counts in training
        only. With steps_per_epoch, an epoch of that length goes on where the last one stopped.
        After `load_checkpoint`, fit goes on at the checkpoint's epoch. Ctrl-C ends training after
        the step at work and keeps the weights. A loss that is not finite raises NonFiniteLoss,
        unless nan="ignore".
        """
        from ztorch.callbacks import TerminateOnNaN
        from ztorch.training.batches import ArrayBatches, batches
        from ztorch.training.history import History
        from ztorch.training.hooks import Hooks, checked
        from ztorch.training.loop import Fit
        from ztorch.training.progress import Progress

        self._need("train")
        batch_agrees(batch_size, self.batch_size)
        first = self._first_epoch(initial_epoch, epochs)
        if nan not in ("stop", "ignore"):
            raise ConfigError(f"nan={nan!r} must be 'stop' or 'ignore'")
        _whole("steps_per_epoch", steps_per_epoch)
        if not isinstance(validation_freq, Collection) or isinstance(validation_freq, str):
            _whole("validation_freq", validation_freq)
        progress = Progress(verbose, epochs)
        given = checked(callbacks)
        split = fraction("validation_split", validation_split or 0.0)
        split = split if validation_data is None else 0.0
        train = batches(self._intake, self.batch_size, x, y, sample_weight,
                        None if split else class_weight, seed=self.seed if shuffle else None)
        validation = self._validation(validation_data)
        if split:
            if not isinstance(train, ArrayBatches):
                raise ConfigError("validation_split needs arrays; pass validation_data with an "
                                  "iterator")
            train, validation = train.split(split)  # classes weigh in training only, as in Keras
            train.w = self._intake.weights(train.w, class_weight, train.y, train.rows)
        if not self._training.acquire(blocking=False):
            raise ConfigError("this program is being trained already; wait for that fit to end")
        try:
            if not (self._resumed and first == self.epoch):
                self.history = History()
            self.epoch, self._resumed, self.stop_training = first, False, False
            params = {"epochs": epochs, "steps": steps_per_epoch or train.steps,
                      "verbose": verbose, "validated": validation is not None,
                      "metrics": [p + n for p in ("", "val_") for n in self.metrics_names],
                      "say": progress.say}
            hooks = Hooks([*given, self.history], self, params)
            watch = nan == "stop" and not any(isinstance(c, TerminateOnNaN) for c in given)
            return Fit(self, self._calls, train, validation, validation_freq, first, epochs,
                       steps_per_epoch, watch, hooks, self.history, progress).run()
        finally:
            self._training.release()

    def _first_epoch(self, initial: int | None, epochs: int) -> int:
        if not isinstance(epochs, (int, np.integer)) or epochs < 0:
            raise ConfigError(f"epochs={epochs!r} must be a whole number, zero or more")
        if initial is None:
            if self._resumed and epochs <= self.epoch:
                import warnings

                warnings.warn(f"the checkpoint stands after epoch {self.epoch} already; pass "
                              f"epochs above {self.epoch}, or initial_epoch=0 to count anew",
                              stacklevel=3)
            return self.epoch if self._resumed else 0
        if not isinstance(initial, (int, np.integer)) or initial < 0:
            raise ConfigError(f"initial_epoch={initial!r} must be a whole number, zero or more")
        return int(initial)

    def _validation(self, data: Any) -> Batches | None:
        from ztorch.training.batches import batches

        if data is None:
            return None
        pair = isinstance(data, (tuple, list)) and len(data) in (2, 3)
        if pair and not isinstance(data[0], tuple):
            return batches(self._intake, self.batch_size, *data)
        if not is_stream(data, None):
            raise DataError("validation_data takes (x, y), (x, y, sample_weight) or something that "
                            "can be iterated again for batches")
        return batches(self._intake, self.batch_size, data)

    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None,
                 sample_weight: Any = None, verbose: int | str = "auto",
                 return_dict: bool = False) -> Any:
        """The loss, or [loss, *metrics], over all rows; a dict with return_dict=True."""
        from ztorch.training.batches import batches
        from ztorch.training.progress import Progress

        self._need("evaluate")
        batch_agrees(batch_size, self.batch_size)
        source = batches(self._intake, self.batch_size, x, y, sample_weight)
        means = forward.evaluate(self._calls, source, Progress(verbose))
        assert means is not None
        return _scores(means, return_dict)

    def predict(self, x: Any, *, batch_size: int | None = None,
                verbose: int | str = 0) -> np.ndarray:
        """The model's output for each row of x, any number of them."""
        batch_agrees(batch_size, self.batch_size)
        rows = None if is_stream(x, None) else self._intake.inputs(x)
        if rows is not None and len(rows) <= self.batch_size and not verbose:
            return self._predict_one(rows)
        from ztorch.training.batches import ArrayBatches, StreamBatches
        from ztorch.training.progress import Progress

        source: Batches = (
            StreamBatches(self._intake, x, self.batch_size, False) if rows is None else
            ArrayBatches(self._intake, rows, None, None, self.batch_size))
        return forward.predict(self._calls, source, Progress(verbose) if verbose else None)

    def _predict_one(self, rows: np.ndarray) -> np.ndarray:
        """What serving does all day: at most one batch, with nothing around it."""
        count, d = len(rows), self._intake.x_dtype
        with self._calls.lend("predict") as call:
            store(call.inputs["x"][:count], d, rows)  # old rows may fill the rest
            call()
            return call.outputs["y"][:count].copy()

    # -- single steps -----------------------------------------------------------------------------

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                       class_weight: Mapping[int, float] | None = None,
                       return_dict: bool = False) -> Scores:
        """One training step on at most a batch of rows; its scores as evaluate gives them."""
        return self._one("train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                      return_dict: bool = False) -> Scores:
        """The scores of at most a batch of rows."""
        return self._one("evaluate", x, y, sample_weight, None, return_dict)

    def predict_on_batch(self, x: Any) -> np.ndarray:
        """The outputs for at most a batch of rows."""
        return self._predict_one(self._at_most_one(self._intake.inputs(x)))

    def _one(self, function: str, x: Any, y: Any, sample_weight: Any,
             class_weight: Mapping[int, float] | None, return_dict: bool) -> Scores:
        self._need(function)
        intake = self._intake
        rows = intake.inputs(x)
        labels = intake.targets(y, len(rows))
        weights = intake.weights(sample_weight, class_weight, labels, len(rows))
        self._at_most_one(rows)
        with self._calls.lend(function) as call:
            meter = forward.Meter(call)
            weight = intake.stage(call.inputs, rows, labels, weights)
            if weight:
                call()
                meter.add(weight)
        return _scores(meter.means(), return_dict)

    def _at_most_one(self, x: np.ndarray) -> np.ndarray:
        if len(x) > self.batch_size:
            raise DataError(f"x has {len(x)} rows, but this program is compiled for batches of "
                            f"{self.batch_size}; use fit, evaluate or predict for more")
        return x

    # -- weights and states -----------------------------------------------------------------------

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, `layer/kernel`, in Keras' order."""
        return [n for n, spec in self.executable.states.items() if spec.role == "weight"]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights by name."""
        return {n: self.executable.state(n) for n in self.weight_names}

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights in Keras' order."""
        return list(self.weights.values())

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights, given in Keras' order; all are checked before any is changed."""
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

    def save_weights(self, path: Path) -> None:
        """Writes the weights to a safetensors file, atomically."""
        from ztorch import weight_files

        weight_files.write(path, self.weights, self.name)

    def load_weights(self, path: Path) -> None:
        """Reads the weights of a safetensors file or a checkpoint."""
        from ztorch import weight_files

        shapes = {n: tuple(self.executable.states[n].shape) for n in self.weight_names}
        self.set_weights(list(weight_files.read(path, shapes, self.name).values()))

    def save_checkpoint(self, path: Path) -> None:
        """Writes weights, optimiser, random step, epoch and history to one file, atomically."""
        from ztorch.training import checkpoint

        checkpoint.save(self, path)

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

    def save(self, path: Path) -> None:
        """Writes the compiled artifact, which runs without the compiler."""
        from ztorch.artifact.write import save_artifact

        save_artifact(self, path)

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

    # -- the rest ---------------------------------------------------------------------------------

    def _need(self, function: str) -> Any:
        found = self.executable.functions.get(function)
        if found is None:
            verb = {"train": "train", "evaluate": "evaluate"}[function]
            needs = "loss= and optimizer=" if function == "train" else "loss="
            raise ConfigError(f"program {self.name!r} cannot {verb}: it was compiled without; "
                              f"compile with {needs}, such as compile(..., optimizer='adam', "
                              "loss='mse')")
        return found

    def summary(self, print_fn: Any = print) -> None:
        """Prints what is compiled: layers, functions, and the memory its states take."""
        states = self.executable.states.values()
        rows = [("Layer (type)", "Output shape", "Parameters")]
        for layer in self.metadata.get("layers", ()):
            shape = ", ".join(map(str, [self.batch_size, *layer["output_shape"]]))
            rows.append((f"{layer['name']} ({layer['class']})", f"({shape})",
                         f"{layer['parameters']:,}"))
        wide = [max(len(r[k]) for r in rows) for k in range(3)]
        print_fn(f"Program: {self.name} on {self.device}, {self.batch_size} rows at a time")
        for row in rows:
            print_fn(f"  {row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]:>{wide[2]}}")
        size = sum(int(np.prod(s.shape, dtype=np.int64)) * s.dtype.bytes for s in states)
        does = ", ".join(self.executable.functions)
        print_fn(f"Functions: {does}; {len(states)} states of {size / 1024:,.1f} KiB in all")

    def plot(self, path: Path | None = None, function: str | None = None) -> Any:
        """Draws the plan of a function, the training step's where there is one: kernels, buffers
        and memory over time. Training itself is drawn by `program.history.plot()`.

            program.plot("plan.svg")
        """
        from ztorch.picture import draw_plan

        known = self.executable.functions
        return draw_plan(self.executable.spec, function or next(
            n for n in ("train", "evaluate", "predict") if n in known), path)

    def close(self) -> None:
        """Gives back the memory, once calls in other threads end; refuses to be used after."""
        self.executable = cast("Executable", _Closed(self.name))
        self._calls = forward.Calls(self.executable)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a program holds native code, which cannot be pickled or copied; write it "
                        "with save() and read it with zt.load()")

    def __repr__(self) -> str:
        return f"<Program {self.name} on {self.device}, batch {self.batch_size}>"


class _Closed:
    """Stands where the executable of a closed program was."""

    device = "nothing: closed"

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        raise ConfigError(f"program {self.name!r} is closed; compile or load it again")


def load(path: Path, threads: int | None = None) -> Program:
    """The program in an artifact, as it was when `save` wrote it; needs no compiler.

        zt.load("digits.zt").predict(x)

    A program that trained goes on as the saved one would, bit for bit.
    """
    from ztorch.runtime.executable import start
    from ztorch.runtime.load import read_artifact

    where = os.fspath(path)
    spec, code, params, metadata = read_artifact(where)
    training = metadata.pop("training")
    try:
        program = Program(start(spec, code, params, threads), metadata)
        if training is not None:
            from ztorch.training import checkpoint

            program.resume(*checkpoint.run_place(training, where))
            program._resumed = bool(training.get("resumed"))
    except WeightsError as error:
        raise ArtifactError(str(error)) from None
    except ArtifactError as error:  # about the library in it
        raise ArtifactError(f"{where}: {error}") from None
    return program


def _scores(means: dict[str, float], as_dict: bool) -> Scores:
    if as_dict:
        return means
    values = list(means.values())
    return values if len(values) > 1 else values[0]


def _whole(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
        raise ConfigError(f"{name}={value!r} must be a whole number, one or more")
