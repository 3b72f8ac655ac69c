"""A custom training loop: tensors, gradients and an optimizer, compiled to one native call.

The handwritten digits that come with ztorch, and two layers written out by hand.
Run it from anywhere: python training_loop.py
"""

import numpy as np

import ztorch as zt
from ztorch import ops

(x, y), (x_test, y_test) = zt.data.load("digits")
x, x_test = (zt.tensor(a.reshape(len(a), 64).astype("float32")) for a in (x, x_test))

random = np.random.default_rng(0)
params = {"hidden": zt.tensor(random.normal(0, 0.1, (64, 128)), dtype="float32"),
          "out": zt.tensor(random.normal(0, 0.1, (128, 10)), dtype="float32")}
optimizer = zt.optimizers.Adam(2e-3)


def scores(params, x):
    return ops.relu(x @ params["hidden"]) @ params["out"]


def loss(params, x, labels):
    return -(ops.log_softmax(scores(params, x)) * ops.one_hot(labels, 10)).sum(axis=-1).mean()


@zt.compiled  # without it the loop computes the same numbers, in more time
def step(params, x, labels):
    value, grads = zt.value_and_grad(loss)(params, x, labels)
    return optimizer.update(params, grads), value


for epoch in range(20):
    order = random.permutation(len(y))[:len(y) // 32 * 32].reshape(-1, 32)
    for rows in order:
        params, value = step(params, x[rows], y[rows])
    print(f"epoch {epoch + 1}: loss {value.item():.4f}")

right = ops.equal(ops.argmax(scores(params, x_test), axis=-1), y_test)
print(f"test accuracy: {right.numpy().mean():.3f}")
