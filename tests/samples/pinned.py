"""Silo on a made-up machine that is always the same, so that another version must produce and find the same keys.

A compiler's identity covers Silo's own code, and a study names the machine's CPU; both are fixed here. As a program it
is the command line on that machine: ``python pinned.py tune kernels.py``. With ``--machine`` before the command only
the machine is fixed, and compilers have their own identities.
"""

import dataclasses
import sys

from silo.artifacts.runs_on import runs_on
from silo.core.device import DeviceModel, Target
from silo.drivers.cpu import cpu_device as device
from silo.drivers.cpu.levels import host_target
from silo.kinds.binary.binary_compiler import BinaryCompiler
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler

TARGET = Target.parse("cpu:x86-64-v2")
COMPILERS = {"binary": BinaryCompiler, "cpu": CpuCompiler, "cuda": TritonCompiler, "hip": TritonCompiler}
MODEL = DeviceModel(vendor="Maker", name="A CPU", arch=TARGET.arch, units=2, memory_bytes=1 << 33)


def pin():
    """From now on, make this process run on the made-up machine, with the same compiler identities in every version."""
    for compiler in COMPILERS.values():
        name = compiler.__name__
        compiler.identity = lambda _, target, name=name: f"{name} for {target.kind}"
    pin_machine()


def pin_machine():
    """From now on, make this process run on the made-up machine.

    (Workers compile and measure for the machine it names.)
    """
    (found,) = device.devices()
    device.devices = lambda: (dataclasses.replace(found, model=MODEL, target=TARGET),)


def fits():
    """Return whether this machine runs code for the made-up machine."""
    return bool(runs_on(TARGET, host_target(), "so"))


if __name__ == "__main__":
    from silo.cli.main import main

    if sys.argv[1:2] == ["--machine"]:
        del sys.argv[1]
        pin_machine()
    else:
        pin()
    sys.exit(main())
