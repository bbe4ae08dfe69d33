"""Kernels as a C program with nothing but themselves in it, to be built with sanitizers.

Each storage and the scratch memory is an allocation of exactly its size, so that one byte too far is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .batch import Part, whole_text
from .kinds import KINDS
from .program import Kernel

__all__ = ["program", "read_results"]

_HEAD = """
extern int printf(const char *, ...);
extern void *malloc(unsigned long);
extern void *aligned_alloc(unsigned long, unsigned long);
extern void free(void *);
typedef struct _IO_FILE FILE;
extern FILE *fopen(const char *, const char *);
extern unsigned long fread(void *, unsigned long, unsigned long, FILE *);
extern unsigned long fwrite(const void *, unsigned long, unsigned long, FILE *);
extern int fclose(FILE *);
"""


def program(
    kernels: Sequence[Kernel], parts: Sequence[Part], filled: Sequence[dict[str, np.ndarray]]
) -> tuple[str, bytes]:
    """C text of a program that reads the storages from its first argument, runs every kernel, and writes them to its
    second; and the bytes of the first.
    """
    calls: list[str] = []
    data: list[bytes] = []
    for place, (kernel, part, arrays) in enumerate(zip(kernels, parts, filled, strict=True)):
        calls.append(_call(place, kernel, part, arrays))
        data.extend(array.tobytes() for array in arrays.values())
    steps = "\n".join(f'  printf("kernel {place}\\n"); run{place}(in, out);' for place in range(len(kernels)))
    main = (
        "int main(int count, char **words) {\n  if (count != 3) return 2;\n"
        '  FILE *in = fopen(words[1], "rb"), *out = fopen(words[2], "wb");\n  if (!in || !out) return 3;\n'
        f'{steps}\n  fclose(in); fclose(out);\n  printf("done\\n");\n  return 0;\n}}\n'
    )
    return "\n".join((whole_text(parts), _HEAD, *calls, main)), b"".join(data)


def _call(place: int, kernel: Kernel, part: Part, arrays: dict[str, np.ndarray]) -> str:
    lines = [f"static void run{place}(FILE *in, FILE *out) {{"]
    for name, array in arrays.items():
        lines.append(f"  unsigned char *const {name} = malloc({max(array.nbytes, 1)});")
        lines.append(f"  if (fread({name}, 1, {array.nbytes}, in) != {array.nbytes}) return;")
    slots: list[str] = []
    named = {parameter.name: parameter for parameter in kernel.parameters}
    for slot in part.launch.layout:
        parameter = named[slot.name]
        if parameter.pointer:
            offset = kernel.start(parameter) * (KINDS[parameter.kind].bits // 8)
            lines.append(f"  void *const q_{slot.name} = {parameter.storage} + {offset};")
        else:
            lines.append(f"  int32_t const q_{slot.name} = {int(parameter.value)};")
        slots.append(f"(void *)&q_{slot.name}")
    size = part.launch.scratch_bytes
    lines.append(f"  void *const params[] = {{{', '.join(slots) or '0'}}};")
    lines.append(f"  void *const scratch = {f'aligned_alloc(64, {-(-size // 64) * 64})' if size else '0'};")
    extents = (*kernel.grid, 1, 1)[:3]
    lines.append(f"  const uint32_t grid[3] = {{{extents[0]}, {extents[1]}, {extents[2]}}};")
    lines.append(f"  {part.launch.entry}(params, grid, 0, {kernel.programs}, scratch, 0);")
    lines.extend(f"  fwrite({name}, 1, {array.nbytes}, out); free({name});" for name, array in arrays.items())
    lines.append("  free(scratch);\n}")
    return "\n".join(lines)


def read_results(data: bytes, filled: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """What the program wrote, as the storages of each kernel."""
    found: list[dict[str, np.ndarray]] = []
    start = 0
    for arrays in filled:
        one: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            one[name] = np.frombuffer(data[start : start + array.nbytes], array.dtype)
            start += array.nbytes
        found.append(one)
    return found
