"""The one place that touches Triton's internals (3.6 to 3.9).

Nothing here is imported before a function needs it, so ``import silo`` loads no Triton.
"""

from silo.sources.triton.adapter.autotuners import (
    Decisions,
    TunerKey,
    config_members,
    is_trying,
    kernel_of_tuner,
    watch_autotuners,
)
from silo.sources.triton.adapter.compile_calls import (
    CompileCall,
    KeptCode,
    active_target,
    cache_key_text,
    default_options,
    intercept_compiles,
    kept_code,
    launcher_kind,
    revived,
    ttir_of,
)
from silo.sources.triton.adapter.cpu import CpuFrontEnd, CpuOptions, cpu_target, run_cpu_passes
from silo.sources.triton.adapter.decorators import (
    DecoratedKernel,
    JitParameter,
    descriptor_type,
    is_interpreted,
    is_kernel,
    pruned_configs,
    read_kernel,
    read_tuned_config,
)
from silo.sources.triton.adapter.gpu import GpuStages, compile_gpu, load_gpu_backends
from silo.sources.triton.adapter.installation import (
    TESTED_VERSIONS,
    debug_by_default,
    nvidia_tools,
    require_triton,
    triton_identity,
    triton_version,
)
from silo.sources.triton.adapter.lowering import Ttir, lower_for_gpu, lower_to_ttir, read_off
from silo.sources.triton.adapter.objects import dtype_name
from silo.sources.triton.adapter.toolchain import plugin_driver
from silo.sources.triton.adapter.wrap import wrap

__all__ = [
    "TESTED_VERSIONS",
    "CompileCall",
    "CpuFrontEnd",
    "CpuOptions",
    "Decisions",
    "DecoratedKernel",
    "GpuStages",
    "JitParameter",
    "KeptCode",
    "Ttir",
    "TunerKey",
    "active_target",
    "cache_key_text",
    "compile_gpu",
    "config_members",
    "cpu_target",
    "debug_by_default",
    "default_options",
    "descriptor_type",
    "dtype_name",
    "intercept_compiles",
    "is_interpreted",
    "is_kernel",
    "is_trying",
    "kept_code",
    "kernel_of_tuner",
    "launcher_kind",
    "load_gpu_backends",
    "lower_for_gpu",
    "lower_to_ttir",
    "nvidia_tools",
    "plugin_driver",
    "pruned_configs",
    "read_kernel",
    "read_off",
    "read_tuned_config",
    "require_triton",
    "revived",
    "run_cpu_passes",
    "triton_identity",
    "triton_version",
    "ttir_of",
    "watch_autotuners",
    "wrap",
]
