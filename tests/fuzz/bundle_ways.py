"""What a bundle is put through besides being opened and called: every command that takes one, in this process."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import silo.checking.kernel
import silo.drivers.cpu.cpu_device
from silo.cli.main import app
from silo.errors import SiloError
from silo.sanitized_text import printable
from silo.settings import override

__all__ = ["WAYS", "FailedError", "Place", "Way"]

_MAPS = "CpuModule"  # what maps native code


@dataclass(frozen=True)
class Way:
    """A command line, in which K is the bundle and OUT a folder; one in how many bundles that open is put through it.

    ``store``: ``own`` built the code and vouches for it; ``trusting`` has the user's word for what went through it; a
    ``stranger``'s knows nothing.
    """

    name: str
    words: tuple[str, ...]
    one_in: int
    store: str = "stranger"


# Each of the first takes some 30 ms, of the last three up to a second where something new must be compiled.
WAYS = (
    Way("inspect", ("inspect", "K"), 200),
    Way("inspect --json", ("inspect", "K", "--json"), 400),
    Way("inspect --verify", ("inspect", "K", "--verify"), 400),
    *(Way(f"inspect --code {form}", ("inspect", "K", "--code", form), 800) for form in ("ttir", "c", "llvm", "sass")),
    Way("inspect --code asm", ("inspect", "K", "--code", "asm"), 2000),
    Way("report", ("report", "K", "-o", "OUT"), 400),
    *(
        Way(f"cache export {form}", ("cache", "export", "K", "-o", "OUT", "--format", form), 800)
        for form in ("t4", "kernel-tuner", "triton")
    ),
    Way("export", ("export", "K", "--cpp", "OUT/cpp"), 800),
    Way("export --cpu-source", ("export", "K", "--cpp", "OUT/cpp", "--cpu-source"), 800),
    Way("cache import", ("cache", "import", "K"), 400),
    Way("trust", ("trust", "K"), 400, store="trusting"),
    Way("trust --list", ("trust", "--list"), 800, store="trusting"),
    Way("untrust", ("untrust", "K"), 800, store="trusting"),
    Way("build", ("build", "K", "-o", "OUT/made.silo"), 4000),
    Way("run", ("run", "K"), 200, store="own"),
    Way("run stranger", ("run", "K"), 1000),
    Way("run --check", ("run", "K", "--check"), 1000, store="own"),
    Way("tune", ("tune", "K", "--quiet", "--evaluations", "1", "--budget", "2"), 1000, store="own"),
)


class FailedError(SiloError):
    """A command says that what it was asked to check is not so."""


class Place:
    """Folders for what commands write: stores that did not build the code, and ``-o`` some folders further in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder / "aside"
        self._out = folder / "a" / "b" / "c" / "d" / "out"
        self._used = 0
        self._mapped = 0
        for module in (silo.drivers.cpu.cpu_device, silo.checking.kernel):
            setattr(module, _MAPS, self._counted(getattr(module, _MAPS)))

    def _counted(self, maps: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            self._mapped += 1
            return maps(*args, **kwargs)

        return count

    def put_through(self, way: Way, bundle: Path) -> None:
        """Run the command; what it raises is raised. ``AssertionError``: it printed, wrote or ran what it must not."""
        self._used += 1
        mapped = self._mapped
        if self._used % 200 == 0:
            shutil.rmtree(self._aside, ignore_errors=True)
        shutil.rmtree(self._folder / "a", ignore_errors=True)
        self._out.mkdir(parents=True)
        words = [word.replace("OUT", str(self._out)) for word in way.words]
        shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)  # strict, as a terminal's is
        changes = {} if way.store == "own" else {"home": self._aside / way.store}
        try:
            with override(**changes), contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                code = app([str(bundle) if word == "K" else word for word in words], standalone_mode=False)
        finally:
            logging.basicConfig(handlers=[logging.NullHandler()], force=True)  # the command's own log to what is gone
        text = shown.buffer.getvalue().decode()
        assert printable(text) == text, f"{way.name} prints {text[:300]!r}"
        kept = (self._out, self._aside)
        elsewhere = [path for path in self._folder.rglob("*") if path.is_file() and not kept_in(path, kept)]
        assert not elsewhere, f"{way.name} wrote {elsewhere[:3]}"
        assert way.store != "stranger" or mapped == self._mapped, f"{way.name} maps code that nobody vouches for"
        if code:
            raise FailedError(f"it ends with {code}")


def kept_in(path: Path, folders: tuple[Path, ...]) -> bool:
    """Whether the file lies in one of these."""
    return any(folder in path.parents for folder in folders)
