"""Methods of programs and models for data with targets: fit, evaluate, and both for one batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from ztorch.arguments import checked
from ztorch.errors import ConfigError
from ztorch.names.keras_calls import as_in_keras

if TYPE_CHECKING:
    from ztorch.callbacks.callback import Callback
    from ztorch.program.one_batch import Scores
    from ztorch.program.stateful import Stateful
    from ztorch.training.history import History


# What the third argument without a name, or the second of predict, is often meant to be.
_MEANT = {"fit": "pass validation_data=(x, y) and sample_weight= by name",
          "evaluate": "pass sample_weight= by name", "predict": "predict takes no targets"}


def need_batch_size(verb: str, batch_size: Any) -> None:
    """Raises an error for an array in the place of a batch size."""
    if getattr(batch_size, "ndim", 0) or isinstance(batch_size, (list, tuple)):
        raise ConfigError(f"{verb}(batch_size=...) must be a positive integer, not data; "
                          f"{_MEANT[verb]}")


class Verbs:
    """Training and evaluation. A program does it itself; a model uses its program."""

    @abstractmethod
    def running(self, function: str, batch_size: int | None = None,
                weighted: Mapping[str, int] | None = None) -> AbstractContextManager[Stateful]:
        """The program that runs "train", "evaluate" or "predict" on batches of this size, for a
        `with` block; None means the size of `compile`. `weighted` holds the number of step axes of
        an output's weights, for outputs with separate weights: the model compiles for them, and a
        loaded program rejects such weights."""

    @property
    @abstractmethod
    def output_names(self) -> list[str]:
        """The names of outputs; empty if there is only one."""

    @property
    def knows_inputs(self) -> bool:
        """Whether shapes of inputs are known before there are data."""
        return True

    def learn_shapes(self, x: Any, y: Any = None, function: str = "predict",
                     batch_size: int | None = None, split: float = 0.0,
                     weighted: Any = None) -> None:
        """Passes data, their weights beside x (or True), and the function of a first call to a
        model that waits for data. A program does not wait."""

    def size_for(self, x: Any, function: str) -> int | None:
        """The batch size that one call on all rows of x needs; None: that of `compile`. A program
        has only that one."""
        return None

    @property
    def takes_given(self) -> bool:
        """Whether batches of data are steps; else they are joined to one size."""
        return False

    def rows_given(self, x: Any) -> int | None:
        """The batch size of a step, if it is that of batches in x; None: that of `compile`."""
        return None

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        from ztorch.terminal.notebook import preformatted  # only notebooks need it

        lines = [] if self.knows_inputs else [repr(self)]
        if self.knows_inputs:
            runnable: Any = self  # models and programs have a summary
            runnable.summary(lines.append)
        return preformatted("\n".join(lines))

    @as_in_keras("x y batch_size epochs verbose callbacks validation_split validation_data "
                 "shuffle class_weight sample_weight initial_epoch steps_per_epoch "
                 "validation_steps validation_batch_size validation_freq")
    @checked
    def fit(self, x: Any, y: Any = None, *, batch_size: int | None = None, epochs: int = 1,
            verbose: int | str = "auto", callbacks: Callback | Iterable[Callback] | None = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
            initial_epoch: int | None = None, steps_per_epoch: int | None = None,
            validation_steps: int | None = None, validation_batch_size: int | None = None,
            validation_freq: int | Collection[int] = 1,
            nan: Literal["stop", "ignore"] = "stop") -> History:
        """Trains the weights for a number of epochs.

        The seed of `compile` determines the shuffling, so runs can be reproduced bit for bit.
        Ctrl-C ends training after the current step and keeps the weights.

        Args:
            x: Rows to train on: an array of shape (rows, *input_shape), anything NumPy reads, or an
                iterator of (x, y) or (x, y, sample_weight) batches. In a model compiled without a
                batch size each batch is a step, as in Keras; one that is larger than all before it
                compiles the model for its size. Otherwise batches are cut and joined to the size of
                steps. For several inputs, a list in their order or a dict by their names.
            y: Targets, one per row of x; for several outputs, a list or dict. Omitted if x is an
                iterator. Default: `None`.
            batch_size: The batch size of a step; None: that of `compile`. A program has only its
                compiled sizes; a model compiles other sizes on first use. Default: `None`.
            epochs: The last epoch: the number of passes over the data, unless `initial_epoch` or a
                checkpoint makes training start later. Default: `1`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line per epoch; "auto" means 1 on a
                terminal and 2 elsewhere. Default: `"auto"`.
            callbacks: One or more callbacks; see `zt.callbacks`. Default: `None`.
            validation_split: The fraction of rows for validation, between 0 and 1. They are the
                last rows, before shuffling. Default: `0.0`.
            validation_data: Data for validation after epochs: (x, y), (x, y, sample_weight), or an
                object that yields batches each time it is iterated. It overrides
                `validation_split`. Default: `None`.
            shuffle: Whether to shuffle rows before each epoch. Default: `True`.
            class_weight: The weight of each class in the loss, by class number. It applies only to
                training. Default: `None`.
            sample_weight: The weight of each row in the loss, an array of shape (rows,); or of each
                step, of shape (rows, steps); or, for several outputs, a list or dict of them, for
                which the model is compiled again. A loaded program, or one whose model no longer
                exists, takes only weights of rows. Default: `None`.
            initial_epoch: The first epoch, counted from 0; None: that of the checkpoint after
                `load_checkpoint`, otherwise 0. Default: `None`.
            steps_per_epoch: Number of steps per epoch; the next epoch continues in the data where
                it ended. None: one pass over the data. Default: `None`.
            validation_steps: Number of validation batches; None: all. Default: `None`.
            validation_batch_size: Rows of the batches that `validation_steps` counts, of data that
                are not batches already; None: `batch_size`. Default: `None`.
            validation_freq: Number of epochs between validations, or a collection of epochs,
                counted from 1. Default: `1`.
            nan: "stop" raises an error if the loss is not finite; "ignore" continues. Default:
                `"stop"`.

        Returns:
            The History: `history.history["loss"]` is a list with a value per epoch.

        Raises:
            ConfigError: It was compiled without a loss or optimizer, or not at all, or an argument
                is invalid.
            DataError: The data do not fit the model; the message says how to change them.
            NonFiniteLoss: The loss became NaN or infinite, unless `nan="ignore"`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> history = program.fit(np.ones((16, 4)), np.ones(16), epochs=2, verbose=0)
            >>> history.epoch
            [0, 1]
        """
        from ztorch.feed.row_shapes import can_be_looked_at
        from ztorch.feed.row_weights import axes_of_weights
        from ztorch.program.fitting import fit

        need_batch_size("fit", batch_size)
        x, validation_data = can_be_looked_at(x), can_be_looked_at(validation_data)
        as_given = batch_size is None and self.takes_given
        batch_size = self.rows_given(x) if batch_size is None else batch_size
        self.learn_shapes(x, y, "train", batch_size, validation_split,
                          bool(class_weight) if sample_weight is None else sample_weight)
        if isinstance(validation_data, (tuple, list)) and validation_data:
            batches = isinstance(validation_data, list) and isinstance(validation_data[0], tuple)
            parts = [validation_data] if batches else validation_data
            first, second, weights = (*parts, None, None)[:3]
            self.learn_shapes(first, second, "evaluate", batch_size, 0.0, weights)
        weighted = axes_of_weights(self, (x, y, sample_weight), validation_data)
        with self.running("train", batch_size, weighted) as program:
            return fit(program, self, x, y, batch_size=batch_size, epochs=epochs, verbose=verbose,
                       callbacks=callbacks, validation_split=validation_split,
                       validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
                       sample_weight=sample_weight, initial_epoch=initial_epoch,
                       steps_per_epoch=steps_per_epoch, validation_steps=validation_steps,
                       validation_batch_size=validation_batch_size,
                       validation_freq=validation_freq, nan=nan, as_given=as_given)

    @as_in_keras("x y batch_size verbose sample_weight steps callbacks return_dict")
    @checked
    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None,
                 sample_weight: Any = None, verbose: int | str = "auto",
                 steps: int | None = None, return_dict: bool = False,
                 callbacks: Callback | Iterable[Callback] | None = None) -> Any:
        """Measures the loss and the metrics. The weights do not change.

        Args:
            x: Rows, as in `fit`.
            y: Targets, as in `fit`. Default: `None`.
            batch_size: The batch size of a step; None: that of `compile`. A program has only its
                compiled sizes; a model compiles other sizes on first use.
                Default: `None`.
            sample_weight: The weight of each row, as in `fit`. Default: `None`.
            verbose: As in `fit`. Default: `"auto"`.
            steps: Number of batches to measure; None: all. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.
            callbacks: One or more callbacks, whose `on_test` hooks are called. Default: `None`.

        Returns:
            The loss; with metrics the list [loss, *metrics]; a dict with `return_dict=True`.

        Raises:
            ConfigError: It was compiled without a loss, or not at all.
            DataError: The data do not fit the model.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> x, y = np.ones((16, 4)), np.ones(16)
            >>> list(program.evaluate(x, y, verbose=0, return_dict=True))
            ['loss']
        """
        from ztorch.feed.row_shapes import can_be_looked_at
        from ztorch.feed.row_weights import axes_of_weights
        from ztorch.program.fitting import evaluate
        from ztorch.program.one_batch import as_scores

        need_batch_size("evaluate", batch_size)
        x = can_be_looked_at(x)
        as_given = batch_size is None and self.takes_given
        batch_size = self.rows_given(x) if batch_size is None else batch_size
        self.learn_shapes(x, y, "evaluate", batch_size, weighted=sample_weight)
        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("evaluate", batch_size, weighted) as program:
            means = evaluate(program, self, x, y, batch_size, sample_weight, verbose, steps,
                             callbacks, as_given)
        return as_scores(means, return_dict)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                       class_weight: Mapping[int, float] | None = None,
                       return_dict: bool = False) -> Scores:
        """Runs one training step.

        Args:
            x: Rows, as in `fit`; for a program at most `batch_size`. For more rows, a model
                compiles another function with the same weights.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            class_weight: The weight of each class, by class number. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores of the batch before the step, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch of the program, or does not fit the model.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> before = program.train_on_batch(np.ones((8, 4)), np.ones(8))
            >>> program.train_on_batch(np.ones((8, 4)), np.ones(8)) < before
            True
        """
        from ztorch.feed.row_weights import axes_of_weights
        from ztorch.program.one_batch import run_batch

        self.learn_shapes(x, y, "train", weighted=bool(class_weight) if sample_weight is None
                          else sample_weight)
        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("train", self.size_for(x, "train"), weighted) as program:
            return run_batch(program, "train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                      return_dict: bool = False) -> Scores:
        """Measures loss and metrics of one batch.

        Args:
            x: Rows, as in `fit`; for a program at most `batch_size`. For more rows, a model
                compiles another function with the same weights.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch of the program, or does not fit the model.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> program.test_on_batch(np.zeros((8, 4)), np.ones(8))
            1.0
        """
        from ztorch.program.one_batch import run_batch

        self.learn_shapes(x, y, "evaluate", weighted=sample_weight)
        from ztorch.feed.row_weights import axes_of_weights

        weighted = axes_of_weights(self, (x, y, sample_weight))
        with self.running("evaluate", self.size_for(x, "evaluate"), weighted) as program:
            return run_batch(program, "evaluate", x, y, sample_weight, None, return_dict)
