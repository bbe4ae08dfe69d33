"""Turns on the stand-in for ``cuda``: the variables that ``silo exec --on cpu`` sets, and the patches of torch."""

from __future__ import annotations

from typing import Any

__all__ = ["begin", "has_gpus", "program_changes"]

_ENTRY = ("torch.backends", "silo")
_LEAST_TORCH = (2, 6)  # the first version that calls the entry point and has torch.accelerator
_began = False


def begin() -> None:
    """Replace torch's ``cuda`` device by the CPU.

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
    """Return the environment variables for a program that runs with ``cuda`` on the CPU, and a line that describes it.

    Raises:
        SettingsError: ``pretend`` names an unknown device, or ``SILO_TRITON=off``.
        ToolchainError: this installation of Silo lacks the entry point that torch calls when it is imported, or torch
            is older than 2.6.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415

    from silo.errors import ToolchainError  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.pretended_devices import device_for  # noqa: PLC0415
    from silo.launch.torch_versions import installed_version, release_of  # noqa: PLC0415

    device = device_for(pretend)
    _require_triton()
    if not entry_points(group=_ENTRY[0], name=_ENTRY[1]):
        raise ToolchainError(
            "torch would not call Silo when it is imported: the installed kernel-silo has no entry point "
            f"{_ENTRY[0]!r}; install it again (pip install --force-reinstall kernel-silo, or pip install -e .)"
        )
    found = installed_version()  # None: the program may find another torch, or use none
    if found is not None and release_of(found) < _LEAST_TORCH:
        raise ToolchainError(f"--on cpu needs torch {'.'.join(map(str, _LEAST_TORCH))} or newer, not {found}")
    changes = {"SILO_ON": "cpu", "SILO_TRITON": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    if pretend is not None:
        changes["SILO_PRETEND"] = pretend
    line = f"cuda is the CPU for this program (as {device.name}): results are right, times mean nothing"
    if has_gpus():  # hidden, so that torch uses none of them
        changes |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        line += "; the GPUs of this machine are hidden from it"
    return changes, line


def has_gpus() -> bool:
    """Return whether the drivers list a GPU that torch calls ``cuda``."""
    from silo.core.plugins import drivers  # noqa: PLC0415
    from silo.machine.device_plugins import devices_of_kind  # noqa: PLC0415

    return any(devices_of_kind(one.kind) for one in drivers() if one.torch_build)


def _require_triton() -> None:
    from silo.errors import SettingsError  # noqa: PLC0415
    from silo.settings import triton_mode  # noqa: PLC0415

    if triton_mode() == "off":
        raise SettingsError("--on cpu (SILO_ON=cpu) runs Triton's kernels on the CPU, and SILO_TRITON=off forbids it")


def _install(torch: Any) -> None:  # noqa: ANN401
    import logging  # noqa: PLC0415
    import warnings  # noqa: PLC0415

    from silo.core.decisions import Rejected  # noqa: PLC0415
    from silo.errors import DeviceError  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.device_guard import load_guard  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.placement import Placement  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.pretended_devices import device_for  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.refusals import refuse_what_needs_cuda  # noqa: PLC0415
    from silo.integrations.cuda_on_cpu.torch_cuda import (  # noqa: PLC0415
        replace_autocast,
        replace_devices,
        replace_generator,
        replace_loading,
        replace_parallel,
        replace_streams,  # noqa: PLC0415
    )
    from silo.settings import settings  # noqa: PLC0415

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
