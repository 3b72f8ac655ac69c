"""Models with a custom `train_step`, `test_step` or `predict_step`, as in Keras."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.graph.running_step import need_step, running_step
from ztorch.layers.network import Network
from ztorch.layers.own_policy import checked_policy
from ztorch.layers.policies import DTypePolicy, dtype_policy

# The functions of a program that a method defines, if a class overrides it.
_MADE_BY = {"train_step": ("train",), "test_step": ("evaluate",), "predict_step": ("predict",),
            "compute_loss": ("train", "evaluate"), "compute_metrics": ("train", "evaluate")}


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """The parts of a step's argument, with None for missing ones.

    Args:
        data: x, or a tuple (x, y) or (x, y, sample_weight).

    Returns:
        `(x, y, sample_weight)`.

    Examples:
        >>> unpack_x_y_sample_weight(("x", "y")), unpack_x_y_sample_weight("x")
        (('x', 'y', None), ('x', None, None))
    """
    x, y, sample_weight, *_ = (*data, None, None) if isinstance(data, tuple) else (data, None, None)
    return x, y, sample_weight


class OfCompile:
    """An argument of the last compile. An attribute of the model with the same name hides it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, model: Any, owner: type) -> Any:
        if model is None:
            return self
        if not model.compile_arguments:
            raise AttributeError(self._name)
        return model.compile_arguments.get(self._name)


class OwnSteps(Network, abstract=True):
    """The part of a model that defines its steps.

    The methods run once for each batch size, on graph tensors, and their ops are compiled: as in
    `call`, the tensors have no values yet.
    """

    loss: Any = OfCompile("loss")

    def _begin(self, name: str | None, seed: int | None, trainable: bool) -> None:
        self.policy = dtype_policy().name  # the default dtype of compile
        super()._begin(name, seed, trainable)

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The default `dtype` of compile: the global policy when the model was created, unless set
        since."""
        return super().dtype_policy if self.adopter is not None else DTypePolicy(self.policy)

    @dtype_policy.setter
    def dtype_policy(self, policy: Any) -> None:
        self.policy = checked_policy(type(self).__name__, policy).name

    @property
    def own_functions(self) -> frozenset[str]:
        """The functions of its program that methods of its class define."""
        return frozenset(function for method, functions in _MADE_BY.items()
                         if getattr(type(self), method) is not getattr(OwnSteps, method)
                         for function in functions)

    def train_step(self, data: Any) -> Mapping[str, Any]:
        """A step of `fit`. A class may override it.

        Args:
            data: `(x, y)`, or `(x, y, sample_weight)` if rows have weights, or x if there are no
                targets. `compute_loss` and `compute_metrics` apply the weights of rows anyway.

        Returns:
            Scalars by name. The history holds their means over the batches, weighted by the rows of
            each.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> class Halved(zt.Model):
            ...     def train_step(self, data):
            ...         x, y = data
            ...         loss = 0.5 * self.compute_loss(x, y, self(x, training=True))
            ...         weights = self.trainable_weights
            ...         self.optimizer.apply(self.gradients(loss, weights), weights)
            ...         return {"loss": loss}
            >>> x = zt.layers.Input((3,))
            >>> model = Halved(x, zt.layers.Dense(1, kernel_initializer="zeros")(x))
            >>> _ = model.compile("cpu", optimizer="sgd", loss="mse")
            >>> model.fit(np.ones((8, 3)), np.ones(8), verbose=0).history["loss"]
            [0.5]
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=True)
        loss = self._loss_of(True, x, y, y_pred, sample_weight)
        weights = self.trainable_weights
        self.optimizer.apply(self.gradients(loss, weights), weights)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> Mapping[str, Any]:
        """A step of `evaluate`, which leaves weights unchanged.

        Args:
            data: As in `train_step`.

        Returns:
            Scalars by name.
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        self._loss_of(False, x, y, y_pred, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any) -> Any:
        """The computation of `predict`.

        Args:
            data: The inputs, in the form of `call`.

        Returns:
            A tensor, or a list or dict of tensors.
        """
        return self(data, training=False)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None,
                     sample_weight: Any = None, training: bool = True) -> Any:
        """The loss of `compile` in a step, plus the losses that layers and regularizers add to it.

        Args:
            x: The inputs, for classes that override this. Default: `None`.
            y: The targets. Default: `None`.
            y_pred: The predictions. Default: `None`.
            sample_weight: The weight of each row; None: the weights passed to `fit`. Default:
                `None`.
            training: Whether this is a training step, for classes that override this. Default:
                `True`.

        Returns:
            A scalar.

        Raises:
            ConfigError: There is no loss, or no step is being traced.
        """
        return self._step("compute_loss").compute_loss(y, y_pred, sample_weight)

    def _loss_of(self, training: bool, *data: Any) -> Any:
        """The result of `compute_loss`, which a class may define without `training`, as in Keras:
        the loss of the step."""
        parameters = inspect.signature(self.compute_loss).parameters
        takes_training = "training" in parameters or any(
            p.kind is p.VAR_KEYWORD for p in parameters.values())
        loss = self.compute_loss(*data, **({"training": training} if takes_training else {}))
        self._step("compute_loss").loss = loss
        return loss

    def compute_metrics(self, x: Any = None, y: Any = None, y_pred: Any = None,
                        sample_weight: Any = None) -> dict[str, Any]:
        """The loss, the metrics of `compile`, and those that the step has updated with
        `update_state`, for a step to return. A class that overrides `metrics` gets those that it
        lists, as in Keras.

        Args:
            x: The inputs, for classes that override this. Default: `None`.
            y: The targets. Default: `None`.
            y_pred: The predictions. Default: `None`.
            sample_weight: The weight of each row; None: the weights passed to `fit`. Default:
                `None`.

        Returns:
            Scalars by name. Metrics that are not means are represented by the sums of the batch,
            which an epoch accumulates.

        Raises:
            ConfigError: No step is being traced.
        """
        scores: dict[str, Any] = self._step("compute_metrics").compute_metrics(
            y, y_pred, sample_weight)
        if type(self).metrics is OwnSteps.metrics:
            return scores
        from ztorch.model.step_metrics import score_name  # loaded: a step is being traced

        listed = {metric.name for metric in self.metrics}
        return {label: x for label, x in scores.items() if score_name(label) in listed}

    def gradients(self, loss: Any, of: Any = None) -> Any:
        """The gradients of a loss, in a step.

        A step is a graph, so there is no tape. This method replaces `tape.gradient` and
        `loss.backward()`.

        Args:
            loss: A tensor with one number.
            of: Weights, or tensors from which the loss was computed: a list, or a single one. None:
                the trainable weights. Default: `None`.

        Returns:
            A list with a gradient for each, or one gradient for a single one.

        Raises:
            ConfigError: No step is being traced.
        """
        return self._step("gradients").gradients(
            loss, self.trainable_weights if of is None else of)

    @property
    def losses(self) -> list[Any]:
        """The scalar terms that regularizers, and within a step also layers, add to the loss."""
        step: Any = running_step.get()
        return super().losses if step is None else step.added_losses()

    @property
    def metrics(self) -> Sequence[Any]:
        """The loss and the metrics of `compile`, with `name` and `result`: within a step those of
        its batch, which `update_state` measures, elsewhere those of the last epoch of `fit`."""
        step: Any = running_step.get()
        return self._epoch_metrics() if step is None else step.metrics()

    def _epoch_metrics(self) -> list[Any]:
        """The scores of the last epoch."""
        return []

    @property
    def optimizer(self) -> Any:
        """The optimizer of `compile`. Within a step it updates weights; elsewhere its
        `learning_rate` can be read and set."""
        step: Any = running_step.get()
        optimizer = self._compiled_optimizer() if step is None else step.optimizer
        if optimizer is None:
            from ztorch.model.programs import not_compiled

            raise not_compiled(self.name, "train")
        return optimizer

    def _compiled_optimizer(self) -> Any:
        """The optimizer of the last compile."""
        return None

    def _step(self, method: str) -> Any:
        return need_step(f"{type(self).__name__}.{method}")
