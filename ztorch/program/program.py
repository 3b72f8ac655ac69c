"""A compiled model in memory, which trains, evaluates and predicts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.errors import ArtifactError, ConfigError
from ztorch.files.kinds import BadValue
from ztorch.program.predictor import Predictor
from ztorch.program.running_optimizer import RunningOptimizer
from ztorch.program.verbs import Verbs
from ztorch.program.weight_access import Path
from ztorch.terminal.work_line import working

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztorch.program.running_optimizer import RunningOptimizer
    from ztorch.tabular.pipeline import Pipeline
    from ztorch.tabular.predictions import Predictions


class Program(Verbs, Predictor):
    """A compiled model: the result of `model.compile` and `zt.load`.

    It holds native code for one device, and weights. They are the weights of the model that it was
    last compiled from or trained for. Several threads may call `predict` and `evaluate` at once.

    Args:
        executable: The loaded code with its parameters.
        metadata: The program's description of its model.
        weights: The weights of the model, by their names in the program; None: without a model.
            Default: `None`.

    Examples:
        >>> import numpy as np
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
        >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
        >>> x, y = np.ones((16, 4)), np.ones(16)
        >>> history = program.fit(x, y, epochs=2, verbose=0)
        >>> len(history.history["loss"]), program.predict(x).shape
        (2, (16, 1))
    """

    explainer: Callable[[str, bool], Any] | None = None  # explains the kernels of a function

    def running(self, function: str, batch_size: int | None = None,
                weighted: Mapping[str, int] | None = None) -> AbstractContextManager[Program]:
        """The program itself, for a `with` block. For weights of outputs and steps, a program of
        its model that takes them, with the same states."""
        if function != "predict":
            self.need(function)
        programs = self.relatives() if self.relatives is not None else None
        if programs is not None and (weighted or programs.training is not self):
            size = self.buckets.rows(batch_size) if weighted else None
            return programs.running(function, size, weighted or {}, {})
        return nullcontext(self)

    @property
    def output_names(self) -> list[str]:
        """The names of outputs; empty if there is only one."""
        return list(self.metadata.output_shape)

    @property
    def pipeline(self) -> Pipeline | None:
        """Converts tables to this program's input, and names its outputs; None if unknown. It can
        be set, and `save` stores it."""
        from ztorch.tabular.pipeline import Pipeline

        record = self.metadata.pipeline
        return None if record is None else Pipeline.of_record(record)

    @pipeline.setter
    def pipeline(self, pipeline: Pipeline | None) -> None:
        record = None if pipeline is None else pipeline.record
        if record is not None:
            try:
                record.check_shapes(self.metadata.input_shape, self.metadata.output_shape)
            except BadValue as error:
                raise ConfigError(f"this pipeline does not fit program {self.name!r}: "
                                  f"{error}") from None
        self.metadata = self.metadata.replace(pipeline=record)
        self.adapter = self.adapter._replace(pipeline=record)

    def predict_table(self, table: Any) -> Predictions:
        """Predicts for the rows of a table, using the pipeline of this program.

        Args:
            table: A .csv file, a stream of one, a data frame, a dict of columns or a list of dicts,
                with the columns that the pipeline was fitted on, in any order.

        Returns:
            Predictions: `names` and `probabilities` of classes, or `values`; `print` shows them.

        Raises:
            ConfigError: The program has no pipeline.
            DataError: A column is missing, or a cell does not fit.

        Examples:
            >>> import ztorch as zt
            >>> table = zt.data.table({"size": [1, 2, 8, 9], "kind": ["a", "a", "b", "b"]}, "kind")
            >>> pipeline = zt.Pipeline(table)
            >>> model = zt.Sequential([zt.layers.Input((1,)), zt.layers.Dense(2, "softmax")])
            >>> program = model.compile("cpu", batch_size=4)
            >>> program.pipeline = pipeline
            >>> len(program.predict_table({"size": [3, 4, 5]}).names)
            3
        """
        pipeline = self.pipeline
        if pipeline is None:
            raise ConfigError(f"program {self.name!r} has no description of its inputs; set "
                              "program.pipeline = zt.Pipeline(table) before it is saved")
        return pipeline.predict(self, table)

    def explain(self, function: str = "predict", measure: bool = False) -> Any:
        """Explains a function of this program, kernel by kernel: schedules, fused ops and the
        reasons against more fusion, FLOPs, bytes, and the fraction of the peak speed.

        Args:
            function: `"predict"`, `"evaluate"`, `"train"` or another one. Default: `"predict"`.
            measure: Whether to run each kernel on this machine. Default: `False`.

        Returns:
            The kernels, which print as a table; `to_json()` returns data, `plot(path)` draws a
            roofline.

        Raises:
            ConfigError: The program was loaded, or its model no longer exists.
            Unsupported: The program does not run on a CPU.

        Examples:
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((64,)), zt.layers.Dense(8, "relu")])
            >>> [kernel] = model.compile("cpu", batch_size=16).explain().kernels
            >>> kernel.layers, kernel.runs
            (('dense',), 1)
        """
        if self.explainer is None:
            raise ConfigError(f"program {self.name!r} does not know the model that it was compiled "
                              "from; explain the result of zt.load_model(path) for its artifact")
        return self.explainer(function, measure)

    @property
    def optimizer(self) -> RunningOptimizer:
        """The optimizer: `program.optimizer.learning_rate` can be read and set during training."""
        self.need("train")
        return RunningOptimizer(self)

    def swap_averages(self) -> None:
        """Exchanges the weights and their moving averages, which `use_ema=True` keeps.

        Raises:
            ConfigError: The optimizer keeps no averages.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> adam = zt.optimizers.Adam(use_ema=True)
            >>> program = model.compile("cpu", loss="mse", optimizer=adam)
            >>> before = program.train_on_batch(np.ones((8, 4)), np.ones(8))
            >>> program.swap_averages()  # to predict with the means; once more to train on
        """
        from ztorch.program.averages import swap_averages

        swap_averages(self)


@checked
def load(path: Path, threads: int | None = None) -> Program:
    """Loads the program in an artifact, in the state in which `save` wrote it; needs no compiler.

    Training continues bit for bit as it would have in the saved program.

    Args:
        path: The artifact, a file that ends in .zt.
        threads: Maximum number of workers of a run on the CPU; None: all cores available to this
            process. Default: `None`.

    Returns:
        The program.

    Raises:
        ArtifactError: The file is damaged, is not an artifact, or has a newer format.
        DeviceError: No device of this machine runs its code.

    Examples:
        >>> import os, tempfile, numpy as np, ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
        >>> path = os.path.join(tempfile.mkdtemp(), "small.zt")
        >>> model.compile("cpu", batch_size=8).save(path)
        >>> zt.load(path).predict(np.ones((3, 4))).shape
        (3, 1)
    """
    from ztorch.runtime.load import read_artifact
    from ztorch.runtime.start import start

    where = os.fspath(path)
    with working(f"load {where}"):
        spec, code, params, metadata, training = read_artifact(where)
        if metadata.arguments is not None:
            raise ConfigError(f"{where} holds a function, not a model; "
                              f"zt.load_function({where!r}) loads it")
        try:
            program = Program(start(spec, code, params, threads), metadata)
        except ArtifactError as error:  # about the library in it
            raise ArtifactError(f"{where}: {error}") from None
    if training is not None:
        program.resume(training, training.resumed)
    return program
