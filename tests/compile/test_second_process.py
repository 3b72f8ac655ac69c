"""What a second process loads, which finds its programs in the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ztorch as zt


def ran_twice(cache: Path, script: str) -> list[list[str]]:
    """The lines that a script prints in a first and in a second process."""
    environment = {"ZTORCH_CACHE": str(cache), "ZTORCH_DEVICE": "cpu", "PATH": ""}
    return [subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True,
                           check=True, cwd=Path(zt.__file__).parents[1]).stdout.split("\n") for _ in range(2)]


def test_a_cached_program_skips_all_compiler_stages(tmp_path: Path) -> None:
    first, second = ran_twice(tmp_path, (
        "import sys, ztorch as zt, numpy as np\n"
        "print((zt.tensor(np.ones(3, np.float32)) * 7.5).sum().numpy())\n"
        "print([m for m in ('jinja2', 'llvmlite', 'ztorch.lower', 'ztorch.compile.pipeline')\n"
        "       if m in sys.modules])"))
    assert first[0] == second[0] == "22.5"
    assert "ztorch.lower" in first[1] and second[1] == "[]"


def test_a_cached_model_loads_no_tables_of_gpus_loops_kernels_or_training(tmp_path: Path) -> None:
    first, second = ran_twice(tmp_path, (
        "import sys, ztorch as zt, numpy as np\n"
        "model = zt.Sequential([zt.layers.Input((2,)), zt.layers.Dense(1, 'relu')])\n"
        "model.compile('cpu', batch_size=1)\n"
        "model.set_weights([np.array([[2.0], [3.0]]), np.array([0.5])])\n"
        "print(model.predict(np.ones((1, 2), np.float32), verbose=0)[0, 0])\n"
        "print([m for m in ('machines.gpus', 'codegen.targets', 'graph.loop', 'ir.kernel', 'backends.device',\n"
        "       'ops.control', 'model.function_graphs', 'model.step') if f'ztorch.{m}' in sys.modules])"))
    assert first[0] == second[0] == "5.5"
    assert "ir.kernel" in first[1] and second[1] == "[]"
