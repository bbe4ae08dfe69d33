"""From the program to code: a list of instructions for the machine, or Python code."""

import json
from collections.abc import Mapping
from typing import Any, cast

from silo.compile.identity import code_digest
from silo.core.code_facts import CodeFacts, Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Source
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.values import JSON, value_to_json
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, SourceError
from silo_rpn.declaration import RPN
from silo_rpn.source import RpnSource

__all__ = ["RpnCompiler"]

_OPERATORS = ("+", "-", "*")


class RpnFacts(CodeFacts):
    """What the program says of its arrays."""

    def __init__(self, signature: Signature, code: list[list[Any]]) -> None:
        self._arrays = [one.name for one in signature.parameters if one.kind is ParameterKind.POINTER]
        self._code = [tuple(instruction) for instruction in code]

    @property
    def effects(self) -> Mapping[str, Effect]:
        """Arrays that are stored to are written, others are read."""
        loaded, stored = ({name for verb, name in self._code if verb == kind} for kind in ("load", "store"))
        both = {(True, True): Effect.BOTH, (False, True): Effect.WRITE, (True, False): Effect.READ}
        return {name: both.get((name in loaded, name in stored), Effect.NONE) for name in self._arrays}


class RpnCompiler:
    """Implements ``silo.core.protocols.Compiler``."""

    declaration = RPN

    def identity(self, target: Target) -> str:
        """What decides the bytes besides the variant: this package."""
        return f"rpn code {code_digest(*RPN.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """The one arch there is."""
        if target.arch != "v1":
            return Rejected(f"there is no {target}; write rpn:v1")
        return Accepted("a machine of version 1")

    def artifact_target(self, target: Target) -> Target:
        """The same."""
        return target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """The program as instructions. Raises SourceError for a word that means nothing, CompileError for an option."""
        assert isinstance(source, RpnSource)  # the declaration names this kind alone
        options = RPN.read(RPN.own(variant.config.options))
        code = [instruction(source, word) for word in source.program.split()]
        names = list(variant.signature.names)
        parameters: JSON = {"names": names, **{name: value_to_json(value) for name, value in options.items()}}
        job = CompileJob(RPN.name, variant.kernel, variant.target, json.dumps(code), parameters)
        return Lowered(job, RpnFacts(variant.signature, code))

    def compile(self, job: CompileJob) -> Compiled:
        """Check that the stack is never empty when something is taken, and write the blob."""
        code, parameters = json.loads(job.text), cast("dict[str, Any]", job.parameters)
        if check(code) is None:
            raise CompileError(f"{job.kernel}: its program takes more from the stack than is there")
        launch = LaunchInfo(job.kernel, (), options=(("rpn_lanes", parameters["rpn_lanes"]),))
        text = json.dumps({"names": parameters["names"], "code": code})
        if parameters["rpn_python"]:
            return Compiled(launch, CompiledBlob("rpnpy", python_code(parameters["names"], code).encode()))
        return Compiled(launch, CompiledBlob("rpncode", text.encode()))


def instruction(source: RpnSource, word: str) -> list[Any]:
    """One word of a program: ``["push", 2.0]``, ``["load", "x"]``, ``["scalar", "a"]``, ``["add", ""]``, ..."""
    if word in _OPERATORS:
        return [word, ""]
    name, store = word.removesuffix("!"), word.endswith("!")
    if name in source.signature.names:
        if source.signature[name].kind is ParameterKind.POINTER:
            return ["store" if store else "load", name]
        if not store:
            return ["scalar", name]
    try:
        return ["push", float(word)]
    except ValueError:
        raise SourceError(f"{source.name} ({source.location}): the word {word!r} means nothing") from None


def check(code: list[list[Any]]) -> int | None:
    """How deep the stack is at the end; None where something is taken that is not there."""
    depth = 0
    for verb, _ in code:
        taken, made = (2, 1) if verb in _OPERATORS else (1, 0) if verb == "store" else (0, 1)
        if depth < taken:
            return None
        depth += made - taken
    return depth


def python_code(names: list[str], code: list[list[Any]]) -> str:
    """The same as a Python function of one chunk of the arrays, and the scalars."""
    lines, depth = [f"def run({', '.join(names)}):"], 0
    for verb, operand in code:
        if verb == "store":
            depth -= 1
            lines.append(f"    {operand}[:] = s{depth}")
        elif verb in _OPERATORS:
            depth -= 1
            lines.append(f"    s{depth - 1} = s{depth - 1} {verb} s{depth}")
        else:
            lines.append(f"    s{depth} = {operand}")
            depth += 1
    return "\n".join([*lines, "    return None", ""])
