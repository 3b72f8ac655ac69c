"""An artifact runs without a compiler and with few imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import flowers, trainer
from tests.cases.generating import LENGTH, compiled

# -- without a compiler ----------------------------------------------------------------------------

ALONE = """
import sys
BANNED = ("jinja2", "llvmlite", "click", "markupsafe", "ztorch.graph", "ztorch.ops", "ztorch.ir",
          "ztorch.lower", "ztorch.codegen", "ztorch.layers", "ztorch.compile.pipeline", "ztorch.model.sequential",
          "ztorch.kernels", "ztorch.artifact", "ztorch.model.trace", "ztorch.losses", "zipfile")
for name in BANNED:
    sys.modules[name] = None  # importing it is an ImportError
import numpy as np
import ztorch
program = ztorch.load(sys.argv[1])
np.save(sys.argv[2], program.predict(np.load(sys.argv[3])))
if "generate" in program.executable.functions:
    texts = program.generate([[1, 2], [3]], 15, top_k=4, seed=3)
    np.save(sys.argv[4], [*texts, program.generate([1, 2], 15, beams=2)])
if "train" in program.executable.functions:
    program.fit(np.load(sys.argv[3]), np.load(sys.argv[4]), epochs=2, verbose=0)
    program.evaluate(np.load(sys.argv[3]), np.load(sys.argv[4]), verbose=0)
    program.save_checkpoint(sys.argv[2] + ".ckpt")
loaded = [m for m, v in sys.modules.items() if v is not None and m.startswith(BANNED)]
assert not loaded, loaded
"""


def test_running_and_training_import_no_compiler(tmp_path: Path) -> None:
    x, y = flowers()
    program = trainer("cpu")
    program.fit(x, y, verbose=0)
    program.save(tmp_path / "t.zt")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    root = str(Path(zt.__file__).parents[1])
    files = [str(tmp_path / n) for n in ("t.zt", "out.npy", "x.npy", "y.npy")]
    ran = subprocess.run([sys.executable, "-c", ALONE, *files], cwd=tmp_path, text=True,
                         capture_output=True, check=False, env={**os.environ, "PYTHONPATH": root})
    assert ran.returncode == 0, ran.stderr
    assert np.array_equal(np.load(tmp_path / "out.npy"), program.predict(x))
    program.fit(x, y, epochs=2, verbose=0)
    again = trainer("cpu")
    again.load_checkpoint(tmp_path / "out.npy.ckpt")
    for name, value in program.executable.states_snapshot().items():
        assert np.array_equal(again.executable.state(name), value), name


def test_generating_imports_no_compiler(tmp_path: Path) -> None:
    program = compiled("rotary", rows=2)
    program.save(tmp_path / "t.zt")
    np.save(tmp_path / "x.npy", np.zeros((2, LENGTH), np.int32))
    root = str(Path(zt.__file__).parents[1])
    files = [str(tmp_path / n) for n in ("t.zt", "out.npy", "x.npy", "texts.npy")]
    ran = subprocess.run([sys.executable, "-c", ALONE, *files], cwd=tmp_path, text=True,
                         capture_output=True, check=False, env={**os.environ, "PYTHONPATH": root})
    assert ran.returncode == 0, ran.stderr
    want = [*program.generate([[1, 2], [3]], 15, top_k=4, seed=3),
            program.generate([1, 2], 15, beams=2)]
    assert np.array_equal(np.load(tmp_path / "texts.npy"), want)


# -- starting quickly ------------------------------------------------------------------------------

START = """
import sys
import numpy as np
before = set(sys.modules)
import ztorch
print(*sorted(set(sys.modules) - before))
before = set(sys.modules)
ztorch.load(sys.argv[1], threads=1).predict(np.load(sys.argv[2]))
print(*sorted(set(sys.modules) - before))
"""
PREDICTS = {
    "ztorch.errors", "ztorch.arguments", "ztorch.dtypes", "ztorch.config", "ztorch.abi", "ztorch.locks",
    "ztorch.machines", "ztorch.machines.processors", "ztorch.host.memory", "ztorch.real_sizes", "ztorch.foreign_frames",
    "ztorch.host", "ztorch.host.settings", "ztorch.files", "ztorch.files.safetensors",
    "ztorch.files.schema", "ztorch.files.kinds", "ztorch.files.parsing", "ztorch.terminal", "ztorch.terminal.work_line", "ztorch.names",
    "ztorch.backends", "ztorch.host.processor", "ztorch.backends.library",
    "ztorch.runtime.loaded_program", "ztorch.runtime.start", "ztorch.runtime.native_call",
    "ztorch.runtime", "ztorch.files.container", "ztorch.runtime.executable", "ztorch.runtime.host_program",
    "ztorch.runtime.load", "ztorch.runtime.manifest", "ztorch.runtime.program_checks",
    "ztorch.runtime.spec",
    "ztorch.runtime.state_order",
    "ztorch.runtime.snapshot", "ztorch.runtime.buckets",
    "ztorch.feed", "ztorch.feed.columns", "ztorch.feed.call_pool", "ztorch.feed.adapter",
    "ztorch.feed.ports", "ztorch.feed.sources", "ztorch.feed.frames", "ztorch.feed.texts",
    "ztorch.tabular", "ztorch.tabular.record", "ztorch.feed.sequences", "ztorch.feed.grids",
    "ztorch.program", "ztorch.program.program", "ztorch.program.predictor",
    "ztorch.program.stateful", "ztorch.program.verbs", "ztorch.program.running_optimizer",
    "ztorch.names.keras_calls", "ztorch.flags", "ztorch.feed.parts", "ztorch.names.own_functions", "ztorch.names.class_names",
    "ztorch.runtime.worker_trials", "ztorch.runtime.result_memory", "ztorch.program.weight_access", "ztorch.program.native_calls",
}
SLOW = {"pathlib", "dataclasses", "csv", "tempfile", "zipfile", "logging", "subprocess", "asyncio",
        "safetensors", "concurrent.futures"}


@pytest.mark.parametrize("trains", [False, True])
def test_a_service_imports_only_modules_for_prediction(tmp_path: Path, trains: bool) -> None:
    """Each module costs a cold start about a third of a millisecond: the list grows on purpose."""
    x, _ = flowers()
    program = trainer("cpu") if trains else zt.Sequential(
        [zt.layers.Input((4,)), zt.layers.Dense(3)]).compile("cpu", batch_size=8)
    program.save(tmp_path / "t.zt")
    np.save(tmp_path / "x.npy", x[:2])
    ran = subprocess.run([sys.executable, "-c", START, tmp_path / "t.zt", tmp_path / "x.npy"],
                         text=True, capture_output=True, check=False,
                         env={**os.environ, "PYTHONPATH": str(Path(zt.__file__).parents[1])})
    assert ran.returncode == 0, ran.stderr
    first, then = (set(line.split()) for line in ran.stdout.splitlines())
    assert first <= {"ztorch", "ztorch.dispatch", "ztorch.version", "__future__"}
    assert {m for m in then if m.startswith("ztorch")} == PREDICTS
    assert not then & SLOW
