"""The callback that validates with the moving averages of the weights."""

from __future__ import annotations

from ztorch.callbacks.callback import Callback, Logs


class SwapEMAWeights(Callback):
    """Replaces the weights by their moving averages, in validation or at the end of each epoch.

    The optimizer computes the averages with `use_ema=True`.

    Args:
        swap_on_epoch: Whether to swap at the end of an epoch, so that later callbacks save the
            averages, and swap back at the start of the next epoch. Default: `False`.

    Examples:
        >>> callback = SwapEMAWeights()
    """

    def __init__(self, swap_on_epoch: bool = False):
        self.swap_on_epoch = swap_on_epoch
        self._swapped = False

    def _put(self, swapped: bool) -> None:
        if swapped != self._swapped:
            self.program.swap_averages()
            self._swapped = swapped

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._put(False)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._put(self.swap_on_epoch)

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._put(True)

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._put(False)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._put(False)
