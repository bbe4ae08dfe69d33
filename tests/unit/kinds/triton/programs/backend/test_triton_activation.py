"""The conditions under which Triton runs kernels through Silo. If Silo fails, programs run as without it."""

import shutil
from importlib.metadata import version

import pytest

from silo.settings import Settings, SettingsError
from silo.sources.installations import parsed_version
from triton_entry import SILO, SOURCE, answer

pytest.importorskip("triton", reason="Triton is not installed")

# A driver for a machine with a fictitious kind of GPU.
GPU_COMPILER = """
from triton.backends.compiler import BaseBackend

class GpuBackend(BaseBackend):
    supports_target = staticmethod(lambda target: target.backend == "gpu")

GpuBackend.__abstractmethods__ = frozenset()
"""
GPU_DRIVER = """
from triton.backends.driver import DriverBase

class GpuDriver(DriverBase):
    is_active = staticmethod(lambda: True)

GpuDriver.__abstractmethods__ = frozenset()
"""

ASK = """
import json, triton
from triton.runtime.driver import driver
try:
    found = type(driver.active).__name__
except RuntimeError as error:
    found = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def gpu(tmp_path):
    """Entry points of Silo and of a driver that is always active, in both orders, and where the latter lies."""
    package = tmp_path / "packages" / "made_up_gpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "compiler.py").write_text(GPU_COMPILER)
    (package / "driver.py").write_text(GPU_DRIVER)
    return {"path": [package.parent]}


FIRST = {**SILO, "gpu": "made_up_gpu"}
LAST = {"gpu": "made_up_gpu", **SILO}
ORDERS = [pytest.param(FIRST, id="before"), pytest.param(LAST, id="after", marks=pytest.mark.all)]


# Triton's own backends find no GPU then, so that Silo's and the one above are all there can be.
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


def test_it_is_active_where_no_gpu_is(tmp_path):
    assert answer(tmp_path, ASK, **NO_GPU) == "CpuDriver"


@pytest.mark.parametrize("entries", [FIRST, LAST], ids=["before", "after"])
def test_a_machine_with_a_gpu_is_left_alone(tmp_path, gpu, entries):
    assert answer(tmp_path, ASK, entries=entries, **gpu, **NO_GPU) == "GpuDriver"


@pytest.mark.parametrize("entries", ORDERS)
def test_a_setting_prefers_the_cpu(tmp_path, gpu, entries):
    assert answer(tmp_path, ASK, entries=entries, **gpu, **NO_GPU, SILO_TRITON="cpu") == "CpuDriver"


@pytest.mark.parametrize("entries", ORDERS)
def test_tritons_own_variable_prefers_it_too(tmp_path, gpu, entries):
    variables = {**NO_GPU, "TRITON_DEFAULT_BACKEND": "silo"}
    assert answer(tmp_path, ASK, entries=entries, **gpu, **variables) == "CpuDriver"


@pytest.mark.parametrize("entries", ORDERS)
def test_the_name_cpu_can_be_chosen(tmp_path, gpu, entries):
    variables = {**NO_GPU, "TRITON_DEFAULT_BACKEND": "cpu"}
    if parsed_version(version("triton"))[:2] < (3, 7):  # this Triton does not read that variable: Silo does
        assert answer(tmp_path, ASK, entries=entries, **gpu, **variables) == "CpuDriver"
        return
    assert answer(tmp_path, ASK, entries=entries, **gpu, **variables) == "NamedCpuDriver"
    refused = answer(tmp_path, ASK, entries=entries, **gpu, **variables, SILO_TRITON="off")
    assert refused == "Backend device 'cpu' is not active."


# Torch's way to send compiled code to the CPU, with its own target for it.
AS_TORCH = """
import ctypes, json, triton, triton.language as tl
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

@triton.jit
def double(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, tl.load(x + i) * 2)

class Memory:
    def __init__(self):
        self.data = (ctypes.c_float * 8)(*range(8))
        self.dtype = "float32"
    def data_ptr(self):
        return ctypes.addressof(self.data)

driver.set_active(backends["cpu"].driver())
source = triton.compiler.ASTSource(double, {"x": "*fp32", "n": "constexpr"}, {(1,): 8})
made = triton.compile(source, target=GPUTarget("cpu", "", 32))
memory = Memory()
made[(1, 1, 1)](memory, 8)
named = driver.active.get_current_target()
print(json.dumps([list(memory.data), type(driver.active).__name__, named.backend, bool(named.arch)]))
"""


def test_torchs_way_to_the_cpu(tmp_path, gpu):
    twice = [2.0 * number for number in range(8)]
    found = answer(tmp_path, AS_TORCH, entries=LAST, **gpu, **NO_GPU)
    assert found == [twice, "NamedCpuDriver", "cpu", True]


REFUSED = """
import json
from triton.backends import backends
try:
    backends["cpu"].driver()
except Exception as error:
    print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def test_the_name_cpu_is_refused_where_silo_is_off(tmp_path):
    assert "DeviceError: a program asked Triton for the backend 'cpu'" in answer(tmp_path, REFUSED, SILO_TRITON="off")


def test_a_setting_switches_it_off(tmp_path):
    found = answer(tmp_path, ASK, **NO_GPU, SILO_TRITON="off")
    assert found.startswith("0 active drivers")


EXPLAIN = """
import json, triton
from triton.backends import backends
print(json.dumps([bool(found := backends["silo"].driver.explain()), found.reason]))
"""


def test_the_driver_says_why(tmp_path, gpu):
    def explained(**options):
        return answer(tmp_path, EXPLAIN, **{**NO_GPU, **options})

    assert explained() == [True, "no other driver of Triton is active"]
    assert explained(SILO_TRITON="cpu") == [True, "by SILO_TRITON"]
    assert explained(SILO_TRITON="off") == [False, "switched off by SILO_TRITON"]
    active, reason = explained(SILO_TRITON="maybe")
    assert not active
    assert "SILO_TRITON is one of" in reason
    active, reason = explained(entries=LAST, **gpu)
    assert not active
    assert "driver gpu" in reason


def test_the_modes():
    def mode(**given):
        return Settings.from_environment(given).triton

    assert mode() == "auto"
    assert mode(SILO_TRITON="CPU") == "cpu"
    assert mode(TRITON_DEFAULT_BACKEND="silo") == "cpu"
    assert mode(TRITON_DEFAULT_BACKEND="cpu") == "cpu"
    assert mode(TRITON_DEFAULT_BACKEND="nvidia") == "auto"
    assert mode(TRITON_DEFAULT_BACKEND="silo", SILO_TRITON="off") == "off"
    with pytest.raises(SettingsError, match="SILO_TRITON is one of auto, cpu, off"):
        mode(SILO_TRITON="gpu")


LIGHT = """
import json, sys, triton
named = [name for name in sys.modules if name.partition(".")[0] in ("silo", "torch", "numpy")]
print(json.dumps(sorted(named)))
"""


def test_importing_triton_loads_next_to_nothing_of_silo(tmp_path):
    plugin = "silo.kinds.triton.programs.backend"
    assert answer(tmp_path, LIGHT) == sorted(
        {
            *("silo", "silo.core", "silo.core.decisions", "silo.errors", "silo.forks"),
            *("silo.frozen", "silo.settings", "silo.variables"),
            *("silo.kinds", "silo.kinds.triton", "silo.kinds.triton.programs", plugin),
            *(f"{plugin}.{name}" for name in ("activation", "compiler", "driver", "named_cpu")),
            *(f"{plugin}.named_cpu.{name}" for name in ("compiler", "driver")),
        }
    )


KEEPS_SETTINGS = """
import json, os, triton
os.environ["SILO_THREADS"] = "1"
from silo.settings import settings
print(json.dumps(settings().threads))
"""


def test_settings_are_not_read_by_importing_triton(tmp_path):
    assert answer(tmp_path, KEEPS_SETTINGS, SILO_THREADS="2") == 1


# -- a Silo that fails -----------------------------------------------------------------------------------------------

BROKEN = """
import json, logging, triton
from triton.runtime.driver import driver
from triton.backends import backends

messages = []
class Keep(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
logging.getLogger("silo").addHandler(Keep())

try:
    found = type(driver.active).__name__
except RuntimeError as error:
    found = str(error)
asked = [backends["silo"].driver.is_active() for _ in range(3)]
print(json.dumps([found, asked, messages]))
"""


def sabotaged(tmp_path, name, text):
    """A copy of Silo in which one module is replaced."""
    copy = tmp_path / "broken"
    shutil.copytree(SOURCE / "silo", copy / "silo")  # with the bytecode, which is valid for a copy
    (copy / "silo" / name).write_text(text)
    return copy


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("settings.py", "raise RuntimeError('sabotage')", "RuntimeError: sabotage"),
        ("errors.py", "this is no Python", "SyntaxError"),
        ("kinds/triton/programs/backend/activation.py", "import no_such_module", "No module named 'no_such_module'"),
        ("launch/native.py", "raise ImportError('not built')", "not built"),
        ("drivers/cpu/levels.py", "", "host_target"),
        ("kinds/triton/front/adapter/triton_toolchain.py", "TESTED_VERSIONS = ()", "adapter.triton_toolchain"),
    ],
)
def test_a_broken_silo_is_inactive_and_says_why_once(tmp_path, name, text, reason):
    path = [sabotaged(tmp_path, name, text)]
    found, asked, messages = answer(tmp_path, BROKEN, path=path, **NO_GPU)
    assert found.startswith("0 active drivers")
    assert asked == [False] * 3
    assert len(messages) == 1
    assert "Silo's Triton backend is inactive" in messages[0]
    assert reason in messages[0]


def test_a_broken_silo_does_not_disturb_a_gpu(tmp_path, gpu):
    path = [sabotaged(tmp_path, "settings.py", "raise RuntimeError('sabotage')"), *gpu["path"]]
    found, asked, _ = answer(tmp_path, BROKEN, entries=LAST, path=path, **NO_GPU)
    assert found == "GpuDriver"
    assert asked == [False] * 3


def test_a_setting_without_sense_does_not_fail_the_import(tmp_path):
    found, _, messages = answer(tmp_path, BROKEN, SILO_TRITON="perhaps", **NO_GPU)
    assert found.startswith("0 active drivers")
    assert "SILO_TRITON is one of auto, cpu, off, not 'perhaps'" in messages[0]


OTHER_VERSION = """
import importlib.metadata as metadata
real = metadata.Distribution.version
metadata.Distribution.version = property(lambda self: "3.12.0" if self.name == "triton" else real.fget(self))
"""


def test_a_triton_that_silo_does_not_know_is_left_alone(tmp_path):
    found, _, messages = answer(tmp_path, OTHER_VERSION + BROKEN, **NO_GPU)
    assert found.startswith("0 active drivers")
    assert "Triton 3.12.0 is installed" in messages[0]
    forced = answer(tmp_path / "forced", OTHER_VERSION + ASK, **NO_GPU, SILO_FORCE_TRITON="1")
    assert forced == "CpuDriver"


MORE_ABSTRACT = """
import abc, inspect, sys, triton
from triton.backends.compiler import BaseBackend
from triton.backends.driver import DriverBase

for base in (BaseBackend, DriverBase):
    base.something_new = abc.abstractmethod(lambda self: None)
    abc.update_abstractmethods(base)
for name in [name for name in sys.modules if name.startswith("silo.kinds.triton.programs.backend.")]:
    del sys.modules[name]

class Control(DriverBase):
    pass

from silo.kinds.triton.programs.backend.compiler import CpuBackend
from silo.kinds.triton.programs.backend.driver import CpuDriver
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver

classes = (Control, CpuBackend, CpuDriver, NamedCpuBackend, NamedCpuDriver)
print([inspect.isabstract(one) for one in classes] == [True] + [False] * 4 and "true")
"""


def test_classes_stay_concrete_where_triton_asks_for_more(tmp_path):
    assert answer(tmp_path, MORE_ABSTRACT) is True


RUN = """
import ctypes, json, triton, triton.language as tl

@triton.jit
def double(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, tl.load(x + i) * 2)

class Memory:
    dtype = "float32"
    def __init__(self, count):
        self.cells = (ctypes.c_float * count)(*range(count))
    def data_ptr(self):
        return ctypes.addressof(self.cells)

x = Memory(8)
double[(1,)](x, 8)
print(json.dumps(list(x.cells)))
"""


def test_a_program_that_knows_no_silo_runs(tmp_path):
    assert answer(tmp_path, RUN, **NO_GPU) == [2.0 * number for number in range(8)]
