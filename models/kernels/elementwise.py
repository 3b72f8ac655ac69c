"""One element at a time, and broadcasting.

`zt.grid` says that its iterations have no order. Every iteration writes an element of its own, so
all of them run at once. Operands that do not depend on a counter broadcast: `scale[j]` is the same
for every `i`.

Arithmetic on whole arrays works for any rank, by NumPy's rules of broadcasting.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def scale_shift(x, scale, shift):
    """Each column times its own factor, plus its own number."""
    out = np.empty_like(x)
    for i, j in zt.grid(*x.shape):
        out[i, j] = x[i, j] * scale[j] + shift[j]
    return out


@zt.kernel
def smooth_step(x, low, high):
    """0 up to `low`, 1 from `high` on, and a smooth curve between."""
    t = np.clip((x - low) / (high - low), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


@zt.kernel
def call_price(price, strike, years, rate=0.02, volatility=0.3):
    """The price of an option to buy a share: Black and Scholes' formula."""
    out = np.empty_like(price)
    for i in range(price.shape[0]):
        spread = volatility * math.sqrt(years[i])
        growth = math.log(price[i] / strike[i]) + (rate + volatility * volatility / 2) * years[i]
        d = growth / spread
        share = 0.5 + 0.5 * math.erf(d * math.sqrt(0.5))
        cash = 0.5 + 0.5 * math.erf((d - spread) * math.sqrt(0.5))
        out[i] = price[i] * share - strike[i] * math.exp(-rate * years[i]) * cash
    return out
