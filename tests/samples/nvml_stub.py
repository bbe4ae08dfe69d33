"""The stub of NVML (``native/nvml_stub.c``), built once in a run."""

from pathlib import Path

from native_builds import compile_with, shared_build

SOURCE = Path(__file__).resolve().parents[1] / "native" / "nvml_stub.c"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden")
BUS_ID = "0000:01:00.0"


def library():
    """Return the path of the stub, for SILO_NVML_LIBRARY; skip the test without a C compiler."""

    def make(folder):
        compile_with(*FLAGS, SOURCE, "-o", folder / "libnvidia-ml.so.1")

    return str(shared_build("nvml", FLAGS, [SOURCE], make) / "libnvidia-ml.so.1")
