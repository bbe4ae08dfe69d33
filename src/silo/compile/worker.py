"""A compile worker: ``python -m silo.compile.worker``. Only :mod:`silo.compile.pool` starts it.

Reads jobs from standard input and writes outcomes to its original standard output; whatever a compiler prints goes to
standard error. The worker never outlives the process that started it.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Sequence

from silo.compile.toolchain import Toolchain, failure_of
from silo.compile.wire import Message, encode, encode_cache_files, encode_compiled, encode_error
from silo.compile.worker_serving import give_way, run_when_idle, serve
from silo.core.plugins import COMPILERS, installed_places
from silo.core.protocols import WarmsUp
from silo.core.variant import CompileJob
from silo.errors import SiloError
from silo.gc_pause import seldom_collected

__all__ = ["main"]

# Workers run at a lower priority than the process that started them. That process runs the front end for the next jobs,
# one after another: if the workers took CPU time from it, they would soon have no job to compile. Measured with 32
# configs of a matrix product in CuTe on two cores: docs/performance.md.
_NICE = 5


def _run(header: dict[str, object], toolchain: Toolchain) -> bytes:
    try:
        job = CompileJob.from_json(header["job"])  # pyright: ignore[reportArgumentType]  # it checks
    except (KeyError, ValueError, SiloError) as error:
        return encode({"outcome": "error", "class": "CompileError", "message": f"not a compile job: {error}"})
    try:
        if header.get("makes") == "files":
            return encode_cache_files(toolchain.cache_files(job))
        return encode_compiled(toolchain.compile(job))
    except SiloError as error:
        return encode_error(error)
    except Exception as error:  # noqa: BLE001  # a plug-in may raise anything; the job fails, the worker stays
        traceback.print_exc()
        failed = failure_of(error, job)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return encode_error(type(failed)(f"{failed} ({last.filename}:{last.lineno} in {last.name})"))


def _warm_up(toolchain: Toolchain, name: str) -> None:
    with seldom_collected():
        compiler = toolchain.load(name)
        if isinstance(compiler, WarmsUp):
            try:
                compiler.warm_up()
            except Exception:  # noqa: BLE001  # a plug-in may raise anything; the first job meets it too and says so
                traceback.print_exc()
    gc.freeze()  # loaded modules live as long as the process, so the garbage collector need not examine them again


def main(arguments: Sequence[str]) -> None:
    """Serves until the parent process ends.

    ``--plugin name=module:attribute`` adds a compiler or replaces one; ``--warm name`` loads a compiler with its
    imports; ``--when idle`` runs only on idle CPUs.
    """
    plugins, warm, idle = dict(installed_places(COMPILERS)), "", False
    for option, value in zip(arguments[::2], arguments[1::2], strict=True):
        match option:
            case "--plugin":
                name, _, location = value.partition("=")
                plugins[name] = location
            case "--warm":
                warm = value
            case "--when":
                idle = value == "idle"
            case _:
                raise SystemExit(f"unknown option {option}")

    if idle:
        run_when_idle()
    else:
        give_way(_NICE)

    def start() -> Callable[[Message], bytes]:
        toolchain = Toolchain(plugins)
        if warm:
            _warm_up(toolchain, warm)
        return lambda message: _run(message[0], toolchain)

    serve(start)


if __name__ == "__main__":
    main(sys.argv[1:])
