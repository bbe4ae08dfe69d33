"""Texts that replace host headers in device code; most of them are used only with the option ``device_only``.

nvcc reads ``cuda_runtime.h`` before each text, and with it much of the host's C library, so files use ``uint`` and
``UINT_MAX`` without an include. NVRTC does not define these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from types import MappingProxyType

__all__ = ["ALWAYS", "FIRST", "HOST_NAMES", "LEFT_OUT", "first_text", "replacement"]

CUB = "cub/cub.cuh"
"""The header that includes all of cub. NVRTC refuses it, but accepts cub's headers of single algorithms."""

ALWAYS = frozenset((CUB, "float.h", "cfloat"))
"""Headers that are replaced in every text.

NVRTC lacks them, and they only define constants or include other headers.
"""

FIRST = "silo/nvcc_names.h"
"""The header that each text with ``device_only`` includes first."""

_FIRST_TEXT = """#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
#if defined __CUDACC_RTC__ && !defined __clang__  // NVRTC
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define __extension__
#else
typedef long int64_t;
typedef unsigned long uint64_t;
#endif
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
}
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef INT_MAX
#define CHAR_BIT 8
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-SHRT_MAX - 1)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ULL
#endif
"""
"""Types and constants that nvcc defines in every text, on Linux with 64 bits. NVRTC's own 64-bit types differ."""

HOST_NAMES = frozenset(re.findall(r"(?:#define |^typedef .* )(\w+)", _FIRST_TEXT, re.MULTILINE))
"""The names that :data:`_FIRST_TEXT` declares."""

LEFT_OUT = "#pragma once  // left out\n"
"""The text that replaces a header that is left out."""

_FLOATS = (
    "#pragma once\n#define FLT_MAX 3.402823466e+38F\n#define FLT_MIN 1.175494351e-38F\n"
    "#define FLT_EPSILON 1.192092896e-07F\n#define DBL_MAX 1.7976931348623157e+308\n"
    "#define DBL_MIN 2.2250738585072014e-308\n#define DBL_EPSILON 2.2204460492503131e-16\n"
    "#define FLT_RADIX 2\n#define FLT_DIG 6\n#define FLT_MANT_DIG 24\n#define FLT_MAX_EXP 128\n"
    "#define FLT_MIN_EXP (-125)\n#define FLT_MAX_10_EXP 38\n#define FLT_MIN_10_EXP (-37)\n"
    "#define DBL_DIG 15\n#define DBL_MANT_DIG 53\n"
)
_HALVES = "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
_BUILT_IN = "#pragma once\n"  # for headers whose names are built into the compiler or defined in FIRST
_SHORT = MappingProxyType(
    {
        **dict.fromkeys(
            ["math.h", "cmath", "cuda_runtime.h", "limits.h", "climits", "cstring", "cuda_runtime_api.h"], _BUILT_IN
        ),
        **dict.fromkeys(["stdint.h", "cstdint", "inttypes.h", "cinttypes"], _BUILT_IN),
        **dict.fromkeys(
            ["stddef.h", "cstddef", "assert.h", "cassert", "stdio.h", "cstdio", "stdlib.h", "cstdlib", "string.h"],
            _BUILT_IN,
        ),
        **dict.fromkeys(["device_launch_parameters.h", "math_functions.h", "ctime", "time.h"], _BUILT_IN),
        "cublas_v2.h": _HALVES,
        "cublasLt.h": _HALVES,
        "float.h": _FLOATS,
        "cfloat": _FLOATS,
    }
)
# Headers of C++ that the toolkit has in cuda/std, for NVRTC. For the CPU, Silo's headers replace them.
_STANDARD = ("type_traits", "limits", "utility", "tuple", "array", "functional", "initializer_list", "bit", "complex")
_TOOLKIT_FOLDERS = ("cub", "cuda", "nv", "thrust", "cooperative_groups", "crt")
_TOOLKIT = frozenset(
    [
        *("cooperative_groups.h", "cuComplex.h", "cuda_awbarrier.h", "cuda_awbarrier_primitives.h", "cuda_bf16.h"),
        *("cuda_fp16.h", "cuda_fp4.h", "cuda_fp6.h", "cuda_fp8.h", "cuda_pipeline.h", "cuda_pipeline_primitives.h"),
        *("cuda_tf32.h", "math_constants.h", "mma.h", "vector_types.h"),
    ]
)
_DEPENDENT = re.compile(r"\bcuda(?:GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)\b")
# Functions for dependent launches, as in CUDA's device runtime: PTX instructions from sm_90 on, and nothing on older
# chips, where a launch always waits for the launch before it.
_DEPENDENT_TEXT = """#if !defined SILO_CUDA_PLAIN
static __device__ inline void cudaGridDependencySynchronize() {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ inline void cudaTriggerProgrammaticLaunchCompletion() {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif
"""
_LIMITS = re.compile(r"\b(?:FLT|DBL)_(?:MAX|MIN|EPSILON|DIG)\b")
_TRAITS = re.compile(
    r"\bstd\s*::\s*(?:enable_if|is_|conditional|remove_|decay|integral_constant|bool_constant|declval)"
)
_CUB = re.compile(r"\bcub\s*::\s*(Block|Warp|Thread)([A-Z]\w*)")
_CUB_HEADERS = MappingProxyType(
    {
        "BlockStoreAlgorithm": "block/block_store.cuh",
        "BlockLoadAlgorithm": "block/block_load.cuh",
        "BlockReduceAlgorithm": "block/block_reduce.cuh",
        "BlockScanAlgorithm": "block/block_scan.cuh",
        "BlockRadixSort": "block/block_radix_sort.cuh",
        "ThreadReduce": "thread/thread_reduce.cuh",
    }
)


def first_text(texts: Iterable[str]) -> str:
    """Returns the header :data:`FIRST`, with the names that nvcc always defines.

    If ``texts`` use type traits, limits of floats or functions for dependent launches, the header declares these too.
    In a build with nvcc, nvcc's own headers or torch's headers define these names.
    """
    all_texts = tuple(texts)
    traits = any(_TRAITS.search(text) is not None for text in all_texts)
    limits = any(_LIMITS.search(text) is not None for text in all_texts)
    dependent = _DEPENDENT_TEXT if any(_DEPENDENT.search(text) is not None for text in all_texts) else ""
    return _FIRST_TEXT + (_standard("type_traits") if traits else "") + (_FLOATS if limits else "") + dependent


def _standard(name: str) -> str:
    return f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"


def _in_toolkit(name: str) -> bool:
    """Whether the toolkit that NVRTC contains has a header of this name."""
    parts = PurePosixPath(name).parts
    return name in _TOOLKIT or (len(parts) > 1 and parts[0] in _TOOLKIT_FOLDERS)


def replacement(name: str, texts: Iterable[str]) -> str | None:
    r"""Returns the text for a header that is not the user's; None if the toolkit's own header is to be used.

    ``texts`` are the user's own: ``cub/cub.cuh`` becomes includes of those parts of cub that they name.

    >>> replacement("cub/cub.cuh", ["using R = cub::BlockReduce<int, 32>;"])
    '#pragma once\n#include <cub/block/block_reduce.cuh>\n'
    """
    if name == CUB:
        headers = {_cub_header(*match.groups()) for text in texts for match in _CUB.finditer(text)}
        return "#pragma once\n" + "".join(f"#include <cub/{header}>\n" for header in sorted(headers))
    if name.startswith(("thrust/", "cub/device/")) and not any("thrust::" in text for text in texts):
        return LEFT_OUT  # only host code uses such a header
    if _in_toolkit(name):
        return None
    if name in _STANDARD:
        return f"#pragma once\n{_standard(name)}"
    return _SHORT.get(name, LEFT_OUT)


def _cub_header(kind: str, name_end: str) -> str:
    name = kind + name_end
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _CUB_HEADERS.get(name, f"{kind.lower()}/{snake}.cuh")
