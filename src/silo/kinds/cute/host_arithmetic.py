"""Integer arithmetic of the LLVM dialect, over constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["COMPARISONS", "INTEGER_OPERATIONS", "unsigned", "wrapped"]


def wrapped(value: int, bits: int) -> int:
    """As a signed number of so many bits; a bit is 0 or 1.

    >>> wrapped(255, 8), wrapped(1, 1), wrapped(256, 8)
    (-1, 1, 0)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """The same bits read without a sign."""
    return value & ((1 << bits) - 1)


def _quotient(left: int, right: int) -> int:
    """Rounded towards zero."""
    made = abs(left) // abs(right)
    return made if (left < 0) == (right < 0) else -made


def _signed(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(left, right), bits)


def _unsigned(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(unsigned(left, bits), unsigned(right, bits)), bits)


def _divided(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if right else None


def _shifted(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if 0 <= right < bits else None


INTEGER_OPERATIONS: Mapping[str, Callable[[int, int, int], int | None]] = {
    "llvm.add": _signed(lambda left, right: left + right),
    "llvm.sub": _signed(lambda left, right: left - right),
    "llvm.mul": _signed(lambda left, right: left * right),
    "llvm.and": _signed(lambda left, right: left & right),
    "llvm.or": _signed(lambda left, right: left | right),
    "llvm.xor": _signed(lambda left, right: left ^ right),
    "llvm.intr.smax": _signed(max),
    "llvm.intr.smin": _signed(min),
    "llvm.intr.umax": _unsigned(max),
    "llvm.intr.umin": _unsigned(min),
    "llvm.sdiv": _divided(_signed(_quotient)),
    "llvm.srem": _divided(_signed(lambda left, right: left - right * _quotient(left, right))),
    "llvm.udiv": _divided(_unsigned(lambda left, right: left // right)),
    "llvm.urem": _divided(_unsigned(lambda left, right: left % right)),
    "llvm.shl": _shifted(_signed(lambda left, right: left << right)),
    "llvm.ashr": _shifted(_signed(lambda left, right: left >> right)),
    "llvm.lshr": _shifted(_unsigned(lambda left, right: left >> right)),
}
"""By the operation's name: of two signed numbers of so many bits; None where the result is not defined."""

# In the order of the dialect's numbers: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge.
COMPARISONS: tuple[Callable[[int, int, int], bool], ...] = (
    lambda left, right, _: left == right,
    lambda left, right, _: left != right,
    lambda left, right, _: left < right,
    lambda left, right, _: left <= right,
    lambda left, right, _: left > right,
    lambda left, right, _: left >= right,
    lambda left, right, bits: unsigned(left, bits) < unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) <= unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) > unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) >= unsigned(right, bits),
)
