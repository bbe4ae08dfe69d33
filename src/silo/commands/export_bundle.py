"""``silo export``: writes a bundle as a folder that C and C++ compilers build without Python."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from silo.artifacts.artifact import decoded
from silo.bundle.bundle_slices import cut_contents, is_for_any
from silo.bundle.contents import BundleContents, calls_of, host_cases, host_code, host_plans, host_text
from silo.bundle.documents import case_recipes
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.signing import signed_file
from silo.bundle.writer import write_bundle
from silo.core.consent import HostCases, HostCode, HostPlan, HostText
from silo.core.device import Target
from silo.core.plugins import COMPILERS, part_of
from silo.core.recipes import CaseRecipe
from silo.core.values import JSON
from silo.errors import BundleError
from silo.export.c_names import joined
from silo.export.exported_library import ExportedLibrary, plans_of
from silo.export.function_signatures import functions_of
from silo.export.operations import operations_of
from silo.export.project import (
    CpuSource,
    Differences,
    FolderRecord,
    compare_folder,
    export_files,
    licence,
    namespace_of,
    read_record,
    write_folder,
)
from silo.export.wheel import built_libraries, package_files, package_of, write_wheel
from silo.machine.process_session import session

__all__ = ["ExportOptions", "Exported", "check_export", "export_cpp", "export_wheel"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The parts of a bundle to export, and the form of the export.

    Args:
        kernels: the only kernels to export.
        targets: the only targets whose code is exported; ``cuda`` means all targets of its kind.
        namespace: the C++ namespace; by default made from the bundle's name.
        tests: whether a self-test with the kernels' cases is written.
        cpu_source: compile the C text beside each CPU object into the program instead of loading the object.
        torch: write the source of a second library, with the kernels as operators of torch.
    """

    kernels: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    namespace: str | None = None
    tests: bool = True
    cpu_source: bool = False
    torch: bool = False

    @property
    def parsed_targets(self) -> list[Target] | None:
        """Returns ``targets`` as :class:`Target` objects; None if all targets are exported."""
        return None if self.targets is None else [Target.parse(text) for text in self.targets]

    def to_json(self) -> dict[str, JSON]:
        """Returns the JSON form of the options in an export's record."""
        return {
            "kernels": None if self.kernels is None else list(self.kernels),
            "targets": None if self.targets is None else list(self.targets),
            "namespace": self.namespace,
            "tests": self.tests,
            "cpu_source": self.cpu_source,
            "torch": self.torch,
        }

    @classmethod
    def of_record(cls, record: FolderRecord) -> ExportOptions:
        """Reads the options of an export's record (see :meth:`to_json`).

        An option that the record lacks gets its default.
        """
        options = {**cls().to_json(), **record.options}

        def texts(data: JSON) -> tuple[str, ...] | None:
            return tuple(map(str, cast("Sequence[JSON]", data))) if isinstance(data, Sequence) else None

        namespace = options["namespace"]
        return cls(
            kernels=texts(options["kernels"]),
            targets=texts(options["targets"]),
            namespace=namespace if isinstance(namespace, str) else None,
            tests=options["tests"] is not False,
            cpu_source=options["cpu_source"] is True,
            torch=options["torch"] is True,
        )


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: its folder, namespace, C functions by name, and the files written or removed."""

    folder: Path
    namespace: str
    functions: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]
    files: int


class _ReadsFlags(Protocol):
    def source_flags(self, target: Target, *, contract: bool) -> tuple[str, ...]: ...


def export_cpp(path: Path, folder: Path, options: ExportOptions | None = None, *, trust: bool = False) -> Exported:
    """Writes a bundle as a folder of C and C++. Files that already have the right contents are not touched.

    ``trust``: export native code, C text and cases without consent to them.

    Raises:
        TrustError: native code, C text or cases for the folder lack consent; nothing is written then.
        BundleError: a kernel that C programs cannot call, an unknown kernel, or no code for a target.
        StoreError: files in the way that no export wrote, or that were changed since; nothing is written then.
    """
    chosen = options or ExportOptions()
    with open_bundle(path) as bundle:
        _require_consent(bundle, path, chosen, trust=trust)
        library, files = _exported(bundle, path, chosen)
    # The folder records the namespace, so that it stays the same if the bundle is renamed later.
    differences = write_folder(folder, files, replace(chosen, namespace=library.namespace).to_json())
    return Exported(
        folder=folder,
        namespace=library.namespace,
        functions=tuple(joined(library.name, function.c_name) for function in library.functions),
        written=(*differences.stale, *(name for name in differences.missing if name in files)),
        removed=differences.superfluous,
        files=len(files),
    )


def export_wheel(
    path: Path, package: str, folder: Path, options: ExportOptions | None = None, *, trust: bool = False
) -> Path:
    """Builds a bundle's kernels into a wheel in ``folder``; ``package`` is NAME or NAME==VERSION. Returns its path.

    ``trust`` is as in :func:`export_cpp`.

    Raises:
        TrustError: as :func:`export_cpp`.
        BundleError: as :func:`export_cpp`, or the name or version is not allowed for a wheel.
        CompilerMissingError: CMake is missing.
        CompileError: the build fails.
        PackageError: torch is missing, and its operators are requested.
    """
    package_info, chosen = package_of(package), options or ExportOptions()
    chosen = replace(chosen, tests=False, namespace=chosen.namespace or package_info.module)
    with tempfile.TemporaryDirectory(prefix="silo-wheel-") as temporary:
        root = Path(temporary)
        with open_bundle(path) as bundle:
            _require_consent(bundle, path, chosen, trust=trust)
            library, files = _exported(bundle, path, chosen)
        write_folder(root / "export", files, {})
        libraries = built_libraries(root / "export", library.name, root / "build", torch=chosen.torch)
        operations = operations_of(library.functions)
        modules = package_files(package_info.module, package_info.version, library.name, operations, torch=chosen.torch)
        return write_wheel(
            folder, package_info, modules, libraries, texts={"LICENSE-libsilo": licence()}, torch=chosen.torch
        )


def check_export(path: Path, folder: Path) -> Differences:
    """Compares a folder with the export that its bundle and its recorded options would give now.

    Raises:
        BundleError: the folder is not an export, or the bundle cannot be exported.
        StoreError: the folder cannot be read.
    """
    record = read_record(folder)
    if record is None:
        raise BundleError(f"{folder} is not an export: it holds no silo-export.json; write it with --cpp {folder}")
    with open_bundle(path) as bundle:
        _, files = _exported(bundle, path, ExportOptions.of_record(record))
    return compare_folder(folder, files)


def _require_consent(bundle: Bundle, path: Path, chosen: ExportOptions, *, trust: bool) -> None:
    """Raises TrustError unless the user consented to all host code that programs built from the export will run.

    Loading the code here would need the same consent.
    """
    consents: list[HostCode | HostCases | HostPlan | HostText] = []
    targets = chosen.parsed_targets
    contents = bundle.contents()
    cut = cut_contents(contents, chosen.kernels, targets)
    exported = {kernel.name for kernel in cut.kernels}
    for kernel in contents.kernels:
        if kernel.name not in exported:
            continue
        calls = calls_of(kernel)
        native = [(variant, host_code(variant, calls)) for variant in kernel.variants if variant.artifact.runs_on_host]
        included = [
            (bundle_variant, code)
            for bundle_variant, code in native
            if is_for_any(bundle_variant.artifact.variant.target, targets)
        ]
        consents += [code for _, code in included]
        if chosen.cpu_source:
            consents += [
                text for bundle_variant, code in included if (text := host_text(bundle_variant, code)) is not None
            ]
        if chosen.tests and included and (cases := host_cases(kernel, (code for _, code in native))) is not None:
            consents.append(cases)
    consents += [plan for plan, name in host_plans(contents) if name in {plan.name for plan in cut.plans}]
    if consents:
        session().store.trust.require(
            consents, origin=str(path), trust=trust, signed=lambda: signed_file(bundle, path), exported=True
        )


def _exported(bundle: Bundle, path: Path, chosen: ExportOptions) -> tuple[ExportedLibrary, dict[str, bytes]]:
    namespace = namespace_of(chosen.namespace, path)
    targets = chosen.parsed_targets
    contents = bundle.contents()
    cut = cut_contents(contents, chosen.kernels, targets)
    cases: dict[str, Sequence[CaseRecipe]] = {kernel.name: case_recipes(bundle, kernel.name) for kernel in cut.kernels}
    functions = functions_of(cut.kernels, cases)
    plans = plans_of(cut.plans, cut.kernels)
    data, identity = _written(bundle, cut)
    library = ExportedLibrary(namespace, namespace.replace("::", "_"), functions, cases, path.name, identity, plans)
    sources = _cpu_sources(bundle, contents, cut, targets) if chosen.cpu_source else []
    return library, export_files(library, data, sources, tests=chosen.tests, torch=chosen.torch)


def _written(bundle: Bundle, contents: BundleContents) -> tuple[bytes, str]:
    """Returns the bytes of an uncompressed bundle, which is read without a compression library, and its identity."""
    with tempfile.TemporaryDirectory(prefix="silo-export-") as folder:
        path = Path(folder, "cut.silo")
        written = write_bundle(path, contents, bundle.blob, raw=True)
        return path.read_bytes(), written.identity


def _cpu_sources(
    bundle: Bundle, contents: BundleContents, cut: BundleContents, targets: Sequence[Target] | None
) -> list[CpuSource]:
    """Returns the C text of each CPU object in ``cut``, the exported part of the bundle."""
    flags = cast("_ReadsFlags", part_of(COMPILERS, "cpu", "object_build"))
    included = {kernel.name for kernel in cut.kernels}
    sources: dict[tuple[str, str], CpuSource] = {}
    for kernel in contents.kernels:
        for variant in kernel.variants if kernel.name in included else ():
            artifact, target = variant.artifact, variant.artifact.variant.target
            if artifact.blob.kind != "so" or not is_for_any(target, targets):
                continue
            text = next((ref for ref in artifact.sidecars if ref.kind == "c"), None)
            if text is None:
                raise BundleError(
                    f"kernel {kernel.name} has code for {target} without the C it was compiled from, so --cpu-source "
                    "cannot be given"
                )
            entry = artifact.launch.entry
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", entry):
                raise BundleError(f"kernel {kernel.name}: the entry {entry!r} of its code for {target} is no name of C")
            if (artifact.blob.sha256, entry) not in sources:
                contract = artifact.variant.config.as_dict().get("enable_fp_fusion", True) is not False
                sources[artifact.blob.sha256, entry] = CpuSource(
                    artifact.blob.sha256,
                    entry,
                    decoded(text, bundle.blob(text.sha256)),
                    target.arch,
                    flags.source_flags(target, contract=contract),
                )
    return list(sources.values())
