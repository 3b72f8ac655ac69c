"""Kernels that have a ring, by the number of tiles, strips or blocks that pass through it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

from tests.cases.attention import attention
from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.products import transposed, with_units
from tests.parity import plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower.grid.window_tiles import Estimate, GridWindowsSchedule
from ztorch.lower.rewrites import products

HOPPER = TARGETS["cuda:sm_90a"].limits
GIVEN = Estimate(1.0, 1 << 20, GridWindowsSchedule(64, 64, 2, 1, 1, 1, 1, (8, 8)))  # nothing reads the schedule

Kernels = Callable[[int], list[Kernel]]


class Everywhere(dict[str, str]):
    """A schedule of kernels whose names hold a part, whatever their numbers."""

    def __init__(self, text: str, part: str = ""):
        super().__init__()
        self.text, self.part = text, part

    def get(self, name: str, default: Any = None) -> Any:
        return self.text if self.part in name else default

    def __bool__(self) -> bool:
        return True


def scheduled(y: Value, limits: Limits, text: str) -> Kernel:
    """The one kernel of a value that has a schedule."""
    steps = plan_of(Graph({"y": y}), limits, schedules=Everywhere(text, "matmul"))[0].steps
    [kernel] = (s.kernel for s in steps if repr(s.schedule) == text)
    return kernel


def ring(stages: int, teams: int, strips: int, cluster: int, tiles: int, beside: int = 1) -> Kernel:
    """The kernel of a product of which one cluster has so many tiles."""
    rows, columns, k = 64 * teams * cluster * tiles, 128 * beside, 64 * strips
    a, b = leaf("input", "a", (rows, k), f16), leaf("input", "b", (columns, k), f16)
    return scheduled(transposed(a, b), with_units(cluster * beside), f"grid_roles tile(rows={64 * teams}, columns=128) "
                     f"stages({stages}) epilogue(bands=1) cluster(rows={cluster}, columns={beside})")


def shared_tiles(stages: int, teams: int, strips: int, cluster: int, clusters: int, count: int, whole: int = 0) -> Kernel:
    """The kernel of a product of which so many clusters share the tiles."""
    a, b = (leaf("input", n, (size, 64 * strips), f16) for n, size in (("a", 64 * teams * cluster * count), ("b", 128)))
    return scheduled(transposed(a, b), with_units(cluster * clusters), f"grid_stream tile(rows={64 * teams}, columns=128) "
                     f"stages({stages}) epilogue(bands=1) cluster(rows={cluster}, columns=1) whole({whole})")


def rows_of_tiles(stages: int, teams: int, strips: int, cluster: int, beside: int = 1) -> Kernels:
    return lambda count: [ring(stages, teams, strips, cluster, count, beside)]


def rows_of_strips(stages: int, cluster: int) -> Kernels:
    return lambda count: [ring(stages, 2, count, cluster, 2)]


def windows(make: Callable[..., Value], shapes: Callable[[int], tuple], schedule: str, units: int, d: DType = f16) -> Kernels:
    """A convolution of the shapes for a count; of float32 in parts."""
    def of(count: int) -> list[Kernel]:
        text = f"grid_windows tile(rows=64, columns=64) {schedule}"
        if shapes(count)[0][0] == 1:  # an axis of one image is none
            text = text.replace("patch(1, ", "patch(")
        leaves = (leaf("input", f"x{k}", s, d) for k, s in enumerate(shapes(count)))
        limits = with_units(units, "float32" if d is f16 else "high")
        with mock.patch.object(products, "estimated", lambda *_: GIVEN):  # most of the time would go into a search
            return [scheduled(make(*leaves), limits, text)]

    return of


def forward(teams: int, stages: int, causal: bool) -> Kernels:
    """Of attention: for a tile of queries, as many blocks of keys. The first workgroup of causal attention has the
    last tile, which sees all of them."""
    def of(blocks: int) -> list[Kernel]:
        queries = 64 * (blocks if causal else teams)
        graph, _ = attention(1, 1, queries, 64 * blocks, 16, (), causal, backward=False, dtype="bfloat16", more=0)
        return attending(graph, f"grid_attention_roles teams({teams}) block(64) stages({stages})", "_attention")

    return of


def gradients(teams: int, stages: int, causal: bool) -> Kernels:
    """Of attention: the kernel that goes along queries, and the one along keys."""
    def of(blocks: int) -> list[Kernel]:
        graph, _ = attention(1, 1, 64 * blocks, 64 * blocks, 16, (), causal, dtype="bfloat16", more=0)
        text = f"grid_attention_gradient teams({teams}) block(64) stages({stages})"
        return attending(graph, text, "attention_gradient")

    return of


def attending(graph: Graph, text: str, part: str) -> list[Kernel]:
    """The kernels of attention that have a schedule."""
    steps = plan_of(graph, HOPPER, schedules=Everywhere(text, part))[0].parts
    return [s.kernel for s in steps if repr(s.schedule) == text]


class Ring(NamedTuple):
    """Kernels of every count."""

    kernels: Kernels
    period: int  # after so many more, each barrier has had an even number of phases more
    loops: int = 1  # of a workgroup, in each of which the count is the number of trips


def images(make: Callable[..., Value], schedule: str, stages: int, cluster: int = 1, d: DType = f16) -> Ring:
    """Convolutions of images of 8 x 8, one or two for each tile."""
    text = f"stages({stages}) epilogue(bands=1) cluster(rows={cluster}, columns=1) {schedule} patch(1, 8, 8)"
    return Ring(windows(make, lambda n: ((cluster * n, 8, 8, 64), (3, 3, 64, 64)), text, cluster, d), 2 * stages)


RINGS: dict[str, Ring] = {
    **{f"tiles {s}": Ring(rows_of_tiles(*s), 2 * s[0]) for s in (
        *product((2, 3, 4), (2,), (1, 3), (1,)), (3, 1, 3, 1), (2, 1, 2, 2), (3, 2, 1, 2), (4, 2, 3, 2), (3, 1, 3, 4),
        (2, 2, 1, 2, 2), (4, 2, 3, 2, 2))},
    **{f"strips {s}": Ring(rows_of_strips(*s), 2 * s[0], loops=2) for s in product((2, 3, 4), (1, 2))},
    "images": images(same, "taps(1)", 2),
    "images, three taps": images(same, "taps(3)", 3),
    "images of a cluster": images(same, "taps(1)", 2, cluster=2),
    "gradient of images": images(of_images, "taps(3)", 2),
    "images in parts": images(same, "taps(1)", 2, d=f32),
    "images in parts, three taps": images(of_images, "taps(3)", 2, d=f32),
    "gradient of a kernel in parts": Ring(windows(of_kernel, lambda n: ((32, 2 * n, 8, 64), (32, 2 * n, 8, 64)),
                                                  "stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 1, 32)",
                                                  3, f32), 2, loops=3),
    "gradient of a kernel": Ring(windows(of_kernel, lambda n: ((n, 8, 8, 64), (n, 8, 8, 64)),
                                         "stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 8, 8)",
                                         3), 4, loops=3),
    **{f"attention {s}": Ring(forward(*s), 2 * s[1]) for s in ((2, 2, False), (1, 3, False), (2, 2, True), (2, 4, False))},
    **{f"attention gradients {s}": Ring(gradients(*s), 2 * s[1]) for s in ((2, 2, False), (2, 2, True), (1, 3, False))},
}
