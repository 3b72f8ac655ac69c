"""A compiled model in memory: it trains, evaluates and predicts.

Loaded at the top is what `predict` needs. The rest is imported where it is used, so that a service
that loads an artifact and predicts starts quickly.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ztorch.arguments import checked
from ztorch.config import flag, fraction
from ztorch.errors import ArtifactError, ConfigError, DataError, WeightsError
from ztorch.feed import calls
from ztorch.feed.columns import store
from ztorch.feed.intake import Columns, Intake, batch_agrees, is_stream, rows_of
from ztorch.program.stateful import Path, Stateful

if TYPE_CHECKING:
    from ztorch.callbacks.callback import Callback
    from ztorch.feed.batches import Batches
    from ztorch.layers.learned import Marks
    from ztorch.runtime.running import Running
    from ztorch.training.history import History

Scores = float | list[float] | dict[str, float]

# What Keras users look for here, and find on the model.
_OF_MODELS = ("compile", "count_params", "get_config", "get_layer", "input_shape", "inputs",
              "layers", "output_shape", "to_json")


class Program(Stateful):
    """What `model.compile` returns.

        program = model.compile("cpu", batch_size=64, optimizer="adam", loss="mse")
        history = program.fit(x, y, epochs=5, validation_split=0.1)
        program.predict(x_new)

    `predict`, `evaluate` and their kin may be called from several threads at once.
    """

    def __init__(self, executable: Running, metadata: Mapping[str, Any],
                 marks: Marks | None = None):
        super().__init__(executable, metadata)
        self._marks = marks  # of the layers it comes from
        predict = executable.functions["predict"]
        self.batch_size = next(iter(predict.inputs.values())).shape[0]
        self.stop_training = False  # a callback sets it to end training
        self._calls = calls.Calls(executable)
        self._training = threading.Lock()
        self.writing = threading.Lock()  # held by who generates: there is one cache
        self._intake = Intake.of(executable.functions, self.metadata)

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

    @checked
    def fit(self, x: Any, y: Any = None, *, batch_size: int | None = None, epochs: int = 1,
            verbose: int | str = "auto", callbacks: Callback | Iterable[Callback] | None = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
            initial_epoch: int | None = None, steps_per_epoch: int | None = None,
            validation_steps: int | None = None, validation_freq: int | Collection[int] = 1,
            nan: Literal["stop", "ignore"] = "stop") -> History:
        """Trains for `epochs` passes over the data and returns the History.

        x and y are arrays (anything NumPy reads), or x is an iterator of (x, y[, weight]) batches
        of any size. Rows are shuffled by the program's seed, so a run repeats bit for bit.
        validation_split takes the last rows, before shuffling; class_weight counts in training
        only. With steps_per_epoch, an epoch of that length goes on where the last one stopped;
        with validation_steps, so many batches of the validation data are measured.
        After `load_checkpoint`, fit goes on at the checkpoint's epoch. Ctrl-C ends training after
        the step at work and keeps the weights. A loss that is not finite raises NonFiniteLoss,
        unless nan="ignore".
        """
        from ztorch.callbacks import TerminateOnNaN
        from ztorch.feed.batches import ArrayBatches, batches, validation_batches
        from ztorch.progress import Progress
        from ztorch.training.history import History
        from ztorch.training.hooks import Hooks, checked
        from ztorch.training.loop import Fit

        self._need("train")
        batch_agrees(batch_size, self.batch_size)
        first = self._first_epoch(initial_epoch, epochs)
        if nan not in ("stop", "ignore"):
            raise ConfigError(f"nan={nan!r} must be 'stop' or 'ignore'")
        _whole("steps_per_epoch", steps_per_epoch)
        _whole("validation_steps", validation_steps)
        if not isinstance(validation_freq, Collection) or isinstance(validation_freq, str):
            _whole("validation_freq", validation_freq)
        seed = self.seed if flag("shuffle", shuffle) else None
        progress = Progress(verbose, epochs)
        given = checked(callbacks)
        split = fraction("validation_split", validation_split or 0.0)
        split = split if validation_data is None else 0.0
        train = batches(self._intake, self.batch_size, x, y, sample_weight,
                        None if split else class_weight, seed=seed)
        validation = validation_batches(self._intake, self.batch_size, validation_data)
        if split:
            if not isinstance(train, ArrayBatches):
                raise ConfigError("validation_split needs arrays; pass validation_data with an "
                                  "iterator")
            train, validation = train.split(split)  # classes weigh in training only, as in Keras
            train.w = self._intake.weights(train.w, class_weight, train.columns, train.rows)
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
            self._learns()
            watch = nan == "stop" and not any(isinstance(c, TerminateOnNaN) for c in given)
            return Fit(self, self._calls, train, validation, validation_freq, validation_steps,
                       first, epochs, steps_per_epoch, watch, hooks, self.history, progress).run()
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
                              stacklevel=4)
            return self.epoch if self._resumed else 0
        if not isinstance(initial, (int, np.integer)) or initial < 0:
            raise ConfigError(f"initial_epoch={initial!r} must be a whole number, zero or more")
        return int(initial)

    @checked
    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None,
                 sample_weight: Any = None, verbose: int | str = "auto",
                 steps: int | None = None, return_dict: bool = False) -> Any:
        """The loss, or [loss, *metrics], over all rows, or the first `steps` batches of them; a
        dict with return_dict=True."""
        from ztorch.feed.batches import batches
        from ztorch.progress import Progress

        self._need("evaluate")
        batch_agrees(batch_size, self.batch_size)
        _whole("steps", steps)
        source = batches(self._intake, self.batch_size, x, y, sample_weight)
        means = calls.evaluate(self._calls, source, Progress(verbose), steps=steps)
        assert means is not None
        return _scores(means, return_dict)

    def predict(self, x: Any, *, batch_size: int | None = None, verbose: int | str = 0) -> Any:
        """The model's output for each row of x, any number of them; for several outputs a list or
        dict of arrays, as the model was declared."""
        batch_agrees(batch_size, self.batch_size)
        columns = None if is_stream(x, None) else self._intake.inputs(x)
        if columns is not None and not verbose and rows_of(columns) <= self.batch_size:
            return self._predict_one(columns)
        from ztorch.feed.batches import ArrayBatches, StreamBatches
        from ztorch.progress import Progress

        source: Batches = (
            StreamBatches(self._intake, x, self.batch_size, False) if columns is None else
            ArrayBatches(self._intake, columns, None, self.batch_size))
        return self._arranged(calls.predict(self._calls, source,
                                              Progress(verbose) if verbose else None))

    def _predict_one(self, columns: Columns) -> Any:
        """What serving does all day: at most one batch, with nothing around it."""
        count = rows_of(columns)
        with self._calls.lend("predict") as call:
            for one in self._intake.takes:
                # old rows may fill the rest
                store(call.inputs[one.port][:count], one.dtype, columns[one.port])
            call()
            return self._arranged({n: y[:count].copy() for n, y in call.outputs.items()})

    def _arranged(self, outputs: dict[str, np.ndarray]) -> Any:
        """Outputs as the model gives them: one, or a list or dict of several."""
        if "y" in outputs:
            return outputs["y"]
        if self.metadata.get("outputs_are") == "dict":
            return {name[2:]: y for name, y in outputs.items()}
        return list(outputs.values())

    @checked
    def generate(self, prompt: Any, length: int, *, temperature: float = 1.0,
                 top_k: int | None = None, seed: int = 0) -> Iterator[int]:
        """Goes on from a list of whole numbers, giving one after the other as they are made, each
        by one native call. They are drawn by their probability, from the `top_k` likeliest if
        that is given; a temperature above 1 is bolder, and 0 always takes the likeliest.

            program = model.compile("cpu", decode=True)
            for k in program.generate(encode("Shall I"), 100, temperature=0.5):
                print(decode([k]), end="", flush=True)
        """
        from ztorch.program.generate import Choice, generate

        return generate(self, prompt, length, Choice(temperature, top_k, seed))

    def lend(self, function: str) -> calls.Lent:
        """A call of a function for a `with` block."""
        return self._calls.lend(function)

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

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for at most a batch of rows."""
        return self._predict_one(self._at_most_one(self._intake.inputs(x)))

    def _one(self, function: str, x: Any, y: Any, sample_weight: Any,
             class_weight: Mapping[int, float] | None, return_dict: bool) -> Scores:
        self._need(function)
        intake = self._intake
        columns = intake.inputs(x)
        rows = rows_of(columns)
        columns |= intake.targets(y, rows)
        weights = intake.weights(sample_weight, class_weight, columns, rows)
        self._at_most_one(columns)
        with self._calls.lend(function) as call:
            meter = calls.Meter(call)
            weight = intake.stage(call.inputs, columns, weights)
            if weight:
                call()
                meter.add(weight)
                if function == "train":
                    self._learns()
        return _scores(meter.means(), return_dict)

    def _learns(self) -> None:
        if self._marks is not None:
            self._marks.set(True)

    def _at_most_one(self, columns: Columns) -> Columns:
        if rows_of(columns) > self.batch_size:
            raise DataError(f"x has {rows_of(columns)} rows, but this program is compiled for "
                            f"batches of {self.batch_size}; use fit, evaluate or predict for more")
        return columns

    # -- the rest ---------------------------------------------------------------------------------

    @checked
    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Prints what is compiled: layers, functions, and the memory its states take."""
        from ztorch.runtime.spec import offered, spelled

        states = self.executable.states.values()
        rows = [("Layer (type)", "Output shape", "Parameters")]
        for layer in self.metadata.get("layers", ()):
            rows.append((f"{layer['name']} ({layer['class']})",
                         spelled(layer["output_shape"], self.batch_size),
                         f"{layer['parameters']:,}"))
        wide = [max(len(r[k]) for r in rows) for k in range(3)]
        print_fn(f"Program: {self.name} on {self.device}, {self.batch_size} rows at a time")
        for row in rows:
            print_fn(f"  {row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]:>{wide[2]}}")
        size = sum(int(np.prod(s.shape, dtype=np.int64)) * s.dtype.bytes for s in states)
        does = ", ".join(offered(self.executable.functions))
        print_fn(f"Functions: {does}; {len(states)} states of {size / 1024:,.1f} KiB in all")

    @checked
    def plot(self, path: Path | None = None, function: str | None = None) -> Any:
        """Draws the plan of a function, the training step's where there is one: kernels, buffers
        and memory over time. Training itself is drawn by `program.history.plot()`.

            program.plot("plan.svg")
        """
        from ztorch.program.picture import draw_plan

        known = self.executable.functions
        return draw_plan(self.executable.spec, function or next(
            n for n in ("train", "evaluate", "predict") if n in known), path)

    def close(self) -> None:
        """Gives back the memory, once calls in other threads end; refuses to be used after."""
        self.executable = cast("Running", _Closed(self.name))
        self._calls = calls.Calls(self.executable)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError("a program has no 'optimizer', which is compiled into its step; "
                                 "its rate is program.learning_rate")
        if name in _OF_MODELS:
            raise AttributeError(f"a program has no {name!r}, the model that it was compiled from "
                                 f"has: model.{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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


@checked
def load(path: Path, threads: int | None = None) -> Program:
    """The program in an artifact, as it was when `save` wrote it; needs no compiler.

        zt.load("digits.zt").predict(x)

    A program that trained goes on as the saved one would, bit for bit.
    """
    from ztorch.runtime.load import read_artifact
    from ztorch.runtime.start import start

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
