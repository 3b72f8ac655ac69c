"""Every family of keras.applications, at reduced width and depth, read from the file that Keras saves:
equal outputs. Under ZTORCH_FULL=1 the models of full size as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import references
from ztorch.interchange.keras import load_keras

pytest.importorskip("h5py")


class Narrow:
    """Keras' layers, with a sixteenth of the filters."""

    def __init__(self, layers: Any):
        self.layers = layers

    def __getattr__(self, name: str) -> Any:
        layer = getattr(self.layers, name)
        if name not in ("Conv2D", "SeparableConv2D"):
            return layer
        return lambda filters, *args, **options: layer(-(-filters // 16), *args, **options)


def narrow(module: str, model: str, side: int) -> Callable[[Any, Any], Any]:
    """A model whose widths are written in the code that builds it."""
    def build(keras: Any, patch: Any) -> Any:
        code = __import__(f"keras.src.applications.{module}", fromlist=[model])
        patch.setattr(code, "layers", Narrow(code.layers))
        return getattr(code, model)(weights=None, include_top=False, input_shape=(side, side, 3))
    return build


def of(module: str, model: str, *args: Any, side: int = 32, **options: Any,
       ) -> Callable[[Any, Any], Any]:
    """A model of Keras' function with these arguments."""
    def build(keras: Any, patch: Any) -> Any:
        code = __import__(f"keras.src.applications.{module}", fromlist=[model])
        top = {"weights": None, "include_top": False, "input_shape": (side, side, 3)}
        return getattr(code, model)(*args, **{**top, **options})
    return build


def inception_resnet(keras: Any, patch: Any) -> Any:
    """One block of each kind, since their number is written in Keras' code."""
    from keras.src.applications import inception_resnet_v2 as code

    x = inputs = keras.Input((8, 8, 3))
    for kind, scale in (("block35", 0.17), ("block17", 0.1), ("block8", 0.2)):
        x = code.conv2d_bn(x, 24, 3)
        x = code.inception_resnet_block(x, scale, kind, 1)
    return keras.Model(inputs, x)


def nasnet(keras: Any, patch: Any) -> Any:
    """Keras refuses to build it on PyTorch; its result there is the result of its layers."""
    from keras.src.applications import nasnet as code

    patch.setattr(code, "backend", SimpleNamespace(**{
        **vars(code.backend), "backend": lambda: "numpy"}))
    return code.NASNet((32, 32, 3), 96, 1, 4, False, weights=None, include_top=False)


def residual(version: int) -> Callable[[Any, Any], Any]:
    def build(keras: Any, patch: Any) -> Any:
        from keras.src.applications import resnet as code

        stack = getattr(code, f"stack_residual_blocks_v{version}")
        return code.ResNet(lambda x: stack(stack(x, 4, 2, stride1=1, name="a"), 6, 2, name="b"),
                           version == 2, True, include_top=False, weights=None,
                           input_shape=(32, 32, 3))
    return build


FAMILIES: dict[str, Callable[[Any, Any], Any]] = {
    "ConvNeXt": of("convnext", "ConvNeXt", [1, 1, 2, 1], [8, 12, 16, 20], 0.1, 0.5),
    "DenseNet": of("densenet", "DenseNet", [2, 1, 2, 1]),
    "EfficientNet": of("efficientnet", "EfficientNet", 0.25, 0.3, 32),
    "EfficientNetV2": of("efficientnet_v2", "EfficientNetV2", 0.25, 0.3, 32,
                         name="efficientnetv2-b0"),
    "InceptionResNetV2": inception_resnet,
    "InceptionV3": narrow("inception_v3", "InceptionV3", 75),
    "MobileNet": of("mobilenet", "MobileNet", alpha=0.25),
    "MobileNetV2": of("mobilenet_v2", "MobileNetV2", alpha=0.1),
    "MobileNetV3": of("mobilenet_v3", "MobileNetV3Small", alpha=0.1, include_top=True, classes=5),
    "NASNet": nasnet,
    "ResNet": residual(1),
    "ResNetV2": residual(2),
    "VGG": narrow("vgg16", "VGG16", 32),
    "Xception": narrow("xception", "Xception", 71),
}
WHOLE = {"ConvNeXtTiny": 32, "DenseNet121": 32, "EfficientNetB0": 32, "EfficientNetV2B0": 32,
         "EfficientNetV2S": 32, "InceptionResNetV2": 75, "InceptionV3": 75, "MobileNet": 32,
         "MobileNetV2": 32, "MobileNetV3Large": 32, "MobileNetV3Small": 32, "ResNet50": 32,
         "ResNet50V2": 32, "VGG16": 32, "VGG19": 32, "Xception": 71}


def moved(model: Any) -> Any:
    """The model with all weights a little off their first values, which are often zeros and ones."""
    random = np.random.default_rng(0)
    model.set_weights([w.value.detach().numpy() + (random.uniform(0, 0.1, w.shape) if
                       "float" in w.dtype else 0) for w in model.weights])
    return model


def same(theirs: Any, tmp_path: Path) -> Any:
    """Our model of the file, whose outputs are those of Keras."""
    theirs.save(tmp_path / "m.keras")
    ours = load_keras(tmp_path / "m.keras")
    x = np.random.default_rng(0).uniform(0, 255, (1, *theirs.input_shape[1:])).astype("f")
    want = theirs(x, training=False).detach().numpy()
    [got] = references.Run(ours.trace(1).functions["predict"])(x=x).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert np.ptp(want) > 0
    return ours


def test_every_family_is_tried() -> None:
    applications = references.keras().applications
    families = {name for name in vars(applications) if name[0].isupper()}
    assert all(any(name.startswith(family) for family in FAMILIES) for name in families)


# Seconds each, and made of the layers and nodes of the others.
LONG = ("InceptionV3", "MobileNetV2", "NASNet", "Xception")


@pytest.mark.parametrize("family", [
    pytest.param(name, marks=[pytest.mark.full] if name in LONG else []) for name in FAMILIES])
def test_families(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(moved(FAMILIES[family](references.keras(), monkeypatch)), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
def test_whole_models(name: str, tmp_path: Path) -> None:
    side = WHOLE[name]
    same(getattr(references.keras().applications, name)(
        weights=None, include_top=False, input_shape=(side, side, 3)), tmp_path)
