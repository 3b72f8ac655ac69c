"""Each script of examples/ runs from any folder and prints the expected output."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {"from_pytorch": "torch", "onnx_in_and_out": "onnx", "schedule_and_plot": "matplotlib"}


def number(pattern: str, text: str) -> float:
    """The number behind a text that the script printed."""
    match = re.search(pattern + r"\s*(-?[\d.]+(?:e[+-]?\d+)?)", text)
    assert match, f"nothing like {pattern!r} in:\n{text}"
    return float(match[1])


def check_first_model(out: str) -> None:
    assert number("test accuracy:", out) > 0.94
    assert 50_000 < float(re.search(r"artifact: ([\d,]+)", out)[1].replace(",", "")) < 400_000  # type: ignore[index]
    guessed, true = re.search(r"guessed (\[.*\]), true (\[.*\])", out).groups()  # type: ignore[union-attr]
    assert sum(a == b for a, b in zip(eval(guessed), eval(true), strict=True)) >= 6


def check_convolution(out: str) -> None:
    assert number("test accuracy:", out) > 0.93
    assert number("epoch  1: loss", out) > 3 * number("epoch 16: loss", out)


def check_two_inputs(out: str) -> None:
    assert number("'same_accuracy':", out) > 0.9 and number("'sum_mae':", out) < 1.3


def check_transformer(out: str) -> None:
    assert number("epoch 5: loss", out) < number("epoch 1: loss", out) - 0.6
    assert number("it has not read:", out) > 0.28
    assert len(out.partition("shall i compare thee")[2].rstrip("\n")) >= 100


def check_custom_parts(out: str) -> None:
    for q in (0.1, 0.5, 0.9):
        assert abs(number(rf"q={q}:", out) - q) < 0.08
        at_zero, exact = map(float, re.findall(rf"q={q}.*gives (\S+), exact (\S+)", out)[0])
        assert abs(at_zero - exact) < 0.2


def check_save_and_resume(out: str) -> None:
    assert "after epoch 3" in out and "was not stopped: True" in out
    assert number("eight epochs: test accuracy", out) > 0.88


def check_c_program(out: str) -> None:
    assert number("rows by C: accuracy", out) > 0.9 and number("from Python by", out) < 1e-5


def check_other_device(out: str) -> None:
    for device in ("cuda:sm_90", "rocm:gfx942", "vulkan", "webgpu", "cpu:neon", "cpu"):
        assert float(re.search(rf"^{device} +([\d,]+) bytes", out, re.M)[1].replace(",", "")) > 20_000  # type: ignore[index]
    assert "x (16, 8, 8, 1) float32" in out and "matmul" in out
    assert number("for this processor: accuracy", out) > 0.9


def check_onnx_in_and_out(out: str) -> None:
    assert number("differs from ztorch by", out) < 1e-5 and number("read back, it differs by", out) < 1e-5
    assert number("more epochs: accuracy", out) > 0.9


def check_schedule_and_plot(out: str) -> None:
    assert number("step  67: rate", out) == 0.004 and number("step 675: rate", out) == 0
    assert max(map(float, re.findall(r"validation accuracy (\S+),", out))) > 0.93
    for name in ("curves.svg", "plan.svg", "run.csv"):
        assert float(re.search(rf"{name}: ([\d,]+) bytes", out)[1].replace(",", "")) > 500  # type: ignore[index]


def check_from_pytorch(out: str) -> None:
    assert number("untrained, it differs by", out) < 1e-4 and number(", differs by", out.splitlines()[-1]) < 1e-2
    assert number("trained by ztorch: accuracy", out) > 0.9 and number("in PyTorch: accuracy", out) > 0.9


def check_training_loop(out: str) -> None:
    assert number("epoch 20: loss", out) < 0.1 and number("epoch 1: loss", out) > 0.3
    assert number("test accuracy:", out) > 0.95


CHECKS: dict[str, Callable[[str], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items())
    if name.startswith("check_")}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_the_example_runs(script: Path, tmp_path: Path) -> None:
    package = NEEDS.get(script.stem)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if script.stem == "c_program" and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    # The same numbers by one thread: others would wait for the processor, since tests run side by side.
    alone = {**os.environ, "PYTHONPATH": str(ROOT), "ZTORCH_THREADS": "1"}
    ran = subprocess.run([sys.executable, str(script)], cwd=tmp_path, text=True, timeout=240, check=False,
                         capture_output=True, env=alone)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, "an example warns"
    assert not list(tmp_path.iterdir()), "an example leaves files where it runs"
    check = CHECKS.get(script.stem)
    assert check, f"add a function check_{script.stem} that checks what the example prints"
    check(ran.stdout)


def test_every_example_is_short_and_checked() -> None:
    assert set(CHECKS) == {script.stem for script in SCRIPTS} and len(SCRIPTS) >= 8
    for script in SCRIPTS:
        lines = script.read_text().splitlines()
        assert 20 <= len(lines) <= 70, f"{script.name} has {len(lines)} lines"
        assert lines[0].startswith('"""')
