"""The least time of a case: the time for its bytes and operations at the best rates measured on the device."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from silo.core.json_reader import NATURAL, NATURALS, Form, Persisted, named, read_list
from silo.core.recipes import Work
from silo.core.signature import Signature
from silo.core.values import JSON, DTypeKind, malformed
from silo.frozen import field, frozen

__all__ = ["Ceilings", "SpeedOfLight", "dot_dtype", "speed_of_light"]

CEILINGS_SCHEMA = "ceilings/1"


def _read_copies(data: JSON, label: str) -> tuple[tuple[int, int], ...]:
    pairs = [NATURALS.read(pair, label) for pair in read_list(data, label)]
    if any(len(pair) != 2 for pair in pairs):
        raise malformed(label, data)
    return tuple(sorted((size, rate) for size, rate in pairs))


@frozen
class Ceilings(Persisted):
    """The best rates measured on a device model, in bytes and operations per second.

    ``copies`` are pairs of a size and a rate, the smallest size first: the bytes read and written by one launch that
    copies memory, and the bytes per second. Small copies stay in warm caches; with cold caches they end before a GPU is
    busy. ``dots`` has the operations per second of matrix products, by the dtype of their factors. All rates are
    measured, not taken from a data sheet, so a kernel may exceed them.
    """

    title = "measured ceilings"
    tags = MappingProxyType({"schema": CEILINGS_SCHEMA})

    copies: tuple[tuple[int, int], ...] = field(form=Form(_read_copies, lambda pairs: [list(pair) for pair in pairs]))
    dots: tuple[tuple[str, int], ...] = field(form=named(NATURAL))

    def copy_rate(self, moved: int) -> tuple[int, int] | None:
        """Returns the size and the rate of the copy that ``moved`` bytes are compared with.

        Of the nearest measured sizes below and above, it is the one with the higher rate. None if no copy was measured.

        >>> Ceilings(((1000, 50), (4000, 30), (9000, 10)), ()).copy_rate(5000)
        (4000, 30)
        """
        below = [pair for pair in self.copies if pair[0] <= moved][-1:]
        above = [pair for pair in self.copies if pair[0] > moved][:1]
        return max([*below, *above], key=lambda pair: pair[1], default=None)


@dataclass(frozen=True)
class SpeedOfLight:
    """The least time of a launch at the measured rates. ``bound`` names the rate that limits it."""

    least_ns: float
    bound: str
    work: Work
    ceilings: Ceilings
    dot: str

    def reached(self, time_ns: int) -> float:
        """Returns the rate of a launch of this time, divided by the ceiling: above 1, the launch exceeds it.

        >>> light = speed_of_light(Work(bytes=1000), Ceilings(((1000, 10**9),), ()), "float32")
        >>> light.bound, light.least_ns, light.reached(2000)
        ('memory', 1000.0, 0.5)
        """
        return self.least_ns / max(time_ns, 1)

    @property
    def dot_ceiling(self) -> int | None:
        """The measured operations per second of matrix products with factors of dtype ``dot``; None if unknown."""
        return dict(self.ceilings.dots).get(self.dot)


def speed_of_light(work: Work, ceilings: Ceilings, dot: str) -> SpeedOfLight | None:
    """Returns the longer of the times for the bytes and for the operations. None if no rate is known for either.

    This is the roofline model (Williams, Waterman, Patterson, 2009) with both ceilings measured.
    """
    rate = dict(ceilings.dots).get(dot)
    limits: dict[str, float] = {}
    copied = ceilings.copy_rate(work.bytes) if work.bytes else None
    if work.bytes and copied and copied[1]:
        limits["memory"] = work.bytes * 1e9 / copied[1]
    if work.flops and rate:
        limits["arithmetic"] = work.flops * 1e9 / rate
    if not limits:
        return None
    bound = max(limits, key=lambda name: limits[name])
    return SpeedOfLight(limits[bound], bound, work, ceilings, dot)


def dot_dtype(signature: Signature) -> str:
    """Returns the dtype of the matrix products whose rate a kernel is compared with.

    It is the narrowest floating-point dtype of the kernel's arrays, or float32 without such arrays. bfloat16 counts as
    float16, which devices multiply at the same rate. For floats of 8 or 64 bits no ceiling is measured.
    """
    floats = [
        parameter.dtype for parameter in signature.parameters if parameter.dtype and parameter.dtype.kind in _FLOATS
    ]
    narrowest = min(floats, key=lambda one: one.bits, default=None)
    if narrowest is None:
        return "float32"
    return "float16" if narrowest.bits == 16 else narrowest.name


_FLOATS = frozenset((DTypeKind.FLOAT,))
