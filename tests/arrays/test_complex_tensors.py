"""Complex tensors: how they are made and shown, promotion, other libraries, functions that are transformed
or compiled, and errors.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.available import device as available
from tests.cases.grouping import together
from ztorch.errors import ConfigError, DataError, DeviceError, ShapeError, UnknownName, Unsupported
from ztorch.graph.op import leaf

Z = np.array([[1 + 2j, 3 - 4j, 0.5j], [-1.5, 2 - 0.25j, -0.75 - 1j]])


@pytest.fixture
def evaluated() -> Iterator[None]:
    with by_numpy():
        yield


# -- tensors -----------------------------------------------------------------------------------------


def test_repr_dtype_and_shape() -> None:
    z = zt.tensor(Z)
    assert (z.shape, z.ndim, z.size, z.nbytes, len(z)) == ((2, 3), 2, 6, 96, 2)
    assert z.dtype is zt.complex128 is zt.array_api.complex128 and str(z.dtype) == "complex128"
    assert pickle.loads(pickle.dumps(z.dtype)) is z.dtype and z.device == "cpu"
    np.testing.assert_array_equal(z.real.numpy(), Z.real)
    np.testing.assert_array_equal(z.imag.numpy(), Z.imag)
    np.testing.assert_array_equal(z.numpy(), Z)
    assert z.tolist() == Z.tolist() and z[0, 1].item() == complex(z[0, 1]) == 3 - 4j
    assert repr(zt.tensor([1 + 2j])) == "tensor([1.+2.j], dtype=complex64, device='cpu')"
    assert f"{z[0, 0]:.1f}" == "1.0+2.0j" and str(z[0]) == str(Z[0]) and "<table>" in z._repr_html_()
    assert [row.tolist() for row in z] == Z.tolist() and bool(z[0, 0]) and 0.5j in z and 7 not in z
    assert (z == Z).all() and not (z != Z).any() and (z == None) is False  # noqa: E711
    x = zt.tensor([1.0, 2.0])
    assert x.real is x and x.imag.tolist() == [0, 0] and zt.ops.conj(x).tolist() == [1, 2]
    assert z.to("cpu").real is z.real and z.realize() is z


@together()
@pytest.mark.parametrize(("made", "want", "dtype"), [
    (lambda: zt.tensor(2j), 2j, "complex64"), (lambda: zt.tensor([1, 2.5, 1j]), [1, 2.5, 1j], "complex64"),
    (lambda: zt.tensor(np.complex64(1j)), 1j, "complex64"), (lambda: zt.tensor(Z.astype("c8")), Z, "complex64"),
    (lambda: zt.tensor(Z, "complex64"), Z, "complex64"), (lambda: zt.tensor([1, 2], zt.complex128), [1, 2], "complex128"),
    (lambda: zt.asarray(Z), Z, "complex128"), (lambda: zt.asarray(zt.tensor(Z)), Z, "complex128"),
    (lambda: zt.tensor(zt.tensor([1.0]), "complex64"), [1], "complex64"),
    (lambda: zt.tensor(zt.tensor(Z), "complex64"), Z, "complex64"),
    (lambda: zt.zeros((2,), "complex64"), [0, 0], "complex64"), (lambda: zt.ones(2, np.complex128), [1, 1], "complex128"),
    (lambda: zt.full((2,), 1 - 2j), [1 - 2j] * 2, "complex64"), (lambda: zt.full(1, 3, "complex128"), [3], "complex128"),
    (lambda: zt.full_like(zt.zeros(2), 1j, "complex64"), [1j, 1j], "complex64"),
    (lambda: zt.arange(3, dtype="complex64"), [0, 1, 2], "complex64"),
    (lambda: zt.linspace(0, 2j, 3, dtype="complex128"), [0, 1j, 2j], "complex128"),
    (lambda: zt.eye(2, dtype="complex64"), [[1, 0], [0, 1]], "complex64"),
    (lambda: zt.ops.complex(zt.tensor([1.0, 2.0]), 1.0), [1 + 1j, 2 + 1j], "complex64"),
    (lambda: zt.ops.complex(np.float64(1), 0.0), 1, "complex128"),
    (lambda: zt.ops.polar(2.0, np.float32(0)), 2, "complex64"),
    (lambda: zt.ops.view_as_complex(zt.tensor([[1.0, 2.0]])), [1 + 2j], "complex64"),
    (lambda: zt.ops.convert_to_tensor(Z), Z, "complex128"),
], ids=range(23))
@pytest.mark.usefixtures("evaluated")
def test_creation(made: Any, want: Any, dtype: str) -> None:
    z = made()
    assert isinstance(z, zt.ComplexTensor) and z.dtype.long == dtype
    np.testing.assert_allclose(z.numpy(), np.asarray(want).astype(dtype), rtol=1e-6)


NUMBERS = [1j, 1.5, 2, True, np.float32(1), np.complex64(1j), np.ones(1, np.int8), np.ones(1, np.int64),
           np.ones(1, np.float64), np.ones(1, np.complex64), np.ones(1, np.complex128)]


@pytest.mark.usefixtures("evaluated")
def test_dtypes_are_numpys() -> None:
    for d in ("int8", "int16", "int32", "float16", "float32", "float64", "complex64", "complex128"):
        ones = np.ones(2, d)
        for other in NUMBERS:
            if np.iscomplexobj(ones) or np.iscomplexobj(other):
                assert (zt.tensor(ones) * other).dtype.long == str((ones * other).dtype), (d, other)
                assert (other - zt.tensor(ones)).dtype.long == str((other - ones).dtype), (d, other)


def test_other_libraries_read_and_give_them() -> None:
    z = zt.tensor(Z)
    assert pickle.loads(pickle.dumps(z)).tolist() == Z.tolist()
    np.testing.assert_array_equal(np.asarray(z), Z)
    np.testing.assert_array_equal(np.from_dlpack(z), Z)
    assert np.asarray(z, np.complex64).dtype == np.complex64 and zt.from_dlpack(Z).tolist() == Z.tolist()
    assert isinstance(np.multiply(Z, z), zt.ComplexTensor) and isinstance(np.exp(z), zt.ComplexTensor)
    assert isinstance(Z * z, zt.ComplexTensor) and isinstance(np.add.reduce(z, 0), np.ndarray)
    assert type(zt.ops.exp(Z)) is np.ndarray and type(zt.ops.exp([1j])) is np.ndarray
    for wrong, kind in ((lambda: np.array(z, copy=False), ValueError), (lambda: z.__dlpack__(copy=False), BufferError),
                        (lambda: zt.asarray(Z, copy=False), ConfigError)):
        with pytest.raises(kind, match=r"parts .*separate"):
            wrong()


def test_pytorch_reads_and_gives_them() -> None:
    torch = pytest.importorskip("torch")
    z, t = zt.tensor(Z), torch.tensor(Z)
    assert torch.from_dlpack(z).equal(t) and zt.tensor(t).tolist() == Z.tolist()
    assert zt.from_dlpack(t).dtype is zt.complex128


# -- functions ---------------------------------------------------------------------------------------


def test_functions_of_complex_tensors_are_compiled_and_mapped() -> None:
    function = zt.compiled(lambda w, s: {"y": w * s, "size": abs(w), "turned": (w[::-1], s)})
    for scale in (2j, 0.5):
        for w in (zt.tensor(Z), Z):
            result = function(w, scale)
            assert isinstance(result["y"], type(w)) and isinstance(result["size"], zt.Tensor if w is not Z else np.ndarray)
            np.testing.assert_allclose(np.asarray(result["y"]), Z * scale)
            np.testing.assert_allclose(np.asarray(result["turned"][0]), Z[::-1])
    w = zt.tensor(Z)
    for k in range(4):  # the first calls are learned from, the others go to native code
        w = zt.tensor(Z * (k + 1))
        turned = function(w, zt.tensor(1j))
        np.testing.assert_allclose(turned["y"].numpy(), 1j * w.numpy())
        assert turned["turned"][0].dtype is zt.complex128 and turned["turned"][1].item() == 1j
    assert function(w[0], zt.tensor(1.0))["y"].shape == (3,) and function(w.real, 2.0)["y"].dtype.long == "float64"
    mapped = zt.vmap(lambda row, c: zt.ops.vecdot(row, row) * c, in_axes=(0, None))(zt.tensor(Z), zt.tensor(1j))
    np.testing.assert_allclose(mapped.numpy(), 1j * (abs(Z) ** 2).sum(1))
    last, steps = zt.ops.scan(lambda state, row: (state * row, state), zt.ones(3, "complex128"), zt.tensor(Z))
    np.testing.assert_allclose(last.numpy(), Z.prod(0))
    np.testing.assert_allclose(steps.numpy(), [np.ones(3), Z[0]])


@pytest.mark.usefixtures("evaluated")
def test_sets_are_in_the_order_of_numpy() -> None:
    x = np.array([2 + 1j, 1j, 2, 2 + 1j, -1 + 3j, 1j, 0])
    result = zt.array_api.unique_all(zt.tensor(x))
    wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    assert zt.array_api.nonzero(zt.tensor(x))[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_optimizers_reduce_losses_of_complex_parameters() -> None:
    goal, optimizer = zt.tensor(Z), zt.optimizers.Adam(0.1)
    w = zt.zeros_like(goal)

    @zt.compiled
    def step(w: Any) -> Any:
        loss, slope = zt.value_and_grad(lambda w: (abs(w - goal) ** 2.0).mean())(w)
        return loss, optimizer.update(w, slope)

    losses = []
    for _ in range(60):
        loss, w = step(w)
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0] and isinstance(w, zt.ComplexTensor)


def test_a_chain_is_one_program(builds: list[str]) -> None:
    """Of both parts; a number that varies is an input from its second value on, as elsewhere."""
    for number in (1 + 1j, 2.5 - 1j, 0.25 + 2j):
        z = zt.tensor(Z)
        y = (zt.ops.exp(z * z + number) / (z - 2)).realize()
        np.testing.assert_allclose(y.numpy(), np.exp(Z * Z + number) / (Z - 2), rtol=1e-13)
    assert len(builds) == 2


def test_expressions_of_many_shapes_are_numpys() -> None:
    """Random expressions, of operands that broadcast, real and complex ones."""
    random = np.random.default_rng(6)
    binary = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
    unary = {"sin": np.sin, "tanh": np.tanh, "conj": np.conj, "square": np.square, "sqrt": np.sqrt}
    with by_numpy():
        for _ in range(40):
            shape = tuple(random.integers(1, 4, random.integers(0, 4)))
            pair: list[tuple[Any, Any]] = []
            for _ in range(3):
                own = tuple(n if random.random() < 0.7 else 1 for n in shape[random.integers(0, len(shape) + 1):])
                x = random.normal(size=own) + (1j * random.normal(size=own) if random.random() < 0.6 else 0)
                pair.append((zt.tensor(x), x))
            for _ in range(5):
                (a, x), (b, y) = (pair[k] for k in random.integers(0, len(pair), 2))
                name = random.choice(list(binary))
                pair.append((getattr(zt.ops, name)(a, b), binary[name](x, y)))
                name = random.choice(list(unary))
                if np.iscomplexobj(pair[-1][1]):
                    pair.append((getattr(zt.ops, name)(pair[-1][0]), unary[name](pair[-1][1])))
            for ours, want in pair:
                np.testing.assert_allclose(ours.numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("device", ["opencl:0", "vulkan:0", "webgpu:0"])
def test_devices_compute_them(device: str) -> None:
    available(device.partition(":")[0])
    z = zt.tensor(Z, device=device, dtype="complex64")
    result = zt.compiled(lambda z: zt.ops.tanh(z @ z.mT) / 2j + zt.array_api.fft.fft(z)[:, :2])(z)
    assert result.device == z.imag.device == device
    want = np.tanh(Z @ Z.T) / 2j + np.fft.fft(Z)[:, :2]
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(DeviceError, match=r"\.to\("):
        z + zt.tensor(Z)


# -- errors ------------------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize(("wrong", "kind", "words"), [
    (lambda z: z < z, Unsupported, "zt.ops.less has no form .*complex128"), (lambda z: z <= 1.0, Unsupported, "zt.ops.less_equal"),
    (lambda z: zt.ops.sort(z), Unsupported, "zt.ops.sort"), (lambda z: z.max(), Unsupported, "zt.ops.max"),
    (lambda z: zt.ops.argmax(z), Unsupported, "zt.ops.argmax"), (lambda z: z // 2, Unsupported, "floor_divide"),
    (lambda z: zt.array_api.floor(z), Unsupported, "zt.ops.floor"), (lambda z: zt.ops.softmax(z), Unsupported, "zt.ops.softmax"),
    (lambda z: z.astype("float32"), Unsupported, "lose their imaginary part"),
    (lambda z: zt.asarray(z, "float32"), ConfigError, "not of float32"),
    (lambda z: z + zt.ones(5), ShapeError, r"zt\.ops\.add"), (lambda z: z @ z, ShapeError, "matmul"),
    (lambda z: z[0, 9], ShapeError, "out of range"), (lambda z: z.sum(axis=4), ShapeError, "axis 4"),
    (lambda z: zt.ops.exp(z, z), TypeError, "zt.ops.exp"), (lambda z: z.item(), ShapeError, "one element"),
    (lambda z: bool(z), ShapeError, "any"), (lambda z: float(z[0, 0]), TypeError, "abs"), (lambda z: int(z[0, 0]), TypeError, "abs"),
    (lambda z: z.__setitem__(0, 1), TypeError, "never changes"), (lambda z: zt.Tensor(z), DataError, "complex128"),
    (lambda z: zt.rand((2,), dtype="complex64"), UnknownName, "complex64 is only a dtype of tensors"),
    (lambda z: zt.layers.Input((2,), dtype="complex64"), UnknownName, "models, kernels"),
    (lambda z: zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1)]).compile("cpu", dtype="complex64"), UnknownName,
     "models, kernels"),
    (lambda z: zt.layers.Dense(2)(z), ShapeError, "ComplexTensor"),
    (lambda z: zt.layers.Input((3,)) * z, ConfigError, "tensors of a model"),
    (lambda z: zt.ops.add(leaf("input", "x", (3,), "float32"), z), Unsupported, "models compute with real numbers .*complex128"),
    (lambda z: zt.grad(lambda w: (w * w).sum())(z), ShapeError, "one number"),
    (lambda z: zt.ops.complex(z, z), DataError, "complex128"), (lambda z: zt.ops.view_as_complex(np.ones(3)), ShapeError, "size 2"),
    (lambda z: zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1)]).compile("cpu", batch_size=2).predict(z), DataError, "complex"),
], ids=range(31))
@pytest.mark.usefixtures("evaluated")
def test_errors_name_functions_of_real_numbers(wrong: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        wrong(zt.tensor(Z))


def test_files_and_explanations_show_parts(tmp_path: Any) -> None:
    z = zt.tensor(Z, dtype="complex64")
    assert "fuses mul, sub, add, hypot" in zt.explain(lambda w: abs(w * w), z, device="cpu:avx2")
    path = tmp_path / "squares.zt"
    zt.export(lambda w: abs(w * w), path, z, device="cpu")
    squares = zt.load_function(path)(Z.real.astype("float32"), Z.imag.astype("float32"))
    np.testing.assert_allclose(squares, abs(Z * Z), rtol=1e-6)
