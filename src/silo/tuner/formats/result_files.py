"""Detects the format of a file of tuning results, and reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from silo.errors import TuneError
from silo.tuner.formats import kernel_tuner, t4, triton_configs
from silo.tuner.formats.foreign import ForeignResults
from silo.tuner.formats.parts import LimitError, Results

__all__ = ["FORMATS", "read_results"]

# For each format: a function that recognizes it by the member names of the outermost object, and its reader. vLLM and
# SGLang have one format.
FORMATS: dict[str, tuple[Callable[[frozenset[str]], bool], Callable[[Results], ForeignResults]]] = {
    "kernel-tuner": (lambda members: "tune_params_keys" in members, kernel_tuner.read_cache),
    "t4": (lambda members: "results" in members, t4.read_t4),
    "triton": (lambda members: "configs_timings" in members, triton_configs.read_autotune),
    "vllm": (triton_configs.is_token_table, triton_configs.read_token_table),
    "sglang": (triton_configs.is_token_table, triton_configs.read_token_table),
    "flashinfer": (triton_configs.is_flashinfer, triton_configs.read_flashinfer),
}

# The errors that readers raise for valid JSON of another form than any tuner writes.
_DECODE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def read_results(path: Path, form: str | None = None, *, fastest: int | None = None) -> ForeignResults:
    """Reads results of another tuner, or T4 results that Silo wrote; detects the format unless ``form`` names it.

    ``fastest``: of another tuner's results, only this many are kept, the fastest, so a large file needs little memory.

    Raises:
        TuneError: the file or the format is unknown, the file is damaged (the message names the character), or it is
            larger than a limit (the message names the limit).
    """
    results = Results.of_file(path, fastest=fastest)
    label = "file of results" if form is None else f"{form} file"
    try:
        if form is None:
            form = next((name for name, (is_own, _) in FORMATS.items() if is_own(results.members)), None)
        if form in FORMATS:
            label = f"{form} file"
            return FORMATS[form][1](results)
    except LimitError as error:
        raise TuneError(f"{path}: {error}") from error
    except _DECODE_ERRORS as error:
        raise TuneError(f"{path}: not a {label}: {error} (by character {results.at})") from error
    raise TuneError(f"{path}: the results of no tuner that Silo reads ({', '.join(FORMATS)})")
