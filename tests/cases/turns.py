"""Which cases of a product a run of the whole suite takes, in turn.

The tests of `PARTS` try each entry of a registry on each machine, dtype or schedule, and each of their
cases has relatives: the same op on another machine, another op in the same loop. A run takes one in
three of them, or in seven, and the next day's run the next ones: after so many days all were met. The number
of the day can be given, `ZTORCH_TURN=0`; `--full` and `ZTORCH_TURN=all` take everything. So does a run
that names files or cases: nothing is left out of what was asked for, nor of the inner loop.

Tests of one item that groups many cases take turns among these.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

from tests.cases.grouping import group_of

# A folder, a file or a test, and in how many parts its cases are cut. The longest name that fits counts.
# Tests whose cases are each about something else, such as those of examples and messages, take no turns.
PARTS: dict[str, int] = {
    **dict.fromkeys((  # ops on machines in every run: samples and dtypes take turns (`jobs.sharing`)
        "tests/backends/test_every_op.py::test_op", "tests/backends/test_cuda.py::test_every_op",
        "tests/backends/test_rocm.py::test_every_op", "tests/codegen/c/test_programs.py::test_every_op",
        "tests/codegen/metal/test_text.py::test_every_op", "tests/lower/test_every_op.py::test_op"), 1),
    **dict.fromkeys((  # many cases, such as ops and layers of all kinds on many machines
        "tests/arrays/test_array_api.py", "tests/arrays/test_ops_on_arrays.py",
        "tests/artifact/test_c_export.py", "tests/artifact/test_c_sizes.py", "tests/artifact/test_web.py",
        "tests/backends/test_cuda.py", "tests/backends/test_every_op.py", "tests/backends/test_opcodes.py",
        "tests/backends/test_recurrent.py", "tests/backends/test_rocm.py", "tests/backends/test_vectors.py",
        "tests/backends/test_zoo.py", "tests/codegen/c", "tests/codegen/c/test_programs.py",
        "tests/codegen/metal", "tests/codegen/ptx", "tests/codegen/rocm", "tests/codegen/test_cross.py",
        "tests/codegen/test_cuda_kernels.py", "tests/codegen/test_cuda_values.py",
        "tests/codegen/test_gpu_opcodes.py", "tests/codegen/test_ptx.py", "tests/codegen/test_render.py",
        "tests/codegen/test_spirv.py", "tests/interchange/test_onnx_layers.py",
        "tests/interchange/test_onnx_torch.py", "tests/interchange/test_torch_export.py", "tests/kernels",
        "tests/layers/test_augmentation.py", "tests/layers/test_bad_arguments.py",
        "tests/layers/test_convolution.py", "tests/layers/test_cross_attention.py",
        "tests/layers/test_pooling.py", "tests/layers/test_recurrent_training.py", "tests/layers/test_twins.py",
        "tests/layers/test_warps_and_colors.py", "tests/lower", "tests/machines/metal", "tests/machines/ptx",
        "tests/machines/rocm", "tests/model/test_mixed_kernels.py", "tests/ops/test_every_dtype.py",
        "tests/ops/test_every_op.py", "tests/ops/test_indexing.py", "tests/ops/test_normals.py",
        "tests/ops/test_sorting.py", "tests/ops/test_windows.py", "tests/optimizers/test_optimizers.py",
        "tests/program/test_batch_sizes.py", "tests/program/test_generate.py",
        "tests/program/test_image_sizes.py", "tests/program/test_memory_limit.py",
        "tests/program/test_ragged_training.py", "tests/program/test_sequence_sizes.py",
        "tests/test_benchmarks.py", "tests/test_keras_scripts.py::test_a_port_learns_as_well_as_the_original",
        "tests/test_wrong_calls.py", "tests/verify/test_verify.py", "tests/zoo/test_vs_torch.py",
        "tests/zoo/test_zoo.py"), 7),
    **dict.fromkeys((  # fewer cases: dtypes, devices, optimizers, families of models, sizes of one algorithm
        "tests/arrays/test_array_api_shapes.py", "tests/arrays/test_complex_gradients.py",
        "tests/arrays/test_device_dtypes.py", "tests/arrays/test_vmap.py",
        "tests/arrays/test_complex_tensors.py::test_devices_compute_them",
        "tests/arrays/test_control.py::test_on_a_device", "tests/arrays/test_devices.py",
        "tests/arrays/test_program_calls.py::test_open_axes_take_tensors_of_one_size",
        "tests/arrays/test_program_feed.py", "tests/backends/test_limits.py",
        "tests/backends/test_vulkan.py::test_a_leak_would_be_detected",
        "tests/codegen/test_nvrtc.py::test_every_opcode_is_accepted", "tests/codegen/test_sass.py",
        "tests/feed/test_larger_batches.py::test_the_history_is_that_of_keras", "tests/graph/test_loop.py",
        "tests/interchange/test_keras_applications.py::test_families",
        "tests/interchange/test_onnx_constants.py", "tests/interchange/test_onnx_export.py::test_every_op",
        "tests/interchange/test_onnx_export.py::test_the_zoo", "tests/ir/test_async_products.py",
        "tests/ir/test_halves.py", "tests/ir/test_polynomial_ends.py", "tests/ir/test_polynomials.py",
        "tests/ir/test_safe.py", "tests/layers/test_attention_training.py",
        "tests/layers/test_recurrent.py::test_compiled_code_agrees_with_the_oracle",
        "tests/layers/test_safe_layers.py", "tests/library", "tests/model/test_lengths_of_batches.py",
        "tests/model/test_mixed.py",
        "tests/model/test_policies.py", "tests/model/test_vs_torch.py",
        "tests/model/wrong_models/test_any_shape.py", "tests/ops/test_attention.py::test_compiled",
        "tests/ops/test_cumulative.py::test_every_dtype_compiled", "tests/ops/test_fourier.py",
        "tests/ops/test_linear_algebra.py", "tests/ops/test_safe_numbers.py", "tests/ops/test_phases.py",
        "tests/ops/test_singular.py",
        "tests/program/test_beams.py::test_the_best_of_the_beams",
        "tests/program/test_padding_and_masks.py::test_masks_that_travel_and_padding_hide_steps_together",
        "tests/runtime/test_remote.py",
        "tests/training/test_remote_stretches.py::test_the_same_bits_as_batch_by_batch",
        "tests/training/test_stretches.py::test_the_same_bits_as_batch_by_batch"), 3),
}


def parts_of(test: str) -> int:
    """In how many parts the cases of a test are cut.

    >>> parts_of("tests/test_house.py::test_floors")
    1
    """
    fitting = [name for name in PARTS if test == name or test.startswith((f"{name}/", f"{name}::"))]
    return PARTS[max(fitting, key=len)] if fitting else 1


def diagonals(members: Iterable[pytest.Item]) -> list[int]:
    """A number for each item of a test: the diagonal on which it is, where the first word of its name is the
    row. So one machine takes other ops than the next.

    >>> from types import SimpleNamespace
    >>> diagonals([SimpleNamespace(nodeid=f"f[{name}]") for name in ("a-x", "a-y", "b-x", "b-y")])
    [0, 1, 1, 2]
    """
    rows: dict[str, list[int]] = {}
    result = []
    for item in members:
        row = rows.setdefault(item.nodeid.partition("[")[2].rstrip("]").partition("-")[0], [len(rows), 0])
        result.append(sum(row))
        row[1] += 1
    return result


def left_for_other_days(items: Iterable[pytest.Item], turn: int) -> set[pytest.Item]:
    """The items that are not of this turn. A group that is a test's only item loses its other cases."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for test, members in tests.items():
        parts = parts_of(test)
        first = turn + zlib.crc32(test.encode())  # else the slow cases, often a test's last, would meet
        if len(members) > 1:
            left.update(item for item, at in zip(members, diagonals(members), strict=True)
                        if (at - first) % min(parts, len(members)))
        elif (group := group_of(members[0])) is not None:
            group.keep(first, min(parts, len(group)))
    return left
