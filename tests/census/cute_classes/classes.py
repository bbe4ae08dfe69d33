"""The classes, each as an argument of ``silo.cute`` with one case of small arrays."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import silo

__all__ = ["CLASSES", "PublicClass", "kernel_of"]

EXAMPLES = "examples/python/CuTeDSL"


@dataclass(frozen=True)
class PublicClass:
    """``file`` is in the folder of examples. ``made`` are arguments of the class, ``case`` makes those of a call."""

    file: str
    name: str
    target: str
    made: Mapping[str, Any]
    case: Callable[[Any], tuple[Any, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)


def kernel_of(checkout: Path, one: PublicClass, **more: Any) -> Any:
    """Returns the kernel of a class; its file is imported as its authors' program would."""
    path = checkout / EXAMPLES / one.file
    for folder in (checkout / EXAMPLES, path.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    name = "cute_class_" + one.file.removesuffix(".py").replace("/", "_")
    module = sys.modules.get(name)
    if module is None:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    members = {key: value(module) if callable(value) else value for key, value in one.made.items()}
    kernel = silo.cute(getattr(module, one.name)(**members), name=one.name, grid=(1, 1, 1), **{**one.options, **more})

    @kernel.cases()
    def _(make: Any) -> Any:
        return silo.Case(args=one.case(make), expected={})

    return kernel


def _matrix(make: Any, rows: int, columns: int, batches: int, dtype: str = "fp16") -> Any:
    """A stack of row-major matrices as the examples have it: the batch is the last axis."""
    return make.empty((rows, columns, batches), dtype=dtype, strides=(columns, 1, rows * columns))


def _gemm(dtype: str = "fp16", out: str = "fp16", size: int = 256) -> Callable[[Any], tuple[Any, ...]]:
    return lambda make: (
        _matrix(make, size, size, 1, dtype),
        _matrix(make, size, size, 1, dtype),
        _matrix(make, size, size, 1, out),
    )


def _persistent(make: Any) -> tuple[Any, ...]:
    return (*_gemm()(make), 132)


def _attention(make: Any) -> tuple[Any, ...]:
    return (*[make.empty((1, 256, 4, 64), dtype="fp16") for _ in range(4)], 0.125)


def _float32(module: Any) -> Any:
    return module.cutlass.Float32


def _half(module: Any) -> Any:
    return module.cutlass.Float16


HOPPER = {"acc_dtype": _float32, "tile_shape_mn": (128, 128), "cluster_shape_mn": (1, 1)}
BLACKWELL = {
    "acc_dtype": _float32,
    "use_2cta_instrs": False,
    "mma_tiler_mn": (128, 128),
    "cluster_shape_mn": (1, 1),
    "use_tma_store": True,
}
AMPERE_GEMM = {"ab_dtype": _half, "c_dtype": _half, "acc_dtype": _float32, "atom_layout_mnk": (2, 2, 1)}


def _grouped(make: Any) -> tuple[Any, ...]:
    groups = 2
    first = [_matrix(make, 256, 256, 1) for _ in range(3)]
    shapes = make.empty((groups, 4), dtype="i32")
    strides = make.empty((groups, 3, 2), dtype="i32")
    addresses = make.empty((groups, 3), dtype="i64")
    maps = make.empty((132, 3, 16), dtype="i64")
    return (*first, groups, shapes, strides, addresses, 8, maps, 132)


CLASSES = (
    PublicClass(
        "cute/ampere/kernel/attention/flash_attention_v2.py",
        "FlashAttentionForwardAmpere",
        "cuda:sm_80",
        {"head_dim": 64},
        _attention,
    ),
    PublicClass("cute/ampere/kernel/dense_gemm/tensorop_gemm.py", "TensorOpGemm", "cuda:sm_80", AMPERE_GEMM, _gemm()),
    PublicClass(
        "cute/ampere/kernel/dense_gemm/sgemm.py",
        "SGemm",
        "cuda:sm_80",
        {},
        lambda make: tuple(make.empty((256, 256), dtype="fp32") for _ in "abc"),
    ),
    PublicClass("cute/hopper/kernel/dense_gemm/dense_gemm.py", "HopperWgmmaGemmKernel", "cuda:sm_90a", HOPPER, _gemm()),
    PublicClass(
        "cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py",
        "HopperWgmmaGemmPersistentKernel",
        "cuda:sm_90a",
        {**HOPPER, "swizzle_size": 1, "raster_along_m": True},
        _persistent,
    ),
    PublicClass(
        "cute/hopper/kernel/grouped_gemm/grouped_gemm.py",
        "HopperGroupedGemmPersistentKernel",
        "cuda:sm_90a",
        {**HOPPER, "swizzle_size": 1, "raster_along_m": True},
        _grouped,
    ),
    PublicClass(
        "cute/blackwell/kernel/dense_gemm/dense_gemm.py", "DenseGemmKernel", "cuda:sm_100a", BLACKWELL, _gemm()
    ),
    PublicClass(
        "cute/blackwell/kernel/dense_gemm/dense_gemm_persistent.py",
        "PersistentDenseGemmKernel",
        "cuda:sm_100a",
        BLACKWELL,
        _persistent,
    ),
    PublicClass(
        "cute/blackwell_geforce/kernel/dense_gemm/dense_gemm.py",
        "Sm120GemmKernel",
        "cuda:sm_120a",
        {"acc_dtype": _float32, "tile_shape_mnk": (128, 128, 64)},
        _persistent,
    ),
)
