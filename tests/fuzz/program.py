"""A random kernel as data: its statements, its parameters, and the memory they point into."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from .kinds import KINDS

__all__ = ["Exact", "Kernel", "Node", "Parameter", "Storage", "Var", "names_in"]

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Exact:
    """Floats that are multiples of ``2 ** lsb`` and at most ``bound`` in magnitude, so that arithmetic on them is exact
    in any order as long as the result fits the significand.
    """

    bound: float
    lsb: int = 0

    def fits(self, kind: str) -> bool:
        """Whether every such value is a value of ``kind``."""
        limit = 2.0 ** KINDS[kind].precision
        least = -8 if kind == "f16" else -60
        return self.lsb >= least and self.bound * 2.0**-self.lsb <= limit and self.bound <= KINDS[kind].most


@dataclass(frozen=True)
class Var:
    """One value: its name, element type and shape (() for a scalar).

    ``exact`` bounds a float of a kernel with exact arithmetic; ``interval`` is what is known of a scalar integer.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    exact: Exact | None = None
    interval: tuple[int, int] | None = None

    @property
    def floating(self) -> bool:
        """Whether it holds floats."""
        return KINDS[self.kind].floating

    @property
    def elements(self) -> int:
        """Elements in all."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass
class Node:
    """One statement. ``lines`` are its text, or the header of a block whose statements are ``body`` and ``otherwise``.

    ``fixed`` ones are never taken away when a kernel is shrunk (the step of a while loop).
    """

    lines: list[str]
    defines: tuple[Var, ...] = ()
    body: list[Node] | None = None
    otherwise: list[Node] | None = None
    fixed: bool = False

    def copy(self) -> Node:
        """A deep copy."""
        return replace(
            self,
            lines=list(self.lines),
            body=None if self.body is None else [node.copy() for node in self.body],
            otherwise=None if self.otherwise is None else [node.copy() for node in self.otherwise],
        )


@dataclass
class Storage:
    """A range of memory that one or more pointer parameters point into.

    Every program has its own ``region`` of a storage that is written (all regions have one size); offsets that kernels
    reach, counted from a program's region, lie in ``low`` to ``high``. ``fill`` says what it holds at the start:
    ``wild`` (any values of the type), ``exact`` (within ``exact``), ``normal`` (deviation 1) or ``zero``. ``at_end``
    puts its last byte, otherwise its first, next to a page that nobody may touch; ``skew`` takes its address away from
    multiples of 16 bytes.
    """

    name: str
    kind: str
    fill: str
    written: bool
    exact: Exact | None = None
    low: int = 0
    high: int = 0
    at_end: bool = True
    skew: int = 0

    @property
    def region(self) -> int:
        """Elements of one program's region."""
        return self.high - self.low + 1

    @property
    def placeholder(self) -> str:
        """The name that stands for ``region`` until every access is known."""
        return f"_region_{self.name}_"

    def reach(self, low: int, high: int) -> None:
        """Note that offsets ``low`` to ``high`` are touched."""
        self.low, self.high = min(self.low, low), max(self.high, high)


@dataclass(frozen=True)
class Parameter:
    """A pointer (into a storage, some elements on) or a scalar."""

    name: str
    kind: str
    storage: str = ""
    shift: int = 0
    value: float = 0

    @property
    def pointer(self) -> bool:
        """Whether it is a pointer."""
        return self.storage != ""


@dataclass
class Kernel:
    """One random kernel.

    ``features`` are words for what it does, for the census. ``contract`` lets the optimized code fuse multiplications
    and additions, which changes nothing where arithmetic is exact; there the sign of a zero is open (``signless``).
    """

    seed: int
    profile: str
    nodes: list[Node]
    parameters: list[Parameter]
    storages: dict[str, Storage]
    grid: tuple[int, ...]
    helpers: list[str] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    contract: bool = False
    rounded: bool = False
    signless: bool = False

    @property
    def programs(self) -> int:
        """Programs in the grid."""
        count = 1
        for extent in self.grid:
            count *= extent
        return count

    def extent(self, storage: Storage) -> int:
        """Elements of ``storage``, for all programs."""
        return storage.region * (self.programs if storage.written else 1)

    def start(self, parameter: Parameter) -> int:
        """Where in its storage a pointer points, in elements."""
        return parameter.shift - self.storages[parameter.storage].low

    def text(self) -> str:
        """The source, with its helper functions; ``kernel`` is the kernel. Needs ``triton`` and ``tl``."""
        lines = [*self.helpers, "@triton.jit", f"def kernel({', '.join(p.name for p in self.parameters)}):"]
        lines.extend(_text(self.nodes, 1) or ["    pass"])
        text = "\n".join(lines) + "\n"
        for storage in self.storages.values():
            text = text.replace(storage.placeholder, str(storage.region))
        return text

    def copy(self) -> Kernel:
        """A copy whose statements may be changed."""
        return replace(self, nodes=[node.copy() for node in self.nodes], parameters=list(self.parameters))


def _text(nodes: list[Node], depth: int) -> list[str]:
    pad = "    " * depth
    lines: list[str] = []
    for node in nodes:
        lines.extend(pad + line for line in node.lines)
        if node.body is not None:
            lines.extend(_text(node.body, depth + 1) or [f"{pad}    pass"])
        if node.otherwise is not None:
            lines.append(f"{pad}else:")
            lines.extend(_text(node.otherwise, depth + 1) or [f"{pad}    pass"])
    return lines


def names_in(text: str) -> set[str]:
    """Every identifier in a line of source."""
    return set(_NAME.findall(text))
