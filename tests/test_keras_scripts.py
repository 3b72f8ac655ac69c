"""Scripts of Keras and their ports: only imports differ, and the lines that take gradients, which each
backend of Keras spells its own way; both reach the same accuracies."""

from __future__ import annotations

import difflib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests import references

EXAMPLES = Path(__file__).parent.parent / "examples"
ORIGINALS = sorted((EXAMPLES / "keras").glob("*.py"))
REACHED = {  # least accuracy of each port, in the order of its output
    "credit_tabular": [0.75], "images_convnet": [0.93], "images_distillation": [0.9], "images_gan": [0.9],
    "images_siamese": [0.9], "text_bidirectional": [0.95], "text_captions": [0.93],
    "text_transformer": [0.95],
    "tickets_functional": [0.9, 0.8]}
QUICK = ("credit_tabular", "text_transformer")  # the others in a full run alone
APART = 0.08  # largest difference of an accuracy between both, which draw other first weights


def accuracies(printed: str) -> list[float]:
    """The last line that a script prints."""
    return [float(a) for a in re.findall(r"^[A-Z][^\n]* accuracy[^\n:]*: (\d\.\d+)$", printed, re.M)]


def test_every_original_has_a_port() -> None:
    assert {p.stem for p in ORIGINALS} == {*REACHED} == {
        p.stem for p in (EXAMPLES / "from_keras").glob("*.py")}


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda p: p.stem)
def test_only_imports_differ(original: Path) -> None:
    port = EXAMPLES / "from_keras" / original.name
    ours, theirs = port.read_text().splitlines(), original.read_text().splitlines()
    changed = [line for line in difflib.ndiff(theirs, ours) if line[0] in "+-"]
    assert 0 < len(changed) <= (10 if original.stem == "images_gan" else 6)
    for line in changed:
        assert re.match(r"- (import keras|from keras import \w+)$|"
                        r"\+ (import ztorch as keras|from ztorch import \w+)$|"
                        r". (import torch| +gradients = .*| +with torch.no_grad.*|"
                        r" +optimizer\.apply\(.*)$", line)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in REACHED])
def test_a_port_learns_as_well_as_the_original(
        name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    references.keras()
    references.torch().set_num_threads(1)
    alone = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "ZTORCH_THREADS": "1"}
    ran = subprocess.run([sys.executable, str(EXAMPLES / "from_keras" / f"{name}.py")], cwd=tmp_path,
                         text=True, timeout=240, check=False, capture_output=True, env=alone)
    assert ran.returncode == 0, ran.stderr
    runpy.run_path(str(EXAMPLES / "keras" / f"{name}.py"))
    ours, theirs = accuracies(ran.stdout), accuracies(capfd.readouterr().out)
    assert len(ours) == len(theirs) == len(REACHED[name])
    for reached, least, want in zip(ours, REACHED[name], theirs, strict=True):
        assert reached > least and abs(reached - want) < APART
