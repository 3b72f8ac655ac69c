"""Convolutions by cuDNN; recorded as parts of graphs.

The library's rules list engines for an operation, and the first one that is as exact as ours and
makes a plan is taken. Our filters lie with the window first. If no engine reads them there, they
are copied for each call into the order that all engines read, in a workspace, which the engine may
need, too.
"""

from __future__ import annotations

import ctypes
import json
import math
from typing import NamedTuple

from ztorch.abi import LIBRARY_CALL, align_up
from ztorch.backends.cublaslt import BUFFER_ALIGN
from ztorch.backends.cudnn import (
    DATA_TYPE,
    DESCRIPTOR,
    FLOAT,
    HANDLE,
    INT64,
    NOTE,
    POINTER,
    RULES,
    WAY,
    Cudnn,
    Descriptors,
    NoEngine,
)
from ztorch.errors import DeviceError

# The values of enumerations in cudnn_graph.h: types of descriptors,
_CONVOLUTION, _ENGINE, _CONFIG, _HEURISTICS, _PLAN, _FORWARD = 1, 2, 3, 4, 5, 10
_FILTER_GRADIENT, _IMAGE_GRADIENT = 11, 12
_GRAPH, _VARIANT, _TENSOR = 15, 16, 17
# and names of attributes.
_COMPUTES, _WINDOW, _DILATIONS, _STRIDES, _AFTER, _BEFORE, _AXES = range(100, 107)
_RULE, _RULES_GRAPH, _RESULTS, _CONFIG_ENGINE = 200, 201, 202, 300
_PLAN_HANDLE, _PLAN_CONFIG, _WORKSPACE_SIZE = 400, 401, 402
_GRAPH_HANDLE, _OPERATIONS, _NOTES = 800, 801, 1303
_ALIGNMENT, _OF, _EXTENTS, _PITCHES, _TENSOR_ID = 900, 901, 902, 903, 906
_IDS, _POINTERS, _WORKSPACE = 1000, 1001, 1003
# alpha, beta, the convolution, and the tensors w, x and y, one of which is the result.
_OPERANDS = {_FORWARD: range(700, 706), _IMAGE_GRADIENT: range(706, 712),
             _FILTER_GRADIENT: range(712, 718)}
_TYPES = {"f32": 0, "f16": 2, "bf16": 9}  # CUDNN_DATA_...
_MIRRORED, _PLAIN = 0, 1  # CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION
_BY_MODEL = 3  # CUDNN_HEUR_MODE_A
_MOST_CONFIGS, _MOST_NOTES = 16, 16
# Numerical notes of engines that are left out: those that convert operands, reduce in fewer bits,
# have other bits in each run, or use Fourier transforms or large Winograd tiles. With all bits of
# float32, also those that use tensor cores; where transforms are forbidden, all of Winograd's.
_INEXACT, _TENSOR_CORES, _WINOGRAD = frozenset({1, 2, 3, 4, 8}), 0, frozenset({5, 6, 7, 8})
MOST_WORKSPACE = 1 << 28  # bytes
_X, _W, _Y = 1, 2, 3  # ids of tensors


class ConvolutionCall(NamedTuple):
    """A convolution as the code of a program describes it: attributes of `library_convolution`."""

    y: tuple[int, ...]  # extents: images, filters, and positions of the window
    x: tuple[int, ...]
    w: tuple[int, ...]
    y_pitches: tuple[int, ...]
    x_pitches: tuple[int, ...]
    w_pitches: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    mirrored: bool
    swapped: bool  # the gradient of filters: y, from images x and slopes w, channels first
    starts: tuple[int, int, int]  # of y, x and w in their buffers, in bytes
    dtypes: tuple[str, str]  # of y, and of x and w
    mantissa_bits: int  # of float32 operands that count
    transforms: bool  # whether engines may transform operands
    places: tuple[int, int, int]  # numbers of y, x and w among the buffers of a launch


def convolution_call(image: bytes) -> ConvolutionCall | None:
    """The convolution that a part of a program's code describes; None if it is something else."""
    fields = json.loads(image[len(LIBRARY_CALL):]) if image.startswith(LIBRARY_CALL) else {}
    if "strides" not in fields:
        return None
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return ConvolutionCall(**fields)


class _TensorOfCall(NamedTuple):
    """A tensor of an operation."""

    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    dtype: str
    align: int  # bytes


class LoadedConvolution:
    """A convolution with its plan.

    Args:
        library: The library.
        handle: Its handle in the current context.
        call: The convolution.
    """

    def __init__(self, library: Cudnn, handle: ctypes.c_void_p, call: ConvolutionCall):
        self.library, self.handle, self.convolution = library, handle, call
        self._descriptors = Descriptors(library)
        try:
            self._describe()
        except DeviceError:
            self.close()
            raise

    def _describe(self) -> None:
        c = self.convolution
        if c.mantissa_bits not in (23, 10) or not {*c.dtypes} <= _TYPES.keys():
            raise DeviceError(f"cuDNN has no convolutions of {c.dtypes[1]} with {c.mantissa_bits} "
                              "bits of mantissa here")
        into, of = c.dtypes
        y, x, w = (_TensorOfCall(extents, pitches, d, math.gcd(BUFFER_ALIGN, start))
                   for extents, pitches, d, start in (
                       (c.y, c.y_pitches, into, c.starts[0]), (c.x, c.x_pitches, of, c.starts[1]),
                       (c.w, c.w_pitches, of, c.starts[2])))
        self.before, self.after, self.operation = c.before, c.after, _FORWARD
        self.strides, self.dilations = c.strides, c.dilations
        # A mirrored window, moved by single steps, is the gradient of images: y, from slopes x.
        reach = [(n - 1) * d for n, d in zip(c.w[2:], c.dilations, strict=True)]
        ends = [tuple(r - n for r, n in zip(reach, end, strict=True))
                for end in (c.before, c.after)]
        if c.swapped:
            self.strides, self.dilations, self.operation = c.dilations, c.strides, _FILTER_GRADIENT
            w, x, y = _swapped(y), _swapped(x), _swapped(w)
        elif c.mirrored and set(c.strides) == {1} and min(*ends[0], *ends[1]) >= 0:
            self.before, self.after, self.operation = *ends, _IMAGE_GRADIENT
            w, x, y = _swapped(w), y, x
        ordered = w._replace(pitches=_channels_last(w.extents), align=BUFFER_ALIGN)
        self.plan, self.copied = self._planned(x, w, y), 0
        if self.plan is None:
            self.plan = self._planned(x, ordered, y)
            self.copied = math.prod(w.extents) * (4 if w.dtype == "f32" else 2)
            self._copies = [self._descriptors.copied(_TYPES[w.dtype], part.extents, part.pitches)
                            for part in (w, ordered)]
        if self.plan is None:
            raise NoEngine(f"cuDNN {self.library.version} has no engine for images {c.x} and "
                           f"filters {c.w} of {of}")
        [engine] = self._descriptors.numbers(self.plan, _WORKSPACE_SIZE, INT64)
        # Bytes that a call writes besides its result.
        self.workspace = align_up(self.copied, BUFFER_ALIGN) + engine

    def _planned(self, x: _TensorOfCall, w: _TensorOfCall,
                 y: _TensorOfCall) -> ctypes.c_void_p | None:
        """A plan for the operation; None if the library or all its engines refuse it."""
        try:
            configs = self._configs(x, w, y)
        except NoEngine:
            return None
        return next((plan for config in configs if self._is_exact(config)
                     and (plan := self._plan_of(config)) is not None), None)

    def _configs(self, x: _TensorOfCall, w: _TensorOfCall,
                 y: _TensorOfCall) -> list[ctypes.c_void_p]:
        """The engines that the rules list for the operation."""
        c, f32 = self.convolution, _TYPES["f32"]
        window = self._descriptors.made(
            _CONVOLUTION, (_COMPUTES, DATA_TYPE, [f32]),
            (_WINDOW, WAY, [_MIRRORED if c.mirrored and self.operation == _FORWARD else _PLAIN]),
            (_AXES, INT64, [len(c.strides)]), (_DILATIONS, INT64, self.dilations),
            (_STRIDES, INT64, self.strides), (_BEFORE, INT64, self.before),
            (_AFTER, INT64, self.after))
        tensors = [self._descriptors.made(
            _TENSOR, (_TENSOR_ID, INT64, [number]), (_OF, DATA_TYPE, [_TYPES[part.dtype]]),
            (_ALIGNMENT, INT64, [part.align]), (_EXTENTS, INT64, part.extents),
            (_PITCHES, INT64, part.pitches)) for number, part in ((_W, w), (_X, x), (_Y, y))]
        names = _OPERANDS[self.operation]
        operation = self._descriptors.made(
            self.operation, (names[0], FLOAT, [1.0]), (names[1], FLOAT, [0.0]),
            *((name, DESCRIPTOR, [made]) for name, made in zip(
                names[2:], (window, *tensors), strict=True)))
        graph = self._descriptors.made(
            _GRAPH, (_GRAPH_HANDLE, HANDLE, [self.handle]), (_OPERATIONS, DESCRIPTOR, [operation]))
        rules = self._descriptors.made(
            _HEURISTICS, (_RULES_GRAPH, DESCRIPTOR, [graph]), (_RULE, RULES, [_BY_MODEL]))
        return self._descriptors.parts(rules, _RESULTS, _CONFIG, _MOST_CONFIGS)

    def _is_exact(self, config: ctypes.c_void_p) -> bool:
        """Whether an engine computes as exactly as our kernels, with the same bits in each run."""
        [engine] = self._descriptors.parts(config, _CONFIG_ENGINE, _ENGINE, 1)
        notes = {*self._descriptors.numbers(engine, _NOTES, NOTE, _MOST_NOTES)}
        c = self.convolution
        exact = c.dtypes[1] == "f32" and c.mantissa_bits == 23
        return not notes & (_INEXACT | ({_TENSOR_CORES} if exact else set())
                            | (frozenset() if c.transforms else _WINOGRAD))

    def _plan_of(self, config: ctypes.c_void_p) -> ctypes.c_void_p | None:
        try:
            plan = self._descriptors.made(_PLAN, (_PLAN_HANDLE, HANDLE, [self.handle]),
                                          (_PLAN_CONFIG, DESCRIPTOR, [config]))
        except NoEngine:  # not this one, after all
            return None
        [size] = self._descriptors.numbers(plan, _WORKSPACE_SIZE, INT64)
        return plan if size <= MOST_WORKSPACE else None

    def enqueue(self, addresses: tuple[int, ...], queue: int, workspace: int = 0) -> None:
        """Submits the convolution to a stream, which may be capturing.

        Args:
            addresses: Of the buffers of a launch, in its order.
            queue: The stream.
            workspace: The address of as many bytes as the call writes. Default: `0`, for none.
        """
        c, call = self.convolution, self.library.call
        y, x, w = (addresses[place] + start for place, start in zip(
            c.places, c.starts, strict=True))
        if self.operation == _IMAGE_GRADIENT:
            x, y = y, x
        if self.operation == _FILTER_GRADIENT:
            w, y = y, w
        filters = workspace if self.copied else w
        call("SetStream", self.handle, queue)
        if self.copied and self.operation != _FILTER_GRADIENT:
            self._copy(w, filters)
        before = len(self._descriptors)
        variant = self._descriptors.made(
            _VARIANT, (_IDS, INT64, [_X, _W, _Y]),
            (_POINTERS, POINTER, [x, filters, y]),
            (_WORKSPACE, POINTER, [workspace + align_up(self.copied, BUFFER_ALIGN)]))
        try:
            call("BackendExecute", self.handle, self.plan, variant)
        finally:
            self._descriptors.give_back(before)
        if self.copied and self.operation == _FILTER_GRADIENT:
            self._copy(filters, w, back=True)

    def _copy(self, source: int, target: int, back: bool = False) -> None:
        """Copies filters into the engine's order, or back."""
        ours, theirs = self._copies
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self.library.call("TransformTensor", self.handle, ctypes.byref(one),
                          theirs if back else ours, source, ctypes.byref(zero),
                          ours if back else theirs, target)

    def close(self) -> None:
        """Gives the descriptors back. A second call does nothing."""
        self._descriptors.give_back()


def _swapped(part: _TensorOfCall) -> _TensorOfCall:
    """A tensor whose first two axes have changed places."""
    (k, c, *window), (k_pitch, c_pitch, *pitches) = part.extents, part.pitches
    return part._replace(extents=(c, k, *window), pitches=(c_pitch, k_pitch, *pitches))


def _channels_last(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The pitches of dense filters whose channels are contiguous."""
    _, channels, *window = extents
    pitches = [channels * math.prod(window[k + 1:]) for k in range(len(window))]
    return (channels * math.prod(window), 1, *pitches)
