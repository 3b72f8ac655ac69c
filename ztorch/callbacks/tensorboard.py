"""The callback that writes logs for TensorBoard, with the package `tensorboard`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.arguments import checked
from ztorch.callbacks.callback import Callback, Logs
from ztorch.config import positive, whole
from ztorch.errors import ConfigError, Unsupported
from ztorch.terminal.progress import numbers_of


class TensorBoard(Callback):
    """Writes the scores for TensorBoard: `tensorboard --logdir logs` shows them.

    As in Keras, training scores are in the folder `train` and validation scores in `validation`,
    under names such as `epoch_loss`.

    Args:
        log_dir: The folder. Default: `"logs"`.
        histogram_freq: Epochs between histograms of the weights; 0 writes none. Default: `0`.
        update_freq: "epoch", "batch", or a number of batches: how often to write training scores,
            as `batch_loss`, besides those of epochs. Default: `"epoch"`.

    Raises:
        Unsupported: The package is not installed: pip install ztorch[tensorboard].

    Examples:
        >>> callback = TensorBoard("logs", update_freq=100)  # doctest: +SKIP
    """

    order = 1  # after callbacks that add to the logs

    @checked
    def __init__(self, log_dir: str | os.PathLike[str] = "logs", histogram_freq: int = 0,
                 update_freq: str | int = "epoch"):
        self.histogram_freq = whole("TensorBoard(histogram_freq=...)", histogram_freq)
        self.log_dir = Path(log_dir)
        if isinstance(update_freq, str) and update_freq not in ("epoch", "batch"):
            raise ConfigError(f"TensorBoard(update_freq={update_freq!r}) must be 'epoch', 'batch' "
                              "or a number of batches")
        self.update_freq = update_freq if isinstance(update_freq, str) else positive(
            "TensorBoard(update_freq=...)", update_freq)
        self._package = _package()
        self._writers: dict[str, Any] = {}  # by folder
        self._batches = 0  # batches trained in this run

    def listens(self, hook: str) -> bool:
        return super().listens(hook) and (
            self.update_freq != "epoch" or hook != "on_train_batch_end")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        every = 1 if self.update_freq == "batch" else int(self.update_freq)
        if self._batches % every == 0:
            for name, value in numbers_of(logs or {}).items():
                self._write("train", self._package.scalar(f"batch_{name}", value), self._batches)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        rate = self.program.learning_rate_or_none()
        scores = {**(logs or {}), **({} if rate is None else {"learning_rate": rate})}
        for name, value in numbers_of(scores).items():
            folder = "validation" if name.startswith("val_") else "train"
            label = f"epoch_{name.removeprefix('val_')}"
            self._write(folder, self._package.scalar(label, value), epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for name, array in self.program.weight_arrays().items():
                self._write("train", self._package.histogram(name, array), epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, folder: str, summary: Any, step: int) -> None:
        if folder not in self._writers:
            self._writers[folder] = self._package.writer(str(self.log_dir / folder))
        self._writers[folder].add_event(self._package.event(
            wall_time=time.time(), step=step, summary=summary))


class _Package(NamedTuple):
    """The parts of the package in use: a constructor of summaries, and their writer."""

    writer: Any
    event: Any
    scalar: Any
    histogram: Any


def _package() -> _Package:
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise Unsupported("the callback TensorBoard needs the package tensorboard: "
                          'pip install "ztorch[tensorboard]"; CSVLogger(path) and '
                          "program.history.plot(path) do not") from None
    return _Package(EventFileWriter, Event, scalar_pb, histogram_pb)
