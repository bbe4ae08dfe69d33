"""Builds a shared object from C text, with the system's C compiler."""

from __future__ import annotations

import shutil
from tempfile import TemporaryFile

from silo.compile.c_compiler import CCompiler
from silo.compile.compiler_process import memory_note, run_compiler
from silo.compile.native_build import BuiltObject, InternalCompilerError, build, build_beside
from silo.core.device import Target
from silo.drivers.cpu.levels import CpuLevel, level_of
from silo.errors import CompileError, ToolchainError
from silo.kinds.triton.cpu.compile_effort import SIMD, USUAL, efforts_after_a_fault
from silo.kinds.triton.cpu.emit.shared_text import part
from silo.settings import child_environment

__all__ = [
    "BuiltObject",
    "build",
    "build_kernel",
    "compile_flags",
    "forget_shared",
    "llvm_of",
    "source_flags",
]

# The flags of every compilation. Optimization passes that improve neither results nor speed stay off. NaN, infinities
# and the sign of zero are kept; only errno and trapping are given up, which no kernel can observe. The other flags make
# the object small and its bytes independent of the folder: no debug information, no build id, no compiler name, no
# unwind tables.
_CODE_FLAGS = (
    "-std=gnu11",
    USUAL,
    SIMD,
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-ident",
    "-g0",
    # silences clang's warning about loops with calls of the C library, which clang does not vectorise
    "-Wno-pass-failed",
)
# Flags that make the object small and reproducible, and do not change the code's behaviour.
_OBJECT_FLAGS = frozenset(
    {"-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-ident", "-g0", "-Wno-pass-failed"}
)
_LINK_FLAGS = (
    "-shared",
    "-nostartfiles",
    "-Wl,-s",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,-z,noseparate-code",
    "-Wl,-z,defs",
)
_NO_UNUSED = "-Wl,--gc-sections"  # removes unused functions of the objects that kernels share

# The shared objects compiled in this process, by text, flags and compiler; each has about 20 KB.
_shared: dict[tuple[str, tuple[str, ...], CCompiler], bytes] = {}
_MOST_SHARED = 256

# Flags for the linker, and flags that make its output a shared object.
_LINKED_ONLY = frozenset({*_LINK_FLAGS, "-lm"})


def build_kernel(text: str, flags: tuple[str, ...], toolchain: CCompiler) -> BuiltObject:
    """Compiles and links the C text of a kernel.

    Functions and block kernels that it shares with other kernels are compiled once in a process, as objects of their
    own.

    The resulting bytes do not depend on earlier compiles. If the C compiler fails by a bug of its own, it is run again
    with fewer passes, which is logged.

    Raises:
        CompileError: see :func:`build`.
    """
    try:
        return _built(text, flags, toolchain)
    except InternalCompilerError as error:
        fault = str(error)
    for fewer, cost in efforts_after_a_fault(flags):
        try:
            built = _built(text, fewer, toolchain)
        except InternalCompilerError:
            continue
        note = (
            f"the C compiler has a fault of its own in this text, which is compiled {cost} and may run slower: {fault}"
        )
        return BuiltObject(built.data, "\n".join(filter(None, (note, built.log))))
    raise CompileError(fault)


def _built(text: str, flags: tuple[str, ...], toolchain: CCompiler) -> BuiltObject:
    parts = part(text)
    if not parts.shared:
        return build(text, flags, toolchain)
    # Several kernels share these objects, so they get the usual effort, not the effort of this kernel.
    usual = (USUAL if flag.startswith("-O") else flag for flag in flags)
    compile_flags = tuple(flag for flag in usual if flag not in _LINKED_ONLY)
    all_flags = (_NO_UNUSED, *flags)
    keys = [(text, compile_flags, toolchain) for text in parts.shared]
    shared_objects = [_shared.get(key) for key in keys]
    if all(shared_objects):
        return build(
            parts.own,
            all_flags,
            toolchain,
            other_files=[shared_object for shared_object in shared_objects if shared_object],
        )
    shared_inputs = [shared_object or text for shared_object, text in zip(shared_objects, parts.shared, strict=True)]
    built, objects = build_beside(parts.own, shared_inputs, all_flags, compile_flags, toolchain)
    if len(_shared) + len(objects) > _MOST_SHARED:
        _shared.clear()
    _shared.update(zip(keys, objects, strict=True))
    return built


def forget_shared() -> None:
    """Forgets the shared objects, so that the next kernel is compiled like the first of a process."""
    _shared.clear()


def compile_flags(
    level: CpuLevel, *, contract: bool = True, libm: bool = False, effort: str = USUAL
) -> tuple[str, ...]:
    """All flags of one compile.

    ``contract`` allows a * b + c to be fused to one rounding; ``libm`` links the mathematical functions of the C
    library; ``effort`` is the flag of :class:`silo.kinds.triton.cpu.compile_effort.CompileEffort`.
    """
    fused = f"-ffp-contract={'fast' if contract else 'off'}"
    code = (effort if flag == USUAL else flag for flag in _CODE_FLAGS)
    return (*level.flags, *code, fused, *_LINK_FLAGS, *(("-lm",) if libm else ()))


def source_flags(target: Target, *, contract: bool) -> tuple[str, ...]:
    """The flags that decide the meaning of a kernel's C text, for users who compile it into their own program."""
    fused = f"-ffp-contract={'fast' if contract else 'off'}"
    return (*level_of(target).flags, *(flag for flag in _CODE_FLAGS if flag not in _OBJECT_FLAGS), fused)


def llvm_of(source: str, flags: tuple[str, ...]) -> str:
    """The LLVM IR that clang makes of the C text.

    Raises:
        ToolchainError: clang is missing, or refuses the text.
    """
    clang = shutil.which("clang")
    if clang is None:
        raise ToolchainError(
            "LLVM's form of CPU code is made by clang, which is not on PATH: install it (Debian, Ubuntu: apt-get "
            "install clang), or look at --code c and --code asm, which need none"
        )
    kept_flags = [
        flag for flag in flags if not flag.startswith("-Wl,") and flag not in ("-shared", "-nostartfiles", "-lm")
    ]
    with TemporaryFile() as text:
        text.write(source.encode())
        text.seek(0)
        command = [clang, *kept_flags, "-x", "c", "-", "-S", "-emit-llvm", "-o", "-"]
        done = run_compiler(command, stdin=text, env=child_environment(LC_ALL="C"))
    if done.returncode != 0:
        log = done.stderr.decode(errors="replace").strip()
        raise ToolchainError(f"clang refuses the C text: {log[:500]}{memory_note(log)}")
    return done.stdout.decode()
