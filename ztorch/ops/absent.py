"""Other libraries' names that no op has, with the equivalent here.

Errors show it, where the most similar name would mislead.
"""

from __future__ import annotations

_GRADIENT = """gradients belong to functions. Three lines:
    def loss(params): ...
    value, grads = zt.value_and_grad(loss)(params)
    params = optimizer.update(params, grads)"""
_SIZES = "the shape of its result depends on the data, and shapes are fixed here"
_SETS = "zt.array_api has it, for tensors with known values"
_SETS_OF_TWO = "use zt.array_api.unique_values, and ops.isin with the other tensor"
_ORDER = "elements are always in C order"
_DTYPE = "use x.astype('{}')"
_CHANGES = "a tensor never changes; use the op without _, which returns a new tensor"

INSTEAD = {
    "addcmul": "use a + b * c", "addcdiv": "use a + b / c", "addmm": "use ops.gemm",
    "argwhere": "use ops.stack(ops.nonzero(x), axis=1)",
    "asarray": "use ops.convert_to_tensor", "astype": "use ops.cast",
    "baddbmm": "use ops.gemm", "chunk": "use ops.split",
    "cross_entropy": "use zt.losses",
    "eigvals": "use ops.eig(x)[0]", "embedding": "use ops.take",
    **{name: f"use zt.array_api.fft.{name}" for name in (
        "fftn", "ifftn", "rfftn", "irfftn", "hfft", "ihfft")}, "finfo": "use zt.array_api.finfo",
    "iinfo": "use zt.array_api.iinfo",
    "index_select": "use ops.take(x, indices, axis)", "interpolate": "use ops.upsample",
    "kthvalue": "use ops.sort", "lerp": "use a + (b - a) * t",
    "masked_fill": "use ops.where(mask, value, x)",
    "masked_select": _SIZES,
    "mse_loss": "use zt.losses", "narrow": "slice the tensor",
    "numel": "use x.size", "nelement": "use x.size", "dim": "use x.ndim",
    "ndimension": "use x.ndim",
    "element_size": "use x.dtype.bytes", "itemsize": "use x.dtype.bytes",
    "stride": _ORDER, "strides": _ORDER, "is_contiguous": _ORDER, "flags": _ORDER,
    "data": "use x.numpy()", "flat": "use x.ravel()", "get_device": "use x.device",
    **{f"is_{name}": "use x.device" for name in ("cpu", "cuda", "vulkan")},
    "is_floating_point": "use x.dtype.kind == 'f'", "is_leaf": _GRADIENT, "grad_fn": _GRADIENT,
    "tobytes": "use x.numpy().tobytes()", "tofile": "use x.numpy().tofile(file)",
    "data_ptr": "use x.numpy().ctypes.data",
    "result_type": "use zt.array_api.result_type",
    "t": "use ops.transpose", "unique_all": _SETS,
    "unique_counts": _SETS, "unique_inverse": _SETS, "unique_values": _SETS,
    "custom_gradient": "use zt.custom_gradient",
    **dict.fromkeys(("grad", "requires_grad", "requires_grad_", "retain_grad"), _GRADIENT),
    "backward": _GRADIENT + "\nIn a train_step, use self.gradients(loss, weights).",
    "choose": "use ops.where, or ops.take_along_axis",
    "copy": "values never change, so "
    "nothing needs a copy", "copy_": _CHANGES, "add_": _CHANGES, "fill_": _CHANGES,
    "mul_": _CHANGES, "sub_": _CHANGES, "zero_": _CHANGES,
    "double": _DTYPE.format("float64"), "float": _DTYPE.format("float32"),
    "frac": "use x - ops.trunc(x)", "half": _DTYPE.format("float16"),
    "int": _DTYPE.format("int32"), "long": _DTYPE.format("int64"),
    "logit": "use ops.log(x / (1 - x))", "to_numpy": "use x.numpy()",
    "type": "use x.astype(dtype)",
    "clone": "values never change, so nothing needs a copy",
    "column_stack": "use ops.stack(axis=1) of vectors, or ops.concat(axis=1)",
    "contiguous": _ORDER,
    "cpu": "use x.to('cpu')",
    **{name: f"use {function}(x)" for name, function in (
        ("cupy", "cupy.from_dlpack"), ("torch", "torch.from_dlpack"),
        ("jax", "jax.dlpack.from_dlpack"))},
    "cuda": "use x.to('cuda:0')",
    "detach": "use ops.stop_gradient",
    "expand": "use ops.broadcast_to", "view_as": "use x.reshape(other.shape)",
    "reshape_as": "use x.reshape(other.shape)", "unflatten": "use x.reshape(shape)",
    "type_as": "use x.astype(other.dtype)", "bool": _DTYPE.format("bool"),
    "byte": _DTYPE.format("uint8"), "char": _DTYPE.format("int8"),
    "short": _DTYPE.format("int16"), "bfloat16": _DTYPE.format("bfloat16"),
    "movedim": "use ops.moveaxis", "swapdims": "use ops.swapaxes",
    **dict.fromkeys(("H", "mH", "adjoint"), "use x.mT; for complex numbers ops.conj(x.mT)"),
    **dict.fromkeys(("block_until_ready", "eval", "compute"), "use x.realize()"),
    **dict.fromkeys(("uniform_", "random_"), "use zt.rand(shape)"),
    "normal_": "use zt.randn(shape)",
    **dict.fromkeys(("storage", "untyped_storage"), "use x.numpy()"),
    **dict.fromkeys(("set", "itemset", "put_"), "use x.at[key].set(values)"),
    "values": "ops.max and ops.sort return only values; ops.argmax and ops.argsort positions",
    "indices": "use ops.stack(ops.meshgrid(zt.arange(rows), zt.arange(columns), indexing='ij')); "
    "for a maximum or an order, ops.argmax and ops.argsort",
    "inverse": "use ops.inv", "pinverse": "use ops.pinv",
    "ger": "use ops.outer", "sgn": "use ops.sign", "take_along_dim": "use ops.take_along_axis",
    "clamp_min": "use ops.maximum", "clamp_max": "use ops.minimum", "msort": "use ops.sort(axis=0)",
    "split_with_sizes": "use ops.split", "tensor_split": "use ops.array_split",
    "prelu": "use ops.where(x > 0, x, slope * x)", "hardshrink": "use ops.hard_shrink",
    "dist": "use ops.norm(x - y)", "aminmax": "use ops.min and ops.max",
    "histc": "use ops.histogram",
    "select": "use x[..., k, :]", "compress": _SIZES,
    **{name: f"use zt.ops.{name}(x)" for name in ("bincount", "nonzero", "unique")},
    "index_add": "use ops.scatter_add", "scatter_reduce": "use ops.scatter_add",
    "index_put": "use ops.scatter_update", "index_copy": "use ops.scatter_update",
    "put": "use ops.scatter_update", "slice_scatter": "use ops.slice_update",
    "partition": "use ops.sort", "bernoulli": "use zt.rand(shape) < x",
    **{f"new_{name}": f"use zt.{name}(shape, x.dtype)" for name in ("empty", "ones", "zeros")},
    "new_full": "use zt.full(shape, value, x.dtype)", "new_tensor": "use zt.tensor(data, x.dtype)",
    "expand_as": "use ops.broadcast_to(x, other.shape)",
    "fill": "use zt.full_like",
    "in1d": "use ops.isin",
    "intersect1d": _SETS_OF_TWO,
    "setdiff1d": _SETS_OF_TWO,
    "union1d": "use zt.array_api.unique_values of ops.concat",
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), "use ops.reshape, or x[None]"),
    "apply_along_axis": "use zt.vmap", "bitwise_count": "use a loop of shifts and masks",
    "block": "use ops.concat of rows, each ops.concat of blocks",
    "broadcast_shapes": "shapes are tuples; use np.broadcast_shapes",
    "multi_dot": "use ops.einsum, or @", "poly1d": "use ops.polyval(coefficients, x)",
    "trapz": "use ops.trapezoid", "fromfunction": "apply the function to ops.meshgrid of zt.arange",
    "block_diag": "use ops.concat of blocks, padded by ops.pad",
    "bucketize": "use ops.searchsorted(boundaries, x)",
    "cartesian_prod": "use ops.meshgrid and ops.stack",
    "cosine_similarity": "use the sum of ops.normalize(x) * ops.normalize(y)",
    "cummax": "use ops.associative_scan(ops.maximum, x)",
    "cummin": "use ops.associative_scan(ops.minimum, x)",
    **dict.fromkeys(("delete", "insert"), "use ops.concat of slices"),
    "diag_indices": "use ops.diagonal(x), or x[i, i] with i = zt.arange(n)",
    "place": "use ops.where(mask, values, x)",
    "put_along_axis": "use x.at[indices].set(values), with an index for each axis",
    "extract": "use x[condition]", "trim_zeros": _SIZES,
    "expm": "use ops.eigh of a symmetric matrix", "argpartition": "use ops.argsort, or ops.top_k",
    "fill_diagonal": "use ops.where(zt.eye(n) > 0, value, x)",
    "flatnonzero": "use ops.nonzero(x.ravel())[0]",
    "ix_": "use x[rows[:, None], columns]", "lexsort": "use ops.argsort by the last key, then by "
    "each earlier one; it is stable",
    "logcumsumexp": "use ops.associative_scan(ops.logaddexp, x)",
    "manual_seed": "use zt.set_seed", "matrix_exp": "use ops.eigh of a symmetric matrix",
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), "use ops.max_pool"),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), "use ops.average_pool"),
    **dict.fromkeys(("mgrid", "ogrid"), "use ops.meshgrid of zt.arange"),
    "multinomial": "use zt.random.categorical(key, logits)",
    "nll_loss": "use zt.losses", "normal": "use zt.randn(shape)",
    "hardswish": "use ops.hard_swish", "no_grad": "only functions passed to zt.grad are "
    "differentiated", "from_numpy": "use zt.tensor(array), or zt.asarray, which shares memory",
    "random": "use zt.random, zt.randn or zt.rand", "choice": "use values[zt.randint(0, n, shape)]",
    **dict.fromkeys(("r_", "c_"), "use ops.concat, or ops.stack(axis=1) of vectors"),
    "gather_nd": "use x[rows, columns], with an index for each axis",
    **dict.fromkeys(("scatter_nd", "scatter_nd_update"), "use ops.scatter_update(zt.zeros(shape), "
                    "indices, values), or ops.scatter, which adds"),
    "mode": "use ops.argmax(zt.ops.bincount(x)) of whole numbers",
    "pairwise_distance": "use ops.norm(x - y, axis=-1)",
    "softmin": "use ops.softmax(-x)", "batch_matmul": "use ops.matmul, or @",
    "triangular_solve": "use ops.solve_triangular(a, b)",
    "cholesky_solve": "use ops.solve(factor @ factor.T, b), or ops.solve_triangular twice",
    "lu": "use ops.lu_factor", "lu_solve": "use ops.solve(a, b)",
    **dict.fromkeys(("lgamma", "gammaln", "digamma", "polygamma", "gamma"),
                    "no function of the gamma family is here"),
    "pdist": "use ops.cdist(x, x)", "piecewise": "use ops.where, or ops.select",
    "polyfit": "use ops.lstsq(ops.vander(x, degree + 1), y)",
    "randperm": "use zt.permutation(n)",
    "ravel_multi_index": "use i * columns + j", "rollaxis": "use ops.moveaxis",
    **dict.fromkeys(("std_mean", "var_mean"), "use ops.var or ops.std, and ops.mean"),
    **dict.fromkeys(("tril_indices", "triu_indices"), "use ops.tril or ops.triu of a mask of ones"),
    **{f"reduce_{name}": f"use ops.{name}" for name in (
        "all", "any", "max", "mean", "min", "prod", "sum")},
}

# Arguments of other libraries, with their name in ops.
ARGUMENTS = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "unbiased": "correction",
             "input": "x", "a_min": "min", "a_max": "max", "newshape": "shape"}
