"""The most likely labels of a sequence, over all alignments in time."""

from __future__ import annotations

from typing import NamedTuple

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.control import scan

NEVER = -1e30  # log-probability of impossible events; finite, so that its sums are finite
_NO_LABEL, _NO_BEAM = -1, -2  # padding of a path after its end, and marker of an unused path


class _Beams(NamedTuple):
    """The beams of each row. All beams of a row have different paths."""

    paths: Value  # (rows, beams, steps): labels from the start
    tails: Value  # (rows, beams): the last label
    lengths: Value
    emitted: Value  # log-probability of this path, ending in a label
    blank: Value  # log-probability of this path, ending in a blank


def beam_search(logits: Value, sequence_lengths: Value, width: int, top_paths: int,
                mask_index: int) -> tuple[Value, Value]:
    """The most likely paths of each row, best first, and their log-probabilities.

    Args:
        logits: Logits `(rows, steps, classes)`.
        sequence_lengths: Number of steps in each row.
        width: Number of paths per row that are followed.
        top_paths: Number of paths to return.
        mask_index: The class of the blank.
    """
    rows, steps, _ = logits.shape
    logs = OPS.transpose(OPS.log_softmax(logits, axis=-1), (1, 0, 2))
    ends = OPS.reshape(OPS.cast(sequence_lengths, "int32"), (rows, 1))
    first = OPS.equal(OPS.iota((rows, width), 1), 0)  # the first beam is the only one: no label yet
    nothing = OPS.full((rows, width), NEVER, logs.dtype)
    begin = _Beams(
        OPS.where(OPS.expand_dims(first, -1), OPS.full((rows, width, steps), _NO_LABEL, "int32"),
                  _NO_BEAM),
        OPS.full((rows, width), _NO_LABEL, "int32"), OPS.full((rows, width), 0, "int32"),
        nothing, OPS.where(first, 0.0, nothing))

    def step(state: tuple[Value, ...], row: tuple[Value, Value]) -> tuple[tuple[Value, ...], None]:
        old, (classes, place) = _Beams(*state), row
        runs = place < ends
        return tuple(
            OPS.where(OPS.broadcast_to(OPS.reshape(runs, (rows,) + (1,) * (a.rank - 1)), a.shape),
                      a, b) for a, b in zip(_advance(old, classes, mask_index), old, strict=True)
        ), None

    last, _ = scan(step, tuple(begin), (logs, OPS.iota((steps, 1, 1), 0)))
    beams = _Beams(*last)
    scores, best = OPS.top_k(OPS.logaddexp(beams.emitted, beams.blank), top_paths)
    labels = OPS.maximum(_rows_of(beams.paths, best), _NO_LABEL)
    return OPS.transpose(labels, (1, 0, 2)), OPS.where(
        scores > NEVER / 2, scores, OPS.full(scores.shape, float("-inf"), scores.dtype))


def _advance(old: _Beams, logs: Value, mask_index: int) -> _Beams:
    """The beams after one more step with these log-probabilities of classes."""
    (rows, width, steps), classes = old.paths.shape, logs.shape[-1]
    total = OPS.logaddexp(old.emitted, old.blank)
    at_tail = OPS.take_along_axis(logs, OPS.maximum(old.tails, 0), -1)
    blank = total + logs[:, mask_index:mask_index + 1]
    # Extended by a label: repeating the last label needs a blank in between.
    label = OPS.iota((rows, width, classes), 2, "int32")
    repeats = OPS.equal(label, OPS.expand_dims(old.tails, -1))
    longer = OPS.where(repeats, OPS.expand_dims(old.blank, -1), OPS.expand_dims(total, -1))
    longer = OPS.where(OPS.equal(label, mask_index), NEVER, longer + OPS.expand_dims(logs, 1))
    # Some of the extended paths already are beams.
    children = _children(old)
    tails = OPS.broadcast_to(OPS.expand_dims(OPS.maximum(old.tails, 0), 1), children.shape)
    from_parent = OPS.max(OPS.where(children, OPS.take_along_axis(longer, tails, -1), NEVER), 1)
    repeated = OPS.matmul(OPS.cast(children, logs.dtype), OPS.cast(repeats, logs.dtype)) > 0
    longer = OPS.where(repeated, NEVER, longer)
    emitted = OPS.logaddexp(OPS.where(old.tails < 0, NEVER, old.emitted + at_tail), from_parent)
    # The best of all: unchanged and extended beams.
    scores, best = OPS.top_k(OPS.concat(
        OPS.logaddexp(emitted, blank), OPS.reshape(longer, (rows, width * classes)), axis=1), width)
    stays, alive = best < width, scores > NEVER / 2
    source = OPS.where(stays, best, OPS.floor_divide(OPS.maximum(best - width, 0), classes))
    added = OPS.maximum(best - width, 0) % classes
    lengths = OPS.take_along_axis(old.lengths, source, -1)
    ends = OPS.equal(OPS.iota((rows, width, steps), 2, "int32"), OPS.expand_dims(lengths, -1))
    ends = OPS.logical_and(ends, OPS.expand_dims(OPS.logical_not(stays), -1))
    paths = OPS.where(ends, OPS.expand_dims(added, -1), _rows_of(old.paths, source))
    return _Beams(
        OPS.where(OPS.expand_dims(alive, -1), paths, _NO_BEAM),
        OPS.where(alive, OPS.where(stays, OPS.take_along_axis(old.tails, source, -1), added),
                  _NO_LABEL),
        OPS.where(alive, OPS.where(stays, lengths, lengths + 1), 0),
        OPS.where(alive, OPS.where(stays, OPS.take_along_axis(emitted, source, -1), scores), NEVER),
        OPS.where(OPS.logical_and(alive, stays), OPS.take_along_axis(blank, source, -1), NEVER))


def _children(beams: _Beams) -> Value:
    """Whether the path of a beam (last axis) extends the path of another one (the axis before) by
    one label."""
    place = OPS.iota(beams.paths.shape, 2, "int32")
    before = OPS.where(place >= OPS.expand_dims(beams.lengths - 1, -1), _NO_LABEL, beams.paths)
    same = OPS.all(OPS.equal(OPS.expand_dims(beams.paths, 2), OPS.expand_dims(before, 1)), -1)
    return OPS.logical_and(same, OPS.expand_dims(beams.lengths > 0, 1))


def _rows_of(paths: Value, beams: Value) -> Value:
    """The paths of beams."""
    rows, _, steps = paths.shape
    where = OPS.broadcast_to(OPS.expand_dims(beams, -1), (rows, beams.shape[1], steps))
    return OPS.take_along_axis(paths, where, 1)
