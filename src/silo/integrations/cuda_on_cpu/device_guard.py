"""The device guard for torch's CUDA key, in two lines of C++ that are compiled once for each version of torch.

torch calls the guard of a device type for the current device before it runs an operation there, in C++. A torch built
without CUDA lacks the guard for CUDA, so ``x.to("cuda")`` and ``torch.tensor(..., device="cuda")`` fail before any
kernel is looked up. The guard here does nothing. It is compiled with the C compiler that also compiles kernels for the
CPU, stored as the result of a compile job, and loaded with the consent of the store's trust ledger, like other code
that was built on this machine.
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
from silo.errors import CompileError, LaunchError
from silo.launch.cpu_objects import open_object
from silo.machine.process_session import session
from silo.settings import settings

__all__ = ["guard_job", "load_guard"]

_SOURCE: Final = """\
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)
"""
_LAUNCH: Final = LaunchInfo("cuda_device_guard", ())  # without an entry point: loading it registers the guard
_ORIGIN: Final = "the device guard for torch's CUDA key"


def load_guard(torch: Any) -> Decision:  # noqa: ANN401  # the module
    """Load the guard into this process; build it if the store does not have it.

    Returns:
        Accepted, or Rejected with the reason: no C++ compiler works here, or the guard does not load. After Rejected,
        torch's Python functions still accept ``cuda``, but C++ code that moves tensors there fails.
    """
    try:
        compiler = find_compiler(settings().cc, "the device guard for torch's CUDA key needs")
        compiled = _kept(torch, compiler)
        data = compiled.blob.data
        code = HostCode(hashlib.sha256(data).hexdigest(), compiled.blob.kind, compiled.launch)
        open_object(compiled.launch, data, session().store.trust.vouch(code, origin=_ORIGIN))
    except (CompileError, LaunchError) as error:
        return Rejected(str(error))
    return Accepted(f"built for torch {torch.__version__}")


def guard_job(torch_version: str, compiler: str, cxx11_abi: object) -> str:
    """Return the job key of the guard, a digest of its source, torch's version and ABI, and the compiler's version."""
    return digest("silo.cuda-guard/1", [_SOURCE, torch_version, compiler, bool(cxx11_abi), list(_flags("", cxx11_abi))])


def _kept(torch: Any, compiler: CCompiler) -> Compiled:  # noqa: ANN401
    abi = torch.compiled_with_cxx11_abi()
    key = guard_job(str(torch.__version__), compiler.version, abi)
    artifacts = session().store.artifacts
    if (found := artifacts.compiled(key)) is not None:
        return found
    made = build(_SOURCE, _flags(str(Path(torch.__file__).parent), abi), compiler, "c++")
    compiled = Compiled(_LAUNCH, CompiledBlob("so", made.data), log=made.log)
    artifacts.put_compiled(key, compiled)
    return compiled


def _flags(folder: str, cxx11_abi: object) -> tuple[str, ...]:
    # No symbol of libc10 is used, so the linker would drop the library without --no-as-needed.
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
