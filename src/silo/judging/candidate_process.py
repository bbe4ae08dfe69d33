"""The process that runs a candidate's Python file and sends the candidate's kernel to the judge as data.

Before the process reads the file it is sealed: it may then start no program and write to no file. The process receives
the shapes and dtypes of the cases. The arrays' values are drawn only after the process has ended, so that it cannot
know them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from silo.building.kernel_declaration import DeclaredKernel
from silo.calls.resolver import Resolver
from silo.compile.toolchain import select_compiler
from silo.compile.wire import encode
from silo.core.device import Target
from silo.core.expressions import Bindings, evaluate
from silo.core.host_arrays import numpy_dtype
from silo.core.protocols import GivesCheckedText
from silo.core.signature import ParameterKind
from silo.core.values import Value, dtype
from silo.core.variant import CompileJob, Variant
from silo.errors import SiloError, SourceError, UnsupportedError
from silo.frozen import replace
from silo.judging.candidate_data import ArrayShape, CandidateData, CaseShape, LaunchData, VariantData, read_messages
from silo.judging.confinement import Confined, Limits, confine, seal
from silo.kernels.collection import collect_kernels
from silo.kernels.kernel import Kernel, kernel_of
from silo.kernels.kernel import kernel as wrap
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import device_named
from silo.sources.kinds import kinds
from silo.sources.source_kind import MeasuresCeilings

__all__ = ["lower_candidate", "read_request", "readable_places", "send", "take_measures", "warm_up"]


def warm_up() -> list[tuple[str, VariantData]]:
    """Imports and computes everything that each candidate needs, by lowering a kernel of Silo's own.

    The job server (:mod:`silo.judging.job_server`) calls this before it forks a child for each job. Returns the
    variants of that kernel, each with its kind.
    """
    target = device_named("cpu").target
    variants: list[tuple[str, VariantData]] = []
    for kind in kinds().values():
        if not isinstance(kind, MeasuresCeilings):
            continue
        own = kernel_of(wrap(kind.ceiling_kernels().copy, grid=_blocks, space={"BLOCK": [256]}))
        assert own is not None
        case = CaseShape((("x", ArrayShape("float32", (64,))), ("out", ArrayShape("float32", (64,))), ("n", 64)))
        lowered = [_variant_data(own, variant, [target]) for variant, _ in _variants(own, own.resolver, case, 1)]
        variants += [(own.source.kind, variant_data) for variant_data in lowered]
    return variants


def _blocks(a: Any) -> tuple[Any, ...]:  # noqa: ANN401  # a namespace of tracers
    return ((a.n + a.BLOCK - 1) // a.BLOCK,)


def readable_places() -> list[str]:
    """Returns the files that the judge's processes may read: Python, its packages, system libraries and compilers."""
    system = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/dev/urandom")
    modules = [entry for entry in sys.path if entry and Path(entry).is_dir() and entry != "/"]
    return [*system, sys.prefix, sys.base_prefix, sys.exec_prefix, "/dev/null", "/sys/devices/system/cpu", *modules]


def read_request(request_fd: int) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Returns the judge's message, read from the pipe ``request_fd``: its header and its blobs."""
    with os.fdopen(request_fd, "rb") as stream:
        return read_messages(stream.read())[0]


def send(answer: int, header: Mapping[str, object], blobs: tuple[bytes, ...] = ()) -> None:
    """Writes one message for the judge to the pipe ``answer``."""
    unsent = memoryview(encode(header, blobs))
    while unsent:
        unsent = unsent[os.write(answer, unsent) :]


def take_measures(answer: int, confined: Confined, *, allow_weak: bool) -> None:
    """Reports this process's confinement to the judge, before any code of the candidate runs.

    Exits if unknown code would keep too many rights, unless ``allow_weak``.
    """
    send(answer, {"outcome": "confined", **confined.to_json()})
    if confined.weaknesses and not allow_weak:
        os._exit(0)


def lower_candidate(request_fd: int, answer: int) -> None:
    """Runs a candidate's Python file and sends its kernel as data.

    This is the job of a child process of the job server (:mod:`silo.judging.job_server`).
    """
    request, _ = read_request(request_fd)
    folder = request["folder"]
    limits = Limits(request["memory_bytes"], request["cpu_s"])
    os.chdir(folder)
    confined = confine(limits, readable=[*readable_places(), folder], descriptors=[answer])
    confined = seal(confined)
    take_measures(answer, confined, allow_weak=request["allow_weak"])
    try:
        data = _lowered(
            Path(request["file"]),
            [CaseShape.from_json(item) for item in request["cases"]],
            [Target.parse(item) for item in request["targets"]],
            request["configs"],
        )
        message: dict[str, object] = {"outcome": "kernel", **data.to_json()}
    except SiloError as error:
        message = {"outcome": "error", "class": type(error).__name__, "message": str(error)[:4000]}
    except Exception as error:  # noqa: BLE001  # a candidate may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{Path(last.filename).name}:{last.lineno}"
        message = {"outcome": "error", "class": type(error).__name__, "message": f"{error} ({location})"[:4000]}
    send(answer, message)


def _lowered(path: Path, cases: list[CaseShape], targets: list[Target], configs: int) -> CandidateData:
    kernels = collect_kernels([path])
    if len(kernels) != 1:
        names = ", ".join(kernel.name for kernel in kernels)
        raise SourceError(f"a candidate has one kernel; this file has {len(kernels)}: {names}")
    kernel = kernels[0]
    if kernel.grid is None:
        raise SourceError(f"{kernel.name} declares no grid: @silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))")
    variants: dict[Variant, tuple[int, VariantData]] = {}
    launches: list[LaunchData] = []
    for number, case in enumerate(cases):
        for config_number, (variant, grid) in enumerate(_variants(kernel, kernel.resolver, case, configs)):
            numbered_variant = variants.get(variant)
            if numbered_variant is None:
                numbered_variant = variants[variant] = len(variants), _variant_data(kernel, variant, targets)
            launches.append(LaunchData(number, config_number, numbered_variant[0], grid))
    return CandidateData(
        kernel.name, kernel.source.kind, tuple(variant_data for _, variant_data in variants.values()), tuple(launches)
    )


def _variants(
    kernel: Kernel, resolver: Resolver, case: CaseShape, configs: int
) -> Iterator[tuple[Variant, tuple[int, int, int]]]:
    """Yields the variant and the grid of one case for each config."""
    names = _runtime_names(kernel)
    if len(names) != len(case.arguments):
        passed = ", ".join(name for name, _ in case.arguments)
        expected = ", ".join(names)
        raise SourceError(
            f"{kernel.name} takes {len(names)} arguments ({expected}); the task passes {len(case.arguments)}: {passed}"
        )
    arguments = {name: _argument(value) for name, (_, value) in zip(names, case.arguments, strict=True)}
    call = inspect_call(resolver.native, kernel.source.signature, **arguments)
    context = resolver.understand(call)
    candidates = context.candidates
    if len(candidates) > configs:
        raise SourceError(
            f"{kernel.name} has {len(candidates)} configs; the task takes at most {configs}: tune it first, and judge "
            "its winners"
        )
    scalars = {name: value for name, value in arguments.items() if not hasattr(value, "shape")}
    shapes = {name: tuple(value.shape) for name, value in arguments.items() if hasattr(value, "shape")}
    for config in candidates:
        variant = resolver.variant(context, config)
        values: dict[str, Value] = {**config.as_dict(), **variant.specialization.constant_values}
        bindings = Bindings(values=scalars, shapes=shapes, config=values, facts=context.device.facts())
        grid = [int(evaluate(axis, bindings)) for axis in kernel.grid or ()]
        x, y, z = (*grid, 1, 1)[:3]
        yield variant, (x, y, z)


def _runtime_names(kernel: DeclaredKernel) -> list[str]:
    """Returns the parameters that a call passes: all except constexprs that a config or a default sets."""
    return [
        parameter.name
        for parameter in kernel.source.signature.parameters
        if parameter.kind is not ParameterKind.CONSTEXPR and parameter.name not in kernel.config_names
    ]


def _argument(value: ArrayShape | float) -> Any:  # noqa: ANN401  # a numpy array or a number
    import numpy as np  # noqa: PLC0415  # the server has imported it

    if not isinstance(value, ArrayShape):
        return value
    element = numpy_dtype(dtype(value.dtype))
    size = int(np.prod(value.shape, dtype=np.int64)) * element.itemsize
    memory = np.empty(size + 64 + value.offset, np.uint8)
    start = -memory.ctypes.data % 64 + value.offset
    return memory[start : start + size].view(element).reshape(value.shape)


def _variant_data(kernel: Kernel, variant: Variant, targets: list[Target]) -> VariantData:
    compiler = select_compiler(kernel.source.kind, variant.target)
    if not isinstance(compiler, GivesCheckedText):
        raise UnsupportedError(
            f"{kernel.name} is a {kernel.source.kind} kernel; the judge takes kernels whose text Silo compiles for the "
            "CPU with checks"
        )
    text, layout = compiler.text_to_check(kernel.source, variant)
    return VariantData(variant, text, layout, tuple(_job(kernel, variant, target) for target in targets))


def _job(kernel: Kernel, variant: Variant, target: Target) -> CompileJob:
    on_target = replace(variant, target=target)
    return select_compiler(kernel.source.kind, target).lower(kernel.source, on_target).job
