"""The least that a launch from Python costs: a C function that reads none of its arguments."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

from bench.launch.cases import THREADS, Call
from bench.launch.floor import driver as floor_driver
from bench.launch.floor import load
from bench.launch.peers import AbsentError, Context, Row

SOURCE = Path(__file__).parents[1] / "least.c"


@cache
def _module(folder: Path) -> Any:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise AbsentError("no C compiler (gcc or cc)")
    output = folder / "least.so"
    include = sysconfig.get_paths()["include"]
    command = [
        compiler,
        "-O2",
        "-std=gnu11",
        "-shared",
        "-fPIC",
        f"-I{include}",
        str(SOURCE),
        "-o",
        str(output),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AbsentError(f"{SOURCE.name} does not compile here: {done.stderr.strip()[-300:]}")
    spec = importlib.util.spec_from_file_location("least", output)
    if spec is None or spec.loader is None:
        raise AbsentError("the built module cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least(context: Context) -> Call:
    import torch

    library = "libcuda.so.1"
    function = load(floor_driver(library, context.folder, context.device), context.ptx, "nop")
    module = _module(context.folder)
    streams = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
    module.set(library, str(streams), function, context.case.pointers + context.case.integers, THREADS)
    return context.call("launch({arguments})", launch=module.launch)


ROWS = (Row("least", "a C function that reads none of its arguments", least),)
