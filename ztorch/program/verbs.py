"""Verbs of programs and models for data that have targets: fit, evaluate, both for one batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from ztorch.arguments import checked
from ztorch.keras_calls import as_in_keras
from ztorch.notebook import preformatted

if TYPE_CHECKING:
    from ztorch.callbacks.callback import Callback
    from ztorch.program.one_batch import Scores
    from ztorch.program.stateful import Stateful
    from ztorch.training.history import History


class Verbs:
    """Training and evaluation. A program does it itself, a model by the program that it keeps."""

    @abstractmethod
    def running(self, function: str, batch_size: int | None = None,
                weighted: Mapping[str, int] | None = None) -> AbstractContextManager[Stateful]:
        """The program that runs "train", "evaluate" or "predict" on batches of this size, for a
        `with` block. With None the size is that of `compile`. `weighted` are the axes of steps
        that weights of an output have, of outputs that have separate weights: the model
        compiles for them, and a program that was loaded refuses such weights."""

    @property
    @abstractmethod
    def output_names(self) -> list[str]:
        """The names of outputs; empty where there is only one."""

    @property
    def knows_inputs(self) -> bool:
        """Whether shapes of inputs are known before there are data."""
        return True

    def learn_shapes(self, x: Any, y: Any = None, function: str = "predict",
                     batch_size: int | None = None, split: float = 0.0) -> None:
        """Passes the data and the function of the first call to a model that waits for data; a
        program does not wait."""

    def size_for(self, x: Any, function: str) -> int | None:
        """The size of batches that a call on all rows of x at once needs; None: that of `compile`.
        A program has no other."""
        return None

    def rows_given(self, x: Any) -> int | None:
        """The rows of a step where x gives batches and `compile` was not told a size; None: that
        of `compile`. A program cuts the batches of x to its own size."""
        return None

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        lines = [] if self.knows_inputs else [repr(self)]
        if self.knows_inputs:
            runnable: Any = self  # models and programs have a summary
            runnable.summary(lines.append)
        return preformatted("\n".join(lines))

    @as_in_keras("x y batch_size epochs verbose callbacks validation_split validation_data "
                 "shuffle class_weight sample_weight initial_epoch steps_per_epoch "
                 "validation_steps", ignored="validation_batch_size")
    @checked
    def fit(self, x: Any, y: Any = None, *, batch_size: int | None = None, epochs: int = 1,
            verbose: int | str = "auto", callbacks: Callback | Iterable[Callback] | None = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
            initial_epoch: int | None = None, steps_per_epoch: int | None = None,
            validation_steps: int | None = None, validation_freq: int | Collection[int] = 1,
            nan: Literal["stop", "ignore"] = "stop") -> History:
        """Trains the weights for a number of epochs.

        The seed of `compile` shuffles the rows, so a run repeats bit for bit. Ctrl-C ends training
        after the current step and keeps the weights.

        Args:
            x: Rows to train on: an array of shape (rows, *input_shape), anything NumPy reads, or an
                iterator of (x, y) or (x, y, sample_weight) batches. A model that was compiled
                without a batch size takes steps of as many rows as the first batch of a
                generator, a dataset or a loader has, as in Keras; else batches of any size are
                cut and joined to the size of steps. For a model with several inputs a list in
                their order, or a dict by their names.
            y: Targets, one for each row of x; for several outputs a list or dict. Left out where x
                is an iterator. Default: `None`.
            batch_size: The rows of a step; None: those of `compile`. A program takes the sizes that
                it was compiled for; a model compiles another one when it is first asked for.
                Default: `None`.
            epochs: The epoch to train up to: how many passes over the data, unless `initial_epoch`
                or a checkpoint makes training begin later. Default: `1`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line per epoch; "auto" is 1 on a
                terminal and 2 elsewhere. Default: `"auto"`.
            callbacks: A callback or several, see `zt.callbacks`. Default: `None`.
            validation_split: The fraction of rows to validate on, between 0 and 1. They are the
                last ones, before shuffling. Default: `0.0`.
            validation_data: Data to validate on after epochs: (x, y), (x, y, sample_weight), or
                an object that gives batches each time it is iterated. `validation_split` does not
                count then. Default: `None`.
            shuffle: Whether to shuffle rows before each epoch. Default: `True`.
            class_weight: The weight of each class in the loss, by class number. It counts in
                training only. Default: `None`.
            sample_weight: The weight of each row in the loss, an array of shape (rows,); or of each
                step, of shape (rows, steps), and for several outputs a list or dict of such, for
                which the model is compiled again. A program that was loaded, or whose model is
                held in no variable, takes weights of rows alone. Default: `None`.
            initial_epoch: The epoch to begin with, counted from 0; None: that of the checkpoint
                after `load_checkpoint`, else 0. Default: `None`.
            steps_per_epoch: The steps of an epoch; the next epoch continues in the data where it
                ended. None: one pass over the data. Default: `None`.
            validation_steps: The batches of validation data to measure; None: all. Default: `None`.
            validation_freq: Validates after every so many epochs, or after the epochs in this
                collection, counted from 1. Default: `1`.
            nan: "stop" raises when the loss is not finite; "ignore" trains on. Default: `"stop"`.

        Returns:
            The History: `history.history["loss"]` is a list with a value per epoch.

        Raises:
            ConfigError: It was compiled without a loss or optimizer, or not at all, or an argument
                makes no sense.
            DataError: The data do not fit the model; the message says how to change them.
            NonFiniteLoss: The loss became NaN or infinite, unless `nan="ignore"`.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> history = program.fit(np.ones((16, 4)), np.ones(16), epochs=2, verbose=0)
            >>> history.epoch
            [0, 1]
        """
        from ztorch.feed.row_shapes import can_be_looked_at
        from ztorch.program.fitting import fit

        x, validation_data = can_be_looked_at(x), can_be_looked_at(validation_data)
        batch_size = self.rows_given(x) if batch_size is None else batch_size
        self.learn_shapes(x, y, "train", batch_size, validation_split)
        if isinstance(validation_data, (tuple, list)) and validation_data:
            self.learn_shapes(validation_data[0], validation_data[1] if len(validation_data) > 1
                              else None, "evaluate", batch_size)
        from ztorch.feed.row_weights import axes_of_weights

        weighted = axes_of_weights(self, (x, y, sample_weight), validation_data)
        with self.running("train", batch_size, weighted) as program:
            return fit(program, self, x, y, batch_size=batch_size, epochs=epochs, verbose=verbose,
                       callbacks=callbacks, validation_split=validation_split,
                       validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
                       sample_weight=sample_weight, initial_epoch=initial_epoch,
                       steps_per_epoch=steps_per_epoch, validation_steps=validation_steps,
                       validation_freq=validation_freq, nan=nan)

    @as_in_keras("x y batch_size verbose sample_weight steps callbacks return_dict")
    @checked
    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None,
                 sample_weight: Any = None, verbose: int | str = "auto",
                 steps: int | None = None, return_dict: bool = False,
                 callbacks: Callback | Iterable[Callback] | None = None) -> Any:
        """Measures the loss and the metrics. The weights do not change.

        Args:
            x: Rows, as `fit` takes them.
            y: Targets, as `fit` takes them. Default: `None`.
            batch_size: The rows of a step; None: those of `compile`. A program takes the sizes that
                it was compiled for; a model compiles another one when it is first asked for.
                Default: `None`.
            sample_weight: The weight of each row, as `fit` takes them. Default: `None`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line; "auto" is 1 on a terminal and 2
                elsewhere. Default: `"auto"`.
            steps: The batches to measure; None: all. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.
            callbacks: A callback or several, whose `on_test` hooks are called. Default: `None`.

        Returns:
            The loss; with metrics the list [loss, *metrics]; a dict with `return_dict=True`.

        Raises:
            ConfigError: It was compiled without a loss, or not at all.
            DataError: The data do not fit the model.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> x, y = np.ones((16, 4)), np.ones(16)
            >>> list(program.evaluate(x, y, verbose=0, return_dict=True))
            ['loss']
        """
        from ztorch.feed.row_shapes import can_be_looked_at
        from ztorch.program.fitting import evaluate
        from ztorch.program.one_batch import as_scores

        x = can_be_looked_at(x)
        batch_size = self.rows_given(x) if batch_size is None and steps else batch_size
        self.learn_shapes(x, y, "evaluate", batch_size)
        from ztorch.feed.row_weights import axes_of_weights

        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("evaluate", batch_size, weighted) as program:
            means = evaluate(program, self, x, y, batch_size, sample_weight, verbose, steps,
                             callbacks)
        return as_scores(means, return_dict)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                       class_weight: Mapping[int, float] | None = None,
                       return_dict: bool = False) -> Scores:
        """Takes one training step.

        Args:
            x: Rows as `fit` takes them, of a program at most `batch_size`. A model compiles another
                function over the same weights for more.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            class_weight: The weight of each class, by class number. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores of the batch before the step, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch of the program, or does not fit the model.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> before = program.train_on_batch(np.ones((8, 4)), np.ones(8))
            >>> program.train_on_batch(np.ones((8, 4)), np.ones(8)) < before
            True
        """
        from ztorch.program.one_batch import run_batch

        self.learn_shapes(x, y, "train")
        from ztorch.feed.row_weights import axes_of_weights

        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("train", self.size_for(x, "train"), weighted) as program:
            return run_batch(program, "train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                      return_dict: bool = False) -> Scores:
        """Measures loss and metrics of one batch.

        Args:
            x: Rows as `fit` takes them, of a program at most `batch_size`. A model compiles another
                function over the same weights for more.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch of the program, or does not fit the model.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> program.test_on_batch(np.zeros((8, 4)), np.ones(8))
            1.0
        """
        from ztorch.program.one_batch import run_batch

        self.learn_shapes(x, y, "evaluate")
        from ztorch.feed.row_weights import axes_of_weights

        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("evaluate", self.size_for(x, "evaluate"), weighted) as program:
            return run_batch(program, "evaluate", x, y, sample_weight, None, return_dict)
