"""The cases of the launch benchmark: kernels that do nothing, with various numbers and kinds of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

GRID = (7, 1, 1)
THREADS = 128  # threads of a block: Triton's default of 4 warps
BLOCK = 1024
ELEMENTS = 1024
# No value is 0 or 1 (Triton makes a 1 a constant), some are multiples of 16; cdiv(first, BLOCK) == GRID[0].
INTEGERS = (7168, 17, 33, 128, 7, 2, 99, 4096)
CONSTEXPRS = (64, 32, 128, 16, 8, 256, 2, 4)


@dataclass(frozen=True)
class Case:
    """One kernel and the form of its call; ``key`` is its name in tables and bars."""

    key: str
    kernel: str
    pointers: int = 0
    integers: int = 0
    constexprs: int = 0
    keyword: bool = False  # whether the call passes constexprs by keyword

    @property
    def pointer_names(self) -> list[str]:
        """Names of the pointer parameters."""
        return [f"p{index}" for index in range(self.pointers)]

    @property
    def integer_names(self) -> list[str]:
        """Names of the integer parameters."""
        return [f"n{index}" for index in range(self.integers)]

    @property
    def constexpr_names(self) -> list[str]:
        """Names of the constexpr parameters."""
        return [f"C{index}" for index in range(self.constexprs)]

    def integer_values(self) -> dict[str, int]:
        """Return the integer arguments by name."""
        return {name: INTEGERS[index % len(INTEGERS)] for index, name in enumerate(self.integer_names)}

    def constexpr_values(self) -> dict[str, int]:
        """Return the constexprs by name."""
        return {name: CONSTEXPRS[index % len(CONSTEXPRS)] for index, name in enumerate(self.constexpr_names)}

    def call_text(self, *, constexprs: bool = True) -> str:
        """Return the text of the arguments in a call.

        >>> Case("", "", 1, 1, 1, keyword=True).call_text()
        'p0, n0, C0=C0'
        """
        shown = [*self.pointer_names, *self.integer_names]
        if constexprs:
            shown += [f"{name}={name}" if self.keyword else name for name in self.constexpr_names]
        return ", ".join(shown)


CASES = (
    Case("0", "nop_0"),
    Case("1+0", "nop_1", 1),
    Case("5+3", "nop_8", 5, 3),
    Case("12+8", "nop_20", 12, 8),
    Case("58 positional", "nop_58", 14, 26, 18),
    Case("58 keyword", "nop_58", 14, 26, 18, keyword=True),
)


@dataclass(frozen=True)
class Call:
    """One way to launch: a Python statement, and the objects that its names stand for.

    ``around``, if given, is entered around each burst of this row alone, which then begins with some calls that do not
    count.
    """

    statement: str
    names: Mapping[str, object]
    around: Callable[[], AbstractContextManager[object]] | None = None


def select(keys: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """Return the chosen names (all if ``keys`` is empty) in the order of ``known``. ValueError for an unknown name."""
    strange = [key for key in keys if key not in known]
    if strange:
        raise ValueError(f"no {what} {', '.join(map(repr, strange))}; there are {', '.join(map(repr, known))}")
    return [key for key in known if not keys or key in keys]
