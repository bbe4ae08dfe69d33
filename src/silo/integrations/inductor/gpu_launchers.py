"""Native launchers of Inductor's compiled GPU kernels, which replace the launchers of torch and Triton."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from silo.core.launch_info import LaunchInfo
from silo.core.specialization import Specialization
from silo.errors import ArgumentError, SiloError, UnsupportedError
from silo.forks import Notices
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.adapter import CompiledProgram
from silo.kinds.triton.programs.compiled_code import consent_to, device_at, plain_signature, read_launch
from silo.launch.native import Launcher
from silo.launch.runtime import bind, make_bound_launcher
from silo.plain_files import read_plain

__all__ = ["native_launchers", "program_of"]

_notices = Notices()


def program_of(result: Any) -> CompiledProgram:  # noqa: ANN401  # one of the two kinds of compile results
    """Reads the compiled code from one of Inductor's compile results that torch has not loaded yet.

    Raises:
        UnsupportedError: the kernel is launched in a way that Silo does not support.
        ToolchainError: the result has no code of a kind that Silo launches.
        OSError: the file of the code cannot be read.
    """
    kernel, meta = result.kernel, result.compile_meta
    if hasattr(kernel, "asm"):
        return adapter.read_compiled(kernel)
    for name in ("host_tma_descriptor_args", "device_agnostic"):
        if getattr(kernel, name, None):
            raise UnsupportedError(f"torch launches it with {name}")
    if not kernel.cubin_raw and not kernel.cubin_path:
        result.reload_cubin_path()
    blob = bytes(kernel.cubin_raw or read_plain(kernel.cubin_path))
    metadata = {
        "name": kernel.name,
        "num_warps": kernel.num_warps,
        "warp_size": 32,
        "shared": kernel.shared,
        "num_ctas": 1,
        "cluster_dims": (1, 1, 1),
        "global_scratch_size": getattr(kernel, "global_scratch_size", 0) or 0,
        "global_scratch_align": getattr(kernel, "global_scratch_align", 1) or 1,
        "profile_scratch_size": 0,
    }
    constants: Mapping[Any, Any] = meta["constants"]
    signature = {
        name: "constexpr" if position in kernel.full_constexprs else kind
        for position, (name, kind) in enumerate(
            (name, meta["signature"].get(name, "constexpr")) for name in kernel.arg_names
        )
    }
    return CompiledProgram(
        kernel, str(kernel.name), blob, "cubin", signature, constants, {}, metadata, ("cuda", meta["cc"], 32)
    )


def native_launchers(heuristics: Any, is_on: Callable[[], bool], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:  # noqa: ANN401
    """Wraps ``make_launcher`` of a class of compile results: Silo launches the CUDA code that it can read.

    torch's own launcher is made only if Silo cannot launch the code, because making it loads the code too.
    """

    @wraps(plain)
    def make_launcher(self: Any) -> Any:  # noqa: ANN401
        if self.compile_meta.get("device_type") != "cuda" or not is_on():
            return plain(self)
        try:
            return _launching_function(heuristics, self, plain)
        except (SiloError, OSError) as error:
            _log_fallback(self, str(error))
            return plain(self)
        # the installed torch's objects have other attributes than expected
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _log_fallback(self, f"this torch describes it in another form: {type(error).__name__}: {error}")
            return plain(self)

    return make_launcher


def _launching_function(heuristics: Any, result: Any, plain: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Returns the launching function for Inductor's code: it computes the grid and passes the kernel's parameters."""
    if result.inductor_meta.get("store_cubin"):
        raise UnsupportedError("torch exports its code (cpp_wrapper)")
    if result.compile_meta.get("device") is None:
        raise UnsupportedError("its code is for several devices")
    if blocked := adapter.launch_hooks():
        raise UnsupportedError(blocked)
    program = program_of(result)
    launch = read_launch(program)
    device = device_at("cuda", int(result.compile_meta["device"]))
    consent = consent_to(program, launch)
    loaded: Any = device.load(launch, program.blob, program.blob_kind, program.entry, consent=consent)
    signature = plain_signature(program)
    native = make_bound_launcher(program.entry, bind(loaded, launch, signature, Specialization(), {}), signature)
    kernel = result.kernel
    static = not hasattr(kernel, "asm")
    names: Sequence[str] = kernel.arg_names if static else kernel.src.fn.arg_names
    constexprs = kernel.declared_constexprs if static else heuristics.get_constexprs(kernel.src.fn)
    _, def_args, none_args = result._get_arg_lists(names, constexprs)  # noqa: SLF001
    passed = [
        name for name in names if program.signature.get(name, "constexpr") != "constexpr" and name not in none_args
    ]
    launcher = result._gen_launcher_code(  # noqa: SLF001
        {"runner": _runner(native, result, plain, def_args)},
        def_args,
        ["grid_0", "grid_1", "grid_2", "stream", *passed],
    )
    _describe(heuristics, launcher, result, launch, loaded)
    return launcher


def _runner(native: Launcher, result: Any, plain: Callable[[Any], Any], names: Sequence[str]) -> Callable[..., None]:  # noqa: ANN401
    """Returns the function that the generated launcher calls with a grid, a stream and the kernel's parameters.

    ``names`` are the generated launcher's own parameters. If Silo refuses a call's arguments, torch's launcher serves
    that call and all later calls.
    """
    others: list[Callable[..., None]] = []

    def runner(x: int, y: int, z: int, stream: int, *arguments: object) -> None:
        if not others:
            try:
                native[x, y, z](*arguments, stream=stream)
            except ArgumentError as error:  # nothing was launched, so torch's launcher can serve this call
                _log_fallback(result, str(error))
                others.append(plain(result))
            else:
                return
        # torch's launcher takes all arguments, and only the generated launcher, the caller of this function, has them.
        frame_locals = sys._getframe(1).f_locals  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        others[0](*[frame_locals[name] for name in names], stream=stream)

    return runner


def _describe(heuristics: Any, launcher: Any, result: Any, launch: LaunchInfo, loaded: Any) -> None:  # noqa: ANN401
    """Sets the attributes of a launcher and of its compiled code that torch reads when it compares configs.

    ``_is_static`` is left out: without it, torch does not replace the function that the launcher calls.
    """
    kernel = result.kernel
    for holder in (launcher, kernel):
        holder.n_regs, holder.n_spills = launch.registers, launch.spills
    launcher.config = result.config
    launcher.shared = launch.shared_bytes
    # the name of the kernel's folder in Triton's cache
    launcher.cache_hash = heuristics.triton_hash_to_path_key(kernel.hash)
    launcher.store_cubin = False
    launcher.silo_kernel = loaded


def _log_fallback(result: Any, reason: str) -> None:  # noqa: ANN401
    name = str(result.inductor_meta.get("kernel_name", "a kernel"))
    message = f"{name} is launched by torch's own launcher, at its cost (some microseconds at most): {reason}"
    _notices.once(message, message)
