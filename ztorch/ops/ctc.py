"""Connectionist temporal classification: labels without time positions."""

from __future__ import annotations

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, shape_error
from ztorch.graph.value import Value
from ztorch.ops.ctc_beams import beam_search
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

_COUNTS = np.array([2, 1], np.int32)
_STEPS = np.array([5, 3], np.int32)
_LABELS = np.array([[1, 2, 0], [2, 0, 0]], np.int32)


@composition(Sample((_LABELS, (2, 5, 4), _COUNTS, _STEPS)))
def ctc_loss(target: Value, output: Value, target_length: Value, output_length: Value,
             mask_index: int = 0) -> Value:
    """The negative log-likelihood of a sequence of labels, over all their alignments in time.

    Args:
        target: Class numbers `(batch, labels)`.
        output: Logits `(batch, steps, classes)`.
        target_length: Number of labels in each row.
        output_length: Number of steps in each row.
        mask_index: The class of the blank. Default: `0`.

    Returns:
        A number for each row.
    """
    if output.rank != 3 or target.rank != 2 or target.shape[0] != output.shape[0]:
        raise shape_error("ops.ctc_loss takes labels (batch, labels) and logits (batch, steps, "
                          "classes), not", target.shape, output.shape)
    if not 0 <= mask_index < output.shape[-1]:
        raise shape_error(f"ops.ctc_loss(mask_index={mask_index}): no such class in logits",
                          output.shape)
    from ztorch.ops.kernel_ctc import unlikelihood  # imported late: other ops need no kernels

    [output] = as_floats(output)
    labels, label_counts, step_counts = (
        OPS.cast(x, "int32") for x in (target, target_length, output_length))
    logs = OPS.log_softmax(widened(output), axis=-1)
    y = unlikelihood(labels, logs, label_counts, step_counts, mask_index)
    return OPS.cast(y, output.dtype)


@composition(Sample(((2, 5, 4), _STEPS)), results=("labels", "scores"))
def ctc_decode(inputs: Value, sequence_lengths: Value, strategy: str = "greedy",
               beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True,
               mask_index: int | None = 0) -> tuple[Value, Value]:
    """The most likely labels, without blanks and repetitions.

    Args:
        inputs: Logits `(batch, steps, classes)`.
        sequence_lengths: Number of steps in each row.
        strategy: `"greedy"` for the most likely class at each step, or `"beam_search"` for the
            labels that are most likely over all alignments. Default: `"greedy"`.
        beam_width: Maximum number of label sequences in a beam search. Default: `100`.
        top_paths: Number of sequences to return, best first. Default: `1`.
        merge_repeated: Whether repeated classes are one label; always true in a beam search.
            Default: `True`.
        mask_index: The class of the blank. `None` means the last one. Default: `0`.

    Returns:
        Labels `(1, batch, steps)`, padded with -1, and minus the sum of the largest logits of each
        row `(batch, 1)`. For a beam search: labels `(top_paths, batch, steps)`, and
        log-probabilities `(batch, top_paths)`, -infinity where there are fewer sequences.

    Examples:
        >>> import ztorch as zt
        >>> logits = np.eye(3)[None, [1, 1, 0, 2]]
        >>> zt.ops.ctc_decode(logits, np.array([4]))[0]
        array([[[ 1,  2, -1, -1]]], dtype=int32)
    """
    if strategy not in ("greedy", "beam_search"):
        raise shape_error(f"ops.ctc_decode(strategy={strategy!r}) must be 'greedy' or "
                          "'beam_search'")
    rows, steps, classes = inputs.shape
    mask_index = classes - 1 if mask_index is None else mask_index
    if strategy == "beam_search":
        if not 1 <= top_paths <= beam_width:
            raise shape_error(f"ops.ctc_decode(top_paths={top_paths}, beam_width={beam_width}): use"
                              " at least one path, and at most beam_width")
        return beam_search(inputs, sequence_lengths, beam_width, top_paths, mask_index)
    place = OPS.iota((rows, steps), 1)
    over = place >= OPS.reshape(OPS.cast(sequence_lengths, "int32"), (-1, 1))
    best = OPS.where(over, mask_index, OPS.argmax(inputs, axis=-1))
    scores = -OPS.sum(OPS.where(over, 0.0, OPS.max(inputs, axis=-1)), axis=1, keepdims=True)
    blank = OPS.equal(best, mask_index)
    if merge_repeated:
        before = OPS.pad(best, (0, 1), (0, 0))[:, :steps]
        again = OPS.logical_and(place > 0, OPS.equal(best, before))
        blank = OPS.logical_or(blank, again)
    order = OPS.argsort(OPS.where(blank, steps, place), axis=-1)
    labels = OPS.take_along_axis(OPS.where(blank, -1, best), order, -1)
    return OPS.expand_dims(labels, 0), scores
