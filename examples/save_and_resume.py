"""Train, stop, and resume another day with the same weights.

A checkpoint holds weights, the optimizer's state, the step and the history. A resumed run gives the
same bits as one that never stopped.
"""

import tempfile
from pathlib import Path

import numpy as np

import ztorch as zt
from ztorch import layers as L

(x, y), (x_test, y_test) = zt.data.load("digits")


def compiled():
    model = zt.Sequential([
        L.Input((8, 8, 1)), L.Flatten(), L.Dense(64, activation="relu"), L.Dropout(0.2),
        L.Dense(10, activation="softmax"),
    ], name="resumed", seed=7)
    return model.compile("cpu", batch_size=32, optimizer="adam",
                         loss="sparse_categorical_crossentropy", metrics=["accuracy"])


with tempfile.TemporaryDirectory() as folder:
    checkpoint, artifact = Path(folder) / "run.safetensors", Path(folder) / "run.zt"

    through = compiled()
    through.fit(x, y, epochs=6, verbose=0)

    first = compiled()  # the first half; a checkpoint after each epoch
    first.fit(x, y, epochs=3, verbose=0, callbacks=[zt.callbacks.ModelCheckpoint(checkpoint)])
    del first

    second = compiled()  # in real life: another process, another day
    second.load_checkpoint(checkpoint)
    print(f"the checkpoint was written after epoch {second.epoch}")
    second.fit(x, y, epochs=6, verbose=0)  # goes on with epoch 4
    print(f"losses of all epochs: {[round(v, 3) for v in second.history.history['loss']]}")

    second.save(artifact)  # an artifact can train too, and needs no compiler for it
    third = zt.load(artifact)
    third.fit(x, y, epochs=8, verbose=0, initial_epoch=6)

same = all(np.array_equal(value, through.weights[name])
           for name, value in second.weights.items())
print(f"same bits as the run that was not stopped: {same}")
for name, program in {"six epochs": second, "eight epochs": third}.items():
    accuracy = program.evaluate(x_test, y_test, return_dict=True, verbose=0)["accuracy"]
    print(f"{name}: test accuracy {accuracy:.3f}")
