"""The contract of compiled code and the process that runs it: alignments, and the control block by
which the workers of a CPU program meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Every state, constant, buffer of the arena, input and output starts at a multiple of this, in
# bytes: the widest vector (AVX-512), so that aligned loads are allowed everywhere.
BUFFER_ALIGN = 64

# Blocks from so many bytes on start at a page: a processor compares the places of loads and stores
# by their last 12 bits, and a load waits where a store to another block seems to be of its place.
PAGED_BYTES = 1 << 14
PAGE = 1 << 12

# Bytes that processors pass to one another as one piece. A number that one thread writes and
# another watches is in a separate line, or each write would disturb its neighbours.
CACHE_LINE = 64

# On a device all inputs travel in one buffer, and all outputs in another; each starts at a multiple
# of this many bytes. Vulkan and WebGPU let a device demand up to 256 for a bound range, and AMD's
# code takes 256 for granted.
PORT_ALIGN = 256

# CPython calls compiled code through one native function object, which holds a record of the
# program to run.
BYTES_HEAD = bytes.__basicsize__ - 1  # bytes of a bytes object before its contents and a zero
TYPE_AT = object.__basicsize__ - 8  # where an object refers to its type, in bytes
LENGTH_AT = object.__basicsize__  # where a bytes object, tuple or list says how much it holds, and
# a float its value
ITEMS_AT = tuple.__basicsize__  # where the items of a tuple begin
LIST_AT = LENGTH_AT + 8  # where a list refers to its items
PYTHON_CALL = "zt.python_call"  # the symbol of that function
_NUMBERS = ("stack", "inputs", "outputs", "entries", "given", "steps", "results", "builds",
            "node_spec", "node_block", "node_call", "node_operands", "node_index", "node_depth",
            "node_siblings", "tensor_node", "block_place", "cell_node")
_POINTERS = ("code", "params", "arena", "as_address", "new_bytes", "keep", "give_up", "dict_get",
             "dict_size", "dict_set", "new_object", "new_tuple", "new_list", "new_dict", "equal",
             "unlock", "lock", "sharing", "bytes_type", "float_type", "node_type", "tensor_type",
             "none", "yes", "other", "empty", "zero")
PYTHON_RECORD = {**dict.fromkeys(_NUMBERS, "i64"), **dict.fromkeys(_POINTERS, "ptr")}
# The steps by which it reads its arguments, and builds its result.
PYTHON_STEPS = {name: k for k, name in enumerate((
    "slot", "constant", "key", "same", "entry", "kind", "tuple", "list", "dict", "number",
    "references", "block"))}
PYTHON_BUILDS = {name: k for k, name in enumerate(("leaf", "tuple", "list", "dict"))}
# Its record of the workers that may share its runs: their control block, C's clock_gettime, how
# often it ran, nanoseconds of runs that found workers asleep, for how many runs it leaves them
# alone now and the next time, nanoseconds that they saved, and nanoseconds of a run by one thread.
SHARING = {"control": "ptr", "clock": "ptr", **dict.fromkeys(
    ("runs", "missed", "rest", "penalty", "gained", "seconds"), "i64")}
# Workers that are awake share its runs. Sleeping ones are woken once in so many nanoseconds of
# runs, some ten times the cost of waking. Of a cycle of runs the last few are by one thread, to
# compare. Then how many times the seconds of such a run may be lost before sharing rests, for how
# many runs, and how much of the gain counts.
SHARING_RULE = {"most_missed": 100_000, "cycle": 1024, "compared": 4, "most_lost": 16,
                "least_rest": 64, "most_rest": 1 << 16, "most_gained": 1024}
# DLPack's deleters of lent tensors, before version 1 and since, and where its structures have a
# context, in bytes.
DLPACK_DELETERS = {"zt.give_back": 48, "zt.give_back_versioned": 8}

WASM_ARCH = "wasm32"  # the instruction set of code that browsers run on the CPU

# Comes after the number in the name of a kernel that runs a second time in a call, so that its
# results need not be kept: k7again_dense_matmul.
AGAIN = "again"


def alignment(nbytes: int) -> int:
    """The alignment of the place of a block.

    >>> alignment(100), alignment(1 << 20)
    (64, 4096)
    """
    return PAGE if nbytes >= PAGED_BYTES else BUFFER_ALIGN


def align_up(nbytes: int, align: int) -> int:
    """The least multiple of `align` that is not less.

    >>> align_up(65, 64), align_up(64, 64), align_up(0, 64)
    (128, 64, 0)
    """
    return -(-nbytes // align) * align


class ControlField(NamedTuple):
    """A number or an address in the control block."""

    name: str
    kind: str  # i32, u32, i64, or address
    line: int  # the cache line that it is in
    meaning: str


# A line for each group of writers. Saved artifacts carry code with these offsets: a new field goes
# at an unused offset.
_FIELDS = (
    ControlField("generation", "i32", 0, "how many runs were started; workers wait for the next"),
    ControlField("arrived", "i32", 1, "workers that have reached the current barrier"),
    ControlField("phase", "i32", 2, "how many barriers have opened; workers wait for the next"),
    ControlField("sleepers", "i32", 3, "threads asleep in the kernel, which need a call to wake"),
    ControlField("workers", "i64", 3, "threads of the pool, the calling one included"),
    ControlField("spin", "i64", 3, "iterations that a waiting thread spins before it sleeps"),
    ControlField("syscall", "address", 3, "the C library's syscall(), for sleeping and waking"),
    ControlField("waker", "u32", 3, "the core of the thread that last woke others"),
    ControlField("busy", "i32", 3, "whether a run that Python started is under way; `BUSY`"),
    ControlField("body", "address", 4, "function that the current run calls on each worker"),
    ControlField("inputs", "address", 4, "arguments of the body: addresses of the inputs,"),
    ControlField("outputs", "address", 4, "addresses of the outputs,"),
    ControlField("params", "address", 4, "the block of states and constants,"),
    ControlField("arena", "address", 4, "and the block of everything else"),
)
_BYTES = {"i32": 4, "u32": 4, "i64": 8, "address": 8}
_NUMPY = {"i32": "<i4", "u32": "<u4", "i64": "<i8", "address": "<u8"}


class PlacedField(NamedTuple):
    """A field with its place."""

    name: str
    kind: str
    offset: int  # bytes from the start of the block
    nbytes: int
    gap: int  # unused bytes before it
    meaning: str


def _placed() -> tuple[PlacedField, ...]:
    """Each field at the first place of its cache line that is free and a multiple of its size."""
    fields, end = [], 0
    for f in _FIELDS:
        nbytes = _BYTES[f.kind]
        offset = align_up(max(end, f.line * CACHE_LINE), nbytes)
        fields.append(PlacedField(f.name, f.kind, offset, nbytes, offset - end, f.meaning))
        end = offset + nbytes
    return tuple(fields)


# The last: threads that were started, and may need the interpreter's lock before they wait.
BUSY = {"no": 0, "yes": 1, "starting": 2}
CONTROL_FIELDS = _placed()
CONTROL_BYTES = align_up(CONTROL_FIELDS[-1].offset + CONTROL_FIELDS[-1].nbytes, CACHE_LINE)
CONTROL_OFFSETS = {f.name: f.offset for f in CONTROL_FIELDS}
CONTROL_BLOCK = np.dtype({"names": [f.name for f in CONTROL_FIELDS],
                          "formats": [_NUMPY[f.kind] for f in CONTROL_FIELDS],
                          "offsets": [f.offset for f in CONTROL_FIELDS],
                          "itemsize": CONTROL_BYTES})

WORKER_ENTRY = "zt_worker"  # the function of every CPU library that worker threads run

# A function that trains or evaluates has a second entry, which runs it for one batch after another.
# Its frame ends with the address of a record: numbers and addresses of 8 bytes each.
STEPS_ENTRY = "{}_steps"  # of a function's symbol
STEPS = {
    "record": (
        "body", "inputs",  # the program to run, and the table of its inputs
        "order",  # address of the numbers of rows, or 0: rows follow one another
        "first", "rows", "count",  # place of the first row, rows of a batch, batches
        "ran",  # written: how many batches were run
        "finite",  # 1: stop after a batch whose first score is not finite
        "column_count", "columns", "score_count", "scores"),  # two tables
    "column": ("source", "bytes",  # all rows of an input, and the bytes of one of them
               "buffer", "slot"),  # where they are copied, and which input this is
    "score": ("output", "wide", "count",  # of this many float32, or 1: float64
              "sums", "weight"),  # float64: to each sum comes the value times the weight
}


def repeats(function: str) -> bool:
    """Whether a function has that second entry.

    >>> repeats("train@8"), repeats("predict")
    (True, False)
    """
    return function.partition("@")[0] in ("train", "evaluate")


def runs(count: int, loops: Sequence[tuple[int, int, int]],
         head: Callable[[int, Mapping[int, int]], bool] = lambda loop, iterations: True,
         ) -> Iterator[tuple[int, dict[int, int]]]:
    """The order in which kernels run, each with the iteration of every enclosing loop, outer first.

    Args:
        count: Number of kernels.
        loops: First kernel, the one after the last, and trip count of each loop; outer ones first.
        head: `head(loop, iterations)` is called before each iteration of a loop. The loop ends when
            it returns False.

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
