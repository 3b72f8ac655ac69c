"""Fixtures for commands: an empty folder, an artifact, a user's model file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cases.tables import COLUMNS, ROWS, write_csv
from tests.commands.results import Run, ok
from ztorch.cli import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, [str(w) for w in words])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "digits.zt"
    ok(CliRunner().invoke(main, ["train", "digits_mlp", "--epochs", "2", "--quiet", "--out",
                                 str(path)]))
    return path


MODEL = """
from ztorch import Sequential, layers as L
from own_part import HIDDEN
LOSS = "mse"

def build():
    return Sequential([L.Input((3,)), L.Dense(HIDDEN, activation="relu"), L.Dense(1)], name="own")

class nets:
    made = build()

def needs(n):
    return build()

number = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A model file that imports from its own folder, and data for it."""
    sys.modules.pop("own_part", None)  # of an earlier test's folder
    (tmp_path / "own_part.py").write_text("HIDDEN = 4\n")
    (tmp_path / "net.py").write_text(MODEL)
    x = np.random.default_rng(0).random((40, 3))
    np.savetxt(tmp_path / "table.csv", np.c_[x, x.sum(1)], "%.5f", ",", header="a,b,c,sum",
               comments="")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x.sum(1))
    np.savez(tmp_path / "both.npz", x=x, y=x.sum(1))
    return tmp_path / "net.py"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An artifact that was trained on a table, and the output of the command."""
    folder = tmp_path_factory.mktemp("tables")
    write_csv(folder / "train.csv", COLUMNS, ROWS)
    output = ok(CliRunner().invoke(main, [
        "train", str(folder / "train.csv"), "--target", "fate", "--out", str(folder / "p.zt"), "--threads", "1"]))
    return folder / "p.zt", output
