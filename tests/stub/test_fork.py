"""Children made by fork after a GPU driver was started: every way to the GPU is refused in words, the CPU serves."""

import numpy as np
import pytest
from gpu_launchers import Array, binding, launcher

import forked
import launch_kernels as kernels
from silo.core.signature import Parameter
from silo.errors import DeviceError, LaunchError
from silo.launch import native
from silo.launch.runtime import make_launcher

REFUSED = r"driver cannot be used in this process, which fork\(\) made after its parent had started the driver"


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_the_driver_is_refused_and_never_called(stub, kind):
    name = f"forked_{kind}"
    made = binding(name, ("ptr",), kind=kind)
    launch = make_launcher(name, kernels.any_parameters("x"), on_miss=lambda _: made)
    array = Array(np.zeros(64, np.float32), device="cuda:0" if kind == "cuda" else "hip:0")
    launch[1](array)
    buffer = native.GpuBuffer((16,), "float32", kind, 0)
    event = native.GpuEvent(kind, 0)
    event.record(0)
    before = stub.last(name).count

    def work():
        with pytest.raises(LaunchError, match=r"fork\(\)"):
            launch[1](array)
        for ask in (
            lambda: native.gpu_open(kind),
            lambda: native.gpu_attributes(kind, 0),
            lambda: native.gpu_synchronize(kind, 0),
            lambda: native.GpuBuffer((16,), "float32", kind, 0),
            lambda: binding(name, ("ptr",), kind=kind),
        ):
            with pytest.raises(DeviceError, match=REFUSED):
                ask()
        for ask in (event.synchronize, event.query, lambda: buffer.copy_from(b"\0" * 64)):
            with pytest.raises(DeviceError, match=r"fork\(\)"):
                ask()
        assert stub.last(name).count == before

    forked.run(work)
    launch[1](array)
    assert stub.last(name).count == before + 1


def test_the_cpu_serves_in_a_child_of_a_process_that_used_a_gpu(stub):
    launcher("forked_first", ("ptr",), [Parameter("x")])[0][1](Array(np.zeros(64, np.float32)))
    launch = make_launcher("ids", kernels.any_parameters("out"), on_miss=kernels.Asked("ids", ((0, "ptr", True),)))

    def work():
        out = np.full(100, -1, np.int64)
        launch[(100,)](out)
        assert (out == np.arange(100)).all()

    forked.run(work)
    assert stub.last("forked_first").count == 1
