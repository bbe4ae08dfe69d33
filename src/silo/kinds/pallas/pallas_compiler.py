"""The Pallas compiler for TPUs, GPUs, and CPUs (interpreted).

The process that needs the code traces and exports the kernel. A worker process checks the exported program, and returns
launch info.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from silo.compile.identity import code_digest
from silo.core.code_facts import CodeFacts, Lowered
from silo.core.decisions import Decision, Rejected
from silo.core.device import CPU_LEVELS, Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import CheckedKernel, Source
from silo.core.signature import Effect
from silo.core.values import JSON
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, ResourceError, SourceError, ToolchainError, UnsupportedError
from silo.forks import Notices
from silo.frozen import replace
from silo.kinds.pallas.call_plan import ArrayPlace, CallLayout, call_plan
from silo.kinds.pallas.chips import CHIPS, Chip, blocks_for_tpus, chip_named
from silo.kinds.pallas.front.launch_spec import ArgumentRole, Scheme
from silo.kinds.pallas.front.pallas_installation import jax_module, jax_version, usable, versions
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.gpu_program import make_gpu_program, make_mosaic_program
from silo.kinds.pallas.memory_estimate import body_memory, estimate, require_memory
from silo.kinds.pallas.pallas_blocks import BlockedLaunch, blocked_launch
from silo.kinds.pallas.pallas_declaration import PALLAS
from silo.kinds.pallas.pallas_job import PallasJob, export_program
from silo.kinds.pallas.pallas_program import PallasProgram, make_program
from silo.settings import hold_in_environment
from silo.sources.installations import version_of

if TYPE_CHECKING:
    from silo.core.consent import Consent

__all__ = ["LIBTPU", "PallasCompiler", "accept", "libtpu_version", "refusal"]


# ---- Checking, in a worker, whether the compiler for TPUs accepts an exported program ----


LIBTPU = "libtpu"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = r"([0-9.]+)([KMG]?)B?"
_SCOPED = re.compile(rf"size {_SIZE} and limit {_SIZE} exceeded")
_ALLOCATION = re.compile(rf"Allocation \(size={_SIZE}\) would exceed memory \(size={_SIZE}\)[^\n]*space=(vmem|smem)")
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (vmem|smem)")
_MOST_SAID = 12  # the most lines of the compiler's output in an error, as the output contains whole programs


def libtpu_version() -> str | None:
    """Returns the version of the compiler for TPUs; None if it is not installed."""
    return version_of(LIBTPU)


def accept(program: bytes, chip: Chip, kernel: str, table: str) -> str | Rejected:
    """Compiles an exported program for a chip and drops the result; returns the compiler's name and version.

    ``table`` has the estimated memory of each argument, for the error. Returns Rejected if the compiler cannot be used.

    Raises:
        ResourceError: the program takes more memory than the chip has.
        CompileError: the compiler refuses the program.
    """
    version = libtpu_version()
    if version is None:
        return Rejected("libtpu is not installed")
    device = _device(chip.topology)
    if isinstance(device, Rejected):
        return device
    jax, export = jax_module(), jax_module("jax.export")
    exported = export.deserialize(bytearray(program))
    sharding = jax.sharding.SingleDeviceSharding(device)
    operands = [jax.ShapeDtypeStruct(in_aval.shape, in_aval.dtype, sharding=sharding) for in_aval in exported.in_avals]
    try:
        jax.jit(exported.call).trace(*operands).lower(lowering_platforms=("tpu",)).compile()
    except Exception as error:  # an error here means that the compiler refuses the program
        raise refusal(str(error), chip, kernel, table) from error
    return f"{LIBTPU} {version}"


@cache
def _device(topology: str) -> Any:  # noqa: ANN401  # a device of jax, or Rejected
    # Without a TPU, libtpu's queries to the cloud would get no answer, and jax must not look for a TPU. Several
    # processes may load libtpu, because several workers compile; with a real TPU, one process would lock out the
    # others.
    hold_in_environment({"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"})
    try:
        jax_module().config.update("jax_platforms", "cpu")
        return jax_module("jax.experimental.topologies").get_topology_desc(topology, platform="tpu").devices[0]
    except Exception as error:  # noqa: BLE001  # libtpu of an older jax, a TPU that another process uses, ...
        first = (str(error).splitlines() or [""])[0]
        return Rejected(f"libtpu {libtpu_version()} cannot be used: {type(error).__name__}: {first}")


def refusal(message: str, chip: Chip, kernel: str, table: str = "") -> CompileError:
    """Returns the error for the compiler's message: with sizes if it is about memory, else with its first lines.

    >>> from silo.kinds.pallas.chips import CHIPS
    >>> error = refusal("Scoped allocation with size 24.00M and limit 16.00M exceeded", CHIPS["v5e"], "add")
    >>> type(error).__name__, error.need >> 20, error.capacity >> 20
    ('ResourceError', 24, 16)
    """
    sizes = _USED.search(message) or _SCOPED.search(message) or _ALLOCATION.search(message)
    lines = [line for line in message.splitlines() if line.strip()][:_MOST_SAID]
    if sizes is None:
        return CompileError(f"{kernel} for tpu:{chip.arch}: the compiler for TPUs refuses it: " + "\n".join(lines))
    need, capacity = _bytes(sizes[1], sizes[2]), _bytes(sizes[3], sizes[4])
    kind = "vmem" if sizes.re is _SCOPED else sizes[5]
    return ResourceError(
        f"{kernel} for tpu:{chip.arch} takes {sizes[1]}{sizes[2]}iB of {kind.upper()}, and the compiler allows "
        f"{sizes[3]}{sizes[4]}iB:\n{table}",
        kind=kind,
        need=need,
        capacity=capacity,
    )


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


# ---- The compiler plug-in ----


_EFFECTS = {ArgumentRole.IN: Effect.READ, ArgumentRole.OUT: Effect.WRITE, ArgumentRole.INOUT: Effect.BOTH}


_said = Notices()


class PallasFacts(CodeFacts):
    """The effects on the arrays, taken from the author's specs."""

    def __init__(self, launch: BlockedLaunch) -> None:
        self._launch = launch

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect on each array, which follows from its role."""
        return {array.name: _EFFECTS[array.role] for array in self._launch.arrays}


class PallasCompiler:
    """The plug-in ``pallas``: source kind ``pallas``, targets ``tpu:*``, ``cuda:*`` and ``cpu:*``. Needs no device."""

    declaration = PALLAS

    def identity(self, target: Target) -> str:
        """Returns the versions of jax and its requirements, and the digest of Silo's code. Raises ToolchainError.

        Does not import jax.
        """
        decision = usable()
        if isinstance(decision, Rejected):
            raise ToolchainError(decision.reason)
        tools = " ".join(f"{name} {version}" for name, version in sorted(versions().items()))
        if target.kind == "tpu" and (libtpu := libtpu_version()) is not None:
            tools += f" {LIBTPU} {libtpu}"
        return f"{tools} code {code_digest(*self.declaration.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts Pallas sources for a TPU chip, a GPU or a CPU, if jax is installed."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        if not target.is_concrete:
            return Rejected(f"the target {target} names no chip and no device here gives it one; write tpu:v5e")
        if target.kind == "tpu" and target.arch not in CHIPS:
            return Rejected(f"no TPU is called {target.arch}; write tpu:{', tpu:'.join(CHIPS)}")
        return usable()

    def artifact_target(self, target: Target) -> Target:
        """Returns ``target``; for a CPU its lowest level, because jax compiles the program when it is loaded.

        >>> str(PallasCompiler().artifact_target(Target.parse("cpu:x86-64-v4")))
        'cpu:x86-64-v2'
        """
        family = next((levels for levels in CPU_LEVELS.values() if target.arch in levels), ())
        return Target("cpu", family[0]) if target.kind == "cpu" and family else target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Traces the body and exports it.

        Raises:
            ToolchainError: jax is missing or of an unsupported version.
            SourceError: not a Pallas source, or an error of its author.
            CompileError: jax refused the kernel, or a config makes it impossible.
        """
        if not isinstance(source, PallasSource):
            raise SourceError(f"{source.name} is no Pallas source")
        launch = blocked_launch(source, variant)
        target = self.artifact_target(variant.target)
        limit: int | None = None
        memory: JSON = None
        chip = chip_named(target.arch) if target.kind == "tpu" else None
        if launch.scheme is not Scheme.MOSAIC_GPU and target.kind != "cuda":
            _check_blocks(launch, variant.kernel, target)
        if chip is not None:
            report = estimate(launch, chip)
            require_memory(report, variant.kernel)  # before the body is traced, which takes longer
            limit = report.limit

        def check(traced: object) -> None:
            nonlocal memory
            if chip is not None:
                report = estimate(launch, chip, body_memory(traced))
                require_memory(report, variant.kernel)
                memory = report.to_json()

        program = _program(source, launch, variant, limit)
        exported, convention = export_program(program, target, variant.kernel, check)
        job = PallasJob(
            program=exported,
            jax=str(jax_version()),
            calling_convention=convention,
            plan=call_plan(launch, variant.signature, convention).to_json(),
            memory=memory,
            parameters=variant.signature.names,
        )
        return Lowered(job.to_job(variant.kernel, target), PallasFacts(launch))

    def warm_up(self) -> None:
        """Does nothing: most jobs need no jax in the worker."""

    def compile(self, job: CompileJob) -> Compiled:
        """Returns the program with its launch info.

        For a TPU, the compiler for TPUs must accept the program, if this compiler is installed.

        Raises:
            ResourceError: the program takes more memory than the chip has.
            CompileError: the compiler for TPUs refuses the program, or the job is damaged.
        """
        pallas = PallasJob.from_job(job)
        try:
            plan = CallLayout.from_json(pallas.plan)
        except ValueError as error:
            raise CompileError(f"{job.kernel}: the job is no Pallas job: {error}") from error
        log = f"jax {pallas.jax}\n"
        if job.target.kind == "tpu":
            outcome = accept(pallas.program, chip_named(job.target.arch), job.kernel, pallas.memory_table)
            plan = replace(plan, proof="estimated" if isinstance(outcome, Rejected) else f"accepted by {outcome}")
            log += (
                f"{plan.proof}{f': {outcome.reason}' if isinstance(outcome, Rejected) else ''}\n{pallas.memory_table}\n"
            )
        launch = LaunchInfo(job.kernel, _layout(pallas.parameters, plan), loader=plan.text)
        return Compiled(launch, CompiledBlob("jaxexp", pallas.program), log=log)

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Returns a checked kernel for jax's interpreter of TPUs. Raises SourceError, CompileError, ToolchainError."""
        from silo.checking.kernel import LibraryKernel  # noqa: PLC0415  # for checks alone
        from silo.kinds.pallas.checking.checked_kernel import CheckedProgram  # noqa: PLC0415  # for checks alone

        del nan  # the program is the same with and without the NaN check: the limits of each launch enable the check
        if not isinstance(source, PallasSource):
            raise SourceError(f"{source.name} is no Pallas source")
        launch = blocked_launch(source, variant)
        plan = call_plan(launch, variant.signature, 0)
        info = LaunchInfo(variant.kernel, _layout(variant.signature.names, plan), loader=plan.text)
        program = CheckedProgram(source, launch, source.constants(variant), plan, info.entry)
        return LibraryKernel(source.name, info, _effects(plan), program)

    def check_text(
        self, text: str, variant: Variant, launch: LaunchInfo, *, nan: bool, consent: Consent
    ) -> CheckedKernel:
        """Raises UnsupportedError, because a bundle's program has no memory spaces, copies or semaphores to check."""
        del text, launch, nan, consent
        raise UnsupportedError(
            f"{variant.kernel}: a bundle has no text of a Pallas kernel to check; check the Python file"
        )


def _effects(plan: CallLayout) -> tuple[Effect, ...]:
    """Returns the effect of a program through each parameter of its layout."""
    effects = {operand.parameter: Effect.READ for operand in plan.operands}
    for result in plan.results:
        effects[result.parameter] = Effect.BOTH if result.parameter in effects else Effect.WRITE
    return tuple(effects[effect] for effect in sorted(effects))


def _check_blocks(launch: BlockedLaunch, kernel: str, target: Target) -> None:
    """Raises CompileError for blocks that TPUs refuse.

    A CPU can interpret such blocks, so for a CPU the refusal is only logged, once.
    """
    decision = blocks_for_tpus(launch)
    if not isinstance(decision, Rejected):
        return
    if target.kind == "tpu":
        raise CompileError(f"{kernel} for {target}: {decision.reason}")
    _said.once(
        f"{kernel} {decision.reason}", f"{kernel} runs on this CPU alone, for no TPU takes it: {decision.reason}"
    )


def _program(source: PallasSource, launch: BlockedLaunch, variant: Variant, limit: int | None) -> PallasProgram:
    constants, kind = source.constants(variant), variant.target.kind
    if kind != "cuda":
        return make_program(source, launch, constants, interpret=kind == "cpu", limit=limit)
    options = PALLAS.read(PALLAS.own(variant.config.options))
    warps, stages = options["num_warps"], options["num_stages"]
    assert isinstance(warps, int)  # the option is declared as an int
    assert isinstance(stages, int)
    if launch.scheme is Scheme.MOSAIC_GPU:
        return make_mosaic_program(source, launch, constants, variant.target, num_warps=warps)
    _said.once(
        f"{variant.kernel} on cuda",
        f"{variant.kernel} is compiled for NVIDIA's GPUs by jax's lowering to Triton, which jax says it will remove, "
        f"and gives no promise that a later jax reads: keep jax {jax_version()} beside the code",
    )
    return make_gpu_program(source, launch, constants, num_warps=warps, num_stages=stages)


def _layout(parameters: Sequence[str], plan: CallLayout) -> tuple[LayoutSlot, ...]:
    """Returns the program's parameters in the kernel's order, for display only: calls use ``plan``."""
    abi_types: dict[int, AbiType] = {}
    for operand in (*plan.operands, *plan.results):
        abi_types[operand.parameter] = (
            AbiType.POINTER if isinstance(operand, ArrayPlace) else AbiType(operand.dtype.short)
        )
    return tuple(LayoutSlot(parameters[index], abi_types[index]) for index in sorted(abi_types))
