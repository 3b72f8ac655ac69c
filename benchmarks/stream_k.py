"""What stream-K could gain, by the performance model of an H200: `python -m benchmarks.stream_k`.

Stream-K gives each unit an equal share of the strips of all tiles, so that no unit is idle in the
last round. A tile whose strips two units share has two partial sums: one writes them to the shared
cache, and the other reads them. All other costs of stream-K are left out, so the gains of this
table are the most that it can have with the tiles that we choose. Products that we divide along k
in whole parts (split-K) include the kernel that adds up the parts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.pipeline import declare_states, plan_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import bf16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.grid.role_tiles import GridRolesSchedule
from ztorch.machines.gpus import gpu
from ztorch.performance.prediction import KernelPrediction, predict_kernel
from ztorch.performance.step import predict_functions

# Rows, columns and k: the sizes of `benchmarks.gpu_predictions`, and others with few rows.
SHAPES = (
    (512, 512, 512), (1024, 1024, 1024), (64, 4096, 4096), (256, 8192, 4096), (4096, 4096, 512),
    (128, 4096, 4096), (384, 4096, 4096), (512, 4096, 4096), (512, 768, 3072), (320, 1280, 5120),
    (640, 2560, 2560), (640, 5120, 1280), (8192, 512, 1024))
ENDS = 0.9e-6  # seconds until the first strip has arrived, and from the last to the end of a tile
MEETING = 700  # cycles in which a number that one unit stores arrives at another
ROW, TARGET = gpu("H200"), target("cuda:sm_90a")


class Compared(NamedTuple):
    """A product as it is, and with equal shares."""

    parts: int  # along k
    tiles: int  # of all parts
    tile: str
    seconds: float
    stream_seconds: float


def compare(m: int, n: int, k: int) -> Compared:
    """The time of a product of bfloat16, and the least with equal shares of its tiles' strips."""
    a, b = leaf("input", "a", (m, k), bf16), leaf("input", "b", (k, n), bf16)
    functions = {"y": Graph({"y": ops.matmul(a, b)})}
    plan = plan_functions(functions, TARGET, declare_states(functions, TARGET), Watch())["y"]
    step = plan.steps[0]
    s = step.schedule
    assert isinstance(s, GridRolesSchedule)
    kernel, grid = in_words(step.kernel, TARGET, Kernels(TARGET).words)
    predicted = predict_kernel(kernel, grid, ROW)
    [result] = [x for x in step.kernel.memories if x.space == "global" and x.access != "r"]
    parts = result.size // (m * n)
    tiles = parts * math.ceil(m / s.tile_rows) * math.ceil(n / s.tile_columns)
    whole = predict_functions(functions, TARGET, ROW, cached=False)["y"]
    seconds = whole.seconds - ROW.step_us * 1e-6
    return Compared(parts, tiles, f"{s.tile_rows} x {s.tile_columns}", seconds,
                    _with_equal_shares(predicted, s.tile_rows * s.tile_columns, tiles))


def _with_equal_shares(predicted: KernelPrediction, size: int, tiles: int) -> float:
    """The least seconds of one launch with equal shares: of the rounds of tiles, with the partial
    sums of a tile of `size` numbers on their way through the shared cache."""
    busy = max(predicted.parts["latency"], predicted.parts["load/store"]) - ENDS
    shares = busy / math.ceil(tiles / ROW.units) * tiles / ROW.units
    moved = 2 * size * f32.bytes / (ROW.l2_gb_s * 1e9 / ROW.units)
    meeting = moved + 2 * MEETING / (ROW.clock_ghz * 1e9) if tiles % ROW.units else 0.0
    return ROW.launch_us * 1e-6 + max(
        shares + ENDS + meeting, predicted.parts["memory"], predicted.parts["l2"])


def main() -> None:
    """Prints a row for each shape."""
    print("| rows x columns x k | parts, tiles | tile | as it is | stream-K |")
    print("| --- | --- | --- | --- | --- |")
    for shape in SHAPES:
        c = compare(*shape)
        print(f"| {' x '.join(map(str, shape))} | {c.parts}, {c.tiles} | {c.tile} | "
              f"{c.seconds * 1e6:.1f} us | {c.stream_seconds * 1e6:.1f} us |")


if __name__ == "__main__":
    main()
