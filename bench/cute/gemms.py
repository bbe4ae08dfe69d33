"""The 32 configs of one matrix product that the benchmark compiles, as a Silo kernel; needs the CuTe DSL."""
# pyright: reportMissingImports=false

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from cute_gemms import WgmmaGemm  # imported after sys.path is extended

import silo

SIZE = (4096, 4096, 4096)  # m, n, k
SPACE = {"BLOCK_M": [64, 128], "BLOCK_N": [64, 128, 192, 256], "BLOCK_K": [32, 64], "STAGES": [3, 4]}

gemm = silo.cute(
    WgmmaGemm,
    name="gemm",
    signature="a: in, b: in, c: out",
    space=SPACE,
    grid=lambda a: (silo.cdiv(a.c.shape[0], a.BLOCK_M), silo.cdiv(a.c.shape[1], a.BLOCK_N)),
)


@gemm.cases(size=[SIZE])
def _(size, make):
    m, n, k = size
    return silo.Case(args=tuple(make.empty(shape, dtype="bf16") for shape in ((m, k), (n, k), (m, n))))
