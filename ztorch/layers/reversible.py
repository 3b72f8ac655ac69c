"""An embedding that also maps vectors back to scores of ids."""

from __future__ import annotations

from typing import Any

from ztorch.config import flag, number
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.embedding import Embedding


class ReversibleEmbedding(Embedding):
    """An Embedding that maps vectors to a score per id when called with `reverse=True`.

    Args:
        input_dim: Number of ids, from 0 to `input_dim - 1`.
        output_dim: Size of the vectors.
        tie_weights: Whether both directions use one matrix. Default: `True`.
        embeddings_initializer: Initializer of the vectors. Default: `"uniform"`.
        mask_zero: Whether id 0 is padding that later layers skip. Default: `False`.
        logit_soft_cap: A soft limit of scores: `tanh(score / cap) * cap`; `None` means no limit.
            Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`, and `Embedding`'s
            regularizer and constraint.

    Input shape:
        `(batch, ...)`, integers; with `reverse=True` `(batch, ..., output_dim)`.

    Output shape:
        `(batch, ..., output_dim)`; with `reverse=True` `(batch, ..., input_dim)`.

    Examples:
        >>> import ztorch as zt
        >>> embedding = ReversibleEmbedding(100, 16)
        >>> vectors = embedding(zt.layers.Input((12,), dtype="int32"))
        >>> vectors.shape, embedding(vectors, reverse=True).shape
        ((None, 12, 16), (None, 12, 100))
    """

    def __init__(self, input_dim: int, output_dim: int, tie_weights: bool = True,
                 embeddings_initializer: Any = "uniform", mask_zero: bool = False,
                 logit_soft_cap: float | None = None, **common: Any):
        super().__init__(input_dim, output_dim, embeddings_initializer, mask_zero=mask_zero,
                         **common)
        self.tie_weights = flag("ReversibleEmbedding(tie_weights=...)", tie_weights)
        self.logit_soft_cap = None if logit_soft_cap is None else number(
            "ReversibleEmbedding(logit_soft_cap=...)", logit_soft_cap, above=0)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                "reverse_embeddings", (self.output_dim, self.input_dim),
                self.embeddings_initializer)

    def call(self, x: Value, context: Context, reverse: bool = False) -> Value:
        if not isinstance(reverse, bool):
            raise shape_error("reverse must be True or False while a model is declared, not a "
                              f"{type(reverse).__name__}",
                              fix=f"write {self.name}(x, reverse=True)")
        if not reverse:
            return super().call(x, context)
        if x.shape[-1] != self.output_dim:
            raise shape_error(f"with reverse=True, takes vectors of {self.output_dim} numbers, "
                              "not", x.shape)
        back = (OPS.transpose(context.read(self.embeddings), (1, 0)) if self.tie_weights else
                context.read(self.reverse_embeddings))
        scores = OPS.matmul(x, OPS.cast(back, x.dtype))
        cap = self.logit_soft_cap
        return scores if cap is None else OPS.tanh(scores / cap) * cap

    def compute_mask(self, x: Value, mask: Value | None = None) -> Value | None:
        return super().compute_mask(x, mask) if x.dtype.is_int else None
