"""Runs one kernel in this process: ``main(["silo" | "reference" | "doubles" | "interpret" | "reversed", REQUEST])``.

``REQUEST`` is a file of JSON. The answer is appended to the file that it names, a line of JSON after each step, so that
it survives a crash.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import re
import resource
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.kinds import KINDS

from .guess import Guess, first_guess, next_guess, other_switches
from .memory import ADDRESSES, Arena, wide_kind, wide_type
from .reading import read

ATTEMPTS = 200
_LACKS = re.compile(r"module '[\w.]+' has no attribute|have been removed")
_LOWERED_S = 40.0  # of processor time, for all attempts


def main(words: list[str]) -> None:
    """Run one request in one way."""
    way, place = words
    request = json.loads(Path(place).read_text())
    size = int(request["memory"]) + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    folder = Path(request["folder"])
    sys.path.insert(0, str(folder))

    def note(**found: object) -> None:
        with Path(request["answer"]).open("a") as file:
            file.write(json.dumps(found) + "\n")

    try:
        function = getattr(importlib.import_module("kernel_0"), request["name"])
    except Exception as error:  # noqa: BLE001 - the module is somebody else's text
        note(status="unbuilt", reason=f"its module cannot be imported: {type(error).__name__}: {error}")
        return
    if way in {"interpret", "reversed"}:
        _interpret(function, request, note, reverse=way == "reversed")
    else:
        _compiled(function, request, note, way)


def _compiled(function: Any, request: dict[str, Any], note: Any, way: str) -> None:
    import triton

    from silo.core.consent import HostCode
    from silo.errors import LaunchError, SiloError
    from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
    from silo.launch.cpu_objects import KernelObject, open_object
    from silo.store.trust_ledger import consent_to_compiled

    compiler = CpuCompiler(reference=way != "silo")
    if "guess" in request:
        guess = Guess(**request["guess"])
        try:
            lowered = _lower(compiler, function, guess, wide=way == "doubles")
        except Exception as error:  # noqa: BLE001
            note(status="refused", reason=_text(error))
            return
    else:
        found = _search(compiler, function, request, note)
        if found is None:
            return
        guess, lowered = found
        note(guess=asdict(guess), triton=triton.__version__)
    before = _processor_s()
    try:
        made = compiler.compile(lowered.job)
    except SiloError as error:
        note(status="refused", reason=_text(error), compile_s=_processor_s() - before)
        return
    note(compile_s=round(_processor_s() - before, 3), text=len(lowered.job.text))
    code = HostCode(hashlib.sha256(made.blob.data).hexdigest(), "so", made.launch)
    kernel = KernelObject(
        made.launch, open_object(made.launch, made.blob.data, consent_to_compiled(code, "this process compiled it"))
    )
    arena = Arena(guess, wide=way == "doubles")
    arguments = {**arena.arrays, **guess.scalars}
    values = [arguments[slot.name] for slot in made.launch.layout]
    try:
        kernel.run(guess.grid, values)
    except LaunchError as error:
        note(status="raised", reason=_text(error))
        return
    arena.save(request["block"])
    note(status="ran")


def _processor_s() -> float:
    return sum(os.times()[:4])


def _search(compiler: Any, function: Any, request: dict[str, Any], note: Any) -> tuple[Guess, Any] | None:
    """The first guess that the front end takes, lowered."""
    reading = read(Path(request["folder"]), request["name"])
    for name, kind in ((reading.descriptors, "tensor descriptor"), (reading.tuples, "tuple")):
        if given := sorted(name & set(reading.parameters) - reading.pointers):
            note(status="unguessed", reason=f"{given[0]} is a {kind}")
            return None
    note(atomics=reading.atomics)
    rng = random.Random(request["name"])
    began = _processor_s()
    tried = first_guess(reading)
    if request["variant"]:
        tried = other_switches(reading, tried)
    guess, reason, best = tried, "", 0
    for attempt in range(ATTEMPTS):
        note(attempt=attempt)
        try:
            if attempt not in request["crashed"]:  # of the front end, in an earlier process
                return tried, _lower(compiler, function, tried, wide=False)
        except _RefusedError as error:
            # A change is kept if the front end comes at least as far.
            line = _line_of(str(error))
            if line >= best:
                guess, reason, best = tried, str(error), line
        except Exception as error:  # noqa: BLE001 - whatever goes wrong past the front end is a finding
            note(status="refused", reason=_text(error), guess=asdict(tried))
            return None
        # No argument gives Triton a function that it lacks or has removed.
        if _processor_s() - began > _LOWERED_S or _LACKS.search(reason):
            break
        if attempt and attempt % 50 == 0:
            tried, best = first_guess(reading, attempt // 50), 0
        else:
            tried = next_guess(reading, guess, reason, rng)
    note(status="front end", reason=re.sub(r"\(\S*/kernel_", "(kernel_", _first_line(reason)))
    return None


def _line_of(message: str) -> int:
    """The line of the kernel that a refusal names."""
    found = re.search(r"^at (\d+):\d+:", message, re.MULTILINE)
    return int(found[1]) if found else 0


class _RefusedError(Exception):
    """Triton's front end does not take the arguments."""


def _lower(compiler: Any, function: Any, guess: Guess, *, wide: bool) -> Any:
    import triton.language as tl

    from silo.core.argument_facts import ArgumentFacts
    from silo.core.config import Config
    from silo.core.variant import Variant
    from silo.drivers.cpu.levels import host_target
    from silo.errors import CompileError
    from silo.kinds.triton.front.triton_source import TritonSource
    from silo.kinds.triton.front.triton_specialize import to_value

    source = TritonSource.of(function)
    facts: dict[str, ArgumentFacts] = {}
    for name in source.signature.names:
        if name in guess.arrays:
            kind = wide_kind(guess.arrays[name]) if wide else guess.arrays[name]
            facts[name] = ArgumentFacts.array(KINDS[kind].library, 4096)
        elif name in guess.scalars:
            facts[name] = ArgumentFacts(guess.scalars[name])
        else:
            facts[name] = ArgumentFacts(to_value(_constant(guess.constants[name], tl, wide=wide), None))
    try:
        signature, found = source.specialize(facts)
        variant = Variant(source.name, source.fingerprint, signature, found, Config(), host_target())
        return compiler.lower(source, variant)
    except CompileError as error:
        if "cannot be lowered" in str(error):  # so begins the text of a refusal of Triton's
            raise _RefusedError(str(error)) from error
        raise


def _constant(value: object, tl: Any, *, wide: bool) -> Any:
    if isinstance(value, dict):
        name = value["type"]
        return getattr(tl, wide_type(name) if wide else name)
    return value


def _interpret(function: Any, request: dict[str, Any], note: Any, *, reverse: bool) -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    from tests.fuzz.functions import Functions
    from tests.fuzz.repairs import repair

    repair(Functions(request["functions"]))
    guess = Guess(**request["guess"])
    arena = Arena(guess)
    arguments: dict[str, Any] = {**guess.scalars}
    for name, array in arena.arrays.items():
        type_ = tl.pointer_type(getattr(tl, KINDS[guess.arrays[name]].tl))
        handle = interpreter.TensorHandle(np.array([array.ctypes.data], np.uint64), type_)
        arguments[name] = tl.core.tensor(handle, type_)
    arguments |= {name: _constant(value, tl, wide=False) for name, value in guess.constants.items()}
    _in_order(interpreter, (*guess.grid, 1, 1)[:3], reverse=reverse)
    overlaps = _overlapping_stores(interpreter)
    undefined = _undefined_integers(interpreter)
    try:
        function[tuple(guess.grid)](**arguments)
    except Exception as error:  # noqa: BLE001 - the interpreter runs the kernel as Python: anything may be raised
        note(status="raised", reason=_first_line(_text(error)))
        return
    arena.save(request["block"])
    note(status="ran", overlaps=bool(overlaps), undefined=undefined[0] if undefined else "")


def _overlapping_stores(interpreter: Any) -> list[int]:
    """A list that gets an address, as soon as one store writes several values to one place."""
    builder = interpreter.InterpreterBuilder
    inner = builder.create_masked_store
    found: list[int] = []

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if not found:
            chosen = np.broadcast_to(mask.data, ptrs.data.shape).astype(bool)
            places, values = ptrs.data[chosen], np.broadcast_to(value.data, ptrs.data.shape)[chosen]
            order = np.argsort(places, kind="stable")
            places, values = places[order], values[order]
            again = (places[1:] == places[:-1]) & (values[1:] != values[:-1])
            found.extend(int(one) for one in places[1:][again][:1])
        return inner(self, ptrs, value, mask, *rest)

    builder.create_masked_store = create_masked_store
    return found


def _undefined_integers(interpreter: Any) -> list[str]:
    """A list that gets a text, as soon as an address, or a float beyond the integer type, becomes an integer."""
    builder = interpreter.InterpreterBuilder
    found: list[str] = []

    def watched(inner: Any, text: Any) -> Any:
        def convert(self: Any, src: Any, dst_type: Any) -> Any:
            result = inner(self, src, dst_type)
            if not found:
                found.extend(text(np.asarray(src.data), np.asarray(result.data).dtype))
            return result

        return convert

    def unheld(values: np.ndarray, type_: np.dtype[Any]) -> list[str]:
        if values.dtype.kind != "f" or type_.kind not in "iu":
            return []
        least, most = float(np.iinfo(type_).min), float(np.iinfo(type_).max) + 1.0
        beyond = ~((values > least - 1.0) & (values < most))
        return [f"{float(one)!r} becomes {type_}" for one in values[beyond].ravel()[:1]]

    def address(values: np.ndarray, type_: np.dtype[Any]) -> list[str]:
        del values
        return [f"an address becomes {type_}"]

    for name, text in (("create_fp_to_si", unheld), ("create_fp_to_ui", unheld), ("create_ptr_to_int", address)):
        setattr(builder, name, watched(getattr(builder, name), text))
    return found


def _in_order(interpreter: Any, grid: tuple[int, ...], *, reverse: bool) -> None:
    """Run the programs in Silo's order, along x first; or the last program first."""
    builder = interpreter.InterpreterBuilder
    inner = builder.set_grid_idx
    x, y, z = grid
    order = list(range(x * y * z))
    programs = iter(order[::-1] if reverse else order)

    def set_grid_idx(self: Any, *place: int) -> None:
        del place
        number = next(programs)
        inner(self, number % x, number // x % y, number // (x * y))

    builder.set_grid_idx = set_grid_idx


def _text(error: BaseException) -> str:
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    own = f"{type(error).__name__}: {error}"
    return own if innermost is error else f"{own} ({type(innermost).__name__}: {innermost})"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:300]
