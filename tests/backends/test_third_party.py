"""A package beside ours adds a backend by its entry point: tests/machines/third_party."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ztorch.cli import main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = HERE.parent / "machines" / "third_party"


def run(arguments: list[str], *beside: Path) -> subprocess.CompletedProcess[str]:
    """Python in a separate process, which sees packages beside ours."""
    path = os.pathsep.join([str(ROOT), *map(str, beside), *filter(None, sys.path)])
    return subprocess.run([sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path}, text=True,
                          capture_output=True, check=False, cwd=ROOT)


def passed(*selected: str) -> int:
    """How many tests of the backend pass in its process; all must."""
    ran = run(["-m", "pytest", "-p", "no:cacheprovider", *selected], PACKAGE)
    assert ran.returncode == 0, ran.stdout[-3000:]
    count = re.search(r"(\d+) passed", ran.stdout)
    assert count and " skipped" not in ran.stdout
    return int(count[1])


@pytest.mark.slow
def test_it_passes_the_suite_of_the_contract() -> None:
    assert passed("tests/backends/test_contract.py", "-k", "numpydevice") >= 25


PARITY = """
from tests.cases.device_programs import Module
from tests.cases.jobs import jobs
from tests.parity import agree

chosen = [job for op in ("matmul", "softmax", "sort", "conv", "erf", "cumsum") for job in jobs()[op][:2]]
module = Module(chosen, "numpydevice")
for number, job in enumerate(chosen):
    agree(job, module.run(number), terms=20)
print(len(chosen))
"""


@pytest.mark.slow
def test_its_ops_equal_the_oracle() -> None:
    """Two graphs of each op; `test_every_op.py` has them all."""
    ran = run(["-c", PARITY], PACKAGE)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 9


USE = '''
import numpy as np
import ztorch as zt

own = zt.backends.get("numpydevice:0")
x, out = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((3, 3), np.float32)
a, c = own.alloc(48), own.alloc(36)
own.upload(a, x)
own.gemm(3, 3, 4, a, a, c, transpose_b=True, alpha=0.5)
own.download(c, out)
np.testing.assert_array_equal(out, 0.5 * x @ x.T)
assert own.capabilities().supports("attention", "float16") and zt.best_device() != "numpydevice:0"
assert own.capabilities().languages == ("ir",)
code = own.load("""
kernel twice index=i32 exact {
  global m0 f32[12] rw
  %1:i32 = grid_id axis=0
  %2:f32 = load m0[%1]
  %3:f32 = add %2, %2
  store m0[%1], %3
}""", ["twice"])
own.launch(code, "twice", [a], grid=(12,))
twice = np.zeros_like(x)
own.download(a, twice)
np.testing.assert_array_equal(twice, 2 * x)
model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(2)])
there, here = (model.compile(d, batch_size=3).predict(x) for d in ("numpydevice", "cpu"))
np.testing.assert_allclose(there, here, rtol=1e-5)
'''


def test_it_is_a_backend_like_any_other() -> None:
    ran = run(["-W", "error", "-c", USE], PACKAGE)
    assert ran.returncode == 0, ran.stderr
    listed = run(["-m", "ztorch", "devices"], PACKAGE)
    assert "numpydevice:0: NumPy" in listed.stdout
    assert "numpydevice" not in CliRunner().invoke(main, ["devices"]).stdout  # of this process, without the package


def test_packages_that_are_wrong(tmp_path: Path) -> None:
    """They are warned of, and all other devices are there."""
    messages = {("broken", "no_such_module"): "backend broken is broken: ModuleNotFoundError: No module named 'no_such_module'",
                ("Bad_Name", "json"): "the entry point 'Bad_Name' of ztorch.backends (json) is ignored"}
    for name, module in messages:
        (info := tmp_path / f"{name.lower()}-1.0.dist-info").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.lower()}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ztorch.backends]\n{name} = {module}\n")
    ran = run(["-m", "ztorch", "devices"], tmp_path)
    assert ran.returncode == 0 and ran.stdout.startswith("cpu: ")
    for message in messages.values():
        assert message in ran.stderr


def test_it_is_small() -> None:
    files = [f for f in PACKAGE.rglob("*") if f.is_file() and f.suffix != ".pyc"]
    assert 0 < sum(len(f.read_text().splitlines()) for f in files) < 500
