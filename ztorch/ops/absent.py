"""Names that users of other libraries look for and that no op has: what there is instead.

An error tells it, where the name that is nearest in letters would mislead.
"""

from __future__ import annotations

_SIZES = "the shape of its result depends on numbers, and shapes are fixed here"
_SETS = "zt.array_api has it, for tensors whose numbers are known"
_COMPLEX = "there are no complex numbers"
_EIGEN = "ops.eigh takes symmetric matrices; others have complex eigenvalues"

INSTEAD = {
    "addcmul": "use a + b * c", "addmm": "use ops.gemm", "append": "use ops.concat",
    "argpartition": "use ops.argsort or ops.top_k", "argwhere": _SIZES,
    "array": "use zt.ops on NumPy's arrays as they are", "asarray": "use zt.ops on NumPy's arrays "
    "as they are", "astype": "use ops.cast", "average": "use ops.mean, or ops.sum of products",
    "baddbmm": "use ops.gemm", "bincount": "use ops.sum of ops.one_hot",
    "cdist": "use ops.norm of a difference", "chunk": "use ops.split", "conj": _COMPLEX,
    "complex": _COMPLEX + "; zt.ops.fft and its kin take and give pairs (real, imag)",
    "copy": "values never change, so nothing needs a copy", "cross_entropy": "use zt.losses",
    "deg2rad": "multiply by pi / 180", "dstack": "use ops.stack(axis=2) or ops.concat(axis=2)",
    "eig": _EIGEN, "eigvals": _EIGEN, "embedding": "use ops.take",
    "fftn": "use ops.fft2, or ops.fft with ops.moveaxis", "finfo": "use zt.array_api.finfo",
    "iinfo": "use zt.array_api.iinfo", "imag": _COMPLEX,
    "index_select": "use ops.take(x, indices, axis)", "interpolate": "use ops.upsample",
    "kthvalue": "use ops.sort", "lerp": "use a + (b - a) * t",
    "masked_fill": "use ops.where(mask, value, x)",
    "masked_select": _SIZES, "median": "use ops.sort",
    "mse_loss": "use zt.losses", "narrow": "slice the tensor",
    "nonzero": _SETS, "normalize": "divide by ops.norm(x, axis=-1, keepdims=True)",
    "numel": "use ops.size", "quantile": "use ops.sort",
    "rad2deg": "multiply by 180 / pi", "real": _COMPLEX,
    "result_type": "use zt.array_api.result_type", "scatter": "use ops.scatter_add",
    "segment_sum": "use ops.scatter_add",
    "select": "use ops.where",
    "t": "use ops.transpose", "unique": "use zt.array_api.unique_values", "unique_all": _SETS,
    "unique_counts": _SETS, "unique_inverse": _SETS, "unique_values": _SETS,
}
