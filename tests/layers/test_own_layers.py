"""What people coming from other frameworks write as layers of their own: mistakes that would train
nothing, or something else, are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported


def run(layer: L.Layer) -> zt.Program:
    made = zt.Sequential([L.Input((3,)), layer, L.Dense(1)])
    return made.compile("cpu:scalar", batch_size=4, optimizer="sgd", loss="mse")


class Weighted(L.Layer):
    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight("w", (input_shape[-1], 2), "ones")


@pytest.mark.parametrize("takes", ["self, x", "self, inputs, training=False", "self, x, mask=None"])
def test_a_call_has_a_context(takes: str) -> None:
    scope = {"L": L}
    with pytest.raises(ConfigError, match=rf"Own has call\({takes.partition('=')[0]}\); write call\("
                                          r"self, x, context\): context.read"):
        exec(f"class Own(L.Layer):\n    def call({takes}):\n        return x\n", scope)


def test_weights_are_read_by_the_context() -> None:
    class Forgets(Weighted):
        def call(self, x: Any, context: Any) -> Any:
            return zt.ops.matmul(x, self.w)

    with pytest.raises(ConfigError, match=r"weight 'forgets/w' is not an array.*context.read\(self.w\)"):
        run(Forgets())
    with pytest.raises(ConfigError, match=r"weight\.value holds its initial values"):
        np.asarray(zt.Sequential([L.Input((3,)), L.Dense(2)]).weights[0])


def test_layers_inside_are_adopted() -> None:
    class Forgets(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner_dense = L.Dense(2, name="part")

        def call(self, x: Any, context: Any) -> Any:
            return self.inner_dense(x, context)

    with pytest.raises(ConfigError, match=(
            r"layer 'forgets' calls layer 'part' without having adopted it; write self.part = "
            r"self.adopt\(Dense\(...\)\) in its __init__")):
        run(Forgets())


def test_layers_inside_are_called_with_the_context() -> None:
    class Adopts(L.Layer):
        def __init__(self, hand_on: bool) -> None:
            super().__init__()
            self.hand_on = hand_on
            self.part = self.adopt(L.Dense(2, name="part"))

        def call(self, x: Any, context: Any) -> Any:
            return self.part(x, context) if self.hand_on else self.part(x)

    with pytest.raises(ConfigError, match=r"calls layer 'part' without its context; write part\("):
        run(Adopts(False))
    program = run(Adopts(True))
    before = program.weights["adopts/part/kernel"]
    program.train_on_batch(np.ones((4, 3)), np.ones((4, 1)))
    assert (program.weights["adopts/part/kernel"] != before).all()


def test_layers_call_their_base() -> None:
    class Hasty(L.Layer):
        def __init__(self, units: int) -> None:
            self.units = units

        def call(self, x: Any, context: Any) -> Any:
            return x

    with pytest.raises(AttributeError, match=r"a Hasty is not a layer yet: .*super\(\).__init__\(\)"):
        run(Hasty(3))
    with pytest.raises(AttributeError, match="'Dense' object has no attribute 'kernal'"):
        _ = L.Dense(3).kernal


def test_models_have_inputs_and_outputs() -> None:
    class Mine(zt.Model):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(ConfigError, match=r"Mine is made of inputs and outputs, .*subclass of Layer"):
        Mine()


def test_there_are_no_regularizers() -> None:
    for name in ("kernel_regularizer", "activity_regularizer", "bias_constraint"):
        with pytest.raises(Unsupported, match=rf"Dense\({name}=...\): .*AdamW\(weight_decay="):
            L.Dense(3, **{name: "l2"})
