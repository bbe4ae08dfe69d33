"""``silo inspect --code``: shows the code of kernels in Python files, modules and bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from silo.artifacts.artifact import Artifact
from silo.artifacts.disassembly import DISASSEMBLED
from silo.building.code_forms import CODE_FORMS, CodeForms, code_text, kinds_with
from silo.building.compilation import Compilation
from silo.building.loaded_kernels import stored_blob
from silo.bundle.bundle_slices import is_for
from silo.bundle.contents import BundleKernel
from silo.bundle.reader import Bundle, open_bundle
from silo.compile.toolchain import select_compiler
from silo.core.config import Config
from silo.core.device import Target, driver_of
from silo.errors import BundleError, CaseError, SpaceError, TargetError, ToolchainError
from silo.kernels.collection import collect_kernels
from silo.kernels.kernel import Kernel
from silo.machine.device_plugins import devices_of_kind, resolve_target
from silo.machine.process_session import session
from silo.machine.user_files import PlaceKind, kind_of
from silo.sources.kernel_source import BringsCode
from silo.tuner.policy import TuneMode
from silo.tuning.case_tuning import CaseStudy, case_studies

__all__ = ["CodeListing", "code_of", "forms_of_bundle", "forms_of_kernel"]


@dataclass(frozen=True, slots=True)
class CodeListing:
    """One form of a variant's code."""

    kernel: str
    target: str
    config: str
    text: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request: the form of code, and the variants whose code is requested."""

    form: str
    target: str | None
    case: str | None
    config: Mapping[str, str]

    def fits(self, config: Config) -> bool:
        """Whether a config has the requested values."""
        values = {name: str(value) for name, value in config.as_dict().items()}
        return self.config.items() <= values.items()

    @property
    def wanted(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.config.items())


def code_of(
    path: Path,
    form: str,
    *,
    kernels: Sequence[str] | None = None,
    target: str | None = None,
    case: str | None = None,
    config: str | None = None,
) -> list[CodeListing]:
    """Returns one form of code for each kernel of a Python file, a module or a bundle, from one variant of each.

    Args:
        path: the file, or the dotted name of the module.
        form: one of ``silo.building.code_forms.CODE_FORMS``.
        kernels: the only kernels to show.
        target: the target to compile for; by default the CPU, or this machine's GPU for forms that only its code has.
            For a bundle, by default the target of the first variant that fits.
        case: the label of the case whose argument types and specialization are used; by default the first case. For
            files only.
        config: values, for example ``BLOCK=128, num_warps=4``; by default the config that calls get.

    Raises:
        SourceError, BundleError: the kernel, config, variant or form of code does not exist.
        CaseError: a kernel without cases, or without the named case.
        ToolchainError: a tool that makes the form is missing; the text names the package to install.
    """
    request = _Asked(form, target, case, _values(config))
    if kind_of(path) is PlaceKind.BUNDLE:
        with open_bundle(path) as bundle:
            return list(_of_bundle(bundle, kernels, request))
    return [_of_kernel(kernel, request) for kernel in collect_kernels([path], kernels)]


# The forms that a report page shows: the text of the front end and the output of the compiler.
_PAGE_FORMS = tuple(form for form in CODE_FORMS if form not in ("llvm", "asm"))


def forms_of_kernel(kernel: Kernel, case: str, target: Target, config: Config) -> tuple[tuple[str, str], ...]:
    """Returns the code of one config in each of its forms (TTIR, PTX, ...), as pairs of the form's name and text.

    The code is compiled for the argument types of the case ``case`` if the store lacks it. Returns () without this
    case.

    Raises:
        SiloError: the config does not compile, or no compiler for the target is here.
    """
    study = next((case_study for case_study in case_studies(kernel, None) if case_study.case.label == case), None)
    if study is None:
        return ()
    variant = replace(kernel.resolver.variant(study.situation, config), target=target)
    artifact = Compilation(session(), kernel.source).artifact(variant)
    return _texts(
        CodeForms(artifact, lambda ref: stored_blob(session().store, artifact, ref), kernel.source, variant), artifact
    )


def forms_of_bundle(path: Path, kernel: str, target: Target, config: Config) -> tuple[tuple[str, str], ...]:
    """Returns the code of one config in a bundle, as pairs of a form's name and text; () if the bundle lacks it.

    Raises:
        BundleError: the bundle cannot be read.
    """
    with open_bundle(path) as bundle:
        for variant in bundle.kernel(kernel).variants:
            artifact = variant.artifact
            if artifact.variant.config.order_key == config.order_key and is_for(artifact.variant.target, target):
                return _texts(CodeForms(artifact, lambda ref: bundle.blob(ref.sha256)), artifact)
    return ()


def _texts(forms: CodeForms, artifact: Artifact) -> tuple[tuple[str, str], ...]:
    disassembled_kind = DISASSEMBLED.get(artifact.blob.kind)
    texts: list[tuple[str, str]] = []
    for name in _PAGE_FORMS:
        if name not in set(forms) and name != disassembled_kind:
            continue
        try:
            text = forms[name]
        except ToolchainError:  # the disassembler is not installed
            continue
        if isinstance(text, str):
            texts.append((name, text))
    return tuple(texts)


def _values(config: str | None) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in (config or "").split(","):
        name, equals, value = part.partition("=")
        if part.strip() and not (equals and name.strip()):
            raise SpaceError(f"--config {config}: write what silo inspect prints, for example BLOCK=128, num_warps=4")
        if part.strip():
            values[name.strip()] = value.strip()
    return values


def _of_kernel(kernel: Kernel, request: _Asked) -> CodeListing:
    if isinstance(kernel.source, BringsCode):
        own, text = kernel.source.code_text(request.form, request.target)
        return CodeListing(kernel.name, str(own), "", text)
    studies = case_studies(kernel, None)
    study = next((study for study in studies if request.case in (None, study.case.label)), None)
    if study is None:
        raise CaseError(
            f"{kernel.name} has no case {request.case}; it has {', '.join(study.case.label for study in studies)}"
        )
    target = select_compiler(kernel.source.kind, _target(request)).artifact_target(_target(request))
    variant = replace(kernel.resolver.variant(study.situation, _config(kernel, study, target, request)), target=target)
    artifact = Compilation(session(), kernel.source).artifact(variant)
    forms = CodeForms(artifact, lambda ref: stored_blob(session().store, artifact, ref), kernel.source, variant)
    return _listing(artifact, code_text(forms, request.form, artifact, bundled=False))


def _target(request: _Asked) -> Target:
    if request.target is not None:
        return resolve_target(request.target)
    kind = (*kinds_with(request.form), "cpu")[0]
    if not driver_of(kind).memory.is_host and not devices_of_kind(kind):
        raise TargetError(f"--code {request.form} is of code for {kind}; name its target: --target {_example(kind)}")
    return resolve_target(kind)


def _example(kind: str) -> str:
    """Returns an example of a target of a kind, for messages. The example for the CPU has no arch."""
    driver = driver_of(kind)
    return kind if driver.memory.is_host else f"{kind}:{Target(kind, driver.example).device_arch}"


def _config(kernel: Kernel, study: CaseStudy, target: Target, request: _Asked) -> Config:
    own_device = study.situation.device
    if own_device.target == target and not request.config:
        return kernel.resolver.chosen(study.situation, mode=TuneMode.CACHED).config
    candidates = study.situation.candidates_on(target, own_device.facts() if own_device.target == target else {})
    for config in candidates:
        if request.fits(config):
            return config
    raise SpaceError(f"{kernel.name}: no config of its space has {request.wanted}; the first is {candidates[0]}")


def _of_bundle(bundle: Bundle, kernels: Sequence[str] | None, request: _Asked) -> Iterator[CodeListing]:
    for name in kernels or bundle.kernel_names:
        kernel = bundle.kernel(name)
        artifact = _packed(bundle, kernel, request)
        forms = CodeForms(artifact, lambda ref: bundle.blob(ref.sha256))
        yield _listing(artifact, code_text(forms, request.form, artifact, bundled=True))


def _packed(bundle: Bundle, kernel: BundleKernel, request: _Asked) -> Artifact:
    """Returns the first variant with the requested target and config.

    Targets that have the requested form come first.
    """
    wanted_target = None if request.target is None else Target.parse(request.target)
    artifacts = [variant.artifact for variant in kernel.variants]
    fitting = [
        artifact
        for artifact in artifacts
        if request.fits(artifact.variant.config)
        and (wanted_target is None or is_for(artifact.variant.target, wanted_target))
    ]
    if not fitting:
        targets = ", ".join(dict.fromkeys(str(artifact.variant.target) for artifact in artifacts))
        criteria = " and ".join(
            filter(
                None, [f"for {wanted_target}" if wanted_target else "", f"with {request.wanted}" * bool(request.config)]
            )
        )
        raise BundleError(f"{bundle.name}: no variant of {kernel.name} is {criteria}; it has code for {targets}")
    kinds = kinds_with(request.form)
    kind = kinds[0] if len(kinds) == 1 else None
    if kind is not None and all(artifact.variant.target.kind != kind for artifact in artifacts):
        targets = ", ".join(dict.fromkeys(str(artifact.variant.target) for artifact in artifacts))
        raise BundleError(
            f"{bundle.name}: {request.form} is of code for {kind}, and {kernel.name} has code for {targets} alone; "
            f"build it with --target {_example(kind)} too"
        )
    return next((candidate for candidate in fitting if candidate.variant.target.kind == kind), fitting[0])


def _listing(artifact: Artifact, text: str) -> CodeListing:
    variant = artifact.variant
    return CodeListing(variant.kernel, str(variant.target), str(variant.config), text)
