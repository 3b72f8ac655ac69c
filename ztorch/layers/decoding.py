"""Decoding: running a causal model one position at a time.

Layers see a single position, of shape (batch, 1, ...), and its number. Attention keeps keys and
values of earlier positions in caches: states of the program with one entry per position, in which
each step writes its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers import (
    activation,
    core,
    embedding,
    normalization,
    regularization,
    unit_scale,
)

if TYPE_CHECKING:
    from ztorch.layers.context import Context
    from ztorch.layers.layer import Layer


class Decoding:
    """The step at `position`, an int32 tensor of shape (1,), in rows of `length` positions.

    >>> from ztorch.graph.op import leaf
    >>> Decoding(leaf("input", "position", (1,), "int32"), 32).seen().shape
    (1, 32)
    """

    def __init__(self, position: Value, length: int):
        self.position, self.length = position, length

    def seen(self) -> Value:
        """A mask (1, length) of the positions up to this one."""
        return OPS.less_equal(OPS.iota((1, self.length), 1), self.position)

    def kept(self, name: str, new: Value, context: Context) -> Value:
        """Adds this position to a cache and returns it: (batch, heads, length, dim).

        Later positions hold arbitrary numbers; `seen` masks them.
        """
        shape = (*new.shape[:2], self.length, new.shape[3])
        cache = context.states.cache(name, shape)
        context.updates[cache] = self._where_it_is(new, cache)
        return context.updates[cache]

    def turned(self, new: Value) -> Value:
        """`new`, (batch, heads, 1, dim), after `ops.rotary` at this position."""
        shape = (*new.shape[:2], self.length, new.shape[3])
        alone = self._where_it_is(new, OPS.full(shape, 0.0, new.dtype))
        return OPS.sum(OPS.rotary(alone), axis=2, keepdims=True)  # rotated zeros stay zeros

    def row(self, table: Value) -> Value:
        """The row of this position in a table of (positions, features): (1, 1, features)."""
        return OPS.expand_dims(OPS.take(table, self.position), 0)

    def _where_it_is(self, new: Value, others: Value) -> Value:
        here = OPS.equal(OPS.iota(others.shape, 2), self.position)
        return OPS.where(here, OPS.broadcast_to(new, others.shape), others)


def need_stepwise(model: Layer) -> None:
    """Raises Unsupported unless every layer can run one position at a time.

    A layer can if one position and its cache give the same result as the whole row.
    """
    for _, layer in list(model.walk())[1:]:
        if fault := _fault(layer):
            raise Unsupported(f"layer {layer.path!r} ({type(layer).__name__}) cannot run one "
                              f"position at a time: {fault}. Leave decode=True out, or change it")


def _fault(layer: Layer) -> str:
    """Why a layer cannot run by position; empty if it can. Subclasses are not trusted, since they
    may do anything."""
    from ztorch.layers import attention, containers, transformer

    kind = type(layer)
    if isinstance(layer, transformer.TransformerDecoder) and layer.cross_attention is not None:
        return "it attends to a second sequence"
    if kind in (attention.MultiHeadAttention, transformer.TransformerEncoder):
        causal = getattr(layer, "use_causal_mask", False)
        return "" if causal else "it looks at positions that are yet to come"
    if kind in _NORMALIZATIONS:
        return "" if getattr(layer, "axis", None) == -1 else "it mixes positions"
    if not isinstance(getattr(layer, "activation", None), str | None):
        return "nobody knows what its activation, a function of yours, does with positions"
    if kind in (*_POSITIONWISE, transformer.TransformerDecoder, containers.Identity,
                containers.Residual):
        return ""
    return "it mixes positions, or nobody has said that it does not"


_NORMALIZATIONS = (normalization.LayerNormalization, unit_scale.RMSNormalization,
                   normalization.BatchNormalization, unit_scale.UnitNormalization)
_POSITIONWISE = (
    core.Dense, core.Rescaling, embedding.Embedding, embedding.PositionEmbedding,
    embedding.SinusoidalPosition, activation.Activation, activation.ReLU, activation.LeakyReLU,
    activation.ELU, regularization.Dropout, regularization.SpatialDropout1D,
    regularization.GaussianNoise, regularization.GaussianDropout, regularization.AlphaDropout)
