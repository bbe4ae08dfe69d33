"""CUDA and HIP C++ for AMD GPUs: compiled by clang, with the device libraries and the linker of Triton's wheel.

ROCm is not needed. Code compiled in this way has been built, read back and bundled, but never run on an AMD GPU.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
from functools import cache
from importlib import import_module
from pathlib import Path

from silo.artifacts.binary_inspection import inspect_binary
from silo.compile.c_compiler import CCompiler, identify
from silo.compile.compiler_process import memory_note, run_compiler
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target, driver_of
from silo.core.protocols import Source
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, CompilerMissingError
from silo.kinds.cuda_cpp.compile_log import explained
from silo.kinds.cuda_cpp.cuda_declaration import HIPCLANG
from silo.kinds.cuda_cpp.cuda_unit import CudaText, CudaUnit
from silo.kinds.cuda_cpp.nvrtc_compiler import launch_of, lowered_unit, read_unit
from silo.kinds.cuda_cpp.user_headers import cause_of
from silo.settings import child_environment, settings
from silo.temporary import own_folder

__all__ = ["HipCompiler", "hip_tools"]

_HEADERS = Path(__file__).parent / "hip_headers"
_OLDEST = 19
_NAMES = ("clang++-19", "clang++-20", "clang++-21", "clang++-22", "clang++")
_LIBRARIES = ("ocml.bc", "ockl.bc")
# The folder in which clang sees the texts. It cannot exist, so nothing else can be read from it; it has so many levels
# that names with ".." stay within /proc/silo.
_NOWHERE = "/proc/silo/" + "/".join("s" * 8)
_FLAGS = (
    "-x",
    "hip",
    "--cuda-device-only",
    "-nogpulib",
    "-nogpuinc",
    "-nostdlibinc",
    "-O3",
    "-mcode-object-version=5",
    "-fno-ident",
    "-fuse-cuid=none",
    "-fno-gnu-inline-asm",  # assembly could include files (.incbin)
    f"-fdebug-prefix-map={_NOWHERE}=.",
)
# Options of NVRTC for which clang has another name; all others are refused.
_TRANSLATED = {
    "-use_fast_math": "-ffast-math",
    "--use_fast_math": "-ffast-math",
    "-fmad=false": "-ffp-contract=off",
    "--fmad=false": "-ffp-contract=off",
    "-fmad=true": "-ffp-contract=fast",
    "--fmad=true": "-ffp-contract=fast",
    "-lineinfo": "-gline-tables-only",
    "--generate-line-info": "-gline-tables-only",
    "-w": "-w",
}


class HipTools:
    """Clang, and the folder of Triton's device libraries."""

    def __init__(self, clang: CCompiler, libraries: Path) -> None:
        self.clang = clang
        self.libraries = libraries

    @property
    def version(self) -> str:
        """The versions of the tools, which decide the bytes."""
        return f"{self.clang.version} with the device libraries of triton {importlib.metadata.version('triton')}"


@cache
def _found_tools(requested: str | None) -> HipTools:
    names = _NAMES if requested is None else (requested,)
    command = next((path for name in names if (path := shutil.which(name)) is not None), None)
    if command is None:
        raise CompilerMissingError(
            f"HIP C++ is compiled by clang {_OLDEST} or later, and none of {', '.join(names)} is on PATH: install one "
            f"(Debian, Ubuntu: apt-get install clang-{_OLDEST}) or name one in SILO_CLANG"
        )
    clang = identify((command,))
    number = clang.version.partition("clang version ")[2].partition(".")[0]
    if not number.isdigit() or int(number) < _OLDEST:
        raise CompilerMissingError(f"HIP C++ is compiled by clang {_OLDEST} or later, and {command} is {clang.version}")
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        libraries = Path(folder, "backends", "amd", "lib")
        if all((libraries / library).is_file() for library in _LIBRARIES):
            return HipTools(clang, libraries)
    raise CompilerMissingError(
        "HIP C++ takes AMD's device libraries and linker from the package triton, which is not installed; install it "
        "with: pip install kernel-silo[triton]"
    )


def hip_tools() -> HipTools:
    """Returns the tools. Raises CompilerMissingError if one is missing or too old."""
    return _found_tools(settings().clang)


class HipCompiler:
    """The plug-in ``hipclang``: source kind ``cuda``, targets ``hip:*``. Needs no GPU and no ROCm."""

    declaration = HIPCLANG

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code and headers, and the tools' versions. Raises CompilerMissingError."""
        del target
        return f"hipclang code {code_digest(*self.declaration.code)} {hip_tools().version}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts CUDA C++ for an AMD chip, if the tools are installed."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        try:
            tools = hip_tools()
        except CompilerMissingError as error:
            return Rejected(str(error))
        return Accepted(f"compiled by {tools.version}; not run on hardware")

    def artifact_target(self, target: Target) -> Target:
        """Returns ``target`` unchanged."""
        return target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the texts, the macros and the launch.

        Raises the same errors as the compiler for NVIDIA.
        """
        return lowered_unit(self.declaration.name, source, variant, variant.target)

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles to an hsaco and compares its metadata with the launch.

        Raises:
            CompileError: clang refuses the text or the chip, or the launch does not fit.
            CompilerMissingError: a tool is missing.
        """
        unit = read_unit(job)
        warp = driver_of(job.target.kind).warp_size(job.target.arch)
        tools = hip_tools()
        with own_folder("silo-cuda-") as folder:
            assembly = _assembly(job, unit, tools, folder)
            entry = _entry(job, unit, assembly)
            data = _linked(job, assembly, tools, folder)
        kernels = {kernel.entry: kernel for kernel in inspect_binary(data, "hsaco")}
        if entry not in kernels:
            raise CompileError(f"{job.kernel}: clang made no kernel {entry}; it made {', '.join(kernels)}")
        return Compiled(launch_of(job.kernel, unit, kernels[entry], warp), CompiledBlob("hsaco", data))

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """Returns the name of the only form that a job can show: assembly."""
        del target
        return ("amdgcn",)

    def code_form(self, job: CompileJob, form: str) -> str:
        """Returns clang's assembly. Raises CompileError like :meth:`compile`."""
        if form != "amdgcn":
            raise CompileError(f"{job.kernel}: code of HIP C++ has no form {form}; it has amdgcn")
        with own_folder("silo-cuda-") as folder:
            return _assembly(job, read_unit(job), hip_tools(), folder).read_text(encoding="utf-8")


def _entry(job: CompileJob, unit: CudaUnit, assembly: Path) -> str:
    """Returns the kernel's mangled name, found in the assembly. Raises CompileError if there is none, or several."""
    lines = assembly.read_text(encoding="utf-8").splitlines()
    names = [line.split()[1] for line in lines if line.lstrip().startswith(".amdhsa_kernel ")]
    base = unit.expression.partition("<")[0].strip().rpartition("::")[2]
    fitting = [name for name in names if name == base or f"{len(base)}{base}" in name]
    if len(fitting) != 1:
        raise CompileError(
            f"{job.kernel}: entry={unit.expression!r} is not one kernel of the text; clang made "
            f"{', '.join(names) or 'none'}"
        )
    return fitting[0]


def _flags_of(job: CompileJob, unit: CudaUnit) -> list[str]:
    flags: list[str] = []
    for flag in unit.flags:
        if flag.lstrip("-").startswith("std="):
            flags.append(f"-std={flag.partition('=')[2]}")
        elif flag in _TRANSLATED:
            flags.append(_TRANSLATED[flag])
        else:
            raise CompileError(f"{job.kernel}: the option {flag} of NVRTC has no equal in clang, for {job.target}")
    return flags


def _assembly(job: CompileJob, unit: CudaUnit, tools: HipTools, folder: str) -> Path:
    """Compiles the text to assembly, and returns the path of the file. Raises CompileError."""
    overlay = _overlay(unit.text, folder)
    output = Path(folder, "kernel.s")
    warp = driver_of(job.target.kind).warp_size(job.target.arch)
    begin = f'#include "{_NOWHERE}/{unit.text.file}"\n'
    if "<" in unit.expression:  # a template is instantiated only where it is used
        begin += f"template __attribute__((global)) decltype({unit.expression}) {unit.expression};\n"
    libraries: list[str] = []
    for library in _LIBRARIES:
        libraries += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(tools.libraries / library)]
    command = [
        *tools.clang.command,
        *_FLAGS,
        f"--offload-arch={job.target.arch}",
        *_flags_of(job, unit),
        f"-DSILO_WARP_SIZE={warp}",
        *(f"-D{name}={value}" for name, value in unit.defines),
        "-ivfsoverlay",
        str(overlay),
        f"-I{_NOWHERE}",
        "-isystem",
        str(_HEADERS),
        "-include",
        "hip/hip_runtime.h",
        *libraries,
        "-S",
        "-o",
        str(output),
        "-",
    ]
    _run(job, unit, command, folder, begin)
    return output


def _linked(job: CompileJob, assembly: Path, tools: HipTools, folder: str) -> bytes:
    """Assembles and links, and returns the code object. Raises CompileError."""
    compiled, linked = Path(folder, "kernel.o"), Path(folder, "kernel.hsaco")
    command = [*tools.clang.command, "-target", "amdgcn-amd-amdhsa", f"-mcpu={job.target.arch}", "-c", str(assembly)]
    _run(job, None, [*command, "-o", str(compiled)], folder)
    try:
        # this function contains LLVM's linker
        import_module("triton._C.libtriton").amd.link_hsaco(str(compiled), str(linked))
        return linked.read_bytes()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise CompileError(f"{job.kernel}: the linker of triton's wheel failed: {error}") from error


def _run(job: CompileJob, unit: CudaUnit | None, command: list[str], folder: str, text: str = "") -> None:
    with Path(folder, "input").open("w+b") as file:
        file.write(text.encode())
        file.seek(0)
        done = run_compiler(command, env=child_environment(LC_ALL="C", TMPDIR=folder), cwd=folder, stdin=file)
    if done.returncode != 0:
        log = done.stderr.decode(errors="replace").replace(f"{_NOWHERE}/", "")
        message = explained(log, job.kernel, "", device_only=False) if unit is None else cause_of(log, job.kernel, unit)
        raise CompileError(message + memory_note(log))


def _overlay(text: CudaText, folder: str) -> Path:
    """Writes the texts to files in ``folder``, and returns the path of an overlay file, which clang reads.

    The overlay file maps the path under which clang sees each text to the file of the text.
    """
    places: list[dict[str, str]] = []
    for number, (name, content) in enumerate(((text.file, text.text), *text.headers)):
        path = Path(folder, f"text{number}")
        path.write_text(content, encoding="utf-8")
        normalized = os.path.normpath(f"{_NOWHERE}/{name}")
        places.append({"name": normalized, "type": "file", "external-contents": str(path)})
    overlay = Path(folder, "overlay.json")
    overlay.write_text(json.dumps({"version": 0, "use-external-names": False, "roots": places}), encoding="utf-8")
    return overlay
