"""Launchers of Inductor's compiled kernels for the CPU: Silo's native one in the place of Triton's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from silo.core.notices import Notices
from silo.core.specialization import Specialization
from silo.errors import SiloError, UnsupportedError
from silo.kinds.triton.front import adapter
from silo.kinds.triton.programs.compiled_code import consent_to, read_launch
from silo.launch.native import Launcher
from silo.launch.runtime import bind, make_bound_launcher
from silo.machine.device_plugins import devices_of_kind

__all__ = ["served_launcher"]

_notices = Notices()


def served_launcher(heuristics: Any, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:  # noqa: ANN401
    """``TritonCompileResult.make_launcher``; code for other devices, and what Silo does not pass, goes torch's way."""

    @wraps(plain)
    def make_launcher(self: Any) -> Any:  # noqa: ANN401  # a TritonCompileResult
        if self.compile_meta.get("device_type") != "cpu":
            return plain(self)
        heuristics.triton_helpers.set_driver_to_cpu()  # a kernel for a GPU may have set another meanwhile
        made = plain(self)  # has what torch asks of a launcher
        try:
            ours = _generated(heuristics, self, _native_launcher(self.kernel))
        except SiloError as error:
            _tell(str(self.inductor_meta.get("kernel_name", "a kernel")), str(error))
            return made
        members: dict[str, Any] = made.__dict__
        for name, value in members.items():
            setattr(ours, name, value)
        return ours

    return make_launcher


def _native_launcher(compiled: Any) -> Launcher:  # noqa: ANN401  # Triton's CompiledKernel
    """The launcher of what Triton compiled, without a guard: Inductor's wrapper holds to what it was compiled for."""
    blocked = adapter.launch_hooks()
    if blocked:
        raise UnsupportedError(blocked)
    program = adapter.read_compiled(compiled)
    launch = read_launch(program)
    described = getattr(compiled.run, "described", None)
    if described is None:
        raise UnsupportedError("another backend than Silo's compiled it")
    _, signature = described
    (device,) = devices_of_kind("cpu")
    loaded: Any = device.load(
        launch, program.blob, program.blob_kind, program.entry, consent=consent_to(program, launch)
    )
    return make_bound_launcher(program.entry, bind(loaded, launch, signature, Specialization(), {}), signature)


def _generated(heuristics: Any, result: Any, native: Launcher) -> Any:  # noqa: ANN401
    """The function that Inductor's code calls: it works the grid out and passes what the kernel takes."""
    function = result.kernel.src.fn
    call_args, def_args, _ = result._get_arg_lists(function.arg_names, heuristics.get_constexprs(function))  # noqa: SLF001
    types = result.kernel.src.signature
    passed = [
        given for name, given in zip(function.arg_names, call_args, strict=True) if types.get(name) != "constexpr"
    ]

    def runner(x: int, y: int, z: int, *arguments: object) -> None:
        native[(x, y, z)](*arguments)

    return result._gen_launcher_code(  # noqa: SLF001
        {"runner": runner}, def_args, ["grid_0", "grid_1", "grid_2", *passed]
    )


def _tell(kernel: str, reason: str) -> None:
    told = f"{kernel} is launched by Triton's launcher, at its cost (about a microsecond): {reason}"
    _notices.once(told, told)
