"""Names that users of NumPy and PyTorch type first on a tensor exist, or the error says which do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch.errors import ConfigError, UnknownName

A = np.random.default_rng(3).uniform(-2, 2, (3, 4)).astype(np.float32)
V = np.array([1.0, 2.0, -3.0, 0.5], np.float32)

# Expressions that mean the same for arrays of NumPy.
LIKE_NUMPY = """x.T; x.mT; x.mean(); x.mean(axis=0); x.mean(-1); x.reshape(4, 3); x.reshape((2, 6)); x.reshape(-1)
x.astype('int32'); x.astype(int); x.sum(axis=1, keepdims=True); x.sum((0, 1)); x.argmax(); x.argmin(axis=1); x.size
x.ndim; x.shape; x.nbytes; x.flatten(); x.ravel(); x.clip(0, 1); x.clip(min=0); (x > 0).any(); (x > 0).all(axis=1)
x.std(); x.std(axis=0, ddof=1); x.var(); x.cumsum(axis=0); x.dot(v); v.dot(v); v[0].item(); x.tolist(); x.prod()
x.max(axis=1); x.min(); x.transpose(1, 0); x.transpose(); x.swapaxes(0, 1); x[None].squeeze(); x.round(); x.trace()
x.diagonal(); x.repeat(2, axis=0); x.take([0, 2], axis=1); v.argsort(); abs(x); len(x)
float(v[0]); x[x > 0]; x @ x.T; x // 0.5; x[1, ::2]; x[..., 0]; x[[0, 2]]""".replace("\n", "; ").split("; ")

# And that mean the same for tensors of PyTorch.
LIKE_TORCH = """x.view(4, 3); x.view(-1); x.permute(1, 0); x.unsqueeze(0); x.clamp(min=0); x.clamp(-1, 1); x.mm(x.T); x.pow(2)
x.relu(); x.sigmoid(); x.softmax(-1); x.exp(); x.abs().log(); x.abs().sqrt(); x.eq(x); x.maximum(-x); x.add(x)
x.isnan(); x.tile((2, 1)); x.norm(); x.topk(2)[0]; x.neg(); x.flip(0); x.tril(); x.log_softmax(-1)""".replace(
    "\n", "; ").split("; ")

INSTEAD = {  # required text of an error
    "x.backward()": "    value, grads = zt.value_and_grad(loss)(params)\n    params = optimizer.update(params, grads)",
    "x.grad": "zt.value_and_grad(loss)(params)", "x.requires_grad": "zt.value_and_grad(loss)(params)",
    "x.detach()": "ops.stop_gradient", "x.cpu()": "x.to('cpu')", "x.cuda()": "x.to('cuda:0')",
    "x.float()": "x.astype('float32')", "x.long()": "x.astype('int64')", "x.bool()": "x.astype('bool')",
    "x.numel()": "x.size", "x.dim()": "x.ndim", "x.clone()": "never change", "x.copy()": "never change",
    "x.add_(1)": "the op without _", "x.fill_(1)": "the op without _", "x.contiguous()": "C order",
    "x.view_as(x)": "x.reshape(other.shape)", "x.type_as(x)": "x.astype(other.dtype)", "x.tobytes()": "x.numpy().tobytes()",
    "x.nonzero()": "zt.ops.nonzero(x)", "x.unique()": "zt.ops.unique(x)", "x.masked_fill(x > 0, 0)": "ops.where",
    "x.new_zeros(3)": "zt.zeros(shape, x.dtype)", "x.index_add(0, 0, x)": "ops.scatter_add", "x.meen()": "mean",
    "x.sum(dim=1)": "dim is axis here; its signature is sum(x: Value, axis: Axes", "x.mean(0, keepdim=True)": "keepdim is keepdims here",
    "zt.ops.indices((2, 3))": "ops.meshgrid", "zt.fft.rfft(x)": "zt.ops.rfft", "zt.ops.piecewise(x)": "ops.select",
    "zt.jacrev(len)": "zt.jacobian", "zt.ops.broadcast_shapes((2,))": "np.broadcast_shapes",
    "x.to('float64')": "x.astype(...)", "x.to(np.float32)": "x.astype(...)", "zt.ones(3, 4)": "one tuple, such as (3, 4)",
    "zt.ops.cat([x, x], dim=1)": "dim is axis here", "x.__setitem__(0, 1)": "a tensor never changes",
    "zt.ops.random.normal((2,))": "use zt.random", "zt.ops.mode(x)": "bincount", "zt.ops.lu(x)": "use ops.lu_factor",
    "zt.ops.softmin(x)": "ops.softmax(-x)", "zt.ops.triangular_solve(x, x)": "ops.solve_triangular",
    "zt.ops.r_[1, 2]": "ops.concat", "zt.ops.lgamma(x)": "no function of the gamma family", "zt.ndarray": "zt.Tensor",
    "zt.ops.cummin(x)": "associative_scan(ops.minimum", "zt.ops.gradient(x, x[0, 0])": "a tensor; its number is x.item()"}


def value(text: str, x: Any, v: Any) -> Any:
    return eval(text, {"x": x, "v": v, "zt": zt, "np": np})


@pytest.mark.parametrize(("texts", "theirs"), [(LIKE_NUMPY, lambda: (A, V)), (
    LIKE_TORCH, lambda: tuple(map(references.torch().from_numpy, (A, V))))], ids=["numpy", "torch"])
def test_names_of_other_libraries(texts: list[str], theirs: Callable[[], tuple[Any, Any]]) -> None:
    with zt.device("cpu"):
        x, v = zt.tensor(A), zt.tensor(V)
        for text in texts:
            want, got = np.asarray(value(text, *theirs())), np.asarray(value(text, x, v))
            assert got.shape == want.shape, text
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6, err_msg=text)


def test_errors_name_the_existing_function() -> None:
    x = zt.tensor(A, device="cpu")
    for text, told in INSTEAD.items():
        with pytest.raises((AttributeError, TypeError, ConfigError, UnknownName)) as caught:
            value(text, x, x)
        assert told in str(caught.value), (text, str(caught.value))


@pytest.mark.parametrize("name", ["fft", "fftshift", "rfft", "rfftfreq"])
def test_numpys_module_fft(name: str) -> None:
    given: Any = {"fft": V + 1j * V[::-1], "rfftfreq": 4}.get(name, V)
    want, got = getattr(np.fft, name)(given), getattr(zt.ops.fft, name)(given)
    parts = got[0] + 1j * np.asarray(got[1]) if isinstance(got, tuple) else np.asarray(got)
    np.testing.assert_allclose(parts, want, rtol=1e-6)
