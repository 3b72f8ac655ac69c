"""A learning-rate schedule, callbacks, and the pictures of a run.

Needs `pip install ztorch[plot]` for the pictures. They go to the folder named on the command line,
else to a temporary one: python schedule_and_plot.py pictures
"""

import sys
import tempfile
from pathlib import Path

import ztorch as zt
from ztorch import layers as L

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)
(x, y), (x_test, y_test) = zt.data.load("digits")
epochs, batch_size = 15, 32
steps = epochs * -(-len(x) // batch_size)

# Warm up over a tenth of the run, then fall along a cosine. The rate of each step is computed
# inside the compiled step.
schedule = zt.schedules.CosineDecay(0.0, decay_steps=steps - steps // 10,
                                    warmup_target=4e-3, warmup_steps=steps // 10)
for step in (0, steps // 10, steps // 2, steps):
    print(f"step {step:3}: rate {schedule(step):.5f}")


class Best(zt.callbacks.Callback):
    """Prints each epoch that is better than all before it."""

    accuracy = 0.0

    def on_epoch_end(self, epoch, logs=None):
        if logs["val_accuracy"] > self.accuracy:
            self.accuracy = logs["val_accuracy"]
            print(f"epoch {epoch + 1}: validation accuracy {self.accuracy:.3f}, the best so far")


model = zt.Sequential([
    L.Input((8, 8, 1)), L.Flatten(), L.Dense(128, activation="relu"), L.Dropout(0.2),
    L.Dense(10, activation="softmax"),
], name="scheduled")
program = model.compile("cpu", batch_size=batch_size,
                        optimizer=zt.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0),
                        loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = program.fit(x, y, epochs=epochs, validation_data=(x_test, y_test), verbose=0,
                      callbacks=[Best(), zt.callbacks.CSVLogger(folder / "run.csv")])

history.plot(folder / "curves.svg")  # loss and accuracy by epoch
program.plot(folder / "plan.svg")  # kernels of a training step, and their buffers in memory
for path in sorted(folder.iterdir()):
    print(f"{path.name}: {path.stat().st_size:,} bytes")
