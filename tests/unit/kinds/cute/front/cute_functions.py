"""Functions marked as the DSL marks them, for tests of what needs no DSL. Their bodies are never run."""
# pyright: reportUndefinedVariable=false, reportAttributeAccessIssue=false
# ruff: noqa: F821

__all__ = ["FACTOR", "Base", "Product", "add", "jit", "kernel", "on_host", "scaled", "twice"]

FACTOR = 2


def kernel(function):
    """``@cute.kernel``."""
    return _marked(function, "kernel")


def jit(function):
    """``@cute.jit``."""
    return _marked(function, "jit")


def _marked(function, kind):
    function._dsl_cls, function._decorator_kind = object, kind
    return function


def twice(value):
    return value * FACTOR


@kernel
def add(x: "cute.Tensor", out: "cute.Tensor", n: "cutlass.Int32", BLOCK: "cutlass.Constexpr[int]" = 128):
    out[0] = twice(x[n])


@kernel
def scaled(x: "Optional[cute.Tensor]", p: "cute.Pointer", a, flag: bool, wide: "Uint8", *, MODE: "cutlass.Constexpr"):
    p[0] = x[a]


@jit
def on_host(x: "cute.Tensor", n: "cutlass.Int64", stream: "cuda.CUstream"):
    add(x, x, n, 3).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


class Base:
    LANES = 32

    @property
    def wide(self):
        return twice(self.LANES)


class Product(Base):
    def __init__(self, tile: int, stages: int = 2):
        self.tile, self.stages = tile, stages

    @jit
    def __call__(self, x: "cute.Tensor", out: "cute.Tensor"):
        self.body(x, out).launch(grid=(1, 1, 1), block=(self.tile, 1, 1))

    @kernel
    def body(self, x, out):
        out[0] = x[0]
