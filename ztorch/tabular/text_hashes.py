"""The hashes of texts that Keras takes from TensorFlow: FarmHash, and SipHash for a salt."""

from __future__ import annotations

# FarmHash's factors, and the mask of its 64-bit arithmetic.
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MASK = (1 << 64) - 1


def fingerprint(data: bytes) -> int:
    """FarmHash's Fingerprint64.

    >>> fingerprint(b"A") % 3, fingerprint(b"E") % 3
    (1, 2)
    """
    n = len(data)
    if n > 64:
        return _of_many(data)
    mul = (_K2 + 2 * n) & _MASK
    if n > 32:
        a, b, c, d = _four(data, mul, _K2)
        y = _turned(a + b, 43) + _turned(c, 30) + d
        z = _mixed(y, a + _turned(b + _K2, 18) + c, mul)
        e, f = _word(data, 16) * mul, _word(data, 24)
        g, h = (y + _word(data, n - 32)) * mul, (z + _word(data, n - 24)) * mul
        return _mixed(_turned(e + f, 43) + _turned(g, 30) + h, e + _turned(f + a, 18) + g, mul)
    if n > 16:
        a, b, c, d = _four(data, mul, _K1)
        return _mixed(_turned(a + b, 43) + _turned(c, 30) + d, a + _turned(b + _K2, 18) + c, mul)
    if n >= 8:
        a, b = _word(data, 0) + _K2, _word(data, n - 8)
        return _mixed(_turned(b, 37) * mul + a, (_turned(a, 25) + b) * mul, mul)
    if n >= 4:
        first, last = (int.from_bytes(data[k:k + 4], "little") for k in (0, n - 4))
        return _mixed(n + (first << 3), last, mul)
    if n:
        y, z = data[0] + (data[n >> 1] << 8), n + (data[-1] << 2)
        return _shifted((y * _K2 & _MASK) ^ (z * _K0 & _MASK)) * _K2 & _MASK
    return _K2


def _of_many(data: bytes) -> int:
    """The fingerprint of more than 64 bytes."""
    n, x, y = len(data), 81, 81 * _K1 + 113
    z = _shifted((y * _K2 + 113) & _MASK) * _K2
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(data, 0)

    def round_of(at: int, mul: int, times: int) -> None:
        nonlocal x, y, z, v, w
        x = _turned(x + y + v[0] + _word(data, at + 8), 37) * mul
        y = _turned(y + v[1] + _word(data, at + 48), 42) * mul
        x = (x & _MASK) ^ (w[1] * times & _MASK)
        y = y + v[0] * times + _word(data, at + 40)
        z = _turned(z + w[0], 33) * mul
        v = _weak(data, at, v[1] * mul, x + w[0])
        w = _weak(data, at + 32, z + w[1], y + _word(data, at + 16))
        x, z = z & _MASK, x & _MASK

    for at in range(0, (n - 1) // 64 * 64, 64):
        round_of(at, _K1, 1)
    mul = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w = (w[0] + ((n - 1) & 63)) & _MASK, w[1]
    v = (v[0] + w[0]) & _MASK, v[1]
    w = (w[0] + v[0]) & _MASK, w[1]
    round_of(n - 64, mul, 9)
    return _mixed(_mixed(v[0], w[0], mul) + _shifted(y & _MASK) * _K0 + z,
                  _mixed(v[1], w[1], mul) + x, mul)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at:at + 8], "little")


def _turned(x: int, bits: int) -> int:
    """x & 64 bits, rotated to the right."""
    x &= _MASK
    return (x >> bits | x << (64 - bits)) & _MASK


def _shifted(x: int) -> int:
    return x ^ (x >> 47)


def _mixed(u: int, v: int, mul: int) -> int:
    u, v = u & _MASK, v & _MASK
    a = _shifted((u ^ v) * mul & _MASK)
    return _shifted((v ^ a) * mul & _MASK) * mul & _MASK


def _four(data: bytes, mul: int, first: int) -> tuple[int, int, int, int]:
    """The first and the last 16 bytes, as numbers."""
    n = len(data)
    return (_word(data, 0) * first & _MASK, _word(data, 8), _word(data, n - 8) * mul & _MASK,
            _word(data, n - 16) * _K2 & _MASK)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """A weak hash of 32 bytes and two seeds."""
    w, x, y, z = (_word(data, at + 8 * k) for k in range(4))
    a += w
    b = _turned(b + a + z, 21)
    c = a
    a += x + y
    b += _turned(a, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 with a key of two numbers.

    >>> hex(siphash(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)))
    '0xa129ca6149be45e5'
    """
    k0, k1 = (k & _MASK for k in key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261,
         k1 ^ 0x7465646279746573]

    def rounds(count: int) -> None:
        a, b, c, d = v
        for _ in range(count):
            a, c = (a + b) & _MASK, (c + d) & _MASK
            b, d = _turned(b, 51) ^ a, _turned(d, 48) ^ c
            a = _turned(a, 32)
            c, a = (c + b) & _MASK, (a + d) & _MASK
            b, d = _turned(b, 47) ^ c, _turned(d, 43) ^ a
            c = _turned(c, 32)
        v[:] = a, b, c, d

    end = len(data) // 8 * 8
    words = [_word(data, at) for at in range(0, end, 8)]
    for m in (*words, _word(data, end) | (len(data) & 0xFF) << 56):
        v[3] ^= m
        rounds(2)
        v[0] ^= m
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
