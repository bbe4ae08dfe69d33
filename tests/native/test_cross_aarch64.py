"""A bundle for 64-bit Arm, compiled here, exported, and run by its own self-test under qemu."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import exported

NAMES = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64")
MISSING = [name for name in NAMES if shutil.which(name) is None]
SYSROOT = Path("/usr/aarch64-linux-gnu")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (apt install qemu-user)"),
    pytest.mark.all,
    pytest.mark.timeout(900),
]
C = ("-std=gnu11", "-O1", "-ffp-contract=off", "-D_GNU_SOURCE")


def test_the_self_test_of_an_export_passes_on_arm(tmp_path):
    made = exported.folder(tmp_path, ["cpu:aarch64-armv8.2"], ["add", "softmax"])
    sources = [*sorted((made / "silo").glob("*.c")), made / f"{made.name}.c"]
    objects = [tmp_path / f"{one.stem}.o" for one in sources]

    def compiled(source, output):
        exported.run([NAMES[0], *C, f"-I{made}", "-c", source, "-o", output], cwd=made)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compiled, sources, objects))
    program = tmp_path / "selftest"
    test = made / "tests" / "selftest.cpp"
    exported.run([NAMES[1], *exported.CPP, f"-I{made}", test, *objects, "-o", program, "-ldl", "-lpthread", "-lm"])
    done = exported.run(["qemu-aarch64", "-L", SYSROOT, program], timeout=300)
    lines = done.stdout.splitlines()
    assert lines[-1].endswith(" passed, 0 failed, 0 skipped"), done.stdout
    assert [line for line in lines if line.startswith("ok") and " cpu add " in line]
    assert [line for line in lines if line.startswith("ok") and " cpu softmax " in line]
