"""A file with one kernel of three configs and its case, for tests that start programs with it."""

from __future__ import annotations

_TEXT = """
import silo
import triton
import triton.language as tl


@silo.kernel(
    space={"BLOCK": [128, 256, 512], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
)
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@scale.cases(n=[5000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * EXPECTED})
"""


def write_scale(folder, *, expected=2):
    """Write the file to ``folder``. The kernel doubles x; the case expects ``expected`` times x."""
    path = folder / "kernels.py"
    path.write_text(_TEXT.replace("EXPECTED", str(expected)))
    return path
