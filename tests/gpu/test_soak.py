"""Many launches from many threads: right results, and nothing that grows. SILO_TEST_LAUNCHES sets how many."""

import gc
import os
import threading
from pathlib import Path

import pytest

import silo
from gpu_kernels import N, add, torch, vectors

LAUNCHES = int(os.environ.get("SILO_TEST_LAUNCHES", "200000"))
THREADS = 16
_MEBIBYTE = 1 << 20

pytestmark = pytest.mark.usefixtures("store")


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_grows_and_every_result_is_right():
    kernel = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)
    x, y, first = vectors()
    kernel(x, y, first, N)
    outs = [torch.zeros(N, device="cuda") for _ in range(THREADS)]
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    errors = []
    torch.cuda.synchronize()

    def work(out, stream, count):
        try:
            with torch.cuda.stream(stream):
                for turn in range(count):
                    kernel(x, y, out, N)
                    if turn % 1000 == 999:
                        stream.synchronize()
                stream.synchronize()
        except Exception as error:  # noqa: BLE001  # shown by the main thread
            errors.append(error)

    def round_of(count):
        threads = [
            threading.Thread(target=work, args=(out, stream, count)) for out, stream in zip(outs, streams, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()

    # What grows once (stacks and arenas of threads, the driver's own pools) has grown after a fifth of them.
    round_of(LAUNCHES // THREADS // 5)
    before, open_before, gpu_before = resident(), handles(), torch.cuda.mem_get_info()[0]
    for _ in range(4):
        round_of(LAUNCHES // THREADS // 5)
        print(f"{(resident() - before) / _MEBIBYTE:.1f} MiB more, {handles() - open_before} handles more")
    assert errors == []
    # Before results are compared: torch loads code of its own for that.
    assert handles() <= open_before  # an earlier test may have left some that are closed meanwhile
    assert resident() - before < 16 * _MEBIBYTE
    if "PYTEST_XDIST_WORKER" not in os.environ:  # other processes take memory of the same device
        assert gpu_before - torch.cuda.mem_get_info()[0] < 16 * _MEBIBYTE
    assert kernel.kernel.resolver.native.misses == 1
    for out in outs:
        assert torch.equal(out, x + y)
