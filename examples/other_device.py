"""Compile for devices of other machines: NVIDIA and AMD GPUs, SPIR-V, an ARM board.

The model is trained on this CPU and then compiled, with the trained weights, for each device. The
artifact runs where the device is, without a compiler: zt.load("cuda.zt"). `ztorch export` does the
same from the command line.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import ztorch as zt
from ztorch import layers as L

DEVICES = ("cuda:sm_90", "rocm:gfx942", "vulkan", "webgpu", "cpu:neon", "cpu")

(x, y), (x_test, y_test) = zt.data.load("digits")
model = zt.Sequential([
    L.Input((8, 8, 1)),
    L.Conv2D(16, 3, activation="relu"),
    L.Flatten(),
    L.Dense(10, activation="softmax"),
], name="digits")
model.compile("cpu", batch_size=32, optimizer="adam",
              loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=8, verbose=0)

with tempfile.TemporaryDirectory() as folder:
    for device in DEVICES:
        path = Path(folder) / f"{device.replace(':', '-')}.zt"
        model.export(path, device, batch_size=16)
        print(f"{device:11} {path.stat().st_size:7,} bytes")

    inspect = [sys.executable, "-m", "ztorch", "inspect", f"{folder}/cuda-sm_90.zt"]
    print(subprocess.run(inspect, text=True, check=True, capture_output=True).stdout.strip())
    here = zt.load(Path(folder) / "cpu.zt")
    accuracy = (here.predict(x_test).argmax(axis=1) == y_test).mean()
    print(f"the artifact for this processor: accuracy {accuracy:.3f}")
