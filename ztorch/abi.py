"""The binary interface between compiled code and the process that runs it: alignments, and the
control block that synchronizes the workers of a CPU program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Alignment in bytes of every state, constant, arena buffer, input and output. It is the width of
# the widest vector (AVX-512), so aligned loads are always allowed.
BUFFER_ALIGN = 64

# Blocks of at least PAGED_BYTES start at a page. A processor compares the addresses of loads and
# stores by their last 12 bits; a load waits when a store to another block has the same bits.
PAGED_BYTES = 1 << 14
PAGE = 1 << 12

# Bytes of a cache line. A number that one thread writes and another polls has its own line;
# otherwise each write would disturb its neighbors.
CACHE_LINE = 64

# A device gets all inputs in one buffer and all outputs in another. Each starts at a multiple of
# this many bytes: Vulkan and WebGPU devices may require up to 256 for a bound range, and AMD's
# code assumes 256.
PORT_ALIGN = 256

# The one argument of a compiled function is an array of these addresses. The control block is null
# for one worker; `steps` is a record of STEPS, for batch after batch.
FRAME_SLOTS = {name: k for k, name in enumerate(
    ("inputs", "outputs", "params", "arena", "control", "steps"))}

# CPython calls compiled code through one native function object. It holds a record that describes
# the program to run.
BYTES_HEAD = bytes.__basicsize__ - 1  # size of a bytes object, without contents and final zero
TYPE_AT = object.__basicsize__ - 8  # offset of an object's type pointer
LENGTH_AT = object.__basicsize__  # offset of a length (bytes, tuple, list) or of a float's value
ITEMS_AT = tuple.__basicsize__  # offset of the first item of a tuple
LIST_AT = LENGTH_AT + 8  # offset of a list's pointer to its items
PYTHON_CALL = "zt.python_call"  # symbol of the native function
_NUMBERS = ("stack", "inputs", "outputs", "entries", "given", "steps", "results", "builds",
            "node_spec", "node_block", "node_call", "node_operands", "node_index", "node_depth",
            "node_siblings", "tensor_node", "block_place", "cell_node")
_POINTERS = ("code", "params", "arena", "as_address", "new_bytes", "keep", "give_up", "dict_get",
             "dict_size", "dict_set", "new_object", "new_tuple", "new_list", "new_dict", "equal",
             "unlock", "lock", "sharing", "bytes_type", "float_type", "node_type", "tensor_type",
             "none", "yes", "other", "empty", "zero")
PYTHON_RECORD = {**dict.fromkeys(_NUMBERS, "i64"), **dict.fromkeys(_POINTERS, "ptr")}
# The symbol of the function that records calls of one op, the fields of its record, and from how
# many operands on it leaves a call to the general path.
PYTHON_RECORDING = "zt.python_record"
RECORDING_RECORD = {
    **dict.fromkeys(("places", "unpacks", "most_depth", "node_spec", "node_block", "node_call",
                     "node_operands", "node_index", "node_depth", "node_siblings", "tensor_node",
                     "call_quick", "call_single", "call_result", "call_results"), "i64"),
    **dict.fromkeys(("table", "name", "eager", "keep", "give_up", "dict_get", "new_object",
                     "new_tuple", "new_list", "new_weak", "as_long", "from_long", "list_type",
                     "tuple_type", "node_type", "tensor_type", "none", "yes", "other", "zero"),
                    "ptr")}
MOST_RECORDED_OPERANDS = 1 << 10  # of one recorded call
# The steps that read its arguments, and the steps that build its result.
PYTHON_STEPS = {name: k for k, name in enumerate((
    "slot", "constant", "key", "same", "entry", "kind", "tuple", "list", "dict", "number",
    "references", "block"))}
PYTHON_BUILDS = {name: k for k, name in enumerate(("leaf", "tuple", "list", "dict"))}
# Its record for sharing runs with workers: their control block, C's clock_gettime, the number of
# runs, nanoseconds of runs that found the workers asleep, runs for which it skips the workers (now
# and next time), nanoseconds saved by sharing, and nanoseconds of a run on one thread.
SHARING = {"control": "ptr", "clock": "ptr", **dict.fromkeys(
    ("runs", "missed", "rest", "penalty", "gained", "seconds"), "i64")}
# Awake workers share its runs. Sleeping workers are woken after `most_missed` nanoseconds of runs,
# about ten times the cost of waking them. In each cycle of runs, the last `compared` use one
# thread, for comparison. Sharing may lose `most_lost` times the duration of such a run before it
# pauses, for `least_rest` to `most_rest` runs. At most `most_gained` of the gain counts.
SHARING_RULE = {"most_missed": 100_000, "cycle": 1024, "compared": 4, "most_lost": 16,
                "least_rest": 64, "most_rest": 1 << 16, "most_gained": 1024}
# Deleters of lent DLPack tensors, before and since DLPack 1.0, each with the offset in bytes of the
# context in its structure.
DLPACK_DELETERS = {"zt.give_back": 48, "zt.give_back_versioned": 8}

WASM_ARCH = "wasm32"  # the instruction set of code that browsers run on the CPU

# Follows the number in the name of a kernel that runs a second time in a call, to avoid storing its
# results: k7again_dense_matmul.
AGAIN = "again"


def alignment(nbytes: int) -> int:
    """The alignment of a block of this size.

    >>> alignment(100), alignment(1 << 20)
    (64, 4096)
    """
    return PAGE if nbytes >= PAGED_BYTES else BUFFER_ALIGN


def align_up(nbytes: int, align: int) -> int:
    """The smallest multiple of `align` that is at least `nbytes`.

    >>> align_up(65, 64), align_up(64, 64), align_up(0, 64)
    (128, 64, 0)
    """
    return -(-nbytes // align) * align


class ControlField(NamedTuple):
    """A number or an address in the control block."""

    name: str
    kind: str  # i32, u32, i64, or address
    line: int  # the cache line that holds it
    meaning: str


# One line for each group of writers. Saved artifacts contain code with these offsets, so a new
# field needs an unused offset.
_FIELDS = (
    ControlField("generation", "i32", 0, "runs started so far; workers wait for the next"),
    ControlField("arrived", "i32", 1, "workers that have reached the current barrier"),
    ControlField("phase", "i32", 2, "barriers passed so far; workers wait for the next"),
    ControlField("sleepers", "i32", 3, "threads that sleep in the kernel and need a call to wake"),
    ControlField("workers", "i64", 3, "threads of the pool, including the caller"),
    ControlField("spin", "i64", 3, "iterations that a waiting thread spins before it sleeps"),
    ControlField("syscall", "address", 3, "the C library's syscall(), for sleeping and waking"),
    ControlField("waker", "u32", 3, "the core of the thread that last woke others"),
    ControlField("unused", "i32", 3, "nothing; `busy` was here"),
    ControlField("caller", "u32", 3, "the core of worker 0 while it yields it; else `NO_CORE`"),
    ControlField("body", "address", 4, "function that the current run calls on each worker"),
    ControlField("inputs", "address", 4, "arguments of the body: addresses of the inputs,"),
    ControlField("outputs", "address", 4, "addresses of the outputs,"),
    ControlField("params", "address", 4, "the block of states and constants,"),
    ControlField("arena", "address", 4, "and the block of everything else"),
    ControlField("lone", "i32", 4, "whether one worker runs loops of short kernels"),
    ControlField("busy", "i32", 5, "whether a run that Python started is under way; `BUSY`"),
)
_BYTES = {"i32": 4, "u32": 4, "i64": 8, "address": 8}
_NUMPY = {"i32": "<i4", "u32": "<u4", "i64": "<i8", "address": "<u8"}


class PlacedField(NamedTuple):
    """A field with its offset."""

    name: str
    kind: str
    offset: int  # bytes from the start of the block
    nbytes: int
    gap: int  # unused bytes before it
    meaning: str


def _placed() -> tuple[PlacedField, ...]:
    """Each field at the first free, aligned offset of its cache line."""
    fields, end = [], 0
    for f in _FIELDS:
        nbytes = _BYTES[f.kind]
        offset = align_up(max(end, f.line * CACHE_LINE), nbytes)
        fields.append(PlacedField(f.name, f.kind, offset, nbytes, offset - end, f.meaning))
        end = offset + nbytes
    return tuple(fields)


# starting: the threads exist, but may still need the interpreter's lock before they wait.
BUSY = {"no": 0, "yes": 1, "starting": 2}
CONTROL_FIELDS = _placed()
CONTROL_BYTES = align_up(CONTROL_FIELDS[-1].offset + CONTROL_FIELDS[-1].nbytes, CACHE_LINE)
CONTROL_OFFSETS = {f.name: f.offset for f in CONTROL_FIELDS}
CONTROL_BLOCK = np.dtype({"names": [f.name for f in CONTROL_FIELDS],
                          "formats": [_NUMPY[f.kind] for f in CONTROL_FIELDS],
                          "offsets": [f.offset for f in CONTROL_FIELDS],
                          "itemsize": CONTROL_BYTES})

NO_CORE = (1 << 32) - 1  # in place of a core's number: the worker may run on any
WORKER_ENTRY = "zt_worker"  # the function that worker threads run, in every CPU library

# Functions of other libraries that kernels may call: name of the library and dtype; those of oneDNN
# also tell and set its threads, tell where the elements of a tensor are, and run what was prepared
# for a convolution. A CPU library with such kernels has a table of their
# addresses, which CONNECT fills in when it is loaded.
FOREIGN_FUNCTIONS = ("openblas_f32", "openblas_f64", "onednn_f32", "onednn_threads",
                     "onednn_set_threads", "onednn_place", "onednn_run")
CONVOLVES = {"onednn": 3, "cudnn": 9}  # libraries that convolve, from which major version on
CONNECT = "zt_connect"  # symbol of the function that copies the table

# Convolutions are prepared when a CPU library is loaded. Its function LIBRARY_CALLS returns JSON:
# by the names of these calls what `backends/onednn.py` must know. Behind the addresses of functions
# the table has the address of the records of each call, in this order: a record for each worker.
LIBRARY_CALLS = "zt_library_calls"
CALL_RECORD = (  # 8 bytes each
    "y", "x", "w", "bias",  # tensors
    "filters", "filter_arguments",  # puts the filters into the library's order
    "convolution", "arguments", "count",  # with the number of its arguments
    "stream")

# Begins a part of a device's code that is no module of kernels, but a call of another library: what
# follows describes it as JSON.
LIBRARY_CALL = b"ztorch call of a library\0"

# Functions that train or evaluate have a second entry, which runs many batches in one call. Its
# last argument is the address of a record of 8-byte numbers and addresses.
STEPS_ENTRY = "{}_steps"  # formatted with the function's symbol
STEPS = {
    "record": (
        "body", "inputs",  # the program to run, and its table of inputs
        "order",  # address of row numbers, or 0: rows are in order
        "first", "rows", "count",  # index of the first row, rows per batch, number of batches
        "ran",  # output: the number of batches that ran
        "finite",  # 1: stop after a batch whose first score is not finite
        "column_count", "columns", "score_count", "scores"),  # two tables
    "column": ("source", "bytes",  # all rows of an input, and the bytes of one row
               "buffer", "slot"),  # destination of the copy, and the index of the input
    "score": ("output", "wide", "count",  # `wide` is 1 for float64, 0 for float32
              "sums", "weight"),  # float64: value * weight is added to each sum
}


def repeats(function: str) -> bool:
    """Whether a function has this second entry.

    >>> repeats("train@8"), repeats("predict")
    (True, False)
    """
    return function.partition("@")[0] in ("train", "evaluate")


def runs(count: int, loops: Sequence[tuple[int, int, int]],
         head: Callable[[int, Mapping[int, int]], bool] = lambda loop, iterations: True,
         ) -> Iterator[tuple[int, dict[int, int]]]:
    """The order in which kernels run: each kernel with the iteration of every enclosing loop,
    outermost first.

    Args:
        count: Number of kernels.
        loops: First kernel, the kernel after the last, and trip count of each loop; outer loops
            first.
        head: `head(loop, iterations)` is called before each iteration; `False` ends the loop.

    Examples:
        >>> [(k, at.get(0)) for k, at in runs(3, [(1, 2, 3)])]
        [(0, None), (1, 0), (1, 1), (1, 2), (2, None)]
    """
    def within(first: int, end: int, outer: int, iterations: dict[int, int]
               ) -> Iterator[tuple[int, dict[int, int]]]:
        k = first
        while k < end:
            loop = next((n for n in range(outer, len(loops)) if loops[n][0] == k), None)
            if loop is None:
                yield k, iterations
                k += 1
                continue
            _, last, times = loops[loop]
            for iteration in range(times):
                now = {**iterations, loop: iteration}
                if not head(loop, now):
                    break
                yield from within(k, last, loop + 1, now)
            k = last

    yield from within(0, count, 0, {})
