"""Compiles public CUDA C++ files by ``silo.cuda``: which compile unedited, which with ``device_only``, which do not.

``python -m bench.cuda_files FOLDER`` needs checkouts of karpathy/llm.c, NVIDIA/cuda-samples, KernelTuner/kernel_tuner
and gpu-mode/lectures in FOLDER. NVRTC itself compiles each file too, with the file's folder as the include path. If
only NVRTC compiles a file, Silo has a fault. Every kernel that is not a template is compiled to a cubin for one arch.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import silo
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import SiloError
from silo.kinds.cuda_cpp.cuda_source import CudaSource
from silo.kinds.cuda_cpp.cuda_text import kernels_of
from silo.kinds.cuda_cpp.cuda_unit import CudaText, Form
from silo.kinds.cuda_cpp.nvrtc import find_nvrtc, load_nvrtc
from silo.kinds.cuda_cpp.nvrtc_compiler import NvrtcCompiler

LLM = "llm.c/dev/cuda"
SAMPLES = "cuda-samples/Samples"
TUNER = "kernel_tuner/examples/cuda"
LECTURES = "lectures"
LLM_NAMES = (
    "adamw",
    "attention_forward",
    "crossentropy_forward",
    "encoder_forward",
    "gelu_forward",
    "layernorm_backward",
    "layernorm_forward",
    "residual_forward",
    "softmax_forward",
    "trimat_forward",
)

FILES = (
    *(f"{LLM}/{name}.cu" for name in LLM_NAMES),
    f"{SAMPLES}/0_Introduction/vectorAdd_nvrtc/vectorAdd_kernel.cu",
    f"{SAMPLES}/0_Introduction/matrixMul_nvrtc/matrixMul_kernel.cu",
    f"{SAMPLES}/0_Introduction/clock_nvrtc/clock_kernel.cu",
    f"{SAMPLES}/0_Introduction/simpleAssert_nvrtc/simpleAssert_kernel.cu",
    f"{SAMPLES}/0_Introduction/vectorAddDrv/vectorAdd_kernel.cu",
    f"{SAMPLES}/0_Introduction/matrixMul/matrixMul.cu",
    f"{SAMPLES}/0_Introduction/fp16ScalarProduct/fp16ScalarProduct.cu",
    f"{SAMPLES}/0_Introduction/simpleCooperativeGroups/simpleCooperativeGroups.cu",
    f"{SAMPLES}/0_Introduction/simpleTexture3D/simpleTexture3D_kernel.cu",
    *(
        f"{TUNER}/{name}.cu"
        for name in ["convolution", "expdist", "matmul", "pnpoly", "reduction", "spmv", "stencil", "zeromeanfilter"]
    ),
    f"{LECTURES}/lecture_002/vector_addition/vector_addition.cu",
    f"{LECTURES}/lecture_002/rgb_to_grayscale/grayscale_kernel.cu",
    f"{LECTURES}/lecture_008/coalesce.cu",
    f"{LECTURES}/lecture_008/tiling.cu",
    f"{LECTURES}/lecture_009/reduce_coarsening.cu",
    f"{LECTURES}/lecture_009/shared_reduce.cu",
    f"{LECTURES}/lecture_012/flash_attention.cu",
)
"""Ten files of llm.c, nine of cuda-samples, eight of kernel_tuner, seven of gpu-mode's lectures."""

# Values for the macros that kernel_tuner sets in its examples.
TUNED = {
    "block_size_x": 32,
    "block_size_y": 8,
    "block_size_z": 1,
    "tile_size_x": 2,
    "tile_size_y": 2,
    "filter_height": 17,
    "filter_width": 17,
    "grid_height": 64,
    "grid_width": 64,
    "num_blocks": 64,
    "loop_unroll_factor_0": 1,
    "loop_unroll_factor_x": 2,
    "use_shuffle": 1,
    "vector": 2,
    "use_shared_mem": 1,
    "read_only": 0,
    "use_padding": 1,
    "between_method": 1,
    "use_method": 1,
}


@dataclass
class Outcome:
    """The numbers of a file's compiled kernels and of its templates, and its first error."""

    compiled: int = 0
    templates: int = 0
    fault: str = ""


def by_nvrtc(path: Path, target: str, defines: dict[str, int]) -> str:
    """Returns "" if NVRTC alone compiles the file, with its folder as the include path; else the first error."""
    library = load_nvrtc(find_nvrtc())
    options = [f"-arch={target}", "-std=c++17", "-w", f"-I{path.parent}", *(f"-I{one}" for one in library.headers())]
    options += [f"-D{name}={value}" for name, value in defines.items()]
    try:
        library.compile(CudaText(path.name, path.read_text(errors="replace")), options)
    except SiloError as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        return lines[0] if lines else str(error)[:200]
    return ""


def by_silo(path: Path, target: str, defines: dict[str, int], *, device_only: bool) -> Outcome:
    """Compiles every kernel of the file that is not a template."""
    outcome = Outcome()
    for kernel in kernels_of(path.read_text(errors="replace")):
        if kernel.is_template:
            outcome.templates += 1
            continue
        try:
            compile_one(path, kernel.name, target, defines, device_only=device_only)
            outcome.compiled += 1
        except SiloError as error:
            outcome.fault = outcome.fault or f"{kernel.name}: {str(error).splitlines()[0]}"
    return outcome


def compile_one(path: Path, entry: str, target: str, defines: dict[str, int], *, device_only: bool) -> int:
    """Compiles one kernel and returns the size of its cubin in bytes. Raises SiloError."""
    made = silo.cuda(path, entry=entry, threads=32, constants=defines, device_only=device_only)
    source = made.kernel.source
    assert isinstance(source, CudaSource)
    facts = {}
    for one in source.parameters:
        scalar = one.type.form == Form.SCALAR
        is_float = one.type.dtype.startswith(("fp", "bf"))
        value = ArgumentFacts(1.0 if is_float else 1) if scalar else ArgumentFacts.array(dtype(one.type.dtype or "u8"))
        facts[one.name] = value
    signature, specialization = source.specialize(facts)
    variant = Variant(
        source.name, source.fingerprint, signature, specialization, Config(), Target.parse(f"cuda:{target}")
    )
    compiler = NvrtcCompiler()
    return len(compiler.compile(compiler.lower(source, variant).job).blob.data)


def main() -> None:
    """Prints a row for each file, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    begin = time.process_time()
    alone = unedited = extracted = 0
    for name in FILES:
        if given.only not in name:
            continue
        path = given.folder / name
        defines = TUNED if name.startswith(TUNER) else {}
        refused = by_nvrtc(path, given.arch, defines)
        plain = by_silo(path, given.arch, defines, device_only=False)
        device = plain if not plain.fault else by_silo(path, given.arch, defines, device_only=True)
        alone += not refused
        unedited += not plain.fault and plain.compiled > 0
        extracted += not device.fault and device.compiled > 0
        verdict = "as it is" if not plain.fault else "device_only" if not device.fault else "no"
        verdict = verdict if device.compiled or device.fault else "templates"
        print(
            f"{name:78} NVRTC {'no ' if refused else 'yes'} Silo {verdict:12} "
            f"{device.compiled} kernels, {device.templates} templates not tried"
        )
        for label, fault in (("NVRTC", refused), ("as it is", plain.fault), ("device_only", device.fault)):
            if fault:
                print(f"    {label}: {fault[:200]}")
    print(
        f"{len(FILES)} files: NVRTC alone compiles {alone}, Silo {unedited} as they are, {extracted} with code by "
        f"device_only; {time.process_time() - begin:.0f} s of CPU time beside the type readings"
    )


if __name__ == "__main__":
    main()
