"""A folder of WAV files, from training to predictions, a report and a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ztorch as zt
from tests.cases.sounds import write
from tests.commands.results import Run, fails, ok

NET = """import ztorch as zt
LOSS, METRICS, EPOCHS, BATCH_SIZE = "sparse_categorical_crossentropy", ["accuracy"], 4, 4
model = zt.Sequential([zt.layers.Input((64, 1)), zt.layers.Conv1D(4, 8, activation="relu"),
                       zt.layers.GlobalMaxPooling1D(), zt.layers.Dense(2, activation="softmax")], name="tones", seed=0)
"""


def test_a_folder_of_sounds(run: Run) -> None:
    Path("net.py").write_text(NET)
    rng = np.random.default_rng(0)
    for k in range(8):  # quiet and loud ones, of which one has twice the rate
        for name, loudness in (("loud", 0.9), ("quiet", 0.05)):
            write(Path("tones", name, f"{k}.wav"), rng.uniform(-loudness, loudness, (80 * (1 + (k == 3)), 1)),
                  8000 * (1 + (k == 3)))
    ok(run("train", "net.py", "--data", "tones", "--val", "tones", "--epochs", "40", "--lr", "0.03", "--out", "t.zt"))
    record = zt.load("t.zt").pipeline.record
    assert (record.source, record.rate, record.classes) == ("sounds", 8000, ("loud", "quiet"))
    lines = ok(run("run", "t.zt", "tones/loud/0.wav", "tones/quiet")).splitlines()
    assert len(lines) == 9 and [line.split()[1] for line in lines] == ["loud"] + ["quiet"] * 8
    assert ok(run("run", "t.zt", "tones/quiet/3.wav")).startswith("quiet ")
    report = ok(run("report", "t.zt", "--data", "tones"))
    assert report.startswith("Wrote t.html") and "100.0%" in Path("t.html").read_text()
    ok(run("export", "t.zt", "--web", "--samples", "tones", "-o", "page"))
    assert zt.load_model("page/tones.zt").pipeline.record.rate == 8000
    fails(run("run", "t.zt", "tones", "net.py"), "several are for images and sounds, and net.py is none")
    Path("empty").mkdir()
    fails(run("run", "t.zt", "empty"), r"empty has no sound \(.wav\)")
    fails(run("train", "net.py", "--data", "empty"), "empty is a folder, of sounds .* or of images")
