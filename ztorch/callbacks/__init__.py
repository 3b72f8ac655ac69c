"""Callbacks of `fit`, with Keras' names: actions before and after epochs and batches.

Each loads on first use: a program that continues a run needs none of them.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ztorch.callbacks.averages import SwapEMAWeights as SwapEMAWeights
    from ztorch.callbacks.backup import BackupAndRestore as BackupAndRestore
    from ztorch.callbacks.callback import Callback as Callback
    from ztorch.callbacks.functions import LambdaCallback as LambdaCallback
    from ztorch.callbacks.functions import LearningRateScheduler as LearningRateScheduler
    from ztorch.callbacks.functions import TerminateOnNaN as TerminateOnNaN
    from ztorch.callbacks.monitors import EarlyStopping as EarlyStopping
    from ztorch.callbacks.monitors import Monitor as Monitor
    from ztorch.callbacks.monitors import ReduceLROnPlateau as ReduceLROnPlateau
    from ztorch.callbacks.progress import ProgbarLogger as ProgbarLogger
    from ztorch.callbacks.records import CSVLogger as CSVLogger
    from ztorch.callbacks.records import ModelCheckpoint as ModelCheckpoint
    from ztorch.callbacks.remote import RemoteMonitor as RemoteMonitor
    from ztorch.callbacks.tensorboard import TensorBoard as TensorBoard

_FILES = {
    "Callback": "callback",
    "LambdaCallback": "functions", "LearningRateScheduler": "functions",
    "TerminateOnNaN": "functions",
    "EarlyStopping": "monitors", "Monitor": "monitors", "ReduceLROnPlateau": "monitors",
    "CSVLogger": "records", "ModelCheckpoint": "records",
    "SwapEMAWeights": "averages", "BackupAndRestore": "backup", "TensorBoard": "tensorboard",
    "ProgbarLogger": "progress", "RemoteMonitor": "remote",
}
__all__ = sorted(_FILES)

# Other libraries' names, with the equivalent here.
_REPLACEMENTS = {"History": "the result of fit, and program.history"}


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return getattr(importlib.import_module(f"ztorch.callbacks.{_FILES[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(name)
    from ztorch.errors import nearest

    replacement = _REPLACEMENTS.get(name)
    hint = f"; here it is {replacement}" if replacement else nearest(name, __all__)
    raise AttributeError(f"module 'ztorch.callbacks' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return list(__all__)
