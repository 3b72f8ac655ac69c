"""A functional model with two inputs and two outputs.

It sees two digits at a time and predicts whether they are the same, and their sum.
"""

import numpy as np

import ztorch as zt
from ztorch import layers as L

(x, y), (x_test, y_test) = zt.data.load("digits")


def pairs(images, labels, count, seed):
    """Random pairs of digits, half of them of one class: inputs and targets by name."""
    rng = np.random.default_rng(seed)
    left = rng.integers(len(labels), size=count)
    right = rng.integers(len(labels), size=count)
    for row in range(0, count, 2):
        right[row] = rng.choice(np.flatnonzero(labels == labels[left[row]]))
    a, b = labels[left], labels[right]
    return ({"left": images[left], "right": images[right]},
            {"same": (a == b).astype("float32")[:, None],
             "sum": (a + b).astype("float32")[:, None]})


left = L.Input((8, 8, 1), name="left")
right = L.Input((8, 8, 1), name="right")
encoder = zt.Sequential([
    L.Input((8, 8, 1)), L.Flatten(), L.Dense(96, activation="relu"), L.Dense(48, activation="relu"),
], name="encoder")
a, b = encoder(left), encoder(right)  # one layer called twice: the weights are shared
both = L.Concatenate()([a, b, L.Multiply()([a, b])])
hidden = L.Dense(96, activation="relu")(both)
model = zt.Model({"left": left, "right": right},
                 {"same": L.Dense(1, activation="sigmoid")(hidden), "sum": L.Dense(1)(hidden)},
                 name="pairs")
model.summary()

program = model.compile("cpu", batch_size=64, optimizer=zt.optimizers.Adam(1e-3),
                        loss={"same": "binary_crossentropy", "sum": "mse"},
                        loss_weights={"same": 1.0, "sum": 0.1},
                        metrics={"same": ["accuracy"], "sum": ["mae"]})
program.fit(*pairs(x, y, 8192, seed=0), epochs=12, verbose=2)

inputs, targets = pairs(x_test, y_test, 512, seed=1)
scores = program.evaluate(inputs, targets, return_dict=True, verbose=0)
print({name: round(value, 3) for name, value in scores.items()})
guess = program.predict({name: rows[:4] for name, rows in inputs.items()})
for row in range(4):
    print(f"same: {guess['same'][row, 0]:.2f} (true {targets['same'][row, 0]:.0f}), "
          f"sum: {guess['sum'][row, 0]:.1f} (true {targets['sum'][row, 0]:.0f})")
