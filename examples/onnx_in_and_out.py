"""Write an ONNX file, check it with ONNX Runtime, and read it back.

Needs `pip install ztorch[onnx]`.
"""

import tempfile
from pathlib import Path

import numpy as np

import ztorch as zt
from ztorch import layers as L

(x, y), (x_test, y_test) = zt.data.load("digits")
model = zt.Sequential([
    L.Input((8, 8, 1)),
    L.Conv2D(16, 3, padding="same", activation="relu"),
    L.MaxPooling2D(2),
    L.Flatten(),
    L.Dense(10, activation="softmax"),
], name="digits", seed=2)
program = model.compile("cpu", batch_size=32, optimizer="adam",
                        loss="sparse_categorical_crossentropy")
program.fit(x, y, epochs=8, verbose=0)
ours = program.predict(x_test)
print(f"ztorch: accuracy {(ours.argmax(axis=1) == y_test).mean():.3f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.onnx"
    zt.onnx.save(model, path, weights=program.weights)  # for any batch size
    print(f"{path.name}: {path.stat().st_size:,} bytes")

    try:
        import onnxruntime
    except ImportError:
        print("ONNX Runtime is not installed: nothing to compare with")
    else:
        session = onnxruntime.InferenceSession(path)
        [theirs] = session.run(None, {session.get_inputs()[0].name: x_test})
        print(f"ONNX Runtime differs from ztorch by {np.abs(theirs - ours).max():.1e}")

    read = zt.onnx.load(path)  # a model again: it compiles, and trains
    read.summary()
    again = read.compile("cpu", batch_size=64, optimizer="adam",
                         loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    print(f"read back, it differs by {np.abs(again.predict(x_test) - ours).max():.1e}")
    again.fit(x, y, epochs=4, verbose=0)
    scores = again.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(f"after four more epochs: accuracy {scores['accuracy']:.3f}")
