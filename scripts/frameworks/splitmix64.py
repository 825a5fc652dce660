"""The random numbers of include/demo/error_bounds.hpp, bit for bit.

An `index` is an array of int64, of PyTorch or of NumPy: both wrap around where 64 bits overflow.
"""

MASK = (1 << 64) - 1


def signed(bits):
    """The int64 with these 64 bits: neither library multiplies uint64 everywhere."""
    bits &= MASK
    return bits - (1 << 64) if bits >> 63 else bits


def shifted_right(z, count):
    """z >> count with zeros moving in: the shift of int64 would repeat the sign."""
    return (z >> count) & ((1 << (64 - count)) - 1)


def random_bits(seed, index):
    """demo::random_bits(seed, i) of every i in `index`, as int64."""
    step = 0x9E3779B97F4A7C15
    z = index * signed(step) + signed((seed + 1) * 0xD1342543DE82EF95 + step)
    z = (z ^ shifted_right(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted_right(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted_right(z, 31)


def random_steps(seed, index):
    """demo::random_uniform(seed, i), in units of 2^-23: whole numbers from -2^23 to 2^23 - 1."""
    return shifted_right(random_bits(seed, index), 40) - (1 << 23)
