"""The discrete Fourier transform of rows, by butterflies."""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def fourier(re, im):
    """The transform of each row of complex numbers, `(re, im)`; their number is a power of two.

    Elements are first put in the order of their turned bits. Then transforms of 1, 2, 4 ...
    elements are joined in pairs. The sizes are known, so the loop over them is written out.
    """
    rows, n = re.shape
    out_re, out_im = np.empty_like(re), np.empty_like(im)
    for r in range(rows):
        a, b = np.empty_like(re[r]), np.empty_like(im[r])
        for i in range(n):
            turned = 0
            for bit in range(int(math.log2(n))):
                turned = 2 * turned + (i >> bit & 1)
            a[i], b[i] = re[r, turned], im[r, turned]
        half = 1
        while half < n:
            c, d = np.empty_like(a), np.empty_like(b)
            for block, k, side in zt.grid(n // (2 * half), half, 2):
                angle = -math.pi * k / half
                at = 2 * half * block + k
                x, y = a[at + half], b[at + half]
                turned_x = x * math.cos(angle) - y * math.sin(angle)
                turned_y = x * math.sin(angle) + y * math.cos(angle)
                c[at + side * half] = a[at] + (-turned_x if side == 1 else turned_x)
                d[at + side * half] = b[at] + (-turned_y if side == 1 else turned_y)
            a, b = c, d
            half *= 2
        out_re[r], out_im[r] = a, b
    return out_re, out_im
