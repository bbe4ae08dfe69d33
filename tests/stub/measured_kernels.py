"""What the stub runs in place of ``scale_by`` in measuring processes: put on their path as ``sitecustomize``.

The configs of the test differ by ``num_warps``, so by the size of a block:

=======  =====================================================
threads  behaviour
=======  =====================================================
32       right, 9 us
64       right, 3 us: the winner
128      wrong
256      an illegal address: every later call of the driver fails
512      never ends
=======  =====================================================
"""

import ctypes
import os
import struct
import sys
import time

import gpu_stub


def floats(address, count):
    return (ctypes.c_float * count).from_address(address)


def scale_by(launch):
    """out[i] += factor * x[i]."""
    out, x, n = (
        struct.unpack(form, data)[0] for form, data in zip(["<Q", "<Q", "<i"], launch.parameters, strict=False)
    )
    threads = launch.block[0]
    gpu_stub.stub.advance({64: 2_000}.get(threads, 8_000))
    source, target = floats(x, n), floats(out, n)
    for i in range(n):
        target[i] += 2 * source[i] + (threads == 128)
    if threads == 256:
        for name in (
            "cuCtxSynchronize",
            "cuEventSynchronize",
            "cuMemcpyAsync",
            "cuMemcpyDtoHAsync",
            "cuStreamSynchronize",
        ):
            gpu_stub.stub.fail(name, 700, -1)
    if threads == 512:
        time.sleep(1000)


if "silo.measuring.measuring_worker" in sys.orig_argv and os.environ.get("SILO_TEST_STUB"):
    gpu_stub.stub.run("scale_by", scale_by)
