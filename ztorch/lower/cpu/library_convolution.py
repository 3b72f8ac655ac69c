"""A convolution by a function of another library, in calls that workers share.

Each call computes some images on one thread, and puts the filters into the order that it likes:
that takes as long as for one image, so a call of one worker has as many images as it can. Their
number depends on the schedule alone, so results have the same bits for any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import split
from ztorch.lower.loop_nest import LoopNest
from ztorch.lower.region import Region
from ztorch.lower.rewrites.library_convolutions import convolves, in_memory, library_axes
from ztorch.lower.schedule import Schedule


@dataclass(frozen=True, repr=False)
class LibraryConvolutionSchedule(Schedule):
    """A convolution by calls of another library."""

    images: int  # of a call, at most

    def tile(self, lanes: int) -> str:
        return f"{self.images}{self.library}"


class OnednnConvolutionSchedule(LibraryConvolutionSchedule):
    """A convolution by oneDNN."""

    kind, library = "onednn_convolution", "onednn"


def propose(schedule: type[LibraryConvolutionSchedule], region: Region,
            limits: Limits) -> LibraryConvolutionSchedule | None:
    """One call for all images; None if the library is not there."""
    s = schedule(region.members[0].shape[0])
    return None if refusal(s, region, limits) else s


def refusal(s: LibraryConvolutionSchedule, region: Region, limits: Limits) -> str:
    """Why a library cannot compute a region by a schedule; empty if it can."""
    if not convolves(s.library, limits):
        return f"{s.library} is not there, or does not convolve"
    images = region.members[0].shape[0]
    return "" if 0 < s.images < 2 * images else f"calls for {s.images} of {images} images"


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: LibraryConvolutionSchedule) -> None:
    """The calls for all images."""
    [y] = region.members
    x, w, *bias = (in_memory(a) for a in y.args)
    assert x is not None and w is not None  # `convolution_on_buffers`
    y_pitches = tuple(math.prod(y.shape[k + 1:]) for k in range(y.rank))
    attrs = {
        "x_pitches": library_axes(x.pitches), "y_pitches": library_axes(y_pitches),
        "w": library_axes(y.args[1].shape, True), "w_pitches": library_axes(w.pitches, True),
        "strides": y.attrs["strides"], "dilations": y.attrs["dilations"],
        "before": y.attrs["low"], "after": y.attrs["high"], "library": s.library}
    for numbers in bias:
        assert numbers is not None
        attrs |= {"bias": memory[numbers.source], "bias_off": numbers.first}
    channels, *extents = library_axes(y.args[0].shape)[1:]
    for run in split(y.shape[0], s.images):
        with b.loop(0, run.count, kind="parallel") as t:
            image = b.add(b.mul(t, run.size), run.start)
            start = b.mul(image, y_pitches[0])
            b.library_convolution(
                target[y], start, memory[x.source], b.mul(image, x.pitches[0]),
                memory[w.source], 0, source_off=x.first, right_off=w.first,
                x=(run.size, channels, *extents), **attrs)
            if y.attrs.get("relu"):
                _cut_off(b, target[y], start, run.size * y_pitches[0], limits.lanes(y.dtype))


def _cut_off(b: Builder, into: str, start: Operand, count: int, lanes: int) -> None:
    """Cuts elements off below zero, in place. NaN stays, which libraries would make zero."""
    whole, tail = divmod(count, lanes)

    def cut(at: Operand, lanes: int) -> None:
        x = b.load(into, at, lanes=lanes)
        b.store(into, at, b.select(b.le(x, 0.0), 0.0, x))

    with b.loop(0, whole) as k:
        cut(b.add(start, b.mul(k, lanes)), lanes)
    with b.loop(whole * lanes, whole * lanes + tail) as k:
        cut(b.add(start, k), 1)


LOOP_NESTS = tuple(LoopNest(s.kind, partial(propose, s), refusal, emit)
                   for s in (OnednnConvolutionSchedule,))
