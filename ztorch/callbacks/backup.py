"""The callback that resumes an interrupted run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ztorch.arguments import checked
from ztorch.callbacks.callback import Callback, Logs
from ztorch.config import flag
from ztorch.errors import ConfigError, WeightsError


class BackupAndRestore(Callback):
    """Keeps a checkpoint while `fit` runs. If the script is run again after an interruption, `fit`
    continues from it. The checkpoint is deleted after a complete run.

    The history that `fit` returns has all epochs, those before the interruption included. Other
    callbacks begin anew, such as the patience of an EarlyStopping.

    Args:
        backup_dir: The folder of the checkpoint. It is created if it does not exist.
        save_freq: "epoch", or a number of batches. An interrupted epoch starts again. Default:
            `"epoch"`.
        double_checkpoint: Whether to keep the previous checkpoint as well, in case an interruption
            damages a file. Default: `False`.
        delete_checkpoint: Whether to delete the checkpoint after the last epoch. Default: `True`.

    Examples:
        >>> callback = BackupAndRestore("backup")  # for fit(..., callbacks=callback)
        >>> callback.file.as_posix()
        'backup/latest.safetensors'
    """

    order = 2  # last, so that the checkpoint holds the changes of other callbacks

    @checked
    def __init__(self, backup_dir: str | os.PathLike[str], save_freq: str | int = "epoch",
                 double_checkpoint: bool = False, delete_checkpoint: bool = True):
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ConfigError(f"save_freq={save_freq!r} must be 'epoch' or a number of batches")
        self.backup_dir = Path(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = flag("BackupAndRestore(double_checkpoint=...)", double_checkpoint)
        self.delete_checkpoint = flag("BackupAndRestore(delete_checkpoint=...)", delete_checkpoint)
        self._batches = 0  # batches trained in this run

    @property
    def file(self) -> Path:
        """The checkpoint."""
        return self.backup_dir / "latest.safetensors"

    @property
    def file_before(self) -> Path:
        """The previous checkpoint, with `double_checkpoint`."""
        return self.backup_dir / "previous.safetensors"

    def before_fit(self, program: Any) -> None:
        files = [file for file in (self.file, self.file_before) if file.exists()]
        for file in files:
            try:
                program.load_checkpoint(file)
                break
            except WeightsError:
                if file == files[-1]:
                    raise

    def listens(self, hook: str) -> bool:
        return super().listens(hook) and (
            self.save_freq != "epoch" or hook != "on_train_batch_end")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._batches = 0
        try:
            self.backup_dir.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ConfigError(f"BackupAndRestore(backup_dir=...): {self.backup_dir} is a file; "
                              "name a folder") from None

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        if self._batches % int(self.save_freq) == 0:
            self._save()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._save()

    def _save(self) -> None:
        if self.double_checkpoint and self.file.exists():
            self.file.replace(self.file_before)
        self.program.save_checkpoint(self.file)

    def on_train_end(self, logs: Logs | None = None) -> None:
        ended = self.program.epoch >= self.params["epochs"] or self.program.stop_training
        if ended and self.delete_checkpoint:
            self.file.unlink(missing_ok=True)
            self.file_before.unlink(missing_ok=True)
