"""Builds the one extension module, ``silo._native``: C11, Python's stable ABI from 3.11, nothing but libc."""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # such a Python has no stable ABI
WARNINGS = ["-Wall", "-Wextra", "-Wconversion"]


class AtomicBuildExt(build_ext):
    """Puts an in-place build under its name in one step: processes that have the old one mapped keep it."""

    def copy_file(self, infile: str, outfile: str, *args: object, **options: object) -> tuple[str, bool]:
        """Copy beside the destination, then rename."""
        beside = f"{outfile}.new"
        _, done = super().copy_file(infile, beside, *args, **options)
        Path(beside).replace(outfile)
        return outfile, bool(done)


setup(
    cmdclass={"build_ext": AtomicBuildExt},
    ext_modules=[
        Extension(
            "silo._native",
            sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*.c")),
            depends=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*.h")),
            define_macros=[*([] if FREE_THREADED else [("Py_LIMITED_API", "0x030b0000")]), ("_GNU_SOURCE", "1")],
            py_limited_api=not FREE_THREADED,
            # Contraction off: a fused multiply-add would change the generator's last bit. No PLT: one cache line less
            # for each function of Python that a launch calls.
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-fno-plt", "-ffp-contract=off", *WARNINGS],
            extra_link_args=["-ldl", "-pthread"],
        )
    ],
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
