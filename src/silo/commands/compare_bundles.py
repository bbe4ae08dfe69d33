"""Compares two bundles: added and removed kernels, resources of code, results and times of cases."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silo.artifacts.artifact import Artifact
from silo.building.ready_cases import PreparedCase, prepare_recipe
from silo.bundle.contents import BundleVariant
from silo.bundle.mixed_compilers import compiler_names
from silo.commands.bundle_description import describe_bundle, facts_text, types_text
from silo.core.cases import CaseRecipe
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import loader_of
from silo.core.protocols import Device
from silo.core.values import JSON
from silo.errors import CaseError, SiloError, SourceError, ToolchainError
from silo.kernels.bundle_kernels import BundledKernel, Kernels, load
from silo.launch.runtime import VouchedCode, inspect_call
from silo.machine.device_plugins import device_named
from silo.machine.user_files import PlaceKind, kind_of
from silo.measuring.benches import ConfinedBench, LocalBench, benches_on, grid_at
from silo.text_tables import Table, format_bytes, format_time
from silo.tuner.measure import Ratio, Speed, sample_until_decided
from silo.tuner.result_check import kept
from silo.tuning.case_tuning import materializer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BundleComparison", "CaseComparison", "CodeChange", "Numbers", "compare_bundles", "failures"]

_PPM = 1_000_000

# A variant's target, argument types, assumptions (such as alignment) and config, as text.
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class CodeChange:
    """A variant whose code differs between the two bundles, or that one of them lacks.

    ``status`` is ``added``, ``removed`` or ``changed``; ``changes`` has the resources that differ, as ``registers 32 ->
    40``, or is empty.
    """

    kernel: str
    target: str
    types: str
    facts: str
    config: str
    status: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """The results of a case with the code of both bundles.

    ``equal`` means that every bit of every array is the same. ``between`` is the largest difference between the two
    results, found in the array ``array``; None if its elements are not numbers. ``old_error`` and ``new_error`` are the
    largest differences from the expected values, ``old_ok`` and ``new_ok`` whether these are within the case's
    tolerance; None if the case expects no values.
    """

    equal: bool
    array: str = ""
    between: float | None = None
    old_error: float | None = None
    new_error: float | None = None
    old_ok: bool | None = None
    new_ok: bool | None = None


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """The comparison of a kernel's case on a device.

    ``status`` is ``compared``, ``added``, ``removed`` or ``failed``; ``reason`` is why a case was not compared, or not
    timed. ``same_code`` means that both bundles launch the same bytes in the same way.
    """

    kernel: str
    case: str
    status: str
    device: str = ""
    same_code: bool = False
    old_config: str = ""
    new_config: str = ""
    numbers: Numbers | None = None
    ratio: Ratio | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BundleComparison:
    """The comparison of two bundles."""

    old: str
    new: str
    old_tools: Mapping[str, str]
    new_tools: Mapping[str, str]
    old_bytes: int
    new_bytes: int
    kernels_added: tuple[str, ...]
    kernels_removed: tuple[str, ...]
    code: tuple[CodeChange, ...]
    same_code: int  # the number of variants whose code is the same in both
    cases: tuple[CaseComparison, ...]

    def to_json(self) -> dict[str, JSON]:
        """Returns the JSON form that ``silo diff --json`` prints."""
        document: dict[str, Any] = asdict(self)
        for case in document["cases"]:
            if case["ratio"] is not None:
                case["ratio"]["speed"] = case["ratio"]["speed"].value
            numbers: dict[str, Any] = case["numbers"] or {}
            for name, value in numbers.items():
                if isinstance(value, float) and not math.isfinite(value):
                    numbers[name] = str(value)  # JSON lacks infinities and NaN
        return document

    def tables(self) -> list[Table]:
        """Returns tables of the cases and of the code, without empty ones."""
        tables = [_cases_table(self.cases), _code_table(self.code)]
        return [table for table in tables if table.rows]

    def lines(self) -> list[str]:
        """Returns sentences about the bundles as a whole."""
        lines = [
            f"{self.old}: {format_bytes(self.old_bytes)}; {self.new}: {format_bytes(self.new_bytes)}",
            f"{self.same_code} variants have the same code in both",
        ]
        tools = sorted({*self.old_tools, *self.new_tools})
        lines += [
            f"{name} {self.old_tools.get(name, 'absent')} -> {self.new_tools.get(name, 'absent')}"
            for name in tools
            if self.old_tools.get(name) != self.new_tools.get(name)
        ]
        lines += [f"kernel added: {name}" for name in self.kernels_added]
        lines += [f"kernel removed: {name}" for name in self.kernels_removed]
        return lines

    def markdown(self) -> str:
        """Formats the comparison as Markdown for a pull request."""
        parts = [f"### silo diff {self.old} {self.new}", "\n".join(f"- {line}" for line in self.lines())]
        for table in self.tables():
            rows = [list(table.columns), ["---"] * len(table.columns), *table.cells()]
            body = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
            parts += [f"#### {table.title}", body]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """Formats the comparison as a self-contained HTML page."""
        from html import escape  # noqa: PLC0415  # only if a page is written

        title = escape(f"{self.old} and {self.new}")
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.lines())
        tables = "".join(table.html() for table in self.tables())
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>silo diff: {title}</title><style>'
            "body{font:15px system-ui;margin:2em}table{border-collapse:collapse;margin:1em 0}caption{text-align:left;"
            "font-weight:600;padding:.4em 0}td,th{padding:.25em .7em;border-bottom:1px solid #ddd}</style>"
            f"<h1>{title}</h1><ul>{lines}</ul>{tables}</html>\n"
        )


def compare_bundles(
    old: Path,
    new: Path,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    arrays: str | None = None,
    trust: bool = False,
    run: bool = True,
    time_same: bool = False,
    margin: float = 0.01,
    limit_s: float = 60.0,
    toolchains: Sequence[str] = (),
    download: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> BundleComparison:
    """Compares two bundles. A Python file with kernels is compiled for the device first.

    Each case that both have runs once with each bundle's code, on the same arrays, and all arrays are compared, not
    only expected ones. Then both bundles' code is launched alternately until the ratio of their times is decided. The
    code runs in a separate process if the device allows it: then a kernel that crashes costs only its own case.

    Args:
        old: the bundle, or file, that the other is compared with.
        new: the other bundle or file.
        device: where cases run; by default the device for arrays in host memory.
        kernels: the only kernels to compare.
        arrays: the library that makes arrays, as for ``silo run``.
        trust: load the bundles' native code even if it is not trusted.
        run: False compares the files alone, and runs nothing.
        time_same: also time cases of which both bundles have the same code.
        margin: the relative difference up to which times count as the same.
        limit_s: seconds in which the times of one case have to be decided.
        toolchains: the toolchains to build the old and the new file with, as for ``silo build --toolchain``; () builds
            with this environment.
        download: let pip fetch toolchains that are not here.
        progress: called with a line at the start of each case.

    Raises:
        SiloError: a file cannot be read, its native code is not trusted, or the device is not here.
    """
    with ExitStack() as folders:
        environments = toolchains or ("", "")
        if len(environments) != 2:
            raise ToolchainError("a comparison has two toolchains: name one for the old and one for the new file")
        with_one = partial(_bundle_of, device=device, exit_stack=folders, download=download, progress=progress)
        paths = [
            with_one(path, toolchain=environment) for path, environment in zip((old, new), environments, strict=True)
        ]
        rows = [describe_bundle(path, None) for path in paths]
        loaded = [load(path, trust=trust) for path in paths]
        names = [_chosen(loaded_kernels, kernels) for loaded_kernels in loaded]
        if kernels and (missing := [name for name in kernels if name not in names[0] and name not in names[1]]):
            raise SourceError(f"neither {old} nor {new} has a kernel {missing[0]}")
        common = [name for name in names[0] if name in names[1]]
        changes, same = _code_changes(loaded, common)
        cases: list[CaseComparison] = []
        if run:
            on = None if device is None else device_named(device)
            for name in common:
                pair = [loaded_kernels[name] for loaded_kernels in loaded]
                cases += _compare_cases(
                    pair, on, arrays, time_same=time_same, margin=margin, limit_s=limit_s, progress=progress
                )
        return BundleComparison(
            old=str(old),
            new=str(new),
            old_tools=dict(rows[0].producer),
            new_tools=dict(rows[1].producer),
            old_bytes=rows[0].size_bytes,
            new_bytes=rows[1].size_bytes,
            kernels_added=tuple(name for name in names[1] if name not in names[0]),
            kernels_removed=tuple(name for name in names[0] if name not in names[1]),
            code=tuple(changes),
            same_code=same,
            cases=tuple(cases),
        )


def failures(comparison: BundleComparison, slower: float | None, numbers: str | None) -> list[str]:
    """Returns why a gate refuses the new bundle, in sentences; empty if it passes.

    ``slower`` is the fraction by which a case may be slower: a case fails if it is certainly slower by more than half
    of this fraction. ``numbers`` is ``tolerance`` (a case fails if its results are outside its tolerance, or if it
    expects nothing and the results differ) or ``bits`` (a case fails if any bit differs). A case that failed to run, or
    that was removed, fails by any of these criteria.
    """
    refused: list[str] = []
    for case in comparison.cases:
        label = f"{case.kernel} {case.case}".strip()
        if case.status == "failed" or (case.status == "removed" and (slower is not None or numbers is not None)):
            refused.append(f"{label}: {case.status}{': ' * bool(case.reason)}{case.reason}")
        if slower is not None and case.ratio is not None and case.ratio.speed is Speed.SLOWER:
            refused.append(f"{label}: slower, {case.ratio.text}")
        if numbers is not None and case.numbers is not None and (reason := _wrong(case.numbers, numbers)):
            refused.append(f"{label}: {reason}")
    return refused


def _wrong(numbers: Numbers, gate: str) -> str:
    if gate == "bits":
        return "" if numbers.equal else f"{numbers.array} differs by {_number(numbers.between)}"
    if numbers.new_ok is None:
        return (
            "" if numbers.equal else f"{numbers.array} differs by {_number(numbers.between)}, and nothing is expected"
        )
    return "" if numbers.new_ok else f"the new result is wrong by {_number(numbers.new_error)}"


def _bundle_of(
    path: Path,
    *,
    device: str | None,
    exit_stack: ExitStack,
    toolchain: str,
    download: bool,
    progress: Callable[[str], None],
) -> Path:
    """Returns the path of a bundle: ``path`` itself, or a new bundle of a Python file's kernels, built for the device.

    The new bundle is in a folder that ``exit_stack`` removes.
    """
    if kind_of(path) is PlaceKind.BUNDLE:
        if toolchain:
            raise ToolchainError(f"{path} is compiled already: --toolchain compiles Python files, so name two of them")
        return path
    from silo.commands.build_bundle import build_bundle  # noqa: PLC0415  # the compilers, for files alone
    from silo.commands.build_with_toolchains import build_with_toolchains  # noqa: PLC0415

    folder = Path(exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="silo-diff-")))
    built, targets = folder / f"{path.stem}.silo", [device or "cpu"]
    if toolchain:
        build_with_toolchains(
            [path], built, [toolchain], download=download, targets=targets, tune="cached", report=progress
        )
    else:
        build_bundle([path], built, targets=targets, tune="cached")
    return built


def _chosen(loaded: Kernels, kernels: Sequence[str] | None) -> list[str]:
    return [name for name in loaded if not kernels or name in kernels]


# ---- code ----


def _code_changes(loaded: Sequence[Kernels], names: Sequence[str]) -> tuple[list[CodeChange], int]:
    """Returns the variants that differ, and the number of equal variants, for the kernels that both bundles have."""
    changes: list[CodeChange] = []
    same = 0
    for name in names:
        old, new = (_variants(side[name]) for side in loaded)
        for key in sorted({*old, *new}):
            if key not in new or key not in old:
                changes.append(CodeChange(name, *key, "removed" if key in old else "added"))
            elif _identity(old[key]) == _identity(new[key]):
                same += 1
            else:
                changes.append(CodeChange(name, *key, "changed", tuple(_resource_changes(old[key], new[key]))))
    return changes, same


def _variants(kernel: BundledKernel) -> dict[_Key, BundleVariant]:
    """Returns the variants of a kernel by a key that identifies them in both bundles.

    If only their compilers distinguish two variants, the key has the compiler's name too.
    """
    variants = kernel.contents.variants
    counts = Counter(map(_key_of, variants))
    names = compiler_names((variant.artifact.compiler for variant in variants), kernel.bundle.manifest.toolchain)
    by_key: dict[_Key, BundleVariant] = {}
    for variant in variants:
        key = _key_of(variant)
        if counts[key] > 1:
            key = (*key[:3], f"{key[3]} by {names[variant.artifact.compiler]}")
        by_key[key] = variant
    return by_key


def _key_of(packed: BundleVariant) -> _Key:
    variant = packed.artifact.variant
    facts = facts_text(variant.specialization)
    return str(variant.target), types_text(variant.signature), facts, str(variant.config)


def _identity(variant: BundleVariant) -> tuple[str, LaunchInfo]:
    """Returns a value that is equal for variants with the same code and launch info."""
    return variant.artifact.blob.sha256, variant.artifact.launch


def _resource_changes(old: BundleVariant, new: BundleVariant) -> Iterator[str]:
    before, after = old.artifact.launch, new.artifact.launch
    pairs = (
        ("threads", before.threads, after.threads),
        ("registers", before.registers, after.registers),
        ("spills", before.spills, after.spills),
        ("shared bytes", before.shared_bytes, after.shared_bytes),
        ("scratch bytes", before.scratch_bytes, after.scratch_bytes),
        ("code bytes", old.artifact.blob.size, new.artifact.blob.size),
    )
    for name, old_value, other in pairs:
        if old_value != other:
            yield f"{name} {old_value} -> {other}"


# ---- cases ----


def _compare_cases(
    pair: Sequence[BundledKernel],
    on: Device | None,
    arrays: str | None,
    *,
    time_same: bool,
    margin: float,
    limit_s: float,
    progress: Callable[[str], None],
) -> Iterator[CaseComparison]:
    name = pair[0].name
    recipes = [{recipe.label: recipe for recipe in kernel.recipes()} for kernel in pair]
    device = on or pair[0].host_device()
    for label in sorted({*recipes[0], *recipes[1]}):
        if label not in recipes[0] or label not in recipes[1]:
            yield CaseComparison(name, label, "removed" if label in recipes[0] else "added")
            continue
        progress(f"{name} {label}".strip())
        old, new = (recipe[label] for recipe in recipes)
        if _inputs(old) != _inputs(new):
            reason = "the case has other arguments in the new bundle"
            yield CaseComparison(name, label, "failed", str(device.target), reason=reason)
            continue
        lacking = next((side for side in pair if not side.serves(device)), None)
        if lacking is not None:
            reason = f"{lacking.bundle.name} has no code for {device.target}"
            yield CaseComparison(name, label, "failed", str(device.target), reason=reason)
            continue
        try:
            yield _compare_case(
                pair, new, device, arrays, time_same=time_same, margin=margin, limit_s=limit_s, label=label
            )
        except CaseError as error:
            yield CaseComparison(name, label, "failed", str(device.target), reason=str(error))


def _inputs(recipe: CaseRecipe) -> object:
    return recipe.arguments, recipe.grid


def _compare_case(
    pair: Sequence[BundledKernel],
    recipe: CaseRecipe,
    device: Device,
    arrays: str | None,
    *,
    time_same: bool,
    margin: float,
    limit_s: float,
    label: str,
) -> CaseComparison:
    for kernel in pair:
        kernel.require_consent(device)
    # Both sides use the same arrays, so that neither has better addresses.
    case = prepare_recipe(recipe, materializer(arrays, device))

    def failed(word: str, error: SiloError) -> CaseComparison:
        reason = f"the {word} bundle: {type(error).__name__}: {error}"
        return CaseComparison(pair[0].name, label, "failed", str(device.target), reason=reason)

    sides: list[_Side] = []
    for kernel, word in zip(pair, ("old", "new"), strict=True):
        try:
            sides.append(_Side(kernel, case, device))
        except SiloError as error:
            return failed(word, error)
    old, new = sides
    same = old.identity == new.identity
    ratio, reason = None, ""
    with closing(_bench_of(old, new, case, device)) as bench:
        for side, word in ((old, "old"), (new, "new")):
            try:
                side.values = kept(bench.results(*side.code))
            except SiloError as error:
                return failed(word, error)
        numbers = _numbers(old, new, case)
        if same and not time_same:
            reason = "the same code"
        elif isinstance(device.measuring, Rejected):
            reason = f"not timed: {device.measuring.reason}"
        else:

            def take(_rounds: int) -> tuple[Sequence[int], Sequence[int]]:
                before, after = bench.side_by_side([old.code, new.code])
                return after, before

            try:
                ratio = sample_until_decided(take, round(margin * _PPM), limit_s)
            except SiloError as error:
                return failed("old or the new", error)
    return CaseComparison(
        old.kernel.name, label, "compared", str(device.target), same, old.config, new.config, numbers, ratio, reason
    )


class _Side:
    """A case with the code of one bundle; ``values`` are its results, copied to host memory."""

    def __init__(self, kernel: BundledKernel, case: PreparedCase, device: Device) -> None:
        call_values = {**case.arguments, **case.options, **case.grid_argument(held=kernel.holds_grid)}
        call = inspect_call(kernel.launcher, kernel.contents.signature, **call_values)
        self.kernel = kernel
        self.variant = kernel.choose(call, device)
        artifact = self.variant.artifact
        config = artifact.variant.config
        self.code: tuple[Config, Artifact] = (config, artifact)
        self.identity = artifact.blob.sha256, artifact.launch, config
        self.config = ", ".join(f"{key}={value}" for key, value in sorted(config.as_dict().items()))
        self.values: Mapping[str, NDArray[Any]] = {}


def _bench_of(old: _Side, new: _Side, case: PreparedCase, device: Device) -> ConfinedBench | LocalBench:
    """Makes a bench that measures the code of both sides, in a separate process if the device allows that."""
    facts = device.facts()
    sides = {id(side.variant.artifact): side for side in (old, new)}

    def grid_of(config: Config, artifact: Artifact) -> tuple[int, ...]:
        declared = case.grid or sides[id(artifact)].kernel.contents.grid
        values = {**artifact.variant.specialization.constant_values, **config.as_dict()}
        return grid_at(declared, None, case.arguments, values, facts)

    def code_of(artifact: Artifact) -> VouchedCode:
        side = sides[id(artifact)]
        return side.kernel.code(side.variant)

    in_library = any(loader_of(side.variant.artifact.blob.kind) is not None for side in (old, new))
    if not isinstance(device.measuring, Rejected):
        confined = benches_on(old.kernel.name, (device,), case.arguments, grid_of, code_of, in_library=in_library)
        if confined:
            return confined[0]

    def launcher_of(config: Config, artifact: Artifact) -> Callable[[], object]:
        launcher = sides[id(artifact)].kernel.launcher_on(device, artifact.compiler)
        call_values = {**case.arguments, **case.options}
        grid = case.grid_of(config.as_dict(), facts)
        return (lambda: launcher(**call_values)) if grid is None else (lambda: launcher[grid](**call_values))

    return LocalBench(device, case.arguments, launcher_of)


def _numbers(old: _Side, new: _Side, case: PreparedCase) -> Numbers:
    """Compares the two results bit by bit, with each other and with the expected values."""
    differing = [name for name, array in old.values.items() if array.tobytes() != new.values[name].tobytes()]
    worst, between = "", None
    for name in differing:
        distance = _distance(old.values[name], new.values[name])
        if not worst or (distance is not None and (between is None or distance > between)):
            worst, between = name, distance
    checks = [case.check(side.values)[0] for side in (old, new)]
    errors = [None if check is None else float(check.max_abs_error) for check in checks]
    correct = [None if check is None else check.ok for check in checks]
    return Numbers(not differing, worst, between, errors[0], errors[1], correct[0], correct[1])


def _distance(old: NDArray[Any], new: NDArray[Any]) -> float | None:
    """Returns the largest difference between two arrays of numbers.

    The difference is infinite if an element is NaN or infinite in only one of the arrays.
    """
    import numpy as np  # noqa: PLC0415  # only if results differ

    try:
        first, other = old.astype(np.float64), new.astype(np.float64)
    except (TypeError, ValueError):
        return None
    with np.errstate(invalid="ignore"):
        distance = np.abs(first - other)
    alike = (first == other) | (np.isnan(first) & np.isnan(other))
    return float(np.max(np.where(alike, 0.0, np.where(np.isnan(distance), np.inf, distance)), initial=0.0))


# ---- tables ----


def _cases_table(cases: Sequence[CaseComparison]) -> Table:
    columns = ("kernel", "case", "numbers", "old", "new", "new / old", "verdict")
    rows = [
        [
            case.kernel,
            case.case,
            _numbers_text(case.numbers),
            "" if case.ratio is None else format_time(case.ratio.old_ns),
            "" if case.ratio is None else format_time(case.ratio.new_ns),
            "" if case.ratio is None else case.ratio.text,
            case.reason or case.status if case.ratio is None else case.ratio.speed.value,
        ]
        for case in cases
    ]
    return Table("cases", columns, rows, right=("old", "new"))


def _numbers_text(numbers: Numbers | None) -> str:
    if numbers is None:
        return ""
    if numbers.equal:
        return "equal" if numbers.new_ok is not False else f"equal, wrong by {_number(numbers.new_error)}"
    text = f"{numbers.array} by {_number(numbers.between)}"
    if numbers.new_ok is None:
        return text
    return f"{text}; errors {_number(numbers.old_error)}, {_number(numbers.new_error)}" + (
        "" if numbers.new_ok else ": wrong"
    )


def _number(value: float | None) -> str:
    return "bits" if value is None else f"{value:.3g}"


def _code_table(code: Sequence[CodeChange]) -> Table:
    columns = ("kernel", "target", "config", "facts", "code", "changes")
    rows = [
        [change.kernel, change.target, change.config, change.facts, change.status, ", ".join(change.changes) or "-"]
        for change in code
    ]
    return Table("variants with other code", columns, rows)
