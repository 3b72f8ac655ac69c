"""A compiled model in memory: it trains, evaluates and predicts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ztorch.arguments import checked
from ztorch.errors import ArtifactError
from ztorch.feed.adapter import checked_batch_size
from ztorch.program.predictor import Predictor
from ztorch.program.stateful import Path

if TYPE_CHECKING:
    from ztorch.callbacks.callback import Callback
    from ztorch.program.one_batch import Scores
    from ztorch.training.history import History


class Program(Predictor):
    """A compiled model: what `model.compile` and `zt.load` return.

    It holds native code for one device and one batch size, and weights of its own. Several threads
    may call `predict` and `evaluate` at once.

    Args:
        executable: The loaded code with its parameters.
        metadata: What the program knows of its model.
        marks: Tell the layers of the model that a program has trained; None: there are none.
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

    # -- training ---------------------------------------------------------------------------------

    @checked
    def fit(self, x: Any, y: Any = None, *, batch_size: int | None = None, epochs: int = 1,
            verbose: int | str = "auto", callbacks: Callback | Iterable[Callback] | None = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
            initial_epoch: int | None = None, steps_per_epoch: int | None = None,
            validation_steps: int | None = None, validation_freq: int | Collection[int] = 1,
            nan: Literal["stop", "ignore"] = "stop") -> History:
        """Trains the program for a number of epochs.

        The program's seed shuffles the rows, so a run repeats bit for bit. Ctrl-C ends training
        after the current step and keeps the weights.

        Args:
            x: Rows to train on: an array of shape (rows, *input_shape), anything NumPy reads, or an
                iterator of (x, y) or (x, y, sample_weight) batches of any size. For a model with
                several inputs a list in their order, or a dict by their names.
            y: Targets, one for each row of x; for several outputs a list or dict. Left out where x
                is an iterator. Default: `None`.
            batch_size: Not needed. Where it is passed, it must repeat that of `compile`. Default:
                `None`.
            epochs: The epoch to train up to: how many passes over the data, unless `initial_epoch`
                or a checkpoint makes training begin later. Default: `1`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line per epoch; "auto" is 1 on a
                terminal and 2 elsewhere. Default: `"auto"`.
            callbacks: A callback or several, see `zt.callbacks`. Default: `None`.
            validation_split: The fraction of rows to validate on, between 0 and 1. They are the
                last ones, before shuffling. Default: `0.0`.
            validation_data: Data to validate on after epochs: (x, y), (x, y, sample_weight), or
                what can be iterated again for batches. `validation_split` does not count then.
                Default: `None`.
            shuffle: Whether to shuffle rows before each epoch. Default: `True`.
            class_weight: The weight of each class in the loss, by class number. It counts in
                training only. Default: `None`.
            sample_weight: The weight of each row in the loss, an array of shape (rows,). Default:
                `None`.
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
            ConfigError: The program was compiled without a loss or optimizer, or an argument makes
                no sense.
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
        from ztorch.program.fitting import fit

        self._need("train")
        return fit(self, x, y, batch_size=batch_size, epochs=epochs, verbose=verbose,
                   callbacks=callbacks, validation_split=validation_split,
                   validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
                   sample_weight=sample_weight, initial_epoch=initial_epoch,
                   steps_per_epoch=steps_per_epoch, validation_steps=validation_steps,
                   validation_freq=validation_freq, nan=nan)

    @checked
    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None,
                 sample_weight: Any = None, verbose: int | str = "auto",
                 steps: int | None = None, return_dict: bool = False) -> Any:
        """Measures the loss and the metrics. The weights do not change.

        Args:
            x: Rows, as `fit` takes them.
            y: Targets, as `fit` takes them. Default: `None`.
            batch_size: Not needed. Where it is passed, it must repeat that of `compile`. Default:
                `None`.
            sample_weight: The weight of each row, an array of shape (rows,). Default: `None`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line; "auto" is 1 on a terminal and 2
                elsewhere. Default: `"auto"`.
            steps: The batches to measure; None: all. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The loss; with metrics the list [loss, *metrics]; a dict with `return_dict=True`.

        Raises:
            ConfigError: The program was compiled without a loss.
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
        from ztorch.feed import loops
        from ztorch.feed.batches import batches
        from ztorch.program.fitting import check_count, feed_for
        from ztorch.program.one_batch import as_scores
        from ztorch.progress import Progress

        self._need("evaluate")
        rows = checked_batch_size(batch_size, self.buckets)
        check_count("steps", steps)
        feed = feed_for(self, x)
        source = batches(self.adapter, rows, x, y, sample_weight, feed=feed)
        means = loops.evaluate(feed or self.calls, source, self.metrics_names, Progress(verbose),
                               steps=steps)
        assert means is not None  # only a loop that is told to stop returns None
        return as_scores(means, return_dict)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                       class_weight: Mapping[int, float] | None = None,
                       return_dict: bool = False) -> Scores:
        """Takes one training step.

        Args:
            x: At most `batch_size` rows, as `fit` takes them.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            class_weight: The weight of each class, by class number. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores of the batch before the step, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch, or the data do not fit the model.

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

        return run_batch(self, "train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None,
                      return_dict: bool = False) -> Scores:
        """Measures loss and metrics of one batch.

        Args:
            x: At most `batch_size` rows, as `fit` takes them.
            y: Their targets. Default: `None`.
            sample_weight: The weight of each row. Default: `None`.
            return_dict: Whether to return the scores by name. Default: `False`.

        Returns:
            The scores, as `evaluate` returns them.

        Raises:
            DataError: x has more rows than a batch, or the data do not fit the model.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> program.test_on_batch(np.zeros((8, 4)), np.ones(8))
            1.0
        """
        from ztorch.program.one_batch import run_batch

        return run_batch(self, "evaluate", x, y, sample_weight, None, return_dict)

@checked
def load(path: Path, threads: int | None = None) -> Program:
    """Loads the program in an artifact, as it was when `save` wrote it; needs no compiler.

    A program that trained goes on as the saved one would, bit for bit.

    Args:
        path: The artifact, a file that ends in .zt.
        threads: The most workers that a run on the CPU may use; None: all cores that this process
            may use. Default: `None`.

    Returns:
        The program.

    Raises:
        ArtifactError: The file is damaged, is no artifact, or has a newer format.
        DeviceError: No device here runs its code.

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
    spec, code, params, metadata, training = read_artifact(where)
    try:
        program = Program(start(spec, code, params, threads), metadata)
    except ArtifactError as error:  # about the library in it
        raise ArtifactError(f"{where}: {error}") from None
    if training is not None:
        program.resume(training, training.resumed)
    return program
