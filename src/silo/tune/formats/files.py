"""Files of results: which format one has, and reading it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from silo.errors import TuneError
from silo.tune.formats import kernel_tuner, t4, triton
from silo.tune.formats.foreign import ForeignResults

__all__ = ["FORMATS", "read_results", "read_text"]

# Name, what a member of the outermost object is called that no other format has, how it is read.
FORMATS: dict[str, tuple[str, Callable[[str], ForeignResults]]] = {
    "kernel-tuner": ("tune_params_keys", kernel_tuner.read_cache),
    "t4": ("results", t4.read_t4),
    "triton": ("configs_timings", triton.read_autotune),
}


def read_text(path: Path, what: str) -> str:
    """The text of a file that may be gzipped. ``TuneError`` calls it ``what`` where it cannot be read."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except FileNotFoundError as error:
        raise TuneError(f"{path}: no such file") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TuneError(f"{path}: not {what}: {type(error).__name__}: {error}") from error


def read_results(path: Path, form: str | None = None) -> ForeignResults:
    """Read results of another tuner, or T4 that Silo wrote; the format is found where ``form`` does not name it.

    Raises:
        TuneError: no such file or format, or it is damaged; says where.
    """
    text = read_text(path, "a file of results")
    if form is None:
        form = next((name for name, (member, _) in FORMATS.items() if f'"{member}"' in text), None)
    if form not in FORMATS:
        raise TuneError(f"{path}: the results of no tuner that Silo reads ({', '.join(FORMATS)})")
    try:
        if form == "triton":
            return triton.read_autotune(text, path.name.removesuffix(".gz").removesuffix(triton.SUFFIX))
        return FORMATS[form][1](text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TuneError(f"{path}: not a {form} file: {error}") from error
