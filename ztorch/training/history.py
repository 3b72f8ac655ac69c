"""The record of training by epoch, and its plot."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.callbacks.callback import Callback
from ztorch.errors import ConfigError
from ztorch.terminal.notebook import preformatted, table
from ztorch.terminal.progress import numbers_of

_COLORS = (  # of the curves
    "#2f6fdb", "#e8702a", "#2a9d62", "#b23a8e", "#7a5cd6", "#c9a227")


class History(Callback):
    """The result of `fit`: the scores of each epoch.

    `history.history["val_loss"]` is a list with a value for each epoch that measured it: a number,
    or an array for a metric with several numbers. `history.epoch` lists all epochs, and
    `history.params` holds the arguments of `fit`. `history.interrupted` is True after Ctrl-C.

    Examples:
        >>> record = History()
        >>> record.on_epoch_end(0, {"loss": 0.5})
        >>> record.history, record.epoch
        ({'loss': [0.5]}, [0])
    """

    order = 1  # after callbacks that add to the logs, before those that save

    def __init__(self) -> None:
        self.history: dict[str, list[Any]] = {}  # the values of each score, by name
        self.epoch: list[int] = []  # all epochs, from 0
        self.params: dict[str, Any] = {}  # verbose, epochs and steps of `fit`
        self.interrupted = False  # by Ctrl-C
        self._epochs_of: dict[str, list[int]] = {}  # epochs that measured each score

    def set_program(self, program: Any) -> None:
        """Keeps no reference to the program: the record outlives it, and can be pickled."""

    def set_params(self, params: Mapping[str, Any]) -> None:
        self.params = {k: params[k] for k in ("verbose", "epochs", "steps")}

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value if np.ndim(value) else float(value))
            self._epochs_of.setdefault(name, []).append(epoch)

    def state(self) -> dict[str, Any]:
        """The record as JSON values, for checkpoints.

        >>> History.from_state(History().state()).epoch
        []
        """
        curves = {name: [value.tolist() if isinstance(value, np.ndarray) else value
                         for value in values] for name, values in self.history.items()}
        return {"history": curves, "epoch": self.epoch, "epochs_of": self._epochs_of}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        """The record that `state` described."""
        record = cls()
        record.history = {name: [np.array(value) if isinstance(value, list) else float(value)
                                 for value in values] for name, values in state["history"].items()}
        record.epoch = [int(e) for e in state["epoch"]]
        record._epochs_of = {k: list(map(int, v)) for k, v in state["epochs_of"].items()}
        return record

    def __repr__(self) -> str:
        if not self.epoch:
            return "<History: no epochs>"
        last = ", ".join(f"{k}={v:.4g}" for k, v in numbers_of(
            {name: values[-1] for name, values in self.history.items()}).items())
        return f"<History: {len(self.epoch)} epochs, last {last}>"

    @property
    def curves(self) -> dict[str, list[float]]:
        """The numbers of each score; those of an array are numbered, as in f1_score_0."""
        curves: dict[str, list[float]] = {}
        for name, values in self.history.items():
            for value in values:
                for label, number in numbers_of({name: value}).items():
                    curves.setdefault(label, []).append(number)
        return curves

    def _repr_html_(self) -> str:
        """A table of the epochs, for notebooks."""
        if not self.epoch:
            return preformatted(repr(self))
        rows: dict[int, dict[str, float]] = {at: {} for at in self.epoch}
        for name, values in self.history.items():
            for at, value in zip(self._epochs_of[name], values, strict=True):
                rows[at] |= numbers_of({name: value})
        names = list(self.curves)
        array = np.array([[at + 1.0, *(row.get(n, np.nan) for n in names)]
                          for at, row in rows.items()])
        title = f"{len(rows)} epoch{'s' * (len(rows) != 1)}{', stopped' * self.interrupted}"
        return table(array, title, ("epoch", *names))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plots the curves of the loss and the metrics, for training and validation.

        Args:
            path: A PNG, SVG or PDF file to write; None writes no file. Default: `None`.

        Returns:
            The matplotlib figure.

        Raises:
            ConfigError: No epoch was trained.

        Examples:
            ```python
            history.plot("training.png")
            ```
        """
        from ztorch.files.figures import new_figure, save_figure, whole_ticks

        if not self.history:
            raise ConfigError("there is nothing to plot yet: call fit first")
        names = [n for n in self.history if not n.startswith("val_") or n[4:] not in self.history]
        figure = new_figure(1.0 + 4.4 * len(names), 3.6)
        for k, name in enumerate(names):
            axes = figure.add_subplot(1, len(names), k + 1)
            color = _COLORS[k % len(_COLORS)]
            self._curve(axes, name, color=color, label="training")
            if f"val_{name}" in self.history:
                self._curve(axes, f"val_{name}", color=color, alpha=0.55, linestyle="--",
                            label="validation")
                axes.legend(frameon=False)
            axes.set_title(name.replace("_", " "), loc="left", fontsize=11, fontweight="bold")
            axes.set_xlabel("epoch")
            whole_ticks(axes.xaxis)
            axes.grid(True, axis="y", color="#dddddd", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
        if path is not None:
            save_figure(figure, path)
        return figure

    def _curve(self, axes: Any, name: str, **style: Any) -> None:
        epochs = [e + 1 for e in self._epochs_of[name]]
        lines = np.array([np.ravel(value) for value in self.history[name]])
        label = [style.pop("label"), *["_"] * (lines.shape[1] - 1)]  # one line of the legend
        marker = "o" if len(epochs) < 15 else None
        axes.plot(epochs, lines, linewidth=1.8, marker=marker, markersize=3.5, label=label, **style)
