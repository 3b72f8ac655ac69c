"""The Mandelbrot set: a loop that ends when the data says so.

A `while` loop needs a bound, because programs have a fixed size: `max_steps`. Points that are done
wait for the others; the loop ends when all are.
"""

import numpy as np

import ztorch as zt

LIMIT = 100


@zt.kernel(max_steps=LIMIT)
def mandelbrot(re, im):
    """How many steps of `z = z * z + c` each point c takes to leave the circle of radius 2."""
    out = np.zeros(re.shape, np.int32)
    for i, j in zt.grid(*re.shape):
        x, y, steps = 0.0, 0.0, 0
        while x * x + y * y < 4.0 and steps < LIMIT:
            x, y = x * x - y * y + re[i, j], 2.0 * x * y + im[i, j]
            steps += 1
        out[i, j] = steps
    return out
