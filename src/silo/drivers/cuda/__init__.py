"""The declaration of the driver for NVIDIA GPUs. The devices are in ``cuda_device``."""

from types import MappingProxyType

from silo.core.device import DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="cuda",
    memory=Memory((2, 3, 13)),  # DLPack's types: CUDA, pinned, managed
    vendor="nvidia",
    preference=0,
    arch=r"sm_[1-9][0-9]{1,2}[af]?",
    example="sm_90a",
    suffixes="af",
    # The number of multiprocessors of one device of each arch. The comments name the device and the source of the
    # number.
    units=MappingProxyType(
        {
            "sm_70": 80,  # V100 (sysrqmts.com)
            "sm_75": 40,  # T4 (sysrqmts.com)
            "sm_80": 108,  # A100 (sysrqmts.com)
            "sm_86": 84,  # RTX A6000 (white paper of the RTX PRO Blackwell, table 1)
            "sm_87": 16,  # Jetson AGX Orin (its technical brief: 2048 cores, 128 per multiprocessor)
            "sm_89": 142,  # RTX 6000 Ada (same source as RTX A6000)
            "sm_90": 132,  # H100 SXM5 (hpctech.co.jp); 114 with PCIe
            "sm_100": 148,  # B200 (Chips and Cheese, "Nvidia's B200"): 74 on each die
            "sm_103": 148,  # B300, as seen by programs that were measured on it
            "sm_120": 188,  # RTX PRO 6000 (same source as RTX A6000)
            "sm_121": 48,  # GB10 of DGX Spark (Computex 2025: 6144 cores), 128 per multiprocessor
        }
    ),
    usual_units=132,
    blobs=("cubin", "ptx"),
    code_forms=("ttgir", "ptx", "sass"),
    library="cuda_library",
    energy="silo.drivers.cuda.energy_counter:energy_counter",
    torch_build="cuda",
    least_flush=32 << 20,
)
