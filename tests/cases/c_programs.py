"""Shared by the tests of C libraries: a model, Python's answers, and compilers."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ztorch import layers as L
from ztorch.compile.traced_model import TracedModel
from ztorch.model.sequential import Sequential

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None or platform.system() != "Linux",
                               reason="needs gcc, and runs ELF libraries")
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 assembly")
WARN = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
STRICT = (*WARN, "-Wstrict-prototypes", "-Wconversion", "-Wc++-compat", "-Wundef")
LANGUAGES = {"c89": ("gcc", "-std=c89"), "c11": ("gcc", "-std=c11"), "c++": ("g++", "-x", "c++")}


def net(dtype: str = "float32", batch: int = 5, trains: bool = True) -> TracedModel:
    """Uneven in all its sizes; its first product is one that Python's own programs pack."""
    model = Sequential([L.Input((101,)), L.Dense(83, activation="relu"), L.Dropout(0.2),
                        L.Dense(7, activation="softmax")], name="net", seed=5)
    if not trains:
        return model.trace(batch, dtype=dtype)
    return model.trace(batch, "adam", "sparse_categorical_crossentropy", ["accuracy"], dtype)


def run(*command: str | Path, cwd: Path, ok: int | None = 0) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True,
                          timeout=120)
    assert ok is None or done.returncode == ok, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def call(executable: Any, function: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    bound = executable.bind(function)
    for name, array in inputs.items():
        bound.inputs[name][...] = array
    bound()
    return {name: array.copy() for name, array in bound.outputs.items()}


# The driver that calls an exported library, and how many steps of training it makes.
DRIVER = Path(__file__).with_name("c_driver.c")
STEPS = 5
# Names that are not names in C, in assembly or of a file.
HOSTILE = ['a"; drop\n', "größe 3", "3 bears", "int", "*/ #error", "a\\\n#error", "??/", "名前",
           "%s%n", "x" * 300, "zt", "llvm.fma", "_start", "../../etc"]
