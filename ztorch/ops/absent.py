"""Names that users of other libraries look for and that no op has: what there is instead.

An error tells it, where the name that is nearest in letters would mislead.
"""

from __future__ import annotations

_SIZES = "the shape of its result depends on numbers, and shapes are fixed here"
_SETS = "zt.array_api has it, for tensors whose numbers are known"
_SETS_OF_TWO = "use zt.array_api.unique_values, and ops.isin of the other one"
_DTYPE = "use x.astype('{}')"
_CHANGES = "a tensor never changes; use the op without _, which makes another one"
_COMPLEX = "there are no complex numbers"
_EIGEN = "ops.eigh takes symmetric matrices; others have complex eigenvalues"

# Modules of keras.ops, which no tensor has
MODULES = dict.fromkeys(("linalg", "nn", "numpy"),
                        "zt.ops has its functions itself, such as zt.ops.relu")
INSTEAD = {
    "addcmul": "use a + b * c", "addmm": "use ops.gemm", "argwhere": _SIZES,
    "asarray": "use ops.convert_to_tensor", "astype": "use ops.cast",
    "baddbmm": "use ops.gemm", "chunk": "use ops.split",
    "complex": _COMPLEX + "; zt.ops.fft and its kin take and give pairs (real, imag)",
    "cross_entropy": "use zt.losses",
    "eig": _EIGEN, "eigvals": _EIGEN, "embedding": "use ops.take",
    "fftn": "use ops.fft2, or ops.fft with ops.moveaxis", "finfo": "use zt.array_api.finfo",
    "iinfo": "use zt.array_api.iinfo",
    "index_select": "use ops.take(x, indices, axis)", "interpolate": "use ops.upsample",
    "kthvalue": "use ops.sort", "lerp": "use a + (b - a) * t",
    "masked_fill": "use ops.where(mask, value, x)",
    "masked_select": _SIZES,
    "mse_loss": "use zt.losses", "narrow": "slice the tensor",
    "numel": "use ops.size",
    "result_type": "use zt.array_api.result_type",
    "t": "use ops.transpose", "unique_all": _SETS,
    "unique_counts": _SETS, "unique_inverse": _SETS, "unique_values": _SETS,
    "custom_gradient": "use zt.custom_gradient",
    "image": "layers such as Resizing do this",
    "polar": _COMPLEX,
    "view_as_complex": _COMPLEX,
    "view_as_real": _COMPLEX,
    "backward": "use zt.grad or zt.value_and_grad on a function, and self.gradients(loss, weights) "
                "in a train_step",
    "choose": "use ops.where, or ops.take_along_axis",
    "convolve": "use ops.conv, whose kernel is not turned round", "copy": "values never change, so "
    "nothing needs a copy", "copy_": _CHANGES, "add_": _CHANGES, "fill_": _CHANGES,
    "mul_": _CHANGES, "sub_": _CHANGES, "zero_": _CHANGES,
    "double": _DTYPE.format("float64"), "float": _DTYPE.format("float32"),
    "frac": "use x - ops.trunc(x)", "half": _DTYPE.format("float16"),
    "int": _DTYPE.format("int32"), "long": _DTYPE.format("int64"),
    "logit": "use ops.log(x / (1 - x))", "to_numpy": "use x.numpy()",
    "type": "use x.astype(dtype)",
    "clone": "values never change, so nothing needs a copy",
    "column_stack": "use ops.stack(axis=1) of vectors, or ops.concat(axis=1)",
    "contiguous": "elements always lie in C order",
    "cpu": "use x.to('cpu')",
    "cuda": "use x.to('cuda:0')",
    "detach": "use ops.stop_gradient",
    "expand": "use ops.broadcast_to",
    "expand_as": "use ops.broadcast_to(x, other.shape)",
    "fill": "use zt.full_like",
    "in1d": "use ops.isin",
    "interp": "use ops.searchsorted and ops.take",
    "intersect1d": _SETS_OF_TWO,
    "requires_grad_": "use zt.grad or zt.value_and_grad on a function",
    "setdiff1d": _SETS_OF_TWO,
    "union1d": "use zt.array_api.unique_values of ops.concat",
    **{f"reduce_{name}": f"use ops.{name}" for name in (
        "all", "any", "max", "mean", "min", "prod", "sum")},
}
