"""The one place that touches Triton's internals (3.6 and 3.9).

Nothing here is imported before a function needs it, so ``import silo`` loads no Triton.
"""

from silo.sources.triton.adapter.gpu import compile_gpu
from silo.sources.triton.adapter.lowering import Ttir, lower_for_gpu, lower_to_ttir
from silo.sources.triton.adapter.toolchain import TESTED_VERSIONS, require_triton, triton_version

__all__ = [
    "TESTED_VERSIONS",
    "Ttir",
    "compile_gpu",
    "lower_for_gpu",
    "lower_to_ttir",
    "require_triton",
    "triton_version",
]
