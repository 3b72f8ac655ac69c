"""First values of weights: their spread, and that a seed and a name alone decide them."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import initializers
from ztorch.errors import ConfigError, UnknownName
from ztorch.initializers import get, stream
from ztorch.initializers.variance_scaling import fans

SHAPE = (200, 300)
SPREAD = {
    "glorot_uniform": 2 / 500, "glorot_normal": 2 / 500, "he_uniform": 2 / 200,
    "he_normal": 2 / 200, "lecun_uniform": 1 / 200, "lecun_normal": 1 / 200,
    "random_normal": 0.05**2, "random_uniform": 0.05**2 / 3, "zeros": 0, "ones": 0,
}


@pytest.mark.cheap
@pytest.mark.parametrize("name", SPREAD)
def test_spread(name):
    x = get(name)(SHAPE, stream(0, "w"))
    assert x.shape == SHAPE and x.dtype == np.float64
    np.testing.assert_allclose(x.var(), SPREAD[name], rtol=0.02)
    assert abs(x.mean() - (name == "ones")) < 4 * np.sqrt(SPREAD[name] / x.size) + 1e-12


@pytest.mark.cheap
@pytest.mark.parametrize("name, width", [("truncated_normal", 0.1),
                                         ("he_normal", 0.1 * 2 / 0.8796256610342398)])
def test_truncated_at_two_deviations(name, width):
    x = get(name)((200, 200), stream(1, "w"))
    assert 0.97 * width < abs(x).max() <= width


def test_orthogonal():
    for shape in ((30, 20), (20, 30), (3, 3, 4, 8)):
        x = get(initializers.Orthogonal(gain=2.0))(shape, stream(0, "w"))
        flat = x.reshape(-1, shape[-1])
        flat = flat if flat.shape[0] >= flat.shape[1] else flat.T
        np.testing.assert_allclose(flat.T @ flat, 4 * np.eye(flat.shape[1]), atol=1e-12)


def test_plain_ones():
    np.testing.assert_array_equal(initializers.Constant(3)((2,)), [3, 3])
    np.testing.assert_array_equal(initializers.Identity(2)((2, 3)), [[2, 0, 0], [0, 2, 0]])


def test_fans_like_keras():
    keras = references.keras()
    theirs = keras.src.initializers.random_initializers.compute_fans
    for shape in ((), (5,), (3, 7), (3, 3, 4, 8), (5, 2, 3)):
        assert fans(shape) == theirs(shape)


def test_a_seed_and_a_name_decide():
    def draw(seed, name, own=None):
        return get(initializers.GlorotUniform(own))((3, 4), stream(seed, name))

    np.testing.assert_array_equal(draw(1, "a"), draw(1, "a"))
    assert (draw(1, "a") != draw(2, "a")).any() and (draw(1, "a") != draw(1, "b")).any()
    np.testing.assert_array_equal(draw(1, "a", own=7), draw(2, "b", own=7))


@pytest.mark.parametrize("periodic, turn", [(True, 8), (False, 7)])
def test_windows_of_a_fourier_transform(periodic, turn):
    """A periodic window of 8 is the beginning of one of 9."""
    made = initializers.STFT("real", window="hann", scaling=None, periodic=periodic)((8, 1, 5))
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / turn)
    want = window[:, None] * np.cos(2 * np.pi / 8 * np.outer(np.arange(8), np.arange(5)))
    np.testing.assert_allclose(made[:, 0], want, atol=1e-6)


def test_names_and_faults():
    assert get("HeNormal").get_config() == {"seed": None}
    assert get({"class_name": "Constant", "config": {"value": 2.0}}).value == 2.0
    with pytest.raises(UnknownName, match="did you mean 'glorot_uniform'"):
        get("glorot_unifrom")
    for make in (lambda: initializers.VarianceScaling(0), lambda: initializers.VarianceScaling(
            mode="fan"), lambda: initializers.VarianceScaling(distribution="cauchy"),
            lambda: get("orthogonal")((3,)), lambda: get("identity")((3,)), lambda: get(1.0)):
        with pytest.raises(ConfigError):
            make()


def test_initializers_written_as_in_keras():
    class Doubled(zt.initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return zt.ops.eye(*shape, dtype=dtype or "float32") * 2

    class Flat(zt.initializers.Initializer):
        def __call__(self, shape):
            return np.ones(3)

    x = zt.layers.Input((3,))
    model = zt.Model(x, zt.layers.Dense(3, kernel_initializer=Doubled())(x))
    np.testing.assert_array_equal(model.get_weights()[0], 2 * np.eye(3))
    with pytest.raises(ConfigError, match=r"Flat made values of shape \(3,\) for a weight of shape \(3, 2\)"):
        zt.Model(x, zt.layers.Dense(2, kernel_initializer=Flat())(x)).get_weights()


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (300, 700)])
def test_numbers_do_not_depend_on_the_parts_they_are_drawn_in(shape):
    """As NumPy draws all at once; truncated ones are then drawn again, in order."""
    want = stream(0, "w").normal(0.1, 0.3, shape)
    np.testing.assert_array_equal(initializers.RandomNormal(0.1, 0.3)(shape, stream(0, "w")), want)
    random = stream(0, "w")
    want = random.standard_normal(shape).reshape(-1)
    while (far := np.flatnonzero(np.abs(want) > 2)).size:
        want[far] = random.standard_normal(far.size)
    drawn = initializers.TruncatedNormal(0.1, 0.3)
    np.testing.assert_array_equal(drawn(shape, stream(0, "w")).reshape(-1), want * 0.3 + 0.1)
    single = np.empty(shape, np.float32)
    drawn.write(single, stream(0, "w"))
    np.testing.assert_array_equal(single.reshape(-1), (want * 0.3 + 0.1).astype(np.float32))


class Doubled(initializers.TruncatedNormal, abstract=True):
    def fill(self, shape, random):
        return 2 * super().fill(shape, random)


def test_a_subclass_decides_what_is_written():
    once, twice = np.empty((2, 9), np.float32), np.empty((2, 9), np.float32)
    initializers.TruncatedNormal().write(once, stream(0, "w"))
    Doubled().write(twice, stream(0, "w"))
    np.testing.assert_array_equal(twice, 2 * once)
