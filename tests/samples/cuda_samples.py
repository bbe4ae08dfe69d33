"""CUDA C++ kernels for tests, each with its launch."""

import pytest

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import SiloError
from silo.kinds.cuda_cpp.cuda_unit import Form
from silo.kinds.cuda_cpp.nvrtc import find_nvrtc, load_nvrtc

VADD = """
template <class T, int N>
__global__ void __launch_bounds__(BLOCK) vadd(const T *x, const T *__restrict__ y, T *out, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i] * N;
}
"""


def need_nvrtc():
    """Load NVRTC; skip the module's tests if it does not load."""
    try:
        return load_nvrtc(find_nvrtc())
    except SiloError as error:
        return pytest.skip(str(error), allow_module_level=True)


def variant_of(made, target="cuda:sm_90a", **values):
    """Return a variant of a kernel for arguments of its parameter types; ``values`` are its constants."""
    source = made.kernel.source
    facts = {}
    for one in source.passed:
        if one.type.form == Form.SCALAR:
            facts[one.name] = ArgumentFacts(1.0 if dtype(one.type.dtype).kind.value == "float" else 1)
        else:
            facts[one.name] = ArgumentFacts.array(one.type.dtype or "uint8")
    signature, specialization = source.specialize(facts)
    config = Config(tuple(sorted(values.items())))
    return Variant(source.name, source.fingerprint, signature, specialization, config, Target.parse(target))
