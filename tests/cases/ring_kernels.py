"""Kernels that have a ring, by the number of tiles, strips or blocks that pass through it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

from tests.cases.attention import attention
from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.products import transposed, with_units
from tests.parity import plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits

HOPPER = TARGETS["cuda:sm_90a"].limits
AHEAD = 2  # blocks of which a team of attention has the scores before its loop over the others

Kernels = Callable[[int], list[Kernel]]


def scheduled(y: Value, limits: Limits, text: str) -> Kernel:
    """The one kernel of a value, by a schedule."""
    graph = Graph({"y": y})
    [step] = plan_of(graph, limits)[0].steps
    [step] = plan_of(graph, limits, schedules={step.key: text})[0].steps
    assert repr(step.schedule) == text
    return step.kernel


def ring(stages: int, teams: int, strips: int, cluster: int, tiles: int, beside: int = 1) -> Kernel:
    """The kernel of a product of which one cluster has so many tiles."""
    rows, columns, k = 64 * teams * cluster * tiles, 128 * beside, 64 * strips
    a, b = leaf("input", "a", (rows, k), f16), leaf("input", "b", (columns, k), f16)
    return scheduled(transposed(a, b), with_units(cluster * beside), f"grid_roles tile(rows={64 * teams}, columns=128) "
                     f"stages({stages}) epilogue(bands=1) cluster(rows={cluster}, columns={beside})")


def rows_of_tiles(stages: int, teams: int, strips: int, cluster: int, beside: int = 1) -> Kernels:
    return lambda count: [ring(stages, teams, strips, cluster, count, beside)]


def rows_of_strips(stages: int, cluster: int) -> Kernels:
    return lambda count: [ring(stages, 2, count, cluster, 2)]


def windows(make: Callable[..., Value], shapes: Callable[[int], tuple], schedule: str, units: int) -> Kernels:
    """A convolution of the shapes for a count."""
    def of(count: int) -> list[Kernel]:
        text = f"grid_windows tile(rows=64, columns=64) {schedule}"
        if shapes(count)[0][0] == 1:  # an axis of one image is none
            text = text.replace("patch(1, ", "patch(")
        leaves = (leaf("input", f"x{k}", s, f16) for k, s in enumerate(shapes(count)))
        return [scheduled(make(*leaves), with_units(units), text)]

    return of


def forward(teams: int, stages: int, causal: bool) -> Kernels:
    """Of attention: for a tile of queries, as many blocks of keys."""
    def of(blocks: int) -> list[Kernel]:
        graph, _ = attention(1, 1, 64 * teams, 64 * blocks, 16, (), causal, backward=False, dtype="bfloat16", more=0)
        key = plan_of(graph, HOPPER)[0].steps[-1].key
        text = f"grid_attention_roles teams({teams}) block(64) stages({stages})"
        return [plan_of(graph, HOPPER, schedules={key: text})[0].steps[-1].kernel]

    return of


def gradients(teams: int, stages: int, causal: bool) -> Kernels:
    """Of attention: the kernel that goes along queries, and the one along keys."""
    def of(blocks: int) -> list[Kernel]:
        graph, _ = attention(1, 1, 64 * blocks, 64 * blocks, 16, (), causal, dtype="bfloat16", more=0)
        steps = plan_of(graph, HOPPER)[0].steps
        texts = {s.key: re.sub(r"teams\(\d\)(.*)stages\(\d\)", rf"teams({teams})\1stages({stages})", repr(s.schedule))
                 for s in steps if s.schedule is not None and s.schedule.kind == "grid_attention_gradient"}
        steps = plan_of(graph, HOPPER, schedules=texts)[0].steps
        return [s.kernel for s in steps if s.schedule is not None and s.schedule.kind == "grid_attention_gradient"]

    return of


RINGS: dict[str, tuple[Kernels, int]] = {
    **{f"tiles {s}": (rows_of_tiles(*s), 0) for s in (
        *product((2, 3, 4), (2,), (1, 3), (1,)), (3, 1, 3, 1), (2, 1, 2, 2), (3, 2, 1, 2), (4, 2, 3, 2), (3, 1, 3, 4),
        (2, 2, 1, 2, 2), (4, 2, 3, 2, 2))},
    **{f"strips {s}": (rows_of_strips(*s), 0) for s in product((2, 3, 4), (1, 2))},
    "images": (windows(same, lambda n: ((n, 8, 8, 64), (3, 3, 64, 64)),
                       "stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 8, 8)", 1), 0),
    "images, three taps": (windows(same, lambda n: ((n, 8, 8, 64), (3, 3, 64, 64)),
                                   "stages(3) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(1, 8, 8)", 1), 0),
    "images of a cluster": (windows(same, lambda n: ((2 * n, 8, 8, 64), (3, 3, 64, 64)),
                                    "stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(1, 8, 8)", 2), 0),
    "gradient of images": (windows(of_images, lambda n: ((n, 8, 8, 64), (3, 3, 64, 64)),
                                   "stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(1, 8, 8)", 1), 0),
    "gradient of a kernel": (windows(of_kernel, lambda n: ((n, 8, 8, 64), (n, 8, 8, 64)),
                                     "stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 8, 8)", 1), 0),
    **{f"attention {s}": (forward(*s), AHEAD) for s in ((2, 2, False), (1, 3, False), (2, 2, True), (2, 4, False))},
    **{f"attention gradients {s}": (gradients(*s), AHEAD) for s in ((2, 2, False), (2, 2, True), (1, 3, False))},
}
