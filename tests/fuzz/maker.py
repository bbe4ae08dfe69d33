"""The state of one kernel being made: what is in scope, where statements go, and what every writer of them needs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from .kinds import FLOATS, INTS, KINDS
from .program import Exact, Kernel, Node, Parameter, Storage, Var

__all__ = ["HOME", "MOST_ELEMENTS", "Maker", "view_of"]

MOST_ELEMENTS = 256  # of one tile, so that the interpreter is quick
_LARGE_ELEMENTS = 512  # where there are products, whose panels are of whole vectors
_GRIDS = [(1,)] * 5 + [(2,), (3,), (2, 2), (1, 3), (2, 1, 2)]
_LARGE_GRIDS = [(3,), (4,), (5,), (7,), (3, 2), (2, 3), (2, 2, 2)]
_EXTENTS = [(16, 8), (8, 4), (32, 4), (16, 16), (4, 8), (64, 2), (128, 2), (1, 16), (2, 4)]
_LARGE_EXTENTS = [(16, 16), (16, 32), (32, 16), (16, 8), (8, 32), (32, 8), (4, 64), (64, 8), (16, 4)]
# What floats are brought back to in kernels with exact arithmetic, once results would no longer fit.
HOME = {
    "e4m3": Exact(8.0),
    "e5m2": Exact(4.0),
    "f16": Exact(4.0),
    "bf16": Exact(2.0),
    "f32": Exact(32.0),
    "f64": Exact(512.0),
}


def view_of(axis: int, rank: int) -> str:
    """The index that turns a row into axis ``axis`` of a tile of ``rank`` dimensions: ``[:, None]``."""
    return "" if rank == 1 else "[" + ", ".join(":" if place == axis else "None" for place in range(rank)) + "]"


class Maker:
    """One kernel being made, all choices drawn from one seed.

    ``large`` ones run several programs, more than a machine's first two threads take, over larger tiles.
    """

    def __init__(self, seed: int, profile: str, arithmetic: str, *, large: bool = False) -> None:
        assert arithmetic in {"exact", "wild", "rounded"}
        self.rng = random.Random(f"{profile} {seed}")
        self.exact = arithmetic == "exact"
        self.rounded = arithmetic == "rounded"
        self.depth = 0
        self.count = 0
        self.scope: list[Var] = []
        self.nodes: list[Node] = []
        self.out = self.nodes
        self.parameters: list[Parameter] = []
        self.storages: dict[str, Storage] = {}
        self.helpers: list[str] = []
        self.bounds: dict[int, int] = {}
        self.features: set[str] = set()
        self.read: set[str] = set()  # names of values as they were read from memory, with no mask
        self.seed, self.profile = seed, profile
        self.large = large
        self.most = _LARGE_ELEMENTS if large else MOST_ELEMENTS  # elements of one tile
        self.grid = self.rng.choice(_LARGE_GRIDS if large else _GRIDS)
        extents = self.rng.choice(_LARGE_EXTENTS if large else _EXTENTS)
        self.extents = (*extents, self.rng.choice([1, 2, 4]))
        self.kinds = self._some_kinds()
        self.shapes = self._some_shapes()
        self._start()

    def _some_kinds(self) -> tuple[str, ...]:
        ints = self.rng.sample(INTS, 2)
        narrow = self.rng.choice(["f16", "bf16", "f32", "f32", "f32"])
        floats = [narrow] if self.rounded else self.rng.sample(FLOATS, 1)
        floats.append("f32")
        return tuple(dict.fromkeys([*ints, *floats, "i32"]))

    def _some_shapes(self) -> list[tuple[int, ...]]:
        a, b, c = self.extents
        shapes = [(a,), (a,), (b,), (a, b), (a, b), (b, a)]
        if a * b * c <= self.most:
            shapes += [(c, a, b), (a, b, c)]
        return [shape for shape in shapes if _elements(shape) <= self.most]

    def _start(self) -> None:
        for extent in sorted(set(self.extents)):
            self.put_node(Node([f"r{extent} = tl.arange(0, {extent})"], (Var(f"r{extent}", "i32", (extent,)),)))
        places = " + ".join(
            f"tl.program_id({axis})" + "".join(f" * {extent}" for extent in self.grid[:axis])
            for axis in range(len(self.grid))
        )
        pid = Var("pid", "i32", (), interval=(0, self.programs - 1))
        self.put_node(Node([f"pid = {places}"], (pid,)))

    @property
    def programs(self) -> int:
        """Programs in the grid."""
        return math.prod(self.grid)

    # --- writing ---

    def put_node(self, node: Node) -> None:
        """Append a statement; what it defines is in scope from here."""
        self.out.append(node)
        self.scope.extend(node.defines)

    def put(self, line: str) -> None:
        """Append a statement that defines nothing."""
        self.out.append(Node([line]))

    def name(self, stem: str = "v") -> str:
        """A fresh name."""
        self.count += 1
        return f"{stem}{self.count}"

    def define(
        self,
        expression: str,
        kind: str,
        shape: tuple[int, ...],
        exact: Exact | None = None,
        interval: tuple[int, int] | None = None,
    ) -> Var:
        """``v7 = expression``."""
        if self.exact and KINDS[kind].floating:
            assert exact is not None, expression
            assert exact.fits(kind), (expression, kind, exact)
        else:
            exact = None
        var = Var(self.name(), kind, shape, exact, interval)
        self.put_node(Node([f"{var.name} = {expression}"], (var,)))
        return var

    @contextmanager
    def block(self, header: str, *, otherwise: bool = False) -> Iterator[Node]:
        """Statements put inside go into a block; what they define leaves the scope at its end."""
        node = Node([header], body=[], otherwise=[] if otherwise else None)
        self.out.append(node)
        with self.inside(node.body):
            yield node

    @contextmanager
    def inside(self, nodes: list[Node] | None) -> Iterator[None]:
        """Statements put inside go to ``nodes``."""
        assert nodes is not None
        outer, scope = self.out, list(self.scope)
        self.out = nodes
        self.depth += 1
        yield
        self.depth -= 1
        self.out, self.scope = outer, scope

    # --- choosing ---

    def chance(self, share: float) -> bool:
        """True with a probability."""
        return self.rng.random() < share

    def pick(self, wanted: Callable[[Var], bool]) -> Var | None:
        """A value in scope, later ones more often; None where there is none."""
        found = [var for var in self.scope if wanted(var)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """One of the kernel's tile shapes."""
        shapes = [shape for shape in self.shapes if rank is None or len(shape) == rank]
        return self.rng.choice(shapes or self.shapes)

    def kind(self, *, floating: bool | None = None) -> str:
        """One of the kernel's element types."""
        kinds = [kind for kind in self.kinds if floating is None or KINDS[kind].floating is floating]
        return self.rng.choice(kinds or (["f32"] if floating else ["i32"]))

    def any(self, *, floating: bool | None = None, tile: bool = True) -> Var:
        """Any value (no mask), made where there is none."""

        def wanted(var: Var) -> bool:
            return (
                var.kind != "i1"
                and (floating is None or var.floating is floating)
                and (bool(var.shape) or not tile)
                and var.elements <= self.most
            )

        return (self.pick(wanted) if not self.chance(0.15) else None) or self.fresh(
            self.kind(floating=floating), self.shape()
        )

    def value(self, kind: str, shape: tuple[int, ...]) -> Var:
        """A value of this type and shape: one in scope, one cast, or a new one."""
        found = self.pick(lambda var: var.kind == kind and var.shape == shape)
        if found is not None and not self.chance(0.1):
            return found
        other = self.pick(
            lambda var: (
                var.shape == shape
                and var.kind not in {kind, "i1"}
                and (var.floating is KINDS[kind].floating or not self.rounded)
            )
        )
        if other is not None and self.chance(0.7):
            return self.cast(other, kind)
        return self.fresh(kind, shape)

    def mask(self, shape: tuple[int, ...]) -> Var:
        """A mask of this shape."""
        found = self.pick(lambda var: var.kind == "i1" and var.shape == shape)
        if found is not None and not self.chance(0.4):
            return found
        return self.new_mask(shape)

    def new_mask(self, shape: tuple[int, ...]) -> Var:
        """A comparison, a prefix, or every n-th element."""
        choice = self.rng.choice(["compare", "prefix", "modular"] if shape else ["compare"])
        if choice == "compare":
            left = self.pick(
                lambda var: var.shape == shape and var.kind != "i1" and not (var.floating and self.rounded)
            ) or self.fresh(self.kind(floating=False if self.rounded else None), shape)
            right = self.pick(lambda var: var.shape == shape and var.kind == left.kind)
            sign = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
            other = right.name if right is not None and right is not left else self.literal(left.kind)
            return self.define(f"{left.name} {sign} {other}", "i1", shape)
        parts: list[str] = []
        for axis, extent in enumerate(shape):
            if len(shape) > 1 and self.chance(0.4) and (parts or axis + 1 < len(shape)):
                continue
            index = f"r{extent}{view_of(axis, len(shape))}" if f"r{extent}" in self._names() else None
            if index is None:
                continue
            if choice == "prefix":
                limit = self.scalar(self.bound(extent))
                parts.append(f"({index} < {limit})")
            else:
                step = self.rng.choice([2, 3, 5])
                parts.append(f"({index} % {step} == {self.rng.randrange(step)})")
        if not parts:
            return self.define(f"{self.value('i32', shape).name} >= 0", "i1", shape)
        text = " & ".join(parts)
        if len(parts) < len(shape):
            text = f"tl.broadcast_to({text}, {shape})" if len(shape) > 1 else text
        return self.define(text, "i1", shape)

    def _names(self) -> set[str]:
        return {var.name for var in self.scope}

    def bound(self, extent: int) -> int:
        """Where a prefix of an axis ends: mostly at one place a kernel, as the rows of a matrix do."""
        choices = [extent, extent - 1, max(extent // 2, 1), extent // 2 + 1, 1, 0, extent + 2]
        if self.chance(0.4):
            return self.rng.choice(choices)
        return self.bounds.setdefault(extent, self.rng.choice(choices))

    def scalar(self, value: int) -> str:
        """An integer as a literal, or as an argument of the kernel."""
        if self.chance(0.5):
            return str(value)
        for parameter in self.parameters:
            if not parameter.pointer and parameter.kind == "i32" and parameter.value == value:
                return parameter.name
        name = f"n{len(self.parameters)}"
        self.parameters.append(Parameter(name, "i32", value=value))
        return name

    def literal(self, kind: str) -> str:
        """A constant of a type."""
        if KINDS[kind].floating:
            if self.exact:
                return str(float(self.rng.choice([-2, -1, 0, 1, 2])))
            if self.rounded:
                return self.rng.choice(["0.0", "1.0", "-1.5", "0.1", "0.7"])
            return self.rng.choice(["0.0", "-0.0", "1.0", "-1.5", "0.1", "2.5", "100.0", "float('inf')", "-7.25"])
        if kind == "i1":
            return self.rng.choice(["True", "False"])
        choices = [0, 1, 2, 3, 5, 7, 100] + ([-1, -2, -100] if KINDS[kind].signed else [])
        if KINDS[kind].bits >= 32 and self.chance(0.1):
            choices = [2147483647, 65537]
        return str(self.rng.choice(choices))

    # --- values ---

    def fresh(self, kind: str, shape: tuple[int, ...]) -> Var:
        """A new value that depends on little: a constant, or numbers counted up."""
        home = HOME.get(kind)
        extent = shape[self.rng.randrange(len(shape))] if shape else 0
        if shape and self.chance(0.7) and f"r{extent}" in self._names():
            axis = self.rng.choice([place for place, size in enumerate(shape) if size == extent])
            index = f"r{extent}{view_of(axis, len(shape))}"
            step = self.rng.choice([1, 1, 3, 7])
            start = self.rng.randrange(5)
            text = f"(({index} * {step} + {start}) % {self.rng.choice([2, 3])} - 1)"
            if kind != "i1":
                text += f".to(tl.{KINDS[kind].tl})"
            else:
                text = f"({text} == 0)"
            if len(shape) > 1:
                text = f"tl.broadcast_to({text}, {shape})"
            return self.define(text, kind, shape, Exact(2.0) if home else None)
        if home is not None:
            value = float(self.rng.choice([-1, 0, 1, 2])) if self.exact else self.rng.choice([0.0, 1.5, -0.25, 3.0])
            return self.define(f"tl.full({_tuple(shape)}, {value}, tl.{KINDS[kind].tl})", kind, shape, Exact(2.0))
        value = self.literal(kind)
        return self.define(f"tl.full({_tuple(shape)}, {value}, tl.{KINDS[kind].tl})", kind, shape)

    def cast(self, var: Var, kind: str) -> Var:
        """``var`` as another type. In kernels with exact arithmetic it is brought into what the type holds."""
        if var.kind == kind:
            return var
        target = f"tl.{KINDS[kind].tl}"
        if self.rounded and var.floating and not KINDS[kind].floating:
            return self.fresh(kind, var.shape)
        if self.rounded and not var.floating and KINDS[kind].floating:
            return self.define(f"({var.name} & 3).to({target}) * 0.5", kind, var.shape)
        if not self.exact:
            return self.define(f"{var.name}.to({target})", kind, var.shape)
        if not KINDS[kind].floating:
            if var.floating and var.exact is not None:
                limit = float(2 ** (KINDS[kind].bits - 2)) if kind != "i1" else 1.0
                if var.exact.bound > limit or not KINDS[kind].signed:
                    squashed = self.squash(var, Exact(min(limit, 64.0)))
                    text = squashed.name if KINDS[kind].signed else f"tl.abs({squashed.name})"
                    return self.define(f"{text}.to({target})", kind, var.shape)
            return self.define(f"{var.name}.to({target})", kind, var.shape)
        if not var.floating:
            if var.kind == "i1":
                return self.define(f"{var.name}.to({target})", kind, var.shape, Exact(1.0))
            most = int(min(HOME[kind].bound, 16)) - 1
            return self.define(f"({var.name} & {most}).to({target})", kind, var.shape, Exact(float(most)))
        assert var.exact is not None
        if not var.exact.fits(kind):
            var = self.squash(var, HOME[kind])
        return self.define(f"{var.name}.to({target})", kind, var.shape, var.exact)

    def squash(self, var: Var, home: Exact | None = None) -> Var:
        """``var`` (floats with exact arithmetic) with values outside ``home`` replaced and fractions dropped."""
        home = home or HOME[var.kind]
        assert var.exact is not None
        bound = min(home.bound, HOME[var.kind].bound)
        if var.exact.bound <= bound and var.exact.lsb >= home.lsb:
            return var
        text = var.name
        narrow = var.kind in {"f16", "bf16"}
        if var.exact.lsb < home.lsb:
            text = f"tl.floor({text}.to(tl.float32)).to({self.tl(var.kind)})" if narrow else f"tl.floor({text})"
        if var.exact.bound > bound and self.large and not narrow and Exact(var.exact.bound + bound).fits(var.kind):
            # Folded over and over: what differs still shows.
            text = f"{text} - tl.floor({text} * {0.5 / bound} + 0.5) * {2 * bound}"
        elif var.exact.bound > bound:
            text = f"tl.where(tl.abs({var.name}) <= {bound}, {text}, {float(self.rng.choice([-1, 0, 1]))})"
            if narrow:
                text += f".to({self.tl(var.kind)})"
        return self.define(text, var.kind, var.shape, Exact(bound, max(home.lsb, 0)))

    @staticmethod
    def tl(kind: str) -> str:
        """The type's name in a kernel."""
        return f"tl.{KINDS[kind].tl}"

    def feature(self, *words: str) -> None:
        """Note what the kernel does."""
        self.features.update(words)

    def finish(self) -> Kernel:
        """The kernel."""
        return Kernel(
            seed=self.seed,
            profile=self.profile,
            nodes=self.nodes,
            parameters=self.parameters,
            storages=self.storages,
            grid=self.grid,
            helpers=self.helpers,
            features=self.features,
            contract=self.rounded or (self.exact and self.chance(0.5)),
            rounded=self.rounded,
            signless=self.exact,
        )

    def forget_interval(self, var: Var) -> Var:
        """``var`` with nothing known of its value (it is changed by a loop)."""
        changed = replace(var, interval=None)
        self.scope = [changed if other is var else other for other in self.scope]
        return changed


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _tuple(shape: tuple[int, ...]) -> str:
    return str(shape) if shape else "()"
