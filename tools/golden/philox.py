"""The product's counter-based random numbers (src/base/random.h) in numpy.

Initial weights are a function of (seed, tensor name, element) and of nothing else, so a C++ test can build the very
same weights without a file of them. Element e of a tensor comes from block e / 4 of Philox4x32-10 under the tensor's
key: words 0 and 1 make the normals of elements 4j and 4j + 1, words 2 and 3 those of 4j + 2 and 4j + 3.
"""

import numpy as np

_WORD = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter, key):
    """Philox4x32-10. counter: (n, 4), key: 2 words; 32-bit words held in uint64. Returns (n, 4)."""
    c0, c1, c2, c3 = (np.asarray(counter[:, i], dtype=np.uint64) for i in range(4))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), p1 & _WORD, (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1), p0 & _WORD
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def hash_name(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def random_key(seed, purpose):
    counter = np.array([[purpose & 0xFFFFFFFF, purpose >> 32, 0, 0]], dtype=np.uint64)
    return philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[0, :2]


def blocks(seed, name, count):
    """(count, 4) words: the random blocks 0 .. count - 1 of one named purpose."""
    index = np.arange(count, dtype=np.uint64)
    zero = np.zeros_like(index)
    return philox(np.stack([index & _WORD, index >> _SHIFT, zero, zero], axis=1), random_key(seed, hash_name(name)))


def normal(seed, name, shape):
    """Standard normals in f32: Box-Muller in double, as normal_from_bits does."""
    count = int(np.prod(shape))
    words = blocks(seed, name, (count + 3) // 4).astype(np.float64).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log((words[:, 0] + 1.0) * 2.0**-32))
    angle = 2.0 * np.pi * words[:, 1] * 2.0**-32
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1)[:count].astype(np.float32).reshape(shape)


def integers(seed, name, shape, low, high):
    """Integers in [low, high); a modulo is even enough for choosing test tokens."""
    count = int(np.prod(shape))
    words = blocks(seed, name, (count + 3) // 4).reshape(-1)[:count]
    return (words % np.uint64(high - low)).astype(np.int32).reshape(shape) + np.int32(low)
