"""What may be done around epochs and batches of `fit`, under Keras' names."""

from __future__ import annotations

from typing import Any

from ztorch.callbacks.functions import LambdaCallback, LearningRateScheduler, TerminateOnNaN
from ztorch.callbacks.monitors import EarlyStopping, Monitor, ReduceLROnPlateau
from ztorch.callbacks.records import CSVLogger, ModelCheckpoint
from ztorch.errors import nearest
from ztorch.training.hooks import Callback

__all__ = ["CSVLogger", "Callback", "EarlyStopping", "LambdaCallback", "LearningRateScheduler",
           "ModelCheckpoint", "Monitor", "ReduceLROnPlateau", "TerminateOnNaN"]

# What others call a thing, and what does it here.
_ELSEWHERE = {
    "BackupAndRestore": "ModelCheckpoint(path), and program.load_checkpoint(path) before fit where "
                        "that file is there",
    "TensorBoard": "CSVLogger(path) and program.history.plot(path)",
    "ProgbarLogger": "verbose=1 of fit", "History": "what fit returns, and program.history"}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    here = _ELSEWHERE.get(name)
    hint = f"; here it is {here}" if here else nearest(name, __all__)
    raise AttributeError(f"module 'ztorch.callbacks' has no attribute {name!r}{hint}")
