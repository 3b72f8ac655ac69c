"""The suite of those who write the array API standard, where it can be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITE = importlib.util.find_spec("array_api_tests")
EXCLUSIONS = HERE / "array_api_exclusions.txt"


def test_exclusions_are_ids_of_tests_each_with_a_reason_above() -> None:
    blocks = EXCLUSIONS.read_text().strip().split("\n\n")
    assert blocks[0].startswith("# Tests of array-api-tests")
    for block in blocks[1:]:
        reason = [line for line in block.splitlines() if line.startswith("# ")]
        ids = block.splitlines()[len(reason):]
        assert reason and ids and all(i.startswith("array_api_tests/test_") for i in ids)


@pytest.mark.skipif(SUITE is None, reason="array-api-tests is not on the path")
def test_the_suite_passes_but_for_what_is_excluded() -> None:
    assert SUITE is not None and SUITE.origin
    folder = Path(SUITE.origin).parent.parent
    path = os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "array_api_tests", "-q", "-k", "not imag and not fft",
         "--xfails-file", str(EXCLUSIONS), "--max-examples", "2", "--derandomize",
         "--disable-deadline", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, check=False, env={
            **os.environ, "PYTHONPATH": path, "ARRAY_API_TESTS_MODULE":
            "exec('from tests.arrays.array_api_suite import xp')"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
