"""Imports other tuners' results, and exports Silo's results in their formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.bundle.documents import measured_trials
from silo.bundle.reader import open_bundle
from silo.core.protocols import RecordStore
from silo.core.signature import ParameterKind
from silo.core.variant import seeds_key
from silo.errors import StoreError, TuneError
from silo.machine.process_session import session
from silo.machine.user_files import write_texts
from silo.sanitized_text import file_name
from silo.tuner.formats.kernel_tuner import write_cache
from silo.tuner.formats.result_files import read_results
from silo.tuner.formats.t4 import write_t4
from silo.tuner.formats.triton_configs import SUFFIX, write_autotune, write_token_tables
from silo.tuner.ledger import KeptStudy, note_studies, origin_now, read_trials
from silo.tuner.seeds import MOST_SEEDS, seeds_from_records, seeds_to_record
from silo.tuner.trial import Status, Study, Trial, trials_to_record
from silo.tuning.stored_studies import kept_studies

__all__ = ["EXPORTS", "ExportRow", "ImportRow", "export_results", "import_results"]


@dataclass(frozen=True, slots=True)
class ImportRow:
    """The contents of one imported file for one kernel.

    ``trials`` counts new trials, ``known`` trials that the store already had, and ``seeds`` configs to try first.
    ``notes`` describe contents that Silo drops.
    """

    path: str
    tool: str
    kernel: str
    trials: int = 0
    known: int = 0
    seeds: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportRow:
    """One file that was written. ``notes`` describe contents of the store that its format cannot hold."""

    path: str
    study: str
    trials: int
    notes: tuple[str, ...] = ()


def import_results(path: Path, *, kernel: str | None = None, form: str | None = None) -> list[ImportRow]:
    """Imports a file of results and returns one row per kernel.

    Trials that carry the identity of the measured code (Silo's bundles and T4 files) are added to the store as if they
    had been measured here. Results of other tuners become seeds, configs to try first, of the kernel called ``kernel``
    or named by the file.

    Raises:
        TuneError: the file cannot be read, does not name a kernel, or holds no config that worked.
        BundleError: the bundle cannot be read.
        StoreError: the store cannot be written.
    """
    records = session().store.records
    try:
        if path.suffix == ".silo":
            with open_bundle(path) as bundle:
                return [
                    _keep(path, "bundle", name, measured_trials(bundle, name), records)
                    for name in bundle.kernel_names
                    if kernel in (None, name)
                ]
        results = read_results(path, form, fastest=MOST_SEEDS)
        if results.own:
            names = dict.fromkeys(study.kernel for study, _ in results.own)
            return [
                _keep(path, results.tool, name, [pair for pair in results.own if pair[0].kernel == name], records)
                for name in names
                if kernel in (None, name)
            ]
        name = kernel or results.kernel
        if not name:
            raise TuneError(f"{path}: the file does not say which kernel it is about; name it (--kernel)")
        usable = sum(trial.status is Status.OK for trial in results.trials)
        if not usable:
            raise TuneError(f"{path}: no config in it worked, so there is nothing to try first")
        record = seeds_to_record(results)
        if record not in list(records.read(seeds_key(name))):
            records.append(seeds_key(name), record)
        return [ImportRow(str(path), results.tool, name, seeds=len(seeds_from_records([record])), notes=results.notes)]
    except OSError as error:
        raise StoreError(f"the store cannot take in {path}: {error}") from error


def _keep(path: Path, tool: str, kernel: str, pairs: Iterable[tuple[Study, Trial]], records: RecordStore) -> ImportRow:
    studies: dict[str, tuple[Study, list[Trial]]] = {}
    for study, trial in pairs:
        studies.setdefault(study.key, (study, []))[1].append(trial)
    fresh = present = 0
    # The catalog of studies is written before the trials, because readers find trials only through the catalog.
    for name in {study.kernel for study, _ in studies.values()}:
        note_studies(name, (study for study, _ in studies.values() if study.kernel == name), records)
    for study, trials in studies.values():
        before = {trial.identity for trial in read_trials(study, records)}
        new = list({trial.identity: trial for trial in trials if trial.identity not in before}.values())
        present += len(trials) - len(new)
        fresh += len(new)
        if new:
            records.append(study.key, trials_to_record(new, origin_now()))
    return ImportRow(str(path), tool, kernel, trials=fresh, known=present)


def export_results(
    path: Path, folder: Path, form: str, *, device: str | None = None, kernels: Sequence[str] | None = None
) -> list[ExportRow]:
    """Writes the trials of a Python file's kernels or of a bundle, one file per study.

    With ``device``, only the trials of this device are written. T4 files carry the identity of the measured code, so
    another store can import them as measurements. The other formats hold only the fields of their tools.

    Raises:
        TuneError: an unknown format, no trials, or configs that the format cannot hold.
        StoreError: the folder cannot be written.
    """
    if form not in (*EXPORTS, *_TABLES):
        raise TuneError(f"no format {form!r}; there are {', '.join((*EXPORTS, *_TABLES))}")
    studies = kept_studies(path, device, kernels)
    if not studies:
        where = f" on {device}" if device else ""
        raise TuneError(f"{path}: nothing was measured{where} yet; run silo tune {path}")
    if form in _TABLES:
        tables = write_token_tables(studies, sglang=form == "sglang")
        if not tables:
            raise TuneError(f"{path}: no study has a winner, so there is nothing to write")
        write_texts(folder, {table.place: f"{table.text}\n" for table in tables})
        return [
            ExportRow(
                str(folder / table.place), str(study.study), len(study.trials), table.notes if number == 0 else ()
            )
            for table in tables
            for number, study in enumerate(table.studies)
        ]
    write, name_of = EXPORTS[form]
    files = [(study, name_of(study)) for study in studies]
    write_texts(folder, {file: f"{write(kept_study)}\n" for kept_study, file in files})
    return [ExportRow(str(folder / file), str(kept_study.study), len(kept_study.trials)) for kept_study, file in files]


def _t4(entry: KeptStudy) -> str:
    return write_t4((entry.study, trial) for trial in entry.trials)


def _kernel_tuner(entry: KeptStudy) -> str:
    sizes = [value for value in entry.study.bucket if isinstance(value, int) and not isinstance(value, bool)]
    return write_cache(entry.study.kernel, entry.study.device.name, sizes, entry.trials)


def _triton(entry: KeptStudy) -> str:
    """Returns the text of a Triton autotune file, with Triton's key for torch tensors of the bucket's largest sizes."""
    arrays = [
        parameter.dtype for parameter in entry.study.signature.parameters if parameter.kind is ParameterKind.POINTER
    ]
    return write_autotune([*entry.study.bucket, *(f"torch.{dtype}" for dtype in arrays)], entry.trials)


def _kernel_name(entry: KeptStudy) -> str:
    # Names that differ only in case cannot collide, because each path contains a part of the study's key.
    return file_name(entry.study.kernel, both_cases=True)


def _plain_name(entry: KeptStudy) -> str:
    return f"{_kernel_name(entry)}-{entry.study.key[:12]}.json"


def _triton_name(entry: KeptStudy) -> str:
    """Returns the file's path: one folder per study, in which the file has the name that Triton looks for."""
    return f"{entry.study.key[:12]}/{_kernel_name(entry)}{SUFFIX}"


_TABLES = ("vllm", "sglang")  # formats that put several studies into one file

# For each format: the function that writes a study, and the function that names its file.
EXPORTS: dict[str, tuple[Callable[[KeptStudy], str], Callable[[KeptStudy], str]]] = {
    "t4": (_t4, _plain_name),
    "kernel-tuner": (_kernel_tuner, _plain_name),
    "triton": (_triton, _triton_name),
}
