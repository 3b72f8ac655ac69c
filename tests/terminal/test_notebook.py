"""What notebooks show of a run and of tables."""

from __future__ import annotations

import io
import struct

import pytest

import ztorch as zt
from ztorch.callbacks import ProgbarLogger
from ztorch.training.history import History


def test_the_epochs_of_a_run_are_a_table() -> None:
    history = History()
    assert "no epochs" in history._repr_html_()
    for epoch, logs in enumerate([{"loss": 0.5}, {"loss": 0.25, "val_loss": 0.75}]):
        history.on_epoch_end(epoch, logs)
    history.interrupted = True
    assert history._repr_html_() == (
        "<div><code>2 epochs, stopped</code></div><table>"
        "<tr><th>epoch</th><th>loss</th><th>val_loss</th></tr>"
        "<tr><td>1</td><td>0.5</td><td>nan</td></tr><tr><td>2</td><td>0.25</td><td>0.75</td></tr></table>")


def test_figures_are_pictures() -> None:
    pytest.importorskip("matplotlib")
    history = History()
    history.on_epoch_end(0, {"loss": 0.5})
    png, size = history.plot()._repr_png_()
    assert png.startswith(b"\x89PNG") and size == {"width": 518, "height": 346}
    assert struct.unpack(">2I", png[16:24]) == (810, 540)


def test_the_kinds_of_columns_are_text_in_columns() -> None:
    table = zt.data.table({"a<b": [1, 2, 3], "kind": ["x", "y", "x"]}, target="kind")
    assert "a&lt;b     number" in table._repr_html_() and "white-space: pre" in table._repr_html_()


def test_lines_of_a_notebook_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr("sys.stdout", stream)
    bar = ProgbarLogger()
    bar.set_params({"verbose": 1, "epochs": 1, "steps": 40})
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    bar.on_epoch_end(0, {"loss": 0.25})
    line = stream.getvalue().rpartition("\r")[2].rstrip()
    assert line.startswith("Epoch 1/1 - 40/40 - 0s") and line.endswith("- loss: 0.2500") and "\u2501" not in line
