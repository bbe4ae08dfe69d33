"""Cases of atomic operations, on tiles and on single elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import triton
import triton.language as tl

from cpu_cases import FLOATS, INTS, RNG, Case, bf16, values


@triton.jit
def exchanged(p, x, old, n, E: tl.constexpr, SPREAD: tl.constexpr, KIND: tl.constexpr, SEM: tl.constexpr):
    i = tl.arange(0, E)
    place, value, mask = p + i // SPREAD, tl.load(x + i), i < n
    if KIND == "add":
        was = tl.atomic_add(place, value, mask=mask, sem=SEM)
    elif KIND == "max":
        was = tl.atomic_max(place, value, mask=mask, sem=SEM)
    elif KIND == "min":
        was = tl.atomic_min(place, value, mask=mask, sem=SEM)
    elif KIND == "and":
        was = tl.atomic_and(place, value, mask=mask, sem=SEM)
    elif KIND == "or":
        was = tl.atomic_or(place, value, mask=mask, sem=SEM)
    elif KIND == "xor":
        was = tl.atomic_xor(place, value, mask=mask, sem=SEM)
    else:
        was = tl.atomic_xchg(place, value, mask=mask, sem=SEM)
    tl.store(old + i, was, mask=mask)


@triton.jit
def swapped(p, x, old, E: tl.constexpr):
    i = tl.arange(0, E)
    tl.store(old + i, tl.atomic_cas(p + i, tl.full((E,), 2, p.dtype.element_ty), tl.load(x + i)))


@triton.jit
def ticket(p, out):
    tl.store(out + tl.program_id(0), tl.atomic_add(p, 3))


# atomic_load, atomic_store and atomic_poll exist from Triton 3.9 on
@triton.jit
def published(flags, x, out, n, E: tl.constexpr, SEM: tl.constexpr):
    i = tl.arange(0, E)
    tl.atomic_store(flags + i, tl.load(x + i), mask=i < n, sem="relaxed" if SEM == "relaxed" else "release")
    tl.store(out + i, tl.atomic_load(flags + i, mask=i < n + 1, sem=SEM), mask=i < n + 1)


@triton.jit
def waited_for(flags, x, out, wait, E: tl.constexpr, SEM: tl.constexpr):
    """Poll a flag that has its value at once, and a tile with flags that never get theirs, for ``wait`` ns."""
    i = tl.arange(0, E)
    tl.atomic_store(flags, tl.load(x))
    tl.store(out, tl.atomic_poll(flags, tl.load(x), sem=SEM).to(tl.int8))
    tl.store(out + 1, tl.atomic_load(flags, sem=SEM).to(tl.int8))
    tl.store(out + 2 + i, tl.atomic_poll(flags + i, tl.load(x + i), sem=SEM, timeout_ns=wait).to(tl.int8))


def waiting_cases() -> Iterator[Case]:
    if not hasattr(tl, "atomic_poll"):
        return
    for place, dtype in enumerate((*INTS, *FLOATS)):
        names = {"E": 16, "SEM": ("acquire", "relaxed")[place % 2]}
        if np.dtype(dtype).itemsize > 1:
            flags, x, n = values(16, dtype), values(16, dtype), 11
            after = np.where(np.arange(16) < n, x, flags)
            seen = np.where(np.arange(16) < n + 1, after, np.array(9).astype(dtype))
            arguments = {"flags": flags, "x": x, "out": np.full(16, 9, dtype), "n": n, **names}
            yield Case(published, arguments, {"flags": after, "out": seen})
        if np.dtype(dtype).itemsize > 1 and np.dtype(dtype).kind in "iu":
            x = RNG.integers(0, 100, 16).astype(dtype)
            flags = (x + np.where(np.arange(16) % 3 == 1, 0, 1)).astype(dtype)
            after = flags.copy()
            after[0] = x[0]
            found = np.concatenate([[1, x[0]], after == x]).astype(np.int8)
            arguments = {"flags": flags, "x": x, "out": np.zeros(18, np.int8), "wait": 1000, **names}
            yield Case(waited_for, arguments, {"flags": after, "out": found})


def atomic_cases() -> Iterator[Case]:
    kinds = {
        "add": lambda a, b: a + b,
        "max": max,
        "min": min,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "xchg": lambda a, b: b,
    }
    orders = ("relaxed", "acquire", "release", "acq_rel")
    for place, dtype in enumerate((np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64, np.float16, bf16)):
        for kind, function in kinds.items():
            if (dtype in FLOATS and kind in {"and", "or", "xor"}) or (dtype in {np.float16, bf16} and kind != "add"):
                continue
            spread = 4 if kind in {"add", "max", "xor"} else 1
            p, x, n = values(16, dtype), values(16, dtype), 13
            after, old = p.copy(), np.zeros(16, dtype)
            for i in range(n):  # one element after the other
                old[i] = after[i // spread]
                after[i // spread] = function(after[i // spread], x[i])
            names = {"E": 16, "SPREAD": spread, "KIND": kind, "SEM": orders[(place + len(kind)) % 4]}
            arguments = {"p": p, "x": x, "old": np.zeros(16, dtype), "n": n, **names}
            # Triton makes a maximum of floats from two operations, one for each sign, so the old values may differ from
            # this order.
            steps_apart = dtype in FLOATS and kind in {"max", "min"}
            yield Case(exchanged, arguments, {"p": after} if steps_apart else {"p": after, "old": old})
    for dtype in (np.int32, np.int64, np.uint64):
        p, x = RNG.integers(1, 4, 16).astype(dtype), values(16, dtype)
        arguments = {"p": p, "x": x, "old": np.zeros(16, dtype), "E": 16}
        yield Case(swapped, arguments, {"p": np.where(p == 2, x, p), "old": p})
    expected = np.array([15], np.int32)
    yield Case(ticket, {"p": np.zeros(1, np.int32), "out": np.zeros(5, np.int32)}, {"p": expected}, (5,))
