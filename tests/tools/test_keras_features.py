"""docs/keras_features.md agrees with the registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import references
from tools.keras_features import page

PAGE = Path(__file__).parents[2] / "docs" / "keras_features.md"


def test_the_page_is_up_to_date() -> None:
    version = references.keras().__version__
    text = PAGE.read_text()
    if f"public name of Keras {version}," not in text:
        pytest.skip(f"the page is of another Keras than {version}")
    assert text == page(), "run: python -m tools.keras_features > docs/keras_features.md"


def test_available_and_missing_devices() -> None:
    text = PAGE.read_text()
    for row in ("| `Dense` | `layers.Dense` |",
                "| `TFSMLayer` | -: code of another framework; bring its model as ONNX |", "| `relu` | `ops.relu` |",
                "| `InputLayer` | `layers.InputLayer` |", "| `MeanSquaredError` | `losses.MeanSquaredError` |",
                "| `set_random_seed` | `utils.set_random_seed` |"):
        assert row in text, row
