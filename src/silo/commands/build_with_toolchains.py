"""``silo build --toolchain``: one bundle with the code of several compilers, of which measurements choose."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from silo.bundle.contents import BundleKernel
from silo.bundle.mixed_compilers import compiler_names
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import note_trust, require_place
from silo.commands.results import BuildRow, BuildSummary
from silo.commands.toolchain_environments import Environment, find_environment, parse_toolchain
from silo.compile.build_list import LeftOut, Packing
from silo.core.protocols import Device
from silo.core.target import Target
from silo.errors import CompileError, ToolchainError
from silo.kernels.collection import Place
from silo.machine.device_plugins import devices_of_kind
from silo.settings import settings
from silo.shipping.slice_bundle import merge_bundles
from silo.store.signatures import SecretKey
from silo.tuner.failures import require_winners
from silo.tuner.outcome import Budget
from silo.tuner.policy import TuneMode
from silo.tuner.progress import Progress
from silo.tuning.bundle_tuning import tune_bundle
from silo.tuning.case_tuning import CaseLimits

__all__ = ["build_with_toolchains"]

OnStage = Callable[[str, int, int], None]
OnTuning = Callable[[str, Progress], None]

# The configs of each case that are packed for tuning, unless an option says otherwise.
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
    """Builds the kernels of ``files`` with each toolchain, joins the bundles, and measures which code is the fastest.

    Each of ``toolchains`` is ``NAME==VERSION``, a package that is here or, with ``download``, fetched by pip, or
    ``LABEL=FOLDER``, a virtual environment. Each compiles in processes of its own environment. For targets whose device
    is here, all variants are measured then, unless ``tune`` says otherwise: a case gets the fastest code of those with
    right results; if times do not separate them, the code of the toolchain that is named first. For other targets the
    first toolchain's code is chosen until ``silo tune`` measures the bundle on the device. Other arguments are as for
    :func:`silo.commands.build_bundle.build_bundle`.

    Raises:
        ToolchainError: an environment cannot be found or made, two toolchains have one name, or in deterministic mode,
            because two compilers need not round alike.
        CompileError: a build failed in one of the environments; the message has its error.
        BundleError: the builds are not of one source, or the file cannot be written.
        TuneError: no code of a case can be used.
    """
    begin = time.monotonic()
    Packing.parse(configs)  # raises before anything is compiled
    require_place(output)
    names = [parse_toolchain(text) for text in toolchains]
    if len({one.label for one in names}) != len(names):
        raise ToolchainError(f"two toolchains have one name: {', '.join(one.label for one in names)}")
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
            own = [one.name for one in contents.kernels if target in _targets(one) and one.cases is not None]
            if own:
                tuned, _ = tune_bundle(
                    joined,
                    device,
                    own,
                    CaseLimits(budget=Budget(seconds=budget_s)),
                    trust=False,
                    key=None,
                    progress=tuning,
                )
                require_winners(tuned)
                measured.add(str(target))
                remarks += [f"{one.kernel} {one.case}: {line}" for one in tuned for line in one.outcome.remarks]
        made = merge_bundles([joined], output, key=key)
    with open_bundle(output) as bundle:
        contents = bundle.contents()
        names_of = compiler_names(
            (one.artifact.compiler for kernel in contents.kernels for one in kernel.variants), contents.toolchain
        )
    left_out = {(one["kernel"], one["target"], one["reason"]): None for part in built for one in part["left_out"]}
    return BuildSummary(
        path=str(output),
        size_bytes=made.size_bytes,
        identity=made.identity,
        variants=sum(len(kernel.variants) for kernel in contents.kernels),
        blobs=len({ref.sha256 for kernel in contents.kernels for ref in kernel.refs}),
        compiled=sum(part["compiled"] for part in built),
        reused=sum(part["reused"] for part in built),
        seconds=time.monotonic() - begin,
        rows=tuple(row for kernel in contents.kernels for row in _rows(kernel, names_of, measured)),
        remarks=tuple(dict.fromkeys((*(line for part in built for line in part["remarks"]), *remarks))),
        left_out=tuple(LeftOut(*one) for one in left_out),
        signature=made.signature,
        plans=tuple(plan.name for plan in contents.plans),
    )


def _options(
    targets: Sequence[str] | None, kernels: Sequence[str] | None, tune: str, configs: str | None, mode: TuneMode
) -> list[str]:
    """The options of each environment's ``silo build``: it measures nothing, and packs what is to be measured."""
    packed = configs or (_CONFIGS if mode.measures else None)
    return [
        *("--quiet", "--json", "--tune", tune),
        *(part for one in targets or () for part in ("--target", one)),
        *(part for one in kernels or () for part in ("--kernel", one)),
        *(() if packed is None else ("--configs", packed)),
        *(("--deterministic",) if settings().deterministic else ()),
    ]


def _build(environment: Environment, files: Sequence[Place], output: Path, options: Sequence[str]) -> Mapping[str, Any]:
    """Builds in one environment. Raises CompileError with the message of its ``silo build``."""
    name = environment.name
    done = environment.run(["build", *map(str, files), "-o", str(output), *options])
    if done.returncode or not output.is_file():
        lines = done.stderr.strip() or f"it ended with status {done.returncode} and no message"
        raise CompileError(f"the build with {name.label} ({environment.python}) failed:\n{lines}")
    if name.package:
        with open_bundle(output) as bundle:
            found = dict(bundle.manifest.toolchain).get(name.package)
        if found != name.version:
            used = f"{name.package} {found}" if found else f"no {name.package}"
            raise ToolchainError(
                f"the build with {name.label} used {used}: the kernels are not compiled by that package, or another "
                "version of it is on PYTHONPATH"
            )
    return json.loads(done.stdout)


def _targets(kernel: BundleKernel) -> tuple[Target, ...]:
    return tuple(dict.fromkeys(one.artifact.variant.target for one in kernel.variants))


def _devices(kernels: Sequence[BundleKernel]) -> dict[Target, Device]:
    """A device of this machine for each target of the kernels that has one."""
    found: dict[Target, Device] = {}
    for target in dict.fromkeys(target for kernel in kernels for target in _targets(kernel)):
        for device in devices_of_kind(target.kind):
            if device.target.arch == target.device_arch:
                found.setdefault(target, device)
    return found


def _rows(kernel: BundleKernel, names: Mapping[str, str], measured: set[str]) -> list[BuildRow]:
    rows: list[BuildRow] = []
    for target in _targets(kernel):
        own = [one for one in kernel.variants if one.artifact.variant.target == target]
        coverage = [one for one in kernel.coverage if one.target == target]
        chosen: dict[str, None] = {}
        for rules in kernel.rules:
            if rules.target == target:
                pairs = zip(rules.rules.rules, rules.rule_compilers, strict=True)
                chosen |= {f"{config} by {names[name]}" if name else str(config): None for (_, config), name in pairs}
        serves = (one.artifact.variant.specialization for one in own)
        rows.append(
            BuildRow(
                kernel.name,
                str(target),
                len(own),
                sum(one.packed for one in coverage),
                sum(one.space for one in coverage),
                "; ".join(chosen) or str(own[0].artifact.variant.config),
                "measured" if str(target) in measured else "first toolchain",
                tuple(dict.fromkeys(one.served for one in serves if one.made_for_some)),
            )
        )
    return rows
