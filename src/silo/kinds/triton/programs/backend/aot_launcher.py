"""Builds a launcher for one compiled kernel as a shared object of its own, for programs that launch without Python.

torch's AOTInductor loads the launcher together with the kernel's object and calls ``run_from_nativert(x, y, z, threads,
values, kernel)``. x, y and z are the grid. ``threads`` is the number of threads that the launch may use, which torch
sets to 1. ``values`` has one pointer for each parameter of the Triton function: null for constants folded into the
code, an array's own address, or the address of a scalar, which is a 64-bit integer, a 32-bit float or a bool whatever
the kernel's own type is. ``kernel`` is the kernel's entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.compile.c_compiler import find_compiler
from silo.compile.native_build import build
from silo.core.launch_info import AbiType, LaunchInfo
from silo.errors import UnsupportedError
from silo.settings import settings

__all__ = ["launcher_object", "launcher_text"]

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wl,-s", "-Wl,--build-id=none", "-g0", "-fno-ident")

_TEXT = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int32_t silo_entry(void *const *, const uint32_t *, uint64_t, uint64_t, void *, void *);

static void stop(const char *what, int code) {
  fprintf(stderr, "silo: the kernel %(kernel)s %%s (code %%d)\\n", what, code);
  abort();
}

void run_from_nativert(uint32_t x, uint32_t y, uint32_t z, int threads, void **values, void *kernel) {
  (void)threads, (void)values;
  const uint32_t grid[3] = {x, y, z};
  union { uint64_t address; double real; } word[%(room)d];
  void *params[%(room)d] = {0};
  (void)word;
%(fill)s
  void *scratch = NULL;
  if (%(scratch)d != 0 && (scratch = aligned_alloc(64, (%(scratch)d + 63) / 64 * 64)) == NULL)
    stop("has no memory to work in", 0);
  const int32_t code = ((silo_entry *)kernel)(params, grid, 0, (uint64_t)x * y * z, scratch, NULL);
  free(scratch);
  if (code != 0)
    stop("reported a fault", code);
}
"""


def launcher_text(kernel: str, launch: LaunchInfo, parameters: Sequence[str]) -> str:
    """The launcher's C text; ``parameters`` are all parameters of the Triton function, in order.

    Raises:
        UnsupportedError: the kernel takes a tensor descriptor, or its programs wait for each other.
    """
    if launch.cooperative:
        raise UnsupportedError(
            f"{kernel}: its programs wait for each other (launch_cooperative_grid), and a launch ahead of time runs "
            "them one after the other: launch it from Python"
        )
    fill: list[str] = []
    for number, slot in enumerate(launch.layout):
        if slot.part:
            raise UnsupportedError(
                f"{kernel}: {slot.name} is a tensor descriptor, which torch does not pass to a launcher of its own: "
                "give the kernel a pointer, shape and strides"
            )
        index = parameters.index(slot.name)
        if slot.type is AbiType.POINTER:
            fill.append(f"  word[{number}].address = (uint64_t)(uintptr_t)values[{index}];")
            fill.append(f"  params[{number}] = &word[{number}];")
        elif slot.type is AbiType.FP64:
            fill.append(f"  word[{number}].real = *(const float *)values[{index}];")
            fill.append(f"  params[{number}] = &word[{number}];")
        elif slot.type in (AbiType.FP16, AbiType.BF16):
            raise UnsupportedError(
                f"{kernel}: {slot.name} is a scalar of type {slot.type.value}, and torch passes every real number as a "
                "32-bit one: give the kernel that, and convert inside"
            )
        else:
            fill.append(f"  params[{number}] = values[{index}];")
    substitutions = {
        "kernel": kernel,
        "room": max(len(launch.layout), 1),
        "fill": "\n".join(fill),
        "scratch": launch.scratch_bytes,
    }
    return _TEXT % substitutions


def launcher_object(kernel: str, launch: LaunchInfo, parameters: Sequence[str]) -> bytes:
    """The launcher's shared object. Raises the errors of :func:`launcher_text`, and CompileError."""
    return build(launcher_text(kernel, launch, parameters), _FLAGS, find_compiler(settings().cc)).data
