"""The composition root: the only package that joins compiling, tuning, storing, bundling and launching."""

from silo.api.bundles import BundledKernel, Kernels, load
from silo.api.kernel import Kernel, kernel

__all__ = ["BundledKernel", "Kernel", "Kernels", "kernel", "load"]
