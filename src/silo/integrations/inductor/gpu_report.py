"""Reports the kernels of compiled graphs on GPUs: config, registers, spills, time and least possible time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silo.core.config import Config
from silo.core.recipes import Work
from silo.errors import SiloError
from silo.frozen import frozen
from silo.integrations.inductor.gpu_decisions import question_about
from silo.integrations.inductor.gpu_patching import deciding_kernels
from silo.integrations.inductor.gpu_records import config_of
from silo.kinds.triton.programs.compiled_code import device_at
from silo.kinds.triton.programs.records.decider import kept_decisions
from silo.report.least_time import speed_of_light
from silo.tuning.device_limits import known_ceilings

__all__ = ["GraphKernel", "kernels"]

_DOTS = {"*fp16": "float16", "*bf16": "float16", "*fp32": "float32"}


@frozen
class GraphKernel:
    """A kernel that Inductor generated for a GPU and that was launched.

    ``by_silo`` is whether Silo launches it. ``spills`` is the number of 32-bit values that each thread keeps in local
    memory. ``time_ms`` is the time that torch measured for the config, or None. ``work`` has Inductor's counts of bytes
    and operations, which require ``torch._inductor.config.benchmark_kernel``. ``least_ms`` is the time that this work
    takes at the rates which ``silo report --ceilings`` measured on the device; None if the counts or the rates are
    missing.
    """

    name: str
    config: Config
    by_silo: bool
    registers: int | None
    spills: int | None
    shared_bytes: int
    time_ms: float | None = None
    work: Work | None = None
    least_ms: float | None = None


def kernels() -> tuple[GraphKernel, ...]:
    """Returns the CUDA kernels launched while the integration's part ``decisions`` was on, sorted by name.

    >>> from silo.integrations import inductor
    >>> inductor.kernels()
    ()
    """
    graph_kernels = [
        _described(deciding_kernel) for deciding_kernel in deciding_kernels() if len(deciding_kernel.launchers) == 1
    ]
    return tuple(sorted(graph_kernels, key=lambda one: (one.name, one.config.order_key)))


def _described(autotuner: Any) -> GraphKernel:  # noqa: ANN401  # torch's CachingAutotuner
    (launcher,) = autotuner.launchers
    config = config_of(launcher.config)
    work = _work(autotuner.inductor_meta)
    return GraphKernel(
        str(autotuner.fn.__name__),
        config,
        hasattr(launcher, "silo_kernel"),
        launcher.n_regs,
        launcher.n_spills,
        int(launcher.shared or 0),
        _time_ms(autotuner, config),
        work,
        None if work is None else _least_ms(autotuner, work),
    )


def _work(meta: Mapping[str, Any]) -> Work | None:
    moved, operations = meta.get("kernel_num_gb"), meta.get("kernel_flop")
    return Work.of(
        None if moved is None else round(moved * 1e9), None if operations is None else round(float(operations))
    )


def _time_ms(autotuner: Any, config: Config) -> float | None:  # noqa: ANN401
    try:
        question = question_about(autotuner)
        decision = kept_decisions(question.place).get(question.wanted.slot)
    except (SiloError, OSError):
        return None  # Silo leaves the decision about the kernel to torch
    times = {} if decision is None else dict(zip(decision.configs, decision.times, strict=True))
    time_ms = times.get(config)
    return time_ms if isinstance(time_ms, float) else None


def _least_ms(autotuner: Any, work: Work) -> float | None:  # noqa: ANN401
    model = device_at("cuda", int(autotuner.triton_meta.get("device") or 0)).model
    ceilings = known_ceilings(model)
    if ceilings is None:
        return None
    types = [kind for kind in autotuner.triton_meta["signature"].values() if kind in _DOTS]
    dot = "float16" if any(_DOTS[kind] == "float16" for kind in types) else "float32"
    light = speed_of_light(work, ceilings, dot)
    return None if light is None else light.least_ns / 1e6
