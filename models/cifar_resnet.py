"""ResNet-20 for images of 32 x 32 pixels: He et al., "Deep residual learning for image
recognition" (2015), section 4.2, with projection shortcuts where sizes change.

    ztorch train cifar_resnet --out shapes.zt
    ztorch train cifar_resnet --data x.npy,y.npy     # CIFAR-10, from your files
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L
from ztorch.schedules import CosineDecay

SMALL = {"blocks": 1, "width": 8}
DATA = "shapes"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
SCHEDULE = CosineDecay(LEARNING_RATE, 504)  # to zero over the epochs below
METRICS = ("accuracy",)
EPOCHS = 8
BATCH_SIZE = 32
BAR = {"accuracy": 0.9}


def build(size: int = 32, classes: int = 10, blocks: int = 3, width: int = 16,
          stages: int = 3) -> Sequential:
    """Stages of `blocks` blocks. Three of them have 6 * blocks + 2 layers.

    >>> sum(w.size for w in build().weights if w.trains)
    272474
    """
    all_blocks = [block(f"stage_{k + 1}_block_{n + 1}", width << k, 2 if k and not n else 1)
                  for k in range(stages) for n in range(blocks)]
    return Sequential([
        L.Input((size, size, 3)),
        *convolution("stem", width, 3, 1),
        L.ReLU(name="stem_relu"),
        *(layer for block_layers in all_blocks for layer in block_layers),
        L.GlobalAveragePooling2D(name="mean"),
        L.Dense(classes, activation="softmax", name="classes"),
    ], name="cifar_resnet", seed=1)


def block(name: str, filters: int, stride: int) -> list[L.Layer]:
    """Two convolutions with a residual connection."""
    other = Sequential(convolution("fit", filters, 1, stride), name="shortcut")
    return [L.Residual(*convolution("first", filters, 3, stride), L.ReLU(name="relu"),
                       *convolution("second", filters, 3, 1),
                       shortcut=other if stride > 1 else None, name=name),
            L.ReLU(name=f"{name}_relu")]


def convolution(name: str, filters: int, kernel: int, stride: int) -> list[L.Layer]:
    return [L.Conv2D(filters, kernel, stride, padding="same", use_bias=False,
                     kernel_initializer="he_normal", name=name),
            L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")]
