"""``silo build --toolchain``: builds one bundle with the code of several compilers, each in its own environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from silo.bundle.contents import BundleKernel
from silo.bundle.mixed_compilers import compiler_names
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import note_trust, require_place
from silo.commands.results import BuildRow, BuildSummary
from silo.compile.build_list import LeftOut, Packing
from silo.core.device import Target
from silo.core.protocols import Device
from silo.errors import CompileError, ToolchainError
from silo.kernels.collection import Place
from silo.machine.device_plugins import devices_of_kind
from silo.settings import child_environment, settings
from silo.shipping.slice_bundle import merge_bundles
from silo.store.privacy import examine
from silo.store.signatures import SecretKey
from silo.tuner.failures import require_winners
from silo.tuner.policy import TuneMode
from silo.tuner.session_values import Budget, Progress
from silo.tuning.bundle_tuning import tune_bundle
from silo.tuning.case_tuning import CaseLimits

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "Environment",
    "ToolchainName",
    "build_with_toolchains",
    "find_environment",
    "made_folder",
    "parse_toolchain",
]

_PACKAGE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._+!-]*)")
_FOLDER: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=([^=].*)")
_STAMP: Final = "silo-toolchain"  # a file that marks a folder as completely unpacked
_SHOWN_LINES: Final = 4  # an error shows at most this many lines of pip's messages
_PIP_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class ToolchainName:
    """A toolchain named by ``--toolchain``: a ``package`` of a ``version``, or a ``folder`` under a ``label``."""

    label: str
    package: str = ""
    version: str = ""
    folder: str = ""


def parse_toolchain(text: str) -> ToolchainName:
    """Parses the value of ``--toolchain``.

    >>> parse_toolchain("triton==3.6.0").package, parse_toolchain("old=/opt/venv").folder
    ('triton', '/opt/venv')

    Raises:
        ToolchainError: the text has neither form.
    """
    if match := _PACKAGE.fullmatch(text):
        return ToolchainName(text, package=match[1].lower().replace("_", "-"), version=match[2])
    if match := _FOLDER.fullmatch(text):
        return ToolchainName(match[1], folder=match[2])
    raise ToolchainError(
        f"--toolchain {text}: name a package with its version, such as triton==3.6.0, or the folder of a virtual "
        "environment under a name of yours, such as old=/path/to/venv"
    )


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python interpreter, and a folder of packages that precede the interpreter's own packages ("": no folder)."""

    name: ToolchainName
    python: str
    packages: str = ""

    @contextmanager
    def variables(self) -> Generator[Mapping[str, str]]:
        """Yields environment variables with which the interpreter imports this Silo and, otherwise, its own packages.

        The folder of packages that holds Silo may also hold another version of the compiler, so that folder is not put
        on the path. Instead, a temporary folder that contains only a link to Silo is put there.
        """
        import silo  # noqa: PLC0415  # for its place

        with tempfile.TemporaryDirectory(prefix="silo-link-") as folder:
            package_file = silo.__file__
            assert package_file is not None
            (Path(folder) / "silo").symlink_to(Path(package_file).parent, target_is_directory=True)
            path = [self.packages, folder, child_environment().get("PYTHONPATH", "")]
            yield child_environment(
                PYTHONPATH=os.pathsep.join(filter(None, path)),
                SILO_HOME=str(settings().store_folder),
                **settings().for_workers,
            )

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs ``python -m silo`` with these arguments in the environment."""
        with self.variables() as variables:
            # -P keeps the current folder off the module path: a user's own triton.py must not be imported.
            command = [self.python, "-P", "-m", "silo", *arguments]
            return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def find_environment(name: ToolchainName, *, download: bool, report: Callable[[str], None]) -> Environment:
    """Returns the environment for the name of a toolchain.

    A package is taken from this environment if that version is installed in it, else from the folder where an earlier
    build unpacked the package, else from a package index by pip, but only with ``download``. ``report`` is called with
    a line before anything is downloaded.

    Raises:
        ToolchainError: other users can write to the folder, or it has no Python; or the package is not here and must
            not be downloaded, or pip failed.
    """
    if name.folder:
        return _named_folder(name)
    try:
        if version(name.package) == name.version:
            return Environment(name, sys.executable)
    except PackageNotFoundError:
        pass
    folder = made_folder(name)
    _refuse_shared(folder)
    if not (folder / _STAMP).is_file():
        wheel = f"the wheel {name.label}, without the packages that it depends on"
        if not download:
            raise ToolchainError(
                f"{name.label} is not installed here: with --download pip fetches {wheel}, from the package index that "
                f"pip is set up for, into {folder}; or name an environment that has it: "
                f"--toolchain {name.package}{name.version}=/path/to/venv"
            )
        report(f"downloading {wheel}, into {folder}")
        _download(name, folder)
    return Environment(name, sys.executable, str(folder))


def made_folder(name: ToolchainName) -> Path:
    """Returns the folder of the store to which pip unpacks a package; each version of Python has its own folder."""
    return settings().store_folder / "toolchains" / f"{name.package}-{name.version}-{sys.implementation.cache_tag}"


def _refuse_shared(folder: Path) -> None:
    """Raises ToolchainError if other users can write to the folder of a toolchain's code."""
    decision = examine(folder.parent, (folder.name,))
    if not decision:
        raise ToolchainError(f"{folder}: code that others wrote could run from there: {decision.reason}")


def _named_folder(name: ToolchainName) -> Environment:
    root = Path(name.folder).expanduser()
    for candidate_path in ("bin/python", "Scripts/python.exe"):
        if (root / candidate_path).is_file():
            # Symbolic links are not resolved: Python finds its environment by the path that it is started with.
            return Environment(name, str((root / candidate_path).absolute()))
    raise ToolchainError(
        f"--toolchain {name.label}={name.folder}: this folder has no bin/python; name a virtual environment "
        "(python -m venv) in which the compiler is installed"
    )


def _download(name: ToolchainName, folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ToolchainError(f"cannot make a folder for {name.label} in {folder.parent}: {error.strerror}") from None
    try:
        command = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        # Only wheels are accepted, because installing a source distribution would run its code here.
        command += ["--no-deps", "--only-binary", ":all:", "--quiet", "--target", str(temporary), name.label]
        try:
            done = subprocess.run(  # safe: the label was checked to be a package name and a version
                command, capture_output=True, text=True, check=False, timeout=_PIP_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"pip did not fetch {name.label} within {_PIP_SECONDS} s") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()][-_SHOWN_LINES:]
            raise ToolchainError(
                f"pip could not fetch {name.label} (is the package index within reach?); without a network name an "
                f"environment that has it: --toolchain {name.package}{name.version}=/path/to/venv\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        (temporary / _STAMP).write_text(f"{name.label}\n", encoding="utf-8")
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / _STAMP).is_file():  # if the file is there, another build has unpacked the package first
                raise
    except OSError as error:
        raise ToolchainError(f"cannot unpack {name.label} into {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


OnStage = Callable[[str, int, int], None]
OnTuning = Callable[[str, Progress], None]

# How many configs of each case are packed for tuning by default.
_CONFIGS = "128"


def build_with_toolchains(
    files: Sequence[Place],
    output: Path,
    toolchains: Sequence[str],
    *,
    download: bool = False,
    targets: Sequence[str] | None = None,
    kernels: Sequence[str] | None = None,
    tune: str | None = None,
    budget_s: float | None = None,
    configs: str | None = None,
    key: SecretKey | None = None,
    report: Callable[[str], None] = lambda _: None,
    progress: OnStage = lambda _name, _done, _total: None,
    tuning: OnTuning = lambda _name, _event: None,
) -> BuildSummary:
    """Builds the kernels of ``files`` with each toolchain, joins the bundles, and measures whose code is the fastest.

    Each of ``toolchains`` is ``NAME==VERSION``, a package that is here or, with ``download``, fetched by pip, or
    ``LABEL=FOLDER``, a virtual environment. Each compiles in processes of its own environment. For targets whose device
    is here, all variants are measured then, if ``tune`` allows that: a case gets the fastest code with right results,
    or, if the times do not differ clearly, the code of the toolchain that is named first. For other targets the
    first toolchain's code is chosen until ``silo tune`` measures the bundle on the device. Other arguments are as for
    :func:`silo.commands.build_bundle.build_bundle`.

    Raises:
        ToolchainError: an environment cannot be found or made, or two toolchains have one name; or the mode is
            deterministic, because two compilers may round differently.
        CompileError: a build failed in one of the environments; the message has its error.
        BundleError: the builds are not of one source, or the file cannot be written.
        TuneError: no code of a case can be used.
    """
    begin = time.monotonic()
    Packing.parse(configs)  # raises before anything is compiled
    require_place(output)
    names = [parse_toolchain(text) for text in toolchains]
    if len({name.label for name in names}) != len(names):
        raise ToolchainError(f"two toolchains have one name: {', '.join(name.label for name in names)}")
    if settings().deterministic and len(names) > 1:
        raise ToolchainError(
            "in deterministic mode nothing that is measured may change results, and two compilers need not round "
            "alike: name one --toolchain"
        )
    mode = TuneMode(tune or settings().tune)
    environments = [find_environment(name, download=download, report=report) for name in names]
    with tempfile.TemporaryDirectory(prefix="silo-toolchains-") as folder:
        parts: list[Path] = []
        built: list[Mapping[str, Any]] = []
        for number, environment in enumerate(environments):
            progress(environment.name.label, number, len(environments))
            parts.append(Path(folder) / f"{number}.silo")
            options = _options(targets, kernels, "off" if mode.measures else mode.value, configs, mode)
            built.append(_build(environment, files, parts[-1], options))
        progress("all toolchains", len(environments), len(environments))
        joined = Path(folder) / "joined.silo"
        merge_bundles(parts, joined)
        with open_bundle(joined) as bundle:
            contents = bundle.contents()
        note_trust(contents)
        remarks: list[str] = []
        measured: set[str] = set()
        for target, device in _devices(contents.kernels).items() if mode.measures else ():
            measured_kernels = [
                kernel.name for kernel in contents.kernels if target in _targets(kernel) and kernel.cases is not None
            ]
            if measured_kernels:
                tuned, _ = tune_bundle(
                    joined,
                    device,
                    measured_kernels,
                    CaseLimits(budget=Budget(seconds=budget_s)),
                    trust=False,
                    key=None,
                    progress=tuning,
                )
                require_winners(tuned)
                measured.add(str(target))
                remarks += [f"{entry.kernel} {entry.case}: {line}" for entry in tuned for line in entry.outcome.remarks]
        merged = merge_bundles([joined], output, key=key)
    with open_bundle(output) as bundle:
        contents = bundle.contents()
        names_of = compiler_names(
            (variant.artifact.compiler for kernel in contents.kernels for variant in kernel.variants),
            contents.toolchain,
        )
    left_out = {
        (entry["kernel"], entry["target"], entry["reason"]): None for part in built for entry in part["left_out"]
    }
    return BuildSummary(
        path=str(output),
        size_bytes=merged.size_bytes,
        identity=merged.identity,
        variants=sum(len(kernel.variants) for kernel in contents.kernels),
        blobs=len({ref.sha256 for kernel in contents.kernels for ref in kernel.refs}),
        compiled=sum(part["compiled"] for part in built),
        reused=sum(part["reused"] for part in built),
        seconds=time.monotonic() - begin,
        rows=tuple(row for kernel in contents.kernels for row in _rows(kernel, names_of, measured)),
        remarks=tuple(dict.fromkeys((*(line for part in built for line in part["remarks"]), *remarks))),
        left_out=tuple(LeftOut(*entry) for entry in left_out),
        signature=merged.signature,
        plans=tuple(plan.name for plan in contents.plans),
    )


def _options(
    targets: Sequence[str] | None, kernels: Sequence[str] | None, tune: str, configs: str | None, mode: TuneMode
) -> list[str]:
    """Returns the options for ``silo build`` in each environment: pack the configs to measure, and measure nothing."""
    packed = configs or (_CONFIGS if mode.measures else None)
    return [
        *("--quiet", "--json", "--tune", tune),
        *(part for target in targets or () for part in ("--target", target)),
        *(part for kernel in kernels or () for part in ("--kernel", kernel)),
        *(() if packed is None else ("--configs", packed)),
        *(("--deterministic",) if settings().deterministic else ()),
    ]


def _build(environment: Environment, files: Sequence[Place], output: Path, options: Sequence[str]) -> Mapping[str, Any]:
    """Runs ``silo build`` in one environment; returns its JSON. Raises CompileError with the message of that build."""
    name = environment.name
    done = environment.run(["build", *map(str, files), "-o", str(output), *options])
    if done.returncode or not output.is_file():
        lines = done.stderr.strip() or f"it ended with status {done.returncode} and no message"
        raise CompileError(f"the build with {name.label} ({environment.python}) failed:\n{lines}")
    if name.package:
        with open_bundle(output) as bundle:
            installed = dict(bundle.manifest.toolchain).get(name.package)
        if installed != name.version:
            used = f"{name.package} {installed}" if installed else f"no {name.package}"
            raise ToolchainError(
                f"the build with {name.label} used {used}: the kernels are not compiled by that package, or another "
                "version of it is on PYTHONPATH"
            )
    return json.loads(done.stdout)


def _targets(kernel: BundleKernel) -> tuple[Target, ...]:
    return tuple(dict.fromkeys(variant.artifact.variant.target for variant in kernel.variants))


def _devices(kernels: Sequence[BundleKernel]) -> dict[Target, Device]:
    """Returns, for each target of the kernels that a device of this machine has, the first such device."""
    devices: dict[Target, Device] = {}
    for target in dict.fromkeys(target for kernel in kernels for target in _targets(kernel)):
        for device in devices_of_kind(target.kind):
            if device.target.arch == target.device_arch:
                devices.setdefault(target, device)
    return devices


def _rows(kernel: BundleKernel, names: Mapping[str, str], measured: set[str]) -> list[BuildRow]:
    rows: list[BuildRow] = []
    for target in _targets(kernel):
        variants = [variant for variant in kernel.variants if variant.artifact.variant.target == target]
        coverage = [coverage_row for coverage_row in kernel.coverage if coverage_row.target == target]
        chosen: dict[str, None] = {}
        for rules in kernel.rules:
            if rules.target == target:
                pairs = zip(rules.rules.rules, rules.rule_compilers, strict=True)
                chosen |= {f"{config} by {names[name]}" if name else str(config): None for (_, config), name in pairs}
        serves = (variant.artifact.variant.specialization for variant in variants)
        rows.append(
            BuildRow(
                kernel.name,
                str(target),
                len(variants),
                sum(coverage_row.packed for coverage_row in coverage),
                sum(coverage_row.space for coverage_row in coverage),
                "; ".join(chosen) or str(variants[0].artifact.variant.config),
                "measured" if str(target) in measured else "first toolchain",
                tuple(dict.fromkeys(coverage_row.served for coverage_row in serves if coverage_row.made_for_some)),
            )
        )
    return rows
