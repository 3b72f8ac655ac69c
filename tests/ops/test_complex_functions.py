"""Functions of complex numbers beside NumPy's: values, special points, rules of parts, transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.grouping import together
from ztorch.errors import ConfigError, ShapeError, Unsupported

inf, nan = np.inf, np.nan
OTHER = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh", "angle": "angle"}
ELEMENTWISE = ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh",
               "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "square", "reciprocal",
               "sign", "abs", "angle", "conj", "isfinite", "isnan", "isinf", "neg", "round")
# NumPy's expm1 of infinities is none; the array API has that of exp. Signs of zeros of signs and squares,
# and 1 / 0, are nobody's rule.
WAVES = ("exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh")
UNRULED = ("expm1", "sign", "square", "reciprocal", "exp2", "log1p", "round")


def numpys(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(np, {"neg": "negative"}.get(name, OTHER.get(name, name)))
    return function


@pytest.fixture
def evaluated() -> Iterator[None]:
    with by_numpy():
        yield


def numbers(random: np.random.Generator, *shape: int) -> np.ndarray:
    parts = [random.normal(size=shape) for _ in "ri"]
    return parts[0] + 1j * parts[1]


# -- functions of single numbers ---------------------------------------------------------------------

def special() -> np.ndarray:
    ends = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf, nan])
    z = np.empty((9, 9), complex)
    z.real, z.imag = ends[:, None], ends
    return z.ravel()


def wide() -> np.ndarray:
    """Numbers of all sizes, on the axes and near 1 too."""
    random = np.random.default_rng(0)
    z = numbers(random, 600) * 10.0 ** random.integers(-6, 3, 600)
    edges = np.array([1 + 1e-9j, 0.6 + 0.8j, -1 + 1e-12j, 1e-20j, 3, -3, 2j, -2j, 1e18 + 1j, -1e-18 - 1e18j])
    large = numbers(random, 50) * 1e200
    return np.concatenate([z, edges, large])


@pytest.fixture(scope="module")
def compiled() -> Any:
    """All functions on the same numbers: one program a dtype."""
    function = zt.compiled(lambda z: {n: getattr(zt.ops, n)(z) for n in ELEMENTWISE})

    def run(z: np.ndarray) -> dict[str, np.ndarray]:
        results: dict[str, np.ndarray] = function(np.resize(z, wide().size))
        return {name: result[:z.size] for name, result in results.items()}

    return run


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_numbers_are_numpys(compiled: Any) -> None:
    z = wide()
    results = compiled(z)
    for name in ELEMENTWISE:
        want = numpys(name)(z)
        if name == "log1p":  # NumPy's loses digits near 0
            want = np.where(np.abs(z) < 1e-4, z - z**2 / 2 + z**3 / 3 - z**4 / 4,
                            np.log1p(z.astype(np.clongdouble)).astype(complex))
        near = np.isfinite(want) & (np.abs(z) < (1e15 if name in WAVES else inf))  # sines know no digit beyond
        np.testing.assert_allclose(results[name][near], want[near], rtol=3e-15, atol=1e-300, err_msg=name)
        assert results[name].dtype == want.dtype, name
    narrow = z[np.abs(z) < 80].astype(np.complex64)
    results = compiled(narrow)
    for name in ELEMENTWISE:
        want = numpys(name)(narrow.astype(complex))
        near = np.abs(want) < 1e38
        np.testing.assert_allclose(results[name][near], want[near], rtol=4e-6, atol=1e-30, err_msg=name)
        assert results[name].dtype.itemsize in (1, 4, 8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinities_nans_and_zeros_are_those_of_c(compiled: Any) -> None:
    """What C leaves open is the sign of a zero or an infinity beside NaN, or beside an infinity whose angle
    is not known."""
    z = special()
    results = compiled(z)
    for name in set(ELEMENTWISE) - set(UNRULED):
        want, got = numpys(name)(z), results[name]
        if name == "acosh":  # NumPy 2.2 has the older rule of C, where the angle of 0 + NaN i is NaN too
            want[(z.real == 0) & np.isnan(z.imag)] = complex(nan, np.pi / 2)
        for part in ("real", "imag"):
            a, b = getattr(got, part), getattr(want, part)
            np.testing.assert_allclose(np.abs(a), np.abs(b), rtol=1e-14, err_msg=f"{name}, {part}")
            known = np.isfinite(z) & np.isfinite(want) & (want.dtype != bool)
            assert (np.signbit(a) == np.signbit(b))[known].all() if want.dtype != bool else True, name
    table = dict(zip(map(str, z), results["expm1"], strict=True))
    assert str(table[str(complex(inf, 0.0))]) == "(inf+0j)" and table[str(complex(-inf, nan))] == -1
    with np.errstate(all="ignore"):
        near = np.isfinite(z) & (z != 0)
        np.testing.assert_allclose(results["reciprocal"][near], 1 / z[near], rtol=1e-15)
        np.testing.assert_allclose(results["sign"][near], z[near] / abs(z[near]), rtol=1e-15)


# -- two numbers -------------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "equal", "not_equal"])
@pytest.mark.usefixtures("evaluated")
def test_arithmetic_is_numpys(name: str) -> None:
    random = np.random.default_rng(1)
    x, y = numbers(random, 3, 1, 4), numbers(random, 2, 1)
    for a, b in ((x, y), (x, x), (x, y.real), (x.real, y), (x.astype(np.complex64), y), (x, 2.5), (3 - 1j, y)):
        want = getattr(np, name)(a, b)
        got = getattr(zt.ops, name)(a, b)
        np.testing.assert_allclose(got, want, rtol=1e-6 if want.dtype == np.complex64 else 1e-14)
        assert got.dtype == want.dtype
    if name == "divide":
        huge = np.array([1e300 + 1e300j, 1e-300 - 2e-300j])
        np.testing.assert_allclose(zt.ops.divide(huge, huge), [1, 1], rtol=1e-15)


@pytest.mark.usefixtures("evaluated")
def test_powers_are_numpys() -> None:
    x = numbers(np.random.default_rng(2), 5)
    for n in (0, 1, 2, 3, 7, 13, -1, -4):
        np.testing.assert_allclose(zt.ops.power(x, n), x**n, rtol=1e-14)
    for y in (x[::-1].copy(), 0.5, 1.5 - 2j, x.real.copy()):
        np.testing.assert_allclose(zt.ops.power(x, y), x**y, rtol=1e-14)
    zero = np.zeros(2, complex)
    assert zt.ops.power(zero, np.array([0j, 2 + 0j])).tolist() == [1, 0]
    np.testing.assert_allclose((2.0 ** zt.tensor(x)).numpy(), 2.0**x, rtol=1e-14)


# -- rules -------------------------------------------------------------------------------------------

C = numbers(np.random.default_rng(3), 3, 4)
MOVES: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("reshape", lambda x: zt.ops.reshape(x, (2, 6)), lambda x: x.reshape(2, 6)),
    ("transpose", lambda x: x.T, lambda x: x.T), ("flip", lambda x: zt.ops.flip(x, 0), lambda x: np.flip(x, 0)),
    ("roll", lambda x: zt.ops.roll(x, 2, 1), lambda x: np.roll(x, 2, 1)),
    ("concat", lambda x: zt.ops.concat([x, x.real], axis=0), lambda x: np.concatenate([x, x.real])),
    ("stack", lambda x: zt.ops.stack([x, x], axis=1), lambda x: np.stack([x, x], 1)),
    ("where", lambda x: zt.ops.where(x.real > 0, x, 1j), lambda x: np.where(x.real > 0, x, 1j)),
    ("take", lambda x: zt.ops.take(x, np.array([2, 0]), axis=1), lambda x: x[:, [2, 0]]),
    ("take_along_axis", lambda x: zt.ops.take_along_axis(x, np.array([[2, 0]] * 3), axis=1), lambda x: x[:, [2, 0]]),
    ("repeat", lambda x: zt.ops.repeat(x, 2, axis=0), lambda x: np.repeat(x, 2, 0)),
    ("tile", lambda x: zt.ops.tile(x, (1, 2)), lambda x: np.tile(x, (1, 2))),
    ("tril", lambda x: zt.ops.tril(x), np.tril), ("squeeze", lambda x: zt.ops.squeeze(x[None]), lambda x: x),
    ("broadcast_to", lambda x: zt.ops.broadcast_to(x[0], (2, 4)), lambda x: np.broadcast_to(x[0], (2, 4))),
    ("pad", lambda x: zt.ops.pad(x, (1, 0), (0, 1), 2j), lambda x: np.pad(x, ((1, 0), (0, 1)), constant_values=2j)),
    ("split", lambda x: zt.ops.split(x, 2, axis=1)[1], lambda x: x[:, 2:]),
    ("moveaxis", lambda x: zt.ops.moveaxis(x, 0, 1), lambda x: np.moveaxis(x, 0, 1)),
    ("diff", lambda x: zt.ops.diff(x, prepend=1j), lambda x: np.diff(x, prepend=1j)),
    ("index", lambda x: x[1, ::-2], lambda x: x[1, ::-2]), ("mask", lambda x: x[np.eye(3, 4) > 0], lambda x: x[
        np.eye(3, 4) > 0]), ("gather", lambda x: x[[0, 2], None, 1:3], lambda x: x[[0, 2], None, 1:3]),
    ("sum", lambda x: x.sum(axis=0), lambda x: x.sum(0)), ("mean", lambda x: x.mean(keepdims=True), lambda x: x.mean(keepdims=True)),
    ("prod", lambda x: x.prod(axis=1, keepdims=True), lambda x: x.prod(1, keepdims=True)),
    ("prod of all", lambda x: zt.ops.prod(x), np.prod), ("prod of none", lambda x: zt.ops.prod(x[:0], axis=0), lambda x: x[:0].prod(0)),
    ("cumsum", lambda x: zt.ops.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    ("cumprod", lambda x: zt.ops.cumprod(x, 1), lambda x: np.cumprod(x, 1)),
    ("cumprod with the first", lambda x: zt.ops.cumprod(x, 0, include_initial=True),
     lambda x: np.concatenate([np.ones((1, 4)), np.cumprod(x, 0)])),
    ("any", lambda x: zt.ops.any(x * np.array([0, 0, 1j, 0]), axis=0), lambda x: [False, False, True, False]),
    ("all", lambda x: zt.ops.all(x), lambda x: True), ("count", lambda x: zt.ops.count_nonzero(x), lambda x: np.int32(12)),
    ("isclose", lambda x: zt.ops.isclose(x, x + 1e-9j), lambda x: np.ones((3, 4), bool)),
    ("matmul", lambda x: x @ x.conj().T, lambda x: x @ x.conj().T), ("outer", lambda x: zt.ops.outer(x[0], x[1]), lambda x: np.outer(x[0], x[1])),
    ("matmul with reals", lambda x: x.real @ x.T, lambda x: x.real @ x.T),
    ("tensordot", lambda x: zt.ops.tensordot(x, x, 2), lambda x: np.tensordot(x, x, 2)),
    ("einsum", lambda x: zt.ops.einsum("ij,kj,ij->ik", x, x, x), lambda x: np.einsum("ij,kj,ij->ik", x, x, x)),
    ("vecdot", lambda x: zt.ops.vecdot(x, x[:1]), lambda x: (x.conj() * x[:1]).sum(-1)),
    ("vdot", lambda x: zt.ops.vdot(x, x), lambda x: np.vdot(x, x)), ("kron", lambda x: zt.ops.kron(x, x), lambda x: np.kron(x, x)),
    ("cross", lambda x: zt.ops.cross(x[0, :3], x[1, :3]), lambda x: np.cross(x[0, :3], x[1, :3])),
    ("trace", lambda x: zt.ops.trace(x), np.trace), ("full_like", lambda x: zt.ops.full_like(x, 2j), lambda x: np.full_like(x, 2j)),
    ("ones_like", lambda x: zt.ones_like(x), np.ones_like), ("zeros_like", lambda x: zt.ops.zeros_like(x), np.zeros_like),
    ("isin", lambda x: zt.ops.isin(x, x[1], True), lambda x: np.isin(x, x[1], invert=True)), (
        "cast", lambda x: x.astype("complex64").astype("bool"), lambda x: x.astype(bool)),
    ("nan_to_num", lambda x: zt.ops.nan_to_num(x / 0.0 * 0.0), lambda x: np.zeros((3, 4), complex))]


@together()
@pytest.mark.parametrize(("name", "ours", "numpys"), MOVES, ids=[name for name, _, _ in MOVES])
@pytest.mark.usefixtures("evaluated")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arithmetic_and_movement_match_numpy(name: str, ours: Any, numpys: Any) -> None:
    got, want = ours(zt.tensor(C)).numpy(), np.asarray(numpys(C))
    np.testing.assert_allclose(got, want, rtol=1e-13)
    assert got.dtype == want.dtype and got.shape == want.shape


def test_rules_compile_in_one_program() -> None:
    """Kernels of some of them, which the others share."""
    names = ("where", "cumprod", "prod of all", "matmul", "einsum", "vecdot", "concat", "diff")
    chosen = {name: (ours, numpys) for name, ours, numpys in MOVES if name in names}
    results = zt.compiled(lambda x: {name: ours(x) for name, (ours, _) in chosen.items()})(zt.tensor(C))
    for name, (_, want) in chosen.items():
        np.testing.assert_allclose(results[name].numpy(), want(C), rtol=1e-13, err_msg=name)


# -- matrices and transforms -------------------------------------------------------------------------


@pytest.mark.usefixtures("evaluated")
def test_linear_algebra_is_numpys() -> None:
    random = np.random.default_rng(4)
    a, b, tall = numbers(random, 2, 4, 4), numbers(random, 2, 4, 3), numbers(random, 5, 3)
    x, linalg, xp = zt.tensor(a), zt.array_api.linalg, zt.array_api

    def near(got: Any, want: Any) -> None:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)

    near(linalg.inv(x), np.linalg.inv(a))
    near(linalg.solve(x, zt.tensor(b)), np.linalg.solve(a, b))
    near(linalg.solve(x[0], zt.tensor(b[0, :, 0])), np.linalg.solve(a[0], b[0, :, 0]))
    near(linalg.det(x), np.linalg.det(a))
    near(linalg.det(x[:, ::-1]), np.linalg.det(a[:, ::-1]))
    for got, want in zip(linalg.slogdet(x), np.linalg.slogdet(a), strict=True):
        near(got, want)
    near(linalg.matrix_power(x, 3), np.linalg.matrix_power(a, 3))
    near(linalg.matrix_power(x, -2), np.linalg.matrix_power(a, -2))
    near(linalg.svdvals(zt.tensor(tall)), np.linalg.svd(tall, compute_uv=False))
    near(linalg.pinv(zt.tensor(tall)), np.linalg.pinv(tall))
    near(linalg.pinv(zt.tensor(tall), rtol=zt.tensor(0.5)), np.linalg.pinv(tall, rtol=0.5))
    hermitian = a + a.conj().swapaxes(-1, -2)
    near(linalg.eigvalsh(zt.tensor(hermitian)), np.linalg.eigvalsh(hermitian))
    positive = a @ a.conj().swapaxes(-1, -2)
    near(linalg.cholesky(zt.tensor(positive)), np.linalg.cholesky(positive))
    near(linalg.cholesky(zt.tensor(positive), upper=True), np.linalg.cholesky(positive, upper=True))
    for order in ("fro", "nuc", 1, 2, -2, np.inf):
        near(linalg.matrix_norm(x, ord=order), np.linalg.norm(a, order, (-2, -1)))
    for order in (1, 2, 3, np.inf):
        near(linalg.vector_norm(x, ord=order, axis=1), np.linalg.norm(a, order, 1))
    rank = zt.tensor(np.array([[1, 1j], [1j, -1]]))
    assert linalg.matrix_rank(rank).item() == 1 and linalg.det(rank).item() == 0
    near(xp.matrix_transpose(x), a.swapaxes(-1, -2))
    with pytest.raises(ShapeError, match="square"):
        linalg.inv(zt.tensor(tall))
    with pytest.raises(Unsupported, match="256 columns"):
        linalg.inv(zt.zeros((300, 300), dtype="complex64"))


@together()
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.usefixtures("evaluated")
def test_transforms_are_numpys(norm: Any) -> None:
    fft = zt.array_api.fft
    z = numbers(np.random.default_rng(5), 3, 6)
    x = zt.tensor(z)

    def near(name: str, of: np.ndarray, **attrs: Any) -> None:
        got, want = getattr(fft, name)(zt.tensor(of), norm=norm, **attrs), getattr(np.fft, name)(of, norm=norm, **attrs)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12, err_msg=f"{name} {attrs}")
        assert got.dtype.long == str(want.dtype)

    for name in ("fft", "ifft", "irfft", "hfft"):
        for attrs in ({}, {"n": 4}, {"n": 9}, {"axis": 0}, {"axis": -2, "n": 5}):
            near(name, z, **attrs)
    for name in ("rfft", "ihfft"):
        for attrs in ({}, {"n": 4}, {"n": 9}, {"axis": 0}):
            near(name, z.real, **attrs)
    for name in ("fftn", "ifftn", "irfftn"):
        for attrs in ({}, {"axes": (0,)}, {"s": (4, 5), "axes": (1, 0)}):
            near(name, z, **attrs)
    near("rfftn", z.real)
    near("rfftn", z.real, s=(4, 5), axes=(1, 0))
    near("fft", z.real)
    if norm == "backward":
        np.testing.assert_allclose(zt.ops.fft2(x).numpy(), np.fft.fft2(z), atol=1e-12)
        np.testing.assert_allclose(fft.fftshift(x, axes=1).numpy(), np.fft.fftshift(z, 1))
        np.testing.assert_allclose(fft.fftfreq(5, d=2.0, dtype=zt.array_api.float64).numpy(), np.fft.fftfreq(5, 2.0))
        real, imag = zt.ops.fft((z.real, z.imag))  # of pairs, as Keras has it
        np.testing.assert_array_equal(real + 1j * imag, zt.ops.fft(z))


def test_transforms_refuse_invalid_input() -> None:
    z = zt.tensor([1j, 2.0])
    fft = zt.array_api.fft
    for wrong, kind, words in (
            (lambda: fft.rfft(z), zt.errors.DataError, "real numbers, not complex64; use fft.fft"),
            (lambda: fft.fft(z, norm="half"), ConfigError, "norm='half'"), (lambda: fft.hfft(z, norm="half"), ConfigError, "norm='half'"),
            (lambda: fft.fft(z, axis=3), ShapeError, "axis 3"), (lambda: fft.fft(z, n=0), ShapeError, "length of 1"),
            (lambda: fft.fftn(z, s=(2, 2), axes=(0,)), ShapeError, "one length per axis"),
            (lambda: fft.fftfreq(3, dtype="complex64"), zt.errors.DataError, "real numbers")):
        with pytest.raises(kind, match=words):
            wrong()
