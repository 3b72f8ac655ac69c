"""The step of a model that is being traced, as far as optimizers and metrics must know it.

In a user's `train_step`, `optimizer.apply(gradients, weights)` changes the weights of this
step, and `metric.update_state(y, y_pred)` measures its batch.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from ztorch.errors import ConfigError


class RunningStep(Protocol):
    """A step that is being traced."""

    def apply(self, optimizer: Any, gradients: Any, weights: Any) -> None:
        """Changes weights as an optimizer asks for."""

    def measure(self, metric: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        """Computes a metric of the batch."""

    def add(self, metric: Any, **sums: Any) -> None:
        """Adds to the sums that a metric keeps of the batch."""

    def measured(self, metric: Any) -> Any:
        """The metric of the batch."""


running_step: ContextVar[RunningStep | None] = ContextVar("running_step", default=None)


def need_step(caller: str) -> RunningStep:
    """The step that is being traced, or a ConfigError that names the caller."""
    step = running_step.get()
    if step is None:
        raise ConfigError(f"{caller} works in the train_step or test_step of a model, which fit "
                          "and evaluate trace; for a loop of your own use zt.value_and_grad and "
                          "optimizer.update(params, gradients)")
    return step
