"""The declaration of the driver for AMD GPUs. The devices are in ``hip_device``."""

from types import MappingProxyType

from silo.core.device import DriverDeclaration, Memory

DRIVER = DriverDeclaration(
    kind="hip",
    memory=Memory((10, 11)),  # DLPack's types: ROCm, pinned
    vendor="amd",
    preference=1,
    arch=r"gfx([0-9a-f]{3,5}|[0-9]{1,2}(-[0-9])?-generic)",
    example="gfx942",
    # 32 lanes on RDNA (gfx10 and later), 64 on CDNA and GCN (gfx9 and older).
    warps=((r"gfx[1-9][0-9]([0-9a-f]{2}|-.*)", 32), (r".*", 64)),
    # The number of compute units of one device of each arch, from the ROCm documentation (rocm.docs.amd.com, "AMD GPU
    # hardware specifications").
    units=MappingProxyType(
        {
            "gfx908": 120,  # MI100
            "gfx90a": 110,  # MI250X, each die of which is a device; MI250 and MI210 have 104
            "gfx942": 304,  # MI300X; MI300A has 228
            "gfx950": 256,  # MI355X
            "gfx1030": 80,  # RX 6900 XT
            "gfx1100": 96,  # RX 7900 XTX
            "gfx1101": 60,  # RX 7800 XT
            "gfx1151": 40,  # Radeon 8060S (fpsbench.com)
            "gfx1201": 64,  # RX 9070 XT
        }
    ),
    usual_units=304,
    blobs=("hsaco",),
    code_forms=("ttgir", "amdgcn"),
    library="hip_library",
    torch_build="hip",
    least_flush=512 << 20,  # the driver reports only one level of cache; the next level has 256 MiB
    spills=32,  # a config's code with more spills is measured late; PyTorch 2.13 has the same limit
)
