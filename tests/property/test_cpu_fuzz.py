"""Random kernels: the optimised schedule does what the reference schedule does.

More seeds than the suite runs: ``python tests/property/test_cpu_fuzz.py FIRST LAST``.
"""

import linecache
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where this file is run as a program

pytest.importorskip("triton", reason="random kernels are lowered by Triton")

import triton
import triton.language as tl

from cpu_samples import both, needs_compiler

SIDE = 16
HEAD = """@triton.jit
def kernel(X, Z, W, O, n):
    i = tl.arange(0, 16)
    ii = i[:, None]
    jj = i[None, :]
    x0 = tl.load(X + i)
    x1 = tl.load(X + i + 16, mask=i < n, other=1.0)
    f0 = i * 0.1
    y0 = tl.load(X + ii * 16 + jj, mask=jj < n, other=0.25)
"""


@dataclass
class Writer:
    """Writes one kernel: rows of 16 floats, 16 x 16 tiles, loads and stores that may overlap, loops and branches."""

    choose: random.Random
    rows: list[str] = field(default_factory=lambda: ["x0", "x1", "f0"])
    tiles: list[str] = field(default_factory=lambda: ["y0"])
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def text(self):
        """The whole kernel."""
        for _ in range(self.choose.randint(6, 16)):
            self.statement(1, 0)
        for place, row in enumerate(self.choose.sample(self.rows, 3)):
            self.lines.append(f"    tl.store(O + {SIDE * place} + i, {row})")
        self.lines.append(f"    tl.store(O + 64 + ii * 16 + jj, {self.choose.choice(self.tiles)})")
        return HEAD + "\n".join(self.lines) + "\n"

    def statement(self, indent, depth):
        """One statement of any kind, nested at most twice."""
        kinds = {
            self.arithmetic: 25,
            self.exponential: 8,
            self.choice: 10,
            self.row_reduction: 10,
            self.tile_sum: 7,
            self.tile_reduction: 6,
            self.dot: 4,
            self.load: 10,
            self.store: 8,
            self.tile_store: 3,
        }
        if depth < 2:
            kinds |= {self.loop: 5, self.branch: 4}
        (kind,) = self.choose.choices(list(kinds), weights=list(kinds.values()))
        kind(indent, depth)

    def put(self, indent, text):
        """One line."""
        self.lines.append("    " * indent + text)

    def name(self, expression, indent, kind):
        """A new value of a kind (``rows`` or ``tiles``)."""
        self.count += 1
        name = f"v{self.count}"
        self.put(indent, f"{name} = {expression}")
        kind.append(name)
        return name

    def row(self):
        """Any row so far."""
        return self.choose.choice(self.rows)

    def tile(self):
        """Any tile so far."""
        return self.choose.choice(self.tiles)

    def arithmetic(self, indent, _depth):
        self.name(f"{self.row()} {self.choose.choice('+-*')} {self.row()}", indent, self.rows)

    def exponential(self, indent, _depth):
        self.name(f"tl.exp(tl.minimum({self.row()}, 2.0))", indent, self.rows)

    def choice(self, indent, _depth):
        left, right = self.row(), self.row()
        self.name(f"tl.where({left} > {right}, {left}, {right} * 0.5)", indent, self.rows)

    def row_reduction(self, indent, _depth):
        kind = self.choose.choice(["sum", "max", "min"])
        self.name(f"{self.row()} * 0.25 + tl.{kind}({self.row()}, 0) * 0.125", indent, self.rows)

    def tile_sum(self, indent, _depth):
        axis = self.choose.choice(["None, :", ":, None"])
        self.name(f"{self.tile()} * 0.5 + {self.row()}[{axis}]", indent, self.tiles)

    def tile_reduction(self, indent, _depth):
        kind, axis = self.choose.choice(["sum", "max"]), self.choose.choice([0, 1])
        self.name(f"tl.{kind}({self.tile()}, {axis}) * 0.0625", indent, self.rows)

    def dot(self, indent, _depth):
        right = f"tl.trans({self.tile()}) * 0.01"
        self.name(f"tl.dot({self.tile()}, {right}, input_precision='ieee')", indent, self.tiles)

    def load(self, indent, _depth):
        place, limit = self.choose.choice([0, 1, 5, 16]), self.choose.choice(["n", "12"])
        source = self.choose.choice(["X", "Z"])
        self.name(f"tl.load({source} + i + {place}, mask=i < {limit}, other=0.5)", indent, self.rows)

    def store(self, indent, _depth):
        place, limit = self.choose.choice([0, 1, 16, 33]), self.choose.choice(["n", "99"])
        self.put(indent, f"tl.store({self.choose.choice(['Z', 'W'])} + i + {place}, {self.row()}, mask=i < {limit})")

    def tile_store(self, indent, _depth):
        target = self.choose.choice(["Z", "W"])
        self.put(indent, f"tl.store({target} + ii * 16 + jj, {self.tile()}, mask=(ii < n) & (jj < 13))")

    def loop(self, indent, depth):
        carried = [self.name(f"{row} * 1.0", indent, self.rows) for row in self.choose.sample(self.rows, 2)]
        self.put(indent, f"for k{depth} in range(n - {self.choose.choice([9, 10])}):")
        rows, tiles = list(self.rows), list(self.tiles)
        for _ in range(self.choose.randint(2, 5)):
            self.statement(indent + 1, depth + 1)
        second = self.choose.choice([carried[0], self.row()])
        self.put(indent + 1, f"{carried[0]}, {carried[1]} = {self.row()} * 0.5, {second}")
        self.rows, self.tiles = rows, tiles

    def branch(self, indent, depth):
        result = self.name(self.row(), indent, self.rows)
        self.put(indent, f"if tl.sum({self.row()}, 0) > 0:")
        rows, tiles = list(self.rows), list(self.tiles)
        for _ in range(self.choose.randint(1, 3)):
            self.statement(indent + 1, depth + 1)
        self.put(indent + 1, f"{result} = {self.row()} + 1.0")
        self.rows, self.tiles = rows, tiles


def difference(seed):
    """Why the two schedules of a seed's kernel differ, or ""."""
    source, file = Writer(random.Random(seed)).text(), f"<fuzz {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"triton": triton, "tl": tl}
    exec(compile(source, file, "exec"), names)  # the source was written above
    values = np.random.default_rng(seed)
    reference, optimized = both(
        names["kernel"],
        (1,),
        X=(values.standard_normal(600) * 0.5).astype(np.float32),
        Z=(values.standard_normal(400) * 0.5).astype(np.float32),
        W=np.zeros(400, np.float32),
        O=np.zeros(400, np.float32),
        n=11,
    )
    for name, expected in reference.items():
        # Sums are added in another order, and errors grow through loops and exponentials.
        with np.errstate(all="ignore"):
            if not np.allclose(expected, optimized[name], rtol=2e-3, atol=2e-3, equal_nan=True):
                return f"seed {seed}: {name} differs\n{source}"
    return ""


@needs_compiler
@pytest.mark.parametrize("seeds", [range(first, first + 6) for first in range(0, 30, 6)], ids=str)
def test_random_kernels_do_the_same_in_both_schedules(seeds):
    assert "".join(difference(seed) for seed in seeds) == ""


if __name__ == "__main__":
    found = [text for seed in range(int(sys.argv[1]), int(sys.argv[2])) if (text := difference(seed))]
    print(*found, f"{len(found)} of {int(sys.argv[2]) - int(sys.argv[1])} differ", sep="\n")
