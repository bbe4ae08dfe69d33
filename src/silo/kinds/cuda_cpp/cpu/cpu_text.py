"""The C++ text of a kernel for the CPU: CUDA's language, the kernel's text, and the entry that a launch calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from silo.core.launch_info import parameter_bytes
from silo.kinds.cuda_cpp.cuda_unit import CudaText, CudaUnit
from silo.kinds.cuda_cpp.kernel_body import body_of

__all__ = ["HIDDEN", "POISON", "entry_text", "head_text", "may_wait", "quoted", "rewritten"]

POISON = "#pragma GCC poison asm __asm __asm__\n"
"""Makes assembly (which may read files, by .incbin) an error in the texts after it, even if a macro expands to it."""

HIDDEN = "silo_dynamic"
"""The symbol of a block's dynamic shared memory."""

_ARCH = "__CUDA_ARCH__"
_EXTERN = re.compile(r"\bextern\b([^;{}\"']{0,160}?)\b__shared__\b([^;{}\"']*?);|\b__shared__\s+extern\b([^;{}\"']*?);")
_WAITS = re.compile(
    r"\b(?:__shared__|__sync\w*|__shfl\w*|__\w+_sync|__activemask|__nanosleep|cooperative_groups|cg\s*::|thread_block\w*"
    r"|tiled_partition|cub\s*::|BlockReduce|WarpReduce)\b|\.\s*sync\s*\("
)


def quoted(text: str) -> str:
    r"""Returns a text as a C++ string literal.

    >>> print(quoted('a"b'))
    "a\"b"
    """
    escaped = "".join(f"\\{c}" if c in '"\\' else c if c.isprintable() else "_" for c in text)
    return f'"{escaped}"'


def rewritten(text: str) -> str:
    """Returns a text in which declarations of dynamic shared memory use the symbol :data:`HIDDEN`.

    Line numbers stay the same.

    >>> rewritten("extern __shared__ float s[];")
    'extern __thread float s[] SILO_DYNAMIC;'
    """

    def declared(match: re.Match[str]) -> str:
        before, after, only = match.groups()
        return f"extern{before or ''} __thread{after if only is None else only} SILO_DYNAMIC;".replace(
            "  __thread", " __thread"
        )

    return _EXTERN.sub(declared, text)


def may_wait(unit: CudaUnit) -> bool:
    """Whether the threads of a block may wait for each other or share memory, judged by words in the kernel's body.

    If the body is not found, the whole text is searched. A function that the kernel calls may wait although the body
    does not: then code without fibers does not link, and is compiled again with fibers.
    """
    body = body_of(unit.text.text, unit.expression)
    return _WAITS.search(unit.text.text if body is None else body[0]) is not None


def head_text(text: CudaText, defines: Sequence[tuple[str, str]], *, waits: bool, cooperative: bool = False) -> str:
    """Returns the text before the user's text: includes of CUDA's language, ``__CUDA_ARCH__`` and the user's macros."""
    del text
    switch = "SILO_THREADS_SWITCH\nSILO_CUDA_SHARED\n" if waits else ""
    grid = "#define SILO_CUDA_COOPERATIVE\n" if cooperative else ""
    macros = dict(defines)
    arch = {} if _ARCH in macros else {_ARCH: "900"}
    lines = "".join(f"#define {name} {value}\n" for name, value in {**arch, **macros}.items())
    return (
        f'#line 1 "entry"\n#include <silo_cuda.h>\n{switch}#include <emulator/refused.h>\n'
        f'#define SILO_DYNAMIC __asm("{HIDDEN}")\n{grid}{lines}'
    )


def entry_text(unit: CudaUnit, entry: str, *, waits: bool, stack: int, memory: int) -> str:
    """Returns the whole text for clang; ``#line`` directives mark the user's own lines.

    Args:
        unit: the variant.
        entry: the name of the function that a launch calls.
        waits: whether each thread has its own stack.
        stack: bytes of a thread's stack.
        memory: bytes that the threads of a block share.
    """
    x, y, z = unit.block
    count = len(parameter_bytes(unit.layout))
    reads = "".join(
        f"  const Silo_kernel::type<{at}> silo_{at} = Silo_kernel::value<{at}>(parameters);\n" for at in range(count)
    )
    passed = ", ".join(f"silo_{at}" for at in range(count))
    dynamic = ""
    if waits:
        size = max(unit.shared_bytes, 1)
        dynamic = (
            f'__thread char silo_dynamic_memory[{size}] __asm("{HIDDEN}") '
            f'__attribute__((visibility("hidden"), aligned(128)));\n'
        )
    return (
        f"{head_text(unit.text, unit.defines, waits=waits, cooperative=unit.cooperative)}"
        f"namespace silo_cuda {{\n"
        f"SILO_CUDA_PLAIN unsigned block_x() {{ return {x}; }}\n"
        f"SILO_CUDA_PLAIN unsigned block_y() {{ return {y}; }}\n"
        f"SILO_CUDA_PLAIN unsigned block_z() {{ return {z}; }}\n"
        f"}}\n"
        f"{dynamic}"
        # With internal linkage, only the functions that this kernel calls are compiled.
        f"#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)\n"
        f"{POISON}#line 1 {quoted(unit.text.file)}\n"
        f"{rewritten(unit.text.text)}\n"
        f'#line 1 "entry"\n'
        f"#pragma clang attribute pop\n"
        f"using Silo_kernel = silo_cuda::Kernel<decltype({unit.expression})>;\n"
        f"static_assert(Silo_kernel::count == {count});\n"
        f'extern "C" [[gnu::flatten, gnu::visibility("default")]] int {entry}(\n'
        f"    void *const *parameters, const unsigned *grid, unsigned long begin, unsigned long end,\n"
        f"    void *scratch, void *context) {{\n"
        f"{reads}"
        f"  const auto body = [=] {{\n"
        f"    SILO_THREADS_INLINED {unit.expression}({passed});\n"
        f"  }};\n"
        f"  return silo_cuda::run_blocks<{x}, {y}, {z}>(\n"
        f"      body, grid, begin, end, scratch, context, {{.stack = {stack}, .memory = {memory}}});\n"
        f"}}\n"
    )
