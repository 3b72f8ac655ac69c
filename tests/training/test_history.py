"""The record of training and its plot."""

from __future__ import annotations

import builtins
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.programs import classifier, flowers
from ztorch.errors import ConfigError
from ztorch.files import figures
from ztorch.training.history import History


@pytest.fixture(scope="module")
def history() -> History:
    x, y = flowers()
    return classifier().fit(x, y, epochs=4, validation_data=(x, y), validation_freq=2, verbose=0)


def test_it_survives_json_and_pickle(history: History) -> None:
    for copy in (History.from_state(json.loads(json.dumps(history.state()))),
                 pickle.loads(pickle.dumps(history))):
        assert copy.history == history.history and copy.epoch == [0, 1, 2, 3]
    assert "4 epochs, last loss=" in repr(history) and "no epochs" in repr(History())


@pytest.mark.parametrize(("name", "magic"), [("h.png", b"\x89PNG"), ("h.svg", b"<?xml"),
                                             ("h.pdf", b"%PDF")])
def test_plots(history: History, tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    figure = history.plot(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [a.get_title(loc="left") for a in figure.axes] == ["loss", "accuracy"]
    training, validation = figure.axes[0].get_lines()
    assert list(training.get_xdata()) == [1, 2, 3, 4]
    assert list(validation.get_xdata()) == [2, 4]  # at the epochs that measured it


def test_what_cannot_be_plotted(history: History, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="call fit first"):
        History().plot()
    with pytest.raises(ConfigError, match="cannot plot to"):
        history.plot(tmp_path / "h.xyz")


def test_without_matplotlib(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match=r'pip install "ztorch\[plot\]"'):
        history.plot()


def test_curves_of_training_and_validation_share_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only validation has gets its own."""
    plots: list[tuple[str, list[str]]] = []

    class Axes(MagicMock):
        def set_title(self, title: str, **style: Any) -> None:
            plots.append((title, [call.kwargs["label"][0] for call in self.plot.call_args_list]))

    figure = SimpleNamespace(add_subplot=lambda rows, columns, at: Axes())
    monkeypatch.setattr(figures, "new_figure", lambda width, height: figure)
    monkeypatch.setattr(figures, "whole_ticks", lambda axis: None)
    curves = History.from_state({"history": {name: [0.5] for name in ("loss", "val_loss", "val_only")}, "epoch": [0],
                                 "epochs_of": {name: [0] for name in ("loss", "val_loss", "val_only")}})
    assert curves.plot() is figure
    assert plots == [("loss", ["training", "validation"]), ("val only", ["training"])]
