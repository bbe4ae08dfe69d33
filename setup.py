"""Builds the one extension module, ``silo._native``: C11, Python's stable ABI from 3.11, nothing but libc."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # free-threaded Python has no stable ABI
PARTS = (ROOT / "native" / "core", ROOT / "native" / "python")  # native/frameworks is for exported libraries
WARNINGS = ["-Wall", "-Wextra", "-Wconversion"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
URL = (os.environ.get("SILO_PROJECT_URL") or "").rstrip("/") or None

DIGESTS = """
from pathlib import Path
from silo.compile import identity
from silo.core.plugins import load_place, shipped_places
codes = [load_place(place).code for place in shipped_places("silo.compilers").values()]
Path(identity.__file__).with_name(identity.SHIPPED).write_bytes(identity.digest_table(codes))
"""

sys.path.insert(0, str(ROOT / "scripts"))
from long_description import long_description, project_urls  # noqa: E402


class AtomicBuildExt(build_ext):
    """Puts an in-place build under its name in one step: processes that have the old one mapped keep it.

    What is built to be installed carries no symbols but those it exports: they are four fifths of its size.
    """

    def build_extension(self, ext: Extension) -> None:
        """Strip it, unless a developer may want to look into it."""
        if sys.platform == "linux" and not (self.inplace or self.editable_mode):
            ext.extra_link_args.append("-Wl,-s")
        super().build_extension(ext)

    def copy_file(self, infile: str, outfile: str, *args: object, **options: object) -> tuple[str, bool]:
        """Copy beside the destination, then rename."""
        beside = f"{outfile}.new"
        _, done = super().copy_file(infile, beside, *args, **options)
        Path(beside).replace(outfile)
        return outfile, bool(done)


class BuildWithSources(build_py):
    """Puts libsilo's sources beside the code that copies them into exports."""

    def run(self) -> None:
        """In an editable install they are found in the tree."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(ROOT / "LICENSE"), str(Path(self.build_lib) / "silo" / "export" / "LICENSE"))
            for part in ("core", "frameworks"):
                target = Path(self.build_lib) / "silo" / "export" / part
                self.mkpath(str(target))
                for path in sorted((ROOT / "native" / part).glob("*.[ch]")):
                    self.copy_file(str(path), str(target / path.name))
            # Digests of the compilers' code: a first process would parse it for most of a second.
            environment = {**os.environ, "PYTHONPATH": self.build_lib}
            subprocess.run([sys.executable, "-B", "-c", DIGESTS], check=True, env=environment)


setup(
    long_description=long_description((ROOT / "README.md").read_text(encoding="utf-8"), VERSION, URL),
    long_description_content_type="text/markdown",
    project_urls=project_urls(VERSION, URL),
    cmdclass={"build_ext": AtomicBuildExt, "build_py": BuildWithSources},
    ext_modules=[
        Extension(
            "silo._native",
            sources=sorted(str(path.relative_to(ROOT)) for part in PARTS for path in part.glob("*.c")),
            depends=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*/*.h")),
            include_dirs=["native/core"],
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
