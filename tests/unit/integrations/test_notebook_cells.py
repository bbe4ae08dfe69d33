"""Cells of a notebook that are edited and run again: the kernel and its torch operator are replaced."""

import linecache
import types

import pytest

np = pytest.importorskip("numpy", reason="the arrays are numpy's")
pytest.importorskip("triton", reason="the kernels are Triton's")

from silo.errors import ArgumentError  # noqa: E402
from silo.settings import override  # noqa: E402

CELL = """
import silo
import triton
import triton.language as tl

FACTOR = {factor}


@triton.jit
def grown(x):
    return x * {factor}


@silo.kernel(space=[{{"BLOCK": 64}}], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def grow(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, grown(tl.load(x + i, mask=i < n)), mask=i < n)
"""
OPERATOR = """
import torch

op = silo.torch_op(grow, name="{name}", out={{"out": "x"}}, example=(torch.float32, torch.float32, 100))
"""


class Session:
    """The namespace of a notebook, in which cells run under names that change with their text."""

    def __init__(self, pattern):
        self.pattern = pattern
        self.module = types.ModuleType("__main__")
        self.count = 0

    def run(self, text):
        self.count += 1
        name = self.pattern.format(count=self.count)
        # As IPython does: without a time the entry is kept, though there is no such file.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(self.module))
        return vars(self.module)


@pytest.fixture(
    params=["/tmp/ipykernel_{count}7/12{count}.py", "<ipython-input-{count}-ab{count}>", "<python-input-{count}>"]
)
def session(request, tmp_path):
    pattern = request.param.replace("ipykernel_{count}7", "ipykernel_77")
    with override(home=str(tmp_path / "store"), tune="off"):
        yield Session(pattern)


def test_an_edited_cell_replaces_its_kernel(session):
    x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    for factor in (2, 3, 2):
        names = session.run(CELL.format(factor=factor))
        names["grow"](x, out, 100)
        assert (out == factor).all()


def test_a_helper_in_a_cell_of_its_own_is_looked_up_when_it_changes(session):
    x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    session.run(CELL.format(factor=2))["grow"](x, out, 100)
    assert (out == 2).all()
    helper = "@triton.jit\ndef grown(x):\n    return x * 5\n"
    kernel = CELL.format(factor=2).partition("@silo.kernel")[2]
    session.run(helper)
    session.run("@silo.kernel" + kernel)["grow"](x, out, 100)
    assert (out == 5).all()


def test_an_edited_cell_replaces_its_operator(session):
    torch = pytest.importorskip("torch", reason="the operator is torch's")
    name = f"notebook_cells::grow{abs(hash(session.pattern))}"
    x = torch.ones(100)
    for factor in (2, 3):
        op = session.run(CELL.format(factor=factor) + OPERATOR.format(name=name))["op"]
        assert (op(x, 100) == factor).all()
    other = CELL.format(factor=4).replace("def grow(", "def other(") + OPERATOR.format(name=name).replace(
        "(grow,", "(other,"
    )
    with pytest.raises(ArgumentError, match="is defined already, by grow"):
        session.run(other)
