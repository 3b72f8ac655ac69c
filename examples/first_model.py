"""A first model: declare it, compile it, train it, measure it, ship it.

The handwritten digits that come with ztorch: 8 x 8 pixels, ten classes, 1433 rows to learn from.
Run it from anywhere: python first_model.py
"""

import tempfile
from pathlib import Path

import ztorch as zt
from ztorch import layers as L

(x, y), (x_test, y_test) = zt.data.load("digits")
print(f"training rows: {x.shape} {x.dtype}, labels: {y.shape} {y.dtype}")

model = zt.Sequential([
    L.Input((8, 8, 1)),
    L.Flatten(),
    L.Dense(128, activation="relu"),
    L.Dense(10, activation="softmax"),
], name="digits")
model.summary()

# Shapes are fixed here: the whole training step becomes one native function for 32 rows.
program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(2e-3),
                        loss="sparse_categorical_crossentropy", metrics=["accuracy"])
program.fit(x, y, epochs=20, validation_split=0.1, verbose=2)

scores = program.evaluate(x_test, y_test, return_dict=True, verbose=0)
print(f"test accuracy: {scores['accuracy']:.3f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.zt"
    program.save(path)
    loaded = zt.load(path)  # needs no compiler: the artifact holds machine code
    guesses = loaded.predict(x_test[:8]).argmax(axis=1)
    print(f"artifact: {path.stat().st_size:,} bytes")
    print(f"guessed {guesses.tolist()}, true {y_test[:8].tolist()}")
