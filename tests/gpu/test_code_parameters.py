"""What the driver says of the parameters of code, and code that takes others than its launch info says."""
# pyright: reportAttributeAccessIssue=false

import pytest

from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.errors import DeviceError
from silo.machine.device_plugins import device_named

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 p, .param .u8 flag, .param .f64 x, .param .align 64 .b8 map[128])
{ ret; }
"""
LAYOUT = (
    LayoutSlot("p", AbiType.POINTER),
    LayoutSlot("flag", AbiType.I1),
    LayoutSlot("x", AbiType.FP64),
    LayoutSlot("map", AbiType.TENSORMAP),
)


@pytest.mark.usefixtures("cuda")
def test_the_driver_states_the_parameters_and_others_are_refused():
    device = device_named("cuda")
    loaded = device.load(LaunchInfo("k", LAYOUT), PTX, "ptx", "k")
    told = int(device.facts()["driver_version"]) >= 12040
    # Where the driver's assembler puts the last one, whose alignment is 64, is its own business.
    sizes = None if loaded.parameters is None else [size for _, size in loaded.parameters]
    assert sizes == ([8, 1, 8, 128] if told else None)
    for layout in ((), LAYOUT[:3], (*LAYOUT, LAYOUT[0]), (LAYOUT[1], LAYOUT[0], *LAYOUT[2:])):
        with pytest.raises(DeviceError, match="k takes other parameters than the signature says"):
            device.load(LaunchInfo("k", layout), PTX, "ptx", "k")
