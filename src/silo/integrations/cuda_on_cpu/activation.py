"""Makes the CPU serve torch's ``cuda`` device: sets variables for ``silo exec --on cpu``, and patches torch.

Before torch runs an operation, its C++ code calls the device guard of the current device's type. A torch built without
CUDA has no guard for CUDA, so ``x.to("cuda")`` and ``torch.tensor(..., device="cuda")`` fail before torch looks for a
kernel. This module registers a guard that does nothing. The guard is compiled with the C compiler that also compiles
kernels for the CPU, stored as the result of a compile job, and loaded with the consent of the store's trust ledger,
like other code that was built on this machine.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from silo.compile.c_compiler import CCompiler, find_compiler
from silo.compile.native_build import build
from silo.core.consent import HostCode
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.launch_info import LaunchInfo
from silo.core.values import digest
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import CompileError, DeviceError, LaunchError, SettingsError, ToolchainError
from silo.launch.cpu_objects import open_object
from silo.machine.process_session import session
from silo.settings import settings, triton_mode

__all__ = ["begin", "guard_job", "has_gpus", "load_guard", "program_changes"]


# ---- Enabling the CPU as cuda ----


_ENTRY = ("torch.backends", "silo")
_LEAST_TORCH = (2, 6)  # the first version that calls the entry point and has torch.accelerator
_began = False


def begin() -> None:
    """Makes the CPU serve torch's ``cuda`` device.

    :mod:`silo.integrations.torch_autoload` calls this at the end of ``import torch``.

    Raises:
        SettingsError: ``SILO_PRETEND`` names an unknown device, or ``SILO_TRITON=off``.
        DeviceError: torch has a GPU here.
    """
    global _began  # noqa: PLW0603  # once per process
    if _began:
        return
    _began = True
    import sys  # noqa: PLC0415  # this module is imported by few programs

    _install(sys.modules["torch"])


def program_changes(pretend: str | None) -> tuple[dict[str, str], str]:
    """Returns the environment variables for a program in which the CPU serves ``cuda``, and a message about them.

    Raises:
        SettingsError: ``pretend`` names an unknown device, or ``SILO_TRITON=off``.
        ToolchainError: this installation of Silo lacks the entry point that torch calls when it is imported, or torch
            is older than 2.6.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415

    from silo.integrations.cuda_on_cpu.pretended_devices import device_for  # noqa: PLC0415
    from silo.launch.torch_versions import installed_version, release_of  # noqa: PLC0415

    device = device_for(pretend)
    _require_triton()
    if not entry_points(group=_ENTRY[0], name=_ENTRY[1]):
        raise ToolchainError(
            "torch would not call Silo when it is imported: the installed kernel-silo has no entry point "
            f"{_ENTRY[0]!r}; install it again (pip install --force-reinstall kernel-silo, or pip install -e .)"
        )
    # None if this environment lacks torch. The program may run in another environment, which has it.
    torch_version = installed_version()
    if torch_version is not None and release_of(torch_version) < _LEAST_TORCH:
        raise ToolchainError(f"--on cpu needs torch {'.'.join(map(str, _LEAST_TORCH))} or newer, not {torch_version}")
    changes = {"SILO_ON": "cpu", "SILO_TRITON": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    if pretend is not None:
        changes["SILO_PRETEND"] = pretend
    line = f"cuda is the CPU for this program (as {device.name}): results are right, times mean nothing"
    if has_gpus():  # hide the GPUs from torch
        changes |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        line += "; the GPUs of this machine are hidden from it"
    return changes, line


def has_gpus() -> bool:
    """Returns whether the drivers list a GPU that torch calls ``cuda``."""
    from silo.core.device import drivers  # noqa: PLC0415
    from silo.machine.device_plugins import devices_of_kind  # noqa: PLC0415

    return any(devices_of_kind(driver.kind) for driver in drivers() if driver.torch_build)


def _require_triton() -> None:

    if triton_mode() == "off":
        raise SettingsError("--on cpu (SILO_ON=cpu) runs Triton's kernels on the CPU, and SILO_TRITON=off forbids it")


def _install(torch: Any) -> None:  # noqa: ANN401
    import logging  # noqa: PLC0415
    import warnings  # noqa: PLC0415

    from silo.integrations.cuda_on_cpu.placement import Placement, refuse_what_needs_cuda  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.pretended_devices import device_for  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.torch_cuda import (  # noqa: PLC0415
        replace_autocast,
        replace_devices,
        replace_generator,
        replace_loading,
        replace_parallel,
        replace_streams,
    )

    device = device_for(settings().pretend)
    _require_triton()
    if torch.cuda.is_available():
        raise DeviceError(
            "SILO_ON=cpu makes cuda the CPU, and torch has a GPU here: hide it (CUDA_VISIBLE_DEVICES= for NVIDIA's, "
            "HIP_VISIBLE_DEVICES= for AMD's), as silo exec --on cpu does, or unset SILO_ON"
        )
    placement = Placement(torch)
    library: Any = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torch that was built with CUDA warns that its own kernels are replaced
        for operator, kernel in placement.kernels().items():
            library.impl(operator, kernel, "CUDA")
    global _library  # noqa: PLW0603  # the kernels are unregistered when the Library is deleted
    _library = library
    guard = load_guard(torch)
    if isinstance(guard, Rejected):
        logging.getLogger("silo").warning(
            "cuda is the CPU for Python's functions alone, C++ code that moves tensors there fails: %s", guard.reason
        )
    placement.replace()
    replace_devices(torch, device)
    replace_streams(torch)
    replace_generator(torch)
    replace_autocast(torch)
    replace_loading(torch)
    replace_parallel(torch)
    refuse_what_needs_cuda(torch)


_library: Any = None


# ---- The device guard for torch's CUDA key: two lines of C++, compiled when needed ----


_SOURCE: Final = """\
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)
"""
_LAUNCH: Final = LaunchInfo("cuda_device_guard", ())  # no entry point: loading the library registers the guard
_ORIGIN: Final = "the device guard for torch's CUDA key"


def load_guard(torch: Any) -> Decision:  # noqa: ANN401  # the module
    """Loads the guard into this process, after building it if the store lacks it.

    Returns:
        Accepted, or Rejected with the reason: no C++ compiler works here, or the guard does not load. After Rejected,
            torch's Python functions still accept ``cuda``, but C++ code that moves tensors there fails.
    """
    try:
        compiler = find_compiler(settings().cc, "the device guard for torch's CUDA key needs")
        compiled = _compiled_module(torch, compiler)
        data = compiled.blob.data
        code = HostCode(hashlib.sha256(data).hexdigest(), compiled.blob.kind, compiled.launch)
        open_object(compiled.launch, data, session().store.trust.vouch(code, origin=_ORIGIN))
    except (CompileError, LaunchError) as error:
        return Rejected(str(error))
    return Accepted(f"built for torch {torch.__version__}")


def guard_job(torch_version: str, compiler: str, cxx11_abi: object) -> str:
    """Returns the guard's job key: a digest of its source, torch's version and ABI, and the compiler's version."""
    return digest("silo.cuda-guard/1", [_SOURCE, torch_version, compiler, bool(cxx11_abi), list(_flags("", cxx11_abi))])


def _compiled_module(torch: Any, compiler: CCompiler) -> Compiled:  # noqa: ANN401
    abi = torch.compiled_with_cxx11_abi()
    key = guard_job(str(torch.__version__), compiler.version, abi)
    artifacts = session().store.artifacts
    if (cached := artifacts.compiled(key)) is not None:
        return cached
    built = build(_SOURCE, _flags(str(Path(torch.__file__).parent), abi), compiler, "c++")
    compiled = Compiled(_LAUNCH, CompiledBlob("so", built.data), log=built.log)
    artifacts.put_compiled(key, compiled)
    return compiled


def _flags(folder: str, cxx11_abi: object) -> tuple[str, ...]:
    # The guard uses no symbol of libc10, so without --no-as-needed the linker would drop that library.
    return (
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(bool(cxx11_abi))}",
        f"-I{folder}/include",
        f"-L{folder}/lib",
        "-Wl,--no-as-needed",
        "-lc10",
    )
