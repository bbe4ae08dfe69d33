"""Files of tuning results: detecting the format, and reading it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from silo.errors import TuneError
from silo.tuner.formats import kernel_tuner, t4, triton
from silo.tuner.formats.foreign import ForeignResults
from silo.tuner.formats.parts import Results

__all__ = ["FORMATS", "read_results"]

# For each format: a member of the outermost object that no other format has, and the reader.
FORMATS: dict[str, tuple[str, Callable[[Results], ForeignResults]]] = {
    "kernel-tuner": ("tune_params_keys", kernel_tuner.read_cache),
    "t4": ("results", t4.read_t4),
    "triton": ("configs_timings", triton.read_autotune),
}

# Errors that readers raise for JSON that no writer makes.
_DECODE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def read_results(path: Path, form: str | None = None) -> ForeignResults:
    """Reads results of another tuner, or T4 that Silo wrote; detects the format unless ``form`` names it.

    Raises:
        TuneError: the file or format is unknown, or the file is damaged; names the place.
    """
    results = Results.of_file(path)
    what = "file of results" if form is None else f"{form} file"
    try:
        if form is None:
            form = next((name for name, (member, _) in FORMATS.items() if member in results.members), None)
        if form in FORMATS:
            what = f"{form} file"
            return FORMATS[form][1](results)
    except _DECODE_ERRORS as error:
        raise TuneError(f"{path}: not a {what}: {error} (by character {results.at})") from error
    raise TuneError(f"{path}: the results of no tuner that Silo reads ({', '.join(FORMATS)})")
