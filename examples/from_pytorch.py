"""Weights from PyTorch, and back. PyTorch is needed only for the comparison, not for reading."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ztorch as zt
from ztorch import layers as L

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(8 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10))

model = zt.Sequential([  # the same layers; images have their channels last
    L.Input((8, 8, 1)),
    L.Conv2D(8, 3, padding="same", activation="relu"), L.MaxPooling2D(2),
    L.Flatten(), L.Dense(32, activation="relu"), L.Dense(10),
], name="net")

(x, y), (x_test, y_test) = zt.data.load("digits")


def theirs(images):
    """PyTorch's prediction; it takes channels first."""
    with torch.no_grad():
        return net(torch.from_numpy(np.moveaxis(images, -1, 1).copy())).numpy()


with tempfile.TemporaryDirectory() as folder:
    torch.save(net.state_dict(), Path(folder) / "net.pt")
    model.load_weights(Path(folder) / "net.pt")  # transposed, and flattened features reordered
    program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(3e-3),
                            loss=zt.losses.SparseCategoricalCrossentropy(from_logits=True),
                            metrics=["accuracy"])
    print(f"untrained, it differs by {np.abs(program.predict(x_test) - theirs(x_test)).max():.1e}")

    program.fit(x, y, epochs=8, verbose=0)
    accuracy = program.evaluate(x_test, y_test, return_dict=True, verbose=0)["accuracy"]
    print(f"trained by ztorch: accuracy {accuracy:.3f}")

    # The model has the trained weights, and knows PyTorch's layout.
    model.save_weights(Path(folder) / "back.safetensors", layout="torch",
                       names={"conv2d": "0", "dense": "4", "dense_1": "6"})
    from safetensors.torch import load_file

    net.load_state_dict(load_file(Path(folder) / "back.safetensors"))
accuracy = (theirs(x_test).argmax(axis=1) == y_test).mean()
print(f"back in PyTorch: accuracy {accuracy:.3f}, "
      f"differs by {np.abs(program.predict(x_test) - theirs(x_test)).max():.1e}")
