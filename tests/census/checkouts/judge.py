"""Runs one kernel of a checkout in processes of its own and returns the outcome."""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .compare import differences, explained_by_doubles, near_without_doubles, order_matters
from .guess import Guess, calmer, one_program, spread
from .modules import CannotBuildError, Checkout, Found
from .server import Server

__all__ = ["FAILED", "STATUSES", "Limits", "Outcome", "close_servers", "judge"]

STATUSES = {
    "same": "Silo and the interpreter agree",
    "rounding": "they differ, and Silo is as near to the kernel in float64 as the interpreter's rounding allows",
    "order": "they differ where the interpreter differs from its own run backwards, and one program alone is the same;"
    " or one store writes several values to one place, however large the strides",
    "undefined": "they differ; the kernel makes an integer of an address, or of a float that its type does not hold",
    "uninterpreted": "Silo ran the kernel, the interpreter could not; optimized and reference code agree",
    "arguments": "neither can run the guessed arguments: both crash, raise or do not end; or an assertion fails",
    "unbuilt": "the kernel cannot stand alone",
    "unguessed": "a parameter of a kind that is not guessed",
    "front end": "Triton's front end takes none of the guesses",
    "slow": "compiling took more processor time than allowed",
    "refused": "Triton's front end takes the kernel, Silo does not",
    "differs": "they differ, and nothing explains it",
    "crashed": "Silo's code ended the process, the interpreter did not",
    "raised": "Silo's code reported an error, the interpreter did not",
    "timeout": "Silo's code did not end in time, the interpreter did",
}
"""The outcomes of one kernel, the best first."""
_ASSERTED = "device-side assert"
FAILED = ("slow", "refused", "differs", "crashed", "raised", "timeout")
_MOST_CRASHES = 5
_SERVERS = threading.local()
_STARTED: list[Server] = []
_DOUBLE = {"float32": "float64", "float16": "float64", "bfloat16": "float64"}


@dataclass(frozen=True)
class Limits:
    """Seconds for one process, bytes of memory for one process, processor seconds for one compilation."""

    seconds: float = 120.0
    memory: int = 12 << 30
    compile_s: float = 10.0


@dataclass
class Outcome:
    """The outcome of one kernel with one choice of its switches."""

    checkout: str
    kernel: str
    variant: int
    status: str = ""
    reason: str = ""
    compile_s: float = 0.0
    guess: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """All members."""
        return asdict(self)


def judge(checkout: Checkout, kernel: Found, variant: int, functions: Path, limits: Limits) -> Outcome:
    """Run ``kernel``; ``variant`` 1 has its switches the other way."""
    outcome = Outcome(checkout.name, kernel.label, variant)
    with tempfile.TemporaryDirectory(prefix="silo-checkout-") as folder:
        try:
            _Judge(checkout, kernel, Path(folder), functions, limits, outcome).run()
        except CannotBuildError as error:
            outcome.status, outcome.reason = "unbuilt", str(error)
    return outcome


class _Judge:
    def __init__(
        self, checkout: Checkout, kernel: Found, folder: Path, functions: Path, limits: Limits, outcome: Outcome
    ) -> None:
        self._checkout, self._kernel, self._folder = checkout, kernel, folder
        self._functions, self._limits, self._outcome = functions, limits, outcome
        self._guess: dict[str, Any] | None = None
        self._is_spread = False
        self._crashed: list[int] = []  # attempts of the search

    def run(self) -> None:
        narrow = self._modules("narrow")
        found = self._first(narrow)
        outcome = self._outcome
        outcome.compile_s = float(found.get("compile_s", 0.0))
        outcome.guess = self._guess = found.get("guess")
        status = found["status"]
        if status in {"unbuilt", "unguessed", "front end", "refused"} or self._guess is None:
            self._end(status if self._guess or status != "timeout" else "front end", found.get("reason", ""))
            return
        self._answered(narrow, found)
        if outcome.compile_s > self._limits.compile_s and outcome.status not in FAILED:
            self._end("slow", f"{outcome.compile_s:.1f} s of processor time to compile")

    def _first(self, narrow: Path) -> dict[str, Any]:
        """Search for a guess and run it; Triton's front end may crash on some guesses, which are passed over."""
        while True:
            found = self._way("silo", narrow)
            if found["status"] != "crashed" or "guess" in found or "attempt" not in found:
                return found
            self._crashed.append(found["attempt"])
            if len(self._crashed) > _MOST_CRASHES:
                return {**found, "status": "front end", "reason": f"the front end crashes: {found['reason']}"}

    def _answered(self, narrow: Path, found: dict[str, Any]) -> None:
        """Compare a run of Silo's code that was compiled with the interpreter's run."""
        assert self._guess is not None
        status = found["status"]
        theirs = self._way("interpret", narrow)
        if status != "ran":
            both = theirs["status"] != "ran"
            if status == "timeout" and "compile_s" not in found:
                self._end("slow", f"no code after {self._limits.seconds:.0f} s")
            elif both and not self._guess["calm"] and status in {"crashed", "timeout"}:
                self._guess = asdict(calmer(Guess(**self._guess)))
                self._answered(narrow, {**found, **self._way("silo", narrow)})
            elif both or _ASSERTED in found["reason"]:  # the interpreter passes asserts in silence
                self._end("arguments", f"Silo: {found['reason']}; the interpreter: {theirs['reason']}")
            else:
                self._end(status, found["reason"])
        elif theirs["status"] != "ran":
            self._without_interpreter(narrow, theirs["reason"])
        else:
            self._compare(narrow, overlaps=bool(theirs.get("overlaps")))
            undefined = theirs.get("undefined")
            if undefined and self._outcome.status == "differs":
                self._end("undefined", f"{undefined}; {self._outcome.reason}")

    def _end(self, status: str, reason: str) -> None:
        self._outcome.status, self._outcome.reason = status, reason

    def _modules(self, name: str, replaced: dict[str, str] | None = None) -> Path:
        folder = self._folder / name
        folder.mkdir()
        self._checkout.write(self._kernel, folder, replaced=replaced)
        return folder

    def _block(self, way: str) -> Path:
        return self._folder / f"{way}.block"

    def _without_interpreter(self, narrow: Path, reason: str) -> None:
        reference = self._way("reference", narrow)
        if reference["status"] != "ran":
            self._end("differs", f"the reference code did not run: {reference['reason']}; the interpreter: {reason}")
            return
        found = differences(Guess(**self._guess or {}), self._block("silo"), self._block("reference"))
        if found and not self._near(found, self._block("reference")):
            self._end("differs", f"optimized and reference: {'; '.join(map(str, found))}; the interpreter: {reason}")
        else:
            self._end("uninterpreted", reason)

    def _compare(self, narrow: Path, *, overlaps: bool = False) -> None:
        guess = Guess(**self._guess or {})
        found = differences(guess, self._block("silo"), self._block("interpret"))
        if not found:
            self._end("same", "")
            return
        all_found = "; ".join(map(str, found))
        if overlaps:
            self._spread(narrow, all_found)
            return
        if self._way("reversed", narrow)["status"] == "ran":
            found = order_matters(guess, found, self._block("interpret"), self._block("reversed"))
            if not found:
                self._alone(narrow, all_found)
                return
        lines = self._near_doubles(found, self._block("interpret"))
        near = lines is None and near_without_doubles(guess, found, self._block("silo"), self._block("interpret"))
        if lines == [] or near:
            self._end("rounding", f"{all_found}{'; it does not run in float64' if near else ''}")
            return
        reference = self._way("reference", narrow)
        own = "the reference code did not run"
        if reference["status"] == "ran":
            both = differences(guess, self._block("silo"), self._block("reference"))
            own = "the reference code is apart from both" if both else "the reference code agrees with the optimized"
        self._end("differs", f"{'; '.join(lines or [all_found])}; {own}")

    def _spread(self, narrow: Path, all_found: str) -> None:
        """A store writes several values to one place, whose order nothing defines: compare with larger strides."""
        assert self._guess is not None
        apart = asdict(spread(Guess(**self._guess)))
        if self._is_spread or apart == self._guess:
            self._end("order", f"{all_found}; a store writes several values to one place")
            return
        before, self._guess, self._is_spread = self._guess, apart, True
        runs = {way: self._way(way, narrow) for way in ("silo", "interpret")}
        if any(one["status"] != "ran" for one in runs.values()):
            self._guess = before
            self._end("order", f"{all_found}; a store writes several values to one place")
            return
        self._outcome.guess = self._guess
        self._compare(narrow, overlaps=bool(runs["interpret"].get("overlaps")))

    def _alone(self, narrow: Path, all_found: str) -> None:
        """Programs write the same places: compare one program, which depends on no order."""
        assert self._guess is not None
        self._guess = asdict(one_program(Guess(**self._guess)))
        runs = [self._way(way, narrow) for way in ("silo", "interpret")]
        if any(one["status"] != "ran" for one in runs):
            self._end("differs", f"one program alone did not run: {'; '.join(one['reason'] for one in runs)}")
            return
        self._compare(narrow)
        if self._outcome.status == "same":
            self._end("order", all_found)

    def _near(self, found: list[Any], other: Path) -> bool:
        lines = self._near_doubles(found, other)
        if lines is None:
            return near_without_doubles(Guess(**self._guess or {}), found, self._block("silo"), other)
        return not lines

    def _near_doubles(self, found: list[Any], other: Path) -> list[str] | None:
        """Lines for differences beyond rounding; None if the kernel does not run in float64."""
        wide = self._folder / "wide"
        if not wide.exists():
            self._modules("wide", _DOUBLE)
        if self._way("doubles", wide)["status"] != "ran":
            return None
        return explained_by_doubles(
            Guess(**self._guess or {}), found, self._block("silo"), other, self._block("doubles")
        )

    def _way(self, way: str, modules: Path) -> dict[str, Any]:
        """Run one process; all that it found out, with a ``status`` and a ``reason``."""
        answer, request = self._folder / f"{way}.answer", self._folder / f"{way}.json"
        asked = {
            "name": self._kernel.name,
            "folder": str(modules),
            "answer": str(answer),
            "block": str(self._block(way)),
            "functions": str(self._functions),
            "variant": self._outcome.variant,
            "memory": self._limits.memory,
            "crashed": self._crashed,
        }
        request.write_text(json.dumps(asked if self._guess is None else {**asked, "guess": self._guess}))
        found: dict[str, Any] = {}
        answer.unlink(missing_ok=True)
        log = self._folder / f"{way}.log"
        status = _server(way).run(way, request, log, self._limits.seconds, self._variables())
        if status is None:
            found |= {"status": "timeout", "reason": f"did not end within {self._limits.seconds:.0f} s"}
        elif status:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            found |= {"status": "crashed", "reason": f"the process ended with {status}: {' '.join(tail)}"}
        notes: dict[str, Any] = {}
        for line in answer.read_text().splitlines() if answer.exists() else []:
            notes |= json.loads(line)
        return {"status": "crashed", "reason": "no answer", **notes, **found}

    def _variables(self) -> dict[str, str]:
        return {"SILO_HOME": str(self._folder / "home"), "TRITON_CACHE_DIR": str(self._folder / "triton")}


def _server(way: str) -> Server:
    """The server of this thread for runs of this kind."""
    kind = "interpreted" if way in {"interpret", "reversed"} else "compiled"
    if not hasattr(_SERVERS, kind):
        server = Server(kind)
        _STARTED.append(server)
        setattr(_SERVERS, kind, server)
    return getattr(_SERVERS, kind)


def close_servers() -> None:
    """End the servers of all threads, which must have ended."""
    while _STARTED:
        _STARTED.pop().close()
