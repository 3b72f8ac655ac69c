"""Matrix products, decompositions and solutions, and attention."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import i64
from ztorch.interchange.torch_export.calls.reduction import norm_of
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


@call("matmul", "mm", "bmm", "dot", "vdot", "mv")
def _matmul(c: OperatorCall) -> Result:
    return c.node("MatMul", c.x(), c.x(next(name for name in c.spec.inputs if name != "self")))


@call("linalg_multi_dot", "chain_matmul")
def _product_of_several(c: OperatorCall) -> Result:
    first, *others = c.get("matrices" if c.op == "chain_matmul" else "tensors")
    y: str = first.name
    for x in others:
        y = c.node("MatMul", y, x.name)
    return y


@call("_grouped_mm", "transformers.grouped_mm_fallback.default")
def _experts(c: OperatorCall) -> Result:
    """The matrix of each expert times its rows, which end at `offs`. All matrices multiply all
    rows, because the data decide how many rows each expert has."""
    is_fallback = c.op == "grouped_mm_fallback"
    x, weight, ends = (c.tensor(name) for name in (
        ("input", "weight", "offs") if is_fallback else ("self", "mat2", "offs")))
    if x.rank != 2 or weight.rank != 3 or c.get("bias") is not None:
        c.unsupported(f"groups of {x.rank} and {weight.rank} axes, or a bias")
    d, zero = ends.dtype, c.number(0, ends.dtype)
    rows = c.node("Squeeze", c.node("Shape", x.name, start=0, end=1), c.ints(0))
    row = c.node("Range", zero, c.cast(CallTensor(rows, i64, ()), d), c.number(1, d))
    end = c.node("Unsqueeze", ends.name, c.ints(1))
    begin = c.node("Concat", c.constant(np.zeros((1, 1), d.numpy)), c.node(
        "Slice", end, c.ints(0), c.ints(-1), c.ints(0)), axis=0)
    of_expert = c.node("And", c.node("LessOrEqual", begin, row), c.node("Less", row, end))
    y = c.node("MatMul", c.node("Unsqueeze", x.name, c.ints(0)), weight.name)
    own_rows = c.node("Where", c.node("Unsqueeze", of_expert, c.ints(2)), y, c.number(0, x.dtype))
    return c.node("ReduceSum", own_rows, c.ints(0), keepdims=0)


@call("linear")
def _linear(c: OperatorCall) -> Result:
    weight = c.tensor("weight")
    y = c.node("MatMul", c.x("input"),
               c.node("Transpose", weight.name, perm=[1, 0]) if weight.rank == 2 else weight.name)
    bias = c.get("bias")
    return y if bias is None else c.node("Add", y, bias.name)


@call("addmm", "baddbmm", "addmv", "addbmm", "addr")
def _added_product(c: OperatorCall) -> Result:
    x = c.tensor()
    a, b = [name for name in c.spec.inputs if name not in ("self", "alpha", "beta")]
    if c.op == "addr":
        y = c.node("Mul", c.node("Unsqueeze", c.x(a), c.ints(1)), c.x(b))
    else:
        y = c.node("MatMul", c.x(a), c.x(b))
    if c.op == "addbmm":
        y = c.node("ReduceSum", y, c.ints(0), keepdims=0)
    alpha, beta = c.get("alpha", 1), c.get("beta", 1)
    if alpha != 1:
        y = c.node("Mul", y, c.number(alpha, x.dtype))
    if beta == 0:  # PyTorch does not read x then, whose numbers may be undefined
        return y
    return c.node("Add", y, x.name if beta == 1 else c.node(
        "Mul", x.name, c.number(beta, x.dtype)))


@call("outer", "ger")
def _outer(c: OperatorCall) -> Result:
    return c.node("Mul", c.node("Unsqueeze", c.x(), c.ints(1)), c.x("vec2"))


@call("cdist", "_cdist_forward")
def _distances(c: OperatorCall) -> Result:
    order = c.get("p", 2.0)
    differences = c.node("Sub", c.node("Unsqueeze", c.x("x1"), c.ints(-2)),
                         c.node("Unsqueeze", c.x("x2"), c.ints(-3)))
    x = c.tensor("x1")
    return norm_of(c, order, CallTensor(differences, x.dtype, x.dims),
                   lambda op, y: c.node(op, y, c.ints(-1), keepdims=0))


@call("linalg_det", "_linalg_det", "det")
def _determinant(c: OperatorCall) -> Result:
    return c.node("Det", _matrices(c))


def _matrices(c: OperatorCall) -> str:
    return c.x("self" if "self" in c.spec.inputs else "A")


_MATRICES = {"linalg_inv": "Inverse", "inverse": "Inverse", "linalg_cholesky": "Cholesky",
             "linalg_slogdet": "SlogDet", "linalg_qr": "QR", "linalg_solve": "Solve"}


@call("linalg_inv", "inverse", "linalg_inv_ex", "linalg_cholesky", "linalg_cholesky_ex",
      "linalg_slogdet", "_linalg_slogdet", "linalg_qr")
def _of_matrix(c: OperatorCall) -> Result:
    op = _MATRICES[c.op.removesuffix("_ex").removeprefix("_")]
    attrs = {"mode": c.get("mode"), "upper": int(c.get("upper", False)) or None}
    return c.nodes(op, [_matrices(c)], 2 if op in ("SlogDet", "QR") else 1, domain="ztorch",
                   **attrs)


@call("linalg_eigh", "_linalg_eigh", "linalg_eigvalsh")
def _symmetric(c: OperatorCall) -> Result:
    upper = int(c.get("UPLO", "L").upper() == "U") or None
    if c.op == "linalg_eigvalsh" or not c.get("compute_v", True):
        return c.nodes("Eigvalsh", [_matrices(c)], 1, domain="ztorch", upper=upper)
    return c.nodes("Eigh", [_matrices(c)], 2, domain="ztorch", upper=upper)


@call("linalg_svd", "_linalg_svd", "linalg_svdvals")
def _singular(c: OperatorCall) -> Result:
    if c.op == "linalg_svdvals":
        return c.nodes("SVDVals", [_matrices(c)], 1, domain="ztorch")
    if not c.get("compute_uv", True):
        return ["", c.nodes("SVDVals", [_matrices(c)], 1, domain="ztorch")[0], ""]
    return c.nodes("SVD", [_matrices(c)], 3, domain="ztorch", full=int(
        c.get("full_matrices", True)))


@call("linalg_matrix_power", "matrix_power")
def _power(c: OperatorCall) -> Result:
    return c.nodes("MatrixPower", [_matrices(c)], 1, domain="ztorch", exponent=c.get("n"))[0]


@call("linalg_solve_triangular", "triangular_solve")
def _triangular(c: OperatorCall) -> Result:
    """X of A X = B, or of X A = B, where A is a triangular matrix."""
    a, b = ("self", "B") if c.op == "linalg_solve_triangular" else ("A", "self")
    upper, matrix, b_matrix = c.get("upper", True), c.tensor(a), c.x(b)
    is_transposed = not c.get("left", True) or c.get("transpose", False)
    order = [*range(matrix.rank - 2), matrix.rank - 1, matrix.rank - 2]
    a_matrix = matrix.name
    if c.get("unitriangular", False):
        size = matrix.dims[-1]
        if not isinstance(size, int):
            c.unsupported("matrices of an open size")
        ones = np.eye(size, dtype=matrix.dtype.working)
        a_matrix = c.node("Where", c.constant(ones > 0), c.constant(ones), a_matrix)
    if is_transposed:
        a_matrix, upper = c.node("Transpose", a_matrix, perm=order), not upper
    if not c.get("left", True):
        b_matrix = c.node("Transpose", b_matrix, perm=order)
    y = c.nodes("SolveTriangular", [a_matrix, b_matrix], 1, domain="ztorch", upper=int(upper))[0]
    return c.node("Transpose", y, perm=order) if not c.get("left", True) else y


@call("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex")
def _solution(c: OperatorCall) -> Result:
    a, b, last = c.tensor("A"), c.tensor("B"), c.ints(-1)
    if not c.get("left", True):
        a_matrix, b_matrix = (c.node("Transpose", x.name, perm=[
            *range(x.rank - 2), x.rank - 1, x.rank - 2]) for x in (a, b))
        y = c.nodes("Solve", [a_matrix, b_matrix], 1, domain="ztorch")[0]
        rank = max(a.rank, b.rank)
        return c.node("Transpose", y, perm=[*range(rank - 2), rank - 1, rank - 2])
    vector = b.rank == 1 or b.dims == a.dims[:-1]
    wide = c.node("Unsqueeze", b.name, last) if vector else b.name
    y = c.nodes("Solve", [a.name, wide], 1, domain="ztorch")[0]
    return c.node("Squeeze", y, last) if vector else y


@call("tensordot")
def _tensordot(c: OperatorCall) -> Result:
    x, y, letters = c.tensor(), c.tensor("other"), iter("abcdefghijklmnopqrstuvwxyz")
    x_letters, y_letters = ([next(letters) for _ in range(v.rank)] for v in (x, y))
    pairs = list(zip(c.integers("dims_self"), c.integers("dims_other"), strict=True))
    for a, b in pairs:
        y_letters[b] = x_letters[a]
    summed = {x_letters[a] for a, _ in pairs}
    result_letters = "".join(k for k in x_letters + y_letters if k not in summed)
    return c.node("Einsum", x.name, y.name,
                  equation=f"{''.join(x_letters)},{''.join(y_letters)}->{result_letters}")


@call("einsum")
def _einsum(c: OperatorCall) -> Result:
    return c.node("Einsum", *(x.name for x in c.get("tensors")), equation=c.get("equation"))


@call("scaled_dot_product_attention")
def _attention(c: OperatorCall) -> Result:
    if c.get("dropout_p", 0.0):
        c.unsupported("dropout in training; export module.eval()")
    names = [c.tensor(name) for name in ("query", "key", "value")]
    mask, rank = c.get("attn_mask"), names[0].rank
    if rank not in (3, 4):
        c.unsupported(f"attention of {rank} axes")
    heads = c.ints(1) if rank == 3 else ""
    q, k, v = (c.node("Unsqueeze", x.name, heads) if heads else x.name for x in names)
    inputs = [q, k, v]
    if mask is not None:
        inputs.append(c.node("Unsqueeze", mask.name, heads) if heads and mask.rank == 3
                      else mask.name)
    if rank == 3 and c.get("enable_gqa", False):
        c.unsupported("groups of queries without an axis of heads")
    y = c.node("Attention", *inputs, is_causal=int(c.get("is_causal", False)), scale=c.get("scale"))
    return c.node("Squeeze", y, heads) if heads else y
