"""Export a trained model as a C library, and call it from a C program built by gcc.

The library needs no other: it allocates nothing and starts no threads.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import ztorch as zt
from ztorch import layers as L
from ztorch.compile.c_library import export_c

CALLER = r"""
#include <stdio.h>
#include "digits.h"

int main(void)
{
    static float x[DIGITS_INPUT_SIZE], y[DIGITS_OUTPUT_SIZE];
    unsigned int k;
    if (!digits_supported()) return 1; /* another processor than it was compiled for */
    while (fread(x, sizeof x, 1, stdin) == 1) {
        digits_predict(x, y);
        for (k = 0; k < DIGITS_OUTPUT_SIZE; k++) printf("%.9g ", (double)y[k]);
        printf("\n");
    }
    return 0;
}
"""

compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
if compiler is None:
    sys.exit("this example needs a C compiler: cc, gcc or clang")

(x, y), (x_test, y_test) = zt.data.load("digits")
model = zt.Sequential([
    L.Input((8, 8, 1)), L.Flatten(), L.Dense(64, activation="relu"),
    L.Dense(10, activation="softmax"),
], name="digits")
program = model.compile("cpu", batch_size=32, optimizer="adam",
                        loss="sparse_categorical_crossentropy")
program.fit(x, y, epochs=10, verbose=0)

with tempfile.TemporaryDirectory() as folder:
    for path in export_c(model.trace(batch_size=1), folder, weights=program.weights):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    Path(folder, "caller.c").write_text(CALLER)
    subprocess.run([compiler, "-O2", "caller.c", "libdigits.a", "-o", "caller"], cwd=folder,
                   check=True)
    answer = subprocess.run([Path(folder) / "caller"], input=x_test.tobytes(), check=True,
                            capture_output=True)
in_c = np.array([line.split() for line in answer.stdout.decode().splitlines()], "float32")
print(f"{len(in_c)} rows by C: accuracy {(in_c.argmax(axis=1) == y_test).mean():.3f}, "
      f"differs from Python by {np.abs(in_c - program.predict(x_test)).max():.1e}")
