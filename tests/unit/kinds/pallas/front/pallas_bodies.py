"""Bodies that the tests of definitions use: none of them is ever traced, so they need no jax."""

import functools

FACTOR = 2
HANDLE = object()


def add(x, y, out):
    out[...] = x[...] + y[...]


def scaled(x, out, a, n, *, BLOCK, MODE=1):
    out[...] = x[...] * a + n + BLOCK + MODE


def product(a, b, out, total, arrived):
    total[...] = a[...]


def several(*references):
    references[0][...] = 1


def by_global(x, out):
    out[...] = x[...] * FACTOR


def by_handle(x, out):
    out[...] = x[...] * HANDLE


def made(factor):
    def body(x, out):
        out[...] = x[...] * factor

    return body


bound = functools.partial(scaled, BLOCK=16)
