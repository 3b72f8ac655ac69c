"""Compile for devices of other machines: NVIDIA and AMD GPUs, SPIR-V, an ARM board.

The model is trained on this CPU; `ztorch export` then compiles it, with the trained weights, for
each device. The artifact runs where the device is, without a compiler: zt.load("cuda.zt").
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ztorch as zt
from ztorch import layers as L

DEVICES = ("cuda:sm_90", "rocm:gfx942", "vulkan", "webgpu", "cpu:neon", "cpu")


def build():
    return zt.Sequential([
        L.Input((8, 8, 1)),
        L.Conv2D(16, 3, activation="relu"),
        L.Flatten(),
        L.Dense(10, activation="softmax"),
    ], name="digits")


def ztorch(*arguments):
    """Runs the command line and returns its output."""
    return subprocess.run([sys.executable, "-m", "ztorch", *map(str, arguments)], text=True,
                          check=True, capture_output=True).stdout.strip()


if __name__ == "__main__":
    (x, y), (x_test, y_test) = zt.data.load("digits")
    program = build().compile("cpu", batch_size=32, optimizer="adam",
                              loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    program.fit(x, y, epochs=8, verbose=0)

    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.safetensors"
        program.save_weights(weights)
        for device in DEVICES:
            path = Path(folder) / f"{device.replace(':', '-')}.zt"
            ztorch("export", f"{os.path.abspath(__file__)}:build", "--device", device,
                   "--batch-size", 16, "--weights", weights, "-o", path)
            print(f"{device:11} {path.stat().st_size:7,} bytes")

        print(ztorch("inspect", Path(folder) / "cuda-sm_90.zt"))
        here = zt.load(Path(folder) / "cpu.zt")
        accuracy = (here.predict(x_test).argmax(axis=1) == y_test).mean()
        print(f"the artifact for this processor: accuracy {accuracy:.3f}")
