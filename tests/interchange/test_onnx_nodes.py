"""ONNX ops against ONNX Runtime, on files of one node. test_onnx_suite.py has every op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.interchange.onnx_files import ours, runtime, single, written
from tests.interchange.onnx_node_cases import CASES, IMAGE, Case, label
from ztorch.interchange.onnx import load

MADE_OF_KNOWN = {"Constant", "ConstantOfShape", "Range", "Shape", "Size"}  # tested further down


@together(of=100)
@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_node(case: Case, tmp_path: Path) -> None:
    agrees(case, tmp_path)


def test_places_of_the_largest_count_all_images_of_a_batch(tmp_path: Path) -> None:
    agrees(Case("MaxPool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 2]}, count=2), tmp_path)


def test_the_edge_of_an_image_is_inside_of_a_crop(tmp_path: Path) -> None:
    """Places are multiples of 1.25 of a column from -1.25 on: the first and the last column are among them."""
    agrees(Case("Resize", [IMAGE], [np.float32([0, 0, 0, -0.25, 1, 1, 1, 1.25]), None, np.array([2, 4, 5, 7])], {
        "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0},
        fixed=True), tmp_path)


def agrees(case: Case, tmp_path: Path) -> None:
    made = single(case.op, case.data, case.known, case.attrs, case.opset, case.count, case.fixed)
    path = written(made, tmp_path / "node.onnx")
    expected = runtime(path, *case.data)
    actual = ours(load(path), *case.data)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
