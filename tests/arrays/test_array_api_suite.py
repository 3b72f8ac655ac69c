"""The exclusions from the array API standard's own suite, which `.ci/array_api` runs."""

from __future__ import annotations

from pathlib import Path

EXCLUSIONS = Path(__file__).parent / "array_api_exclusions.txt"


def test_exclusions_are_ids_of_tests_each_with_a_reason_above() -> None:
    blocks = EXCLUSIONS.read_text().strip().split("\n\n")
    assert blocks[0].startswith("# Tests of array-api-tests")
    for block in blocks[1:]:
        reason = [line for line in block.splitlines() if line.startswith("# ")]
        ids = block.splitlines()[len(reason):]
        assert reason and ids and all(i.startswith("array_api_tests/test_") for i in ids)
