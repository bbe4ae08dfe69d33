"""``silo doctor``: lists the parts that work on this machine, and why others do not."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from silo.core.decisions import Decision, Rejected
from silo.core.device import Target
from silo.core.plugins import load_place
from silo.core.protocols import Device
from silo.errors import RemoteError, SiloError
from silo.machine.device_plugins import absent_devices, all_devices, broken_plugins, devices_of_kind
from silo.settings import settings, unknown_in_environment
from silo.sources.installations import Finding
from silo.sources.kinds import broken_kinds, kinds
from silo.sources.source_kind import NeedsCompilers, NeedsPackages, SourceKind
from silo.store.atomic_files import TEMPORARY_PREFIX, write_all
from silo.text_tables import format_bytes

if TYPE_CHECKING:
    from silo.compile.toolchain import Toolchain

__all__ = ["Finding", "examine"]


def examine() -> list[Finding]:
    """Examines every part: native module, compilers, devices, array libraries, the store, settings."""
    return [
        _probe("native module", _native, needed=True, advice="install Silo again with a C compiler present"),
        *_devices(),
        _probe("threads of the CPU", _cpu_threads, needed=False, advice="kernels cannot run on this machine's CPU"),
        *_sources(),
        *_compilers(),
        *(
            _library(kind.packages[0], f"to compile {name} kernels; pip install '{kind.requirement}'")
            for name, kind in kinds().items()
            if isinstance(kind, NeedsPackages)
        ),
        *(_library(name, why) for name, why in _LIBRARIES),
        *_operators(),
        *_inductor(),
        *_inductor_on_gpus(),
        *_programs_of_jax(),
        *(finding for kind in kinds().values() if isinstance(kind, NeedsCompilers) for finding in kind.findings()),
        _store(),
        *_remote(),
        *_strange_settings(),
    ]


_LIBRARIES = (
    ("numpy", "for arrays, tuning and checking; pip install 'kernel-silo[numpy]'"),
    ("torch", "only to pass torch tensors"),
    ("ml_dtypes", "for bfloat16 and fp8 numpy arrays"),
)


def _probe(part: str, probe: Callable[[], str], *, needed: bool, advice: str) -> Finding:
    try:
        return Finding(part, "ok", probe())
    except (ImportError, OSError, SiloError) as error:
        return Finding(part, "missing" if needed else "optional", str(error), advice)


def _native() -> str:
    from silo.launch import native  # noqa: PLC0415  # it may be missing, which this probes

    return f"loaded from {native.path()}"


def _cpu_threads() -> str:
    from silo.launch.cpu_pool import describe  # noqa: PLC0415  # may be missing too

    return describe()


def _devices() -> list[Finding]:
    findings = [Finding(_device_name(device), "ok", f"{device.target}: {device.model}") for device in all_devices()]
    for name, rejected in broken_plugins():
        findings.append(Finding(f"device {name}", "missing", rejected.reason, "a device plug-in is broken"))
    for name, rejected in absent_devices():
        findings.append(Finding(f"device {name}", "optional", rejected.reason, "only to run kernels on such a GPU"))
    return findings


def _device_name(device: Device) -> str:
    """Returns the device's name in the report, for example ``device cpu`` or ``device cuda:1``."""
    kind = device.target.kind
    return f"device {kind}" if device.memory.is_host else f"device {kind}:{device.index}"


def _sources() -> list[Finding]:
    return [
        Finding(f"sources {name}", "missing", rejected.reason, "a source plug-in is broken")
        for name, rejected in broken_kinds()
    ]


def _compilers() -> list[Finding]:
    """Examines the compilers for this machine's CPU, and for the targets that a complete installation compiles for."""
    from silo.compile.toolchain import Toolchain  # noqa: PLC0415

    toolchain, findings = Toolchain(), list[Finding]()
    compiled = {name: kind for name, kind in kinds().items() if isinstance(kind, NeedsCompilers)}
    for name, kind in compiled.items():
        targets = [device.target for device in devices_of_kind("cpu")] + [*map(Target.parse, kind.example_targets)]
        purpose = "compile" if len(compiled) == 1 else f"compile {name} kernels"
        lacking = _package_lacking(kind)
        for target in targets:
            # Only compilers that are declared for these kernels and this hardware.
            decisions = {
                compiler: decision
                for compiler, decision in toolchain.decisions(name, target).items()
                if _is_for(toolchain, compiler, name, target)
            }
            if target.kind == "cpu" and not decisions:
                continue  # kernels of this kind cannot run on a CPU
            accepted = [compiler for compiler, decision in decisions.items() if decision]
            reasons = "; ".join(
                f"{compiler}: {decision.reason}"
                for compiler, decision in decisions.items()
                if isinstance(decision, Rejected)
            )
            part = f"{purpose} for {target}"
            # the compiler works, but reading a kernel needs the package of the kernel's kind, which is missing
            if accepted and lacking:
                findings.append(Finding(part, "optional", lacking, "bundles run without; needed to build them"))
            elif accepted:
                findings.append(Finding(part, "ok", f"by {accepted[0]}"))
            else:
                findings.append(Finding(part, "optional", reasons, "bundles run without; needed to build them"))
    return findings


def _package_lacking(kind: SourceKind) -> str:
    """Returns why kernels of ``kind`` cannot be read here even though a compiler for them works; "" if they can."""
    if not isinstance(kind, NeedsPackages) or _version_of(kind.packages[0]) is not None:
        return ""
    return f"{kind.packages[0]} is not installed: pip install '{kind.requirement}'"


def _is_for(toolchain: Toolchain, compiler: str, source_kind: str, target: Target) -> bool:
    """Returns whether a compiler's declaration has this kind of source and this target.

    Also returns True for a declaration that cannot be read, so that its fault is reported.
    """
    declared = toolchain.declaration(compiler)
    return isinstance(declared, Rejected) or bool(declared.takes(source_kind, target))


def _library(name: str, why: str) -> Finding:
    version = _version_of(name)
    return Finding(name, "optional", "not installed", why) if version is None else Finding(name, "ok", version)


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _operators() -> list[Finding]:
    """Examines whether kernels can be operators of the installed torch."""
    from silo.launch.torch_versions import installed_version, judge_version  # noqa: PLC0415

    version = installed_version()
    if version is None:
        return []
    decision = judge_version(version)
    return [
        Finding(
            "operators of torch",
            "ok" if decision else "optional",
            decision.reason,
            "only for silo.torch_op and torch.compile",
        )
    ]


def _inductor() -> list[Finding]:
    """Examines whether Silo can run Inductor's CPU kernels here, which a program has to enable."""
    from silo.launch.torch_versions import inductor_versions, installed_version, judge_inductor  # noqa: PLC0415

    version = installed_version()
    if version is None:
        return []
    part, decision = "Inductor on the CPU", judge_inductor(version)
    if decision:
        tested = f"tested: {', '.join(inductor_versions())}"
        off = "off until silo.integrations.inductor.enable() is called"
        return [Finding(part, "ok", f"{decision.reason} ({tested}); {off}")]
    return [Finding(part, "optional", decision.reason, "only for torch.compile of CPU tensors without C++")]


def _inductor_on_gpus() -> list[Finding]:
    """Examines which parts of Inductor's GPU kernels Silo can take over here, and why not the others."""
    from silo.launch.torch_versions import inductor_gpu_versions, installed_version  # noqa: PLC0415

    version = installed_version()
    if version is None:
        return []
    part = "Inductor on GPUs"
    advice = "accelerated programs (silo exec), or silo.integrations.inductor.enable('cuda')"
    try:
        judge = cast(
            "Callable[[], Mapping[str, Decision]]", load_place("silo.integrations.inductor.gpu_patching:judge_parts")
        )
        parts = judge()
    except (ImportError, SiloError) as error:
        return [Finding(part, "optional", f"torch {version}: its compiler cannot be used: {error}", advice)]
    if not parts:
        return []  # this machine has no such GPU
    off = "".join(f"; {name}: {part.reason}" for name, part in parts.items() if not part)
    on = ", ".join(name for name, part in parts.items() if part) or "nothing"
    tested = ", ".join(inductor_gpu_versions())
    detail = f"torch {version} (tested: {tested}), by its hook points: {on}{off}"
    return [Finding(part, "ok" if not off else "optional", detail, advice)]


def _programs_of_jax() -> list[Finding]:
    """Examines whether programs of the installed jax can call kernels."""
    from silo.launch.jax_versions import installed_version, judge_version  # noqa: PLC0415

    version = installed_version()
    if version is None:
        return []
    decision = judge_version(version)
    why = "only for silo.jax_call"
    return [Finding("calls from programs of jax", "ok" if decision else "optional", decision.reason, why)]


def _store() -> Finding:
    from silo.store.store import Store  # noqa: PLC0415
    from silo.store.usage import store_bytes  # noqa: PLC0415

    root = settings().store_folder
    try:
        unused = Store(root).unused
    except SiloError as error:
        return Finding("store", "missing", str(error), "set SILO_HOME to another folder")
    if unused:
        return Finding(
            "store", "optional", f"{root} is not used: {unused}", "mend it, for until then results are not kept"
        )
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    if reason := _refusal_to_write(existing):
        return Finding(
            "store",
            "optional",
            f"{root} cannot be written: {reason}",
            "results are not kept; free space, or set SILO_HOME to another folder",
        )
    size, limit = store_bytes(root), settings().store_bytes
    limit_text = f"at most {format_bytes(limit)} (SILO_STORE_BYTES)" if limit else "no limit (SILO_STORE_BYTES=0)"
    return Finding("store", "ok", f"{root}: read and written; {format_bytes(size)} on disk, {limit_text}")


def _refusal_to_write(folder: Path) -> str:
    """Returns why a file of the size of a kernel cannot be written to a folder; "" if it can. Leaves no file there."""
    path = folder / f"{TEMPORARY_PREFIX}doctor-{os.getpid()}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, bytes(64 << 10))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _remote() -> list[Finding]:
    """Examines the remote store, and measures the time of one request to it."""
    if settings().remote is None:
        return []
    from silo.store.remote.address import RemoteAddress  # noqa: PLC0415
    from silo.store.remote.client import RemoteClient  # noqa: PLC0415  # few users have one

    address = RemoteAddress.parse(settings().remote or "")
    try:
        client = RemoteClient(address, writes=False)
        latency_s = client.latency_s()
        if settings().remote_mode == "write":
            client.probe_write()
    except RemoteError as error:
        return [Finding("remote store", "missing", f"{address.name}: {error}", "until then everything is made here")]
    mode = "read and written" if settings().remote_mode == "write" else "only read"
    plain = "" if address.scheme not in ("http", "redis") else ", not encrypted"
    return [Finding("remote store", "ok", f"{address.name}: {latency_s * 1000:.1f} ms a question, {mode}{plain}")]


def _strange_settings() -> list[Finding]:
    return [
        Finding(
            name, "optional", "nothing reads this variable", f"did you mean {near}?" if near else "see docs/settings.md"
        )
        for name, near in unknown_in_environment()
    ]
