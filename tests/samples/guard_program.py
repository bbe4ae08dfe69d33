"""Runs the example kernels on arrays that end at an inaccessible page: an access beyond an array kills the process."""

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import kernels

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP = []
NO_ACCESS = 0  # PROT_NONE of mprotect


def guarded(values):
    """Return a copy of an array that ends right before an inaccessible page."""
    size = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, size + mmap.PAGESIZE)
    KEEP.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if LIBC.mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect")
    made = np.frombuffer(area, dtype=values.dtype, count=values.size, offset=size - values.nbytes).reshape(values.shape)
    made[...] = values
    return made


def normal(*shape):
    return guarded(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def config(kernel):
    """Return the first config of a kernel's space, or with the argument "last" the last one."""
    return kernel.kernel.space.configs()[-1 if sys.argv[1:] == ["last"] else 0].as_dict()


def main():
    for n in (1, 17, 1023, 5001):
        x, y, out = normal(n), normal(n), normal(n)
        kernels.add(x, y, out, n, **config(kernels.add))
        np.testing.assert_array_equal(out, x + y)
        kernels.dropout(x, out, n, 0.5, 7, **config(kernels.dropout))
    for rows, columns in ((3, 33), (5, 781)):
        x, out = normal(rows, columns), normal(rows, columns)
        kernels.softmax(out, x, columns, columns, rows, columns)
        np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-5)
        w, b, mean, rstd = normal(columns), normal(columns), normal(rows), normal(rows)
        kernels.layer_norm(x, out, w, b, mean, rstd, columns, rows, columns, 1e-5, **config(kernels.layer_norm))
    for m, n, k in ((1, 1, 1), (65, 33, 17), (100, 77, 131), (64, 64, 70)):
        a, b, c = normal(m, k), normal(k, n), normal(m, n)
        kernels.matmul(a, b, c, m, n, k, k, 1, n, 1, n, 1, "", **config(kernels.matmul))
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
    for length in (1, 37, 100):
        q, k, v, out = (normal(2, length, 64) for _ in range(4))
        kernels.attention(q, k, v, out, 0.125, 2, length, 64, **config(kernels.attention))
        assert np.isfinite(out).all()
    print("in bounds")


if __name__ == "__main__":
    main()
