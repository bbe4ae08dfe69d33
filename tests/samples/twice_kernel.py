"""The text of a file with a kernel that doubles and its case, from which tests build bundles and fill stores."""

__all__ = ["twice"]


def twice(options: str) -> str:
    """Return the text of the file; ``options`` are the arguments of ``silo.kernel`` before the grid."""
    return f"""
import silo, triton, triton.language as tl

@silo.kernel({options}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@twice.cases(n=[100])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={{"out": lambda: x.host * 2}})
"""
