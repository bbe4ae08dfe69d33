# pyright: reportAttributeAccessIssue=false

import hashlib
import subprocess
import sys

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.argument_facts import describe
from silo.core.config import Config
from silo.core.consent import HostCode
from silo.core.device import Target
from silo.core.expressions import Argument, ConfigValue, DeviceFact
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import Device
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.drivers.cpu.cpu_device import devices
from silo.errors import ArgumentError, DeviceError, ExpressionError, SourceError, TrustError
from silo.launch.arguments import ValueKind, describe_call
from silo.launch.runtime import bind, inspect_call, make_launcher
from silo.store.trust_ledger import consent_to_compiled

POINTER = ParameterKind.POINTER
TYPED = Signature(
    (
        Parameter("x", POINTER, dtype("float32"), Effect.READ),
        Parameter("y", POINTER, dtype("float32"), Effect.READ),
        Parameter("out", POINTER, dtype("float32"), Effect.WRITE),
        Parameter("n", ParameterKind.INTEGER, dtype("int32")),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)
LAYOUT = (*(LayoutSlot(name, AbiType.POINTER) for name in ("x", "y", "out")), LayoutSlot("n", AbiType.I32))


def bound(launch, **options):
    return bind(kernels.loaded("add"), launch, TYPED, Specialization(), Config.of(BLOCK=64, num_warps=4), **options)


def run(binding, *arguments, **keywords):
    untyped = kernels.any_parameters("x", "y", "out", "n", "BLOCK")
    launch = make_launcher("add", untyped, on_miss=lambda call: binding, config_names=("BLOCK",))
    return launch(*arguments, **keywords)


def test_layout_config_and_effects_arrive():
    tag = object()
    hidden = (*LAYOUT, LayoutSlot("", AbiType.SCRATCH), LayoutSlot("", AbiType.PROFILE))
    for layout in (LAYOUT, hidden):
        binding = bound(LaunchInfo("add", layout), tag=tag)
        assert binding.config == {"BLOCK": 64, "num_warps": 4}
        assert binding.tag is tag
        x = np.arange(100, dtype=np.float32)
        out = np.zeros_like(x)
        run(binding, x, x, out, 100, grid=2)
        np.testing.assert_array_equal(out, x + x)
        frozen = np.zeros_like(x)
        frozen.flags.writeable = False
        run(binding, frozen, x, out, 100, grid=2)
        with pytest.raises(ArgumentError, match="'out' needs a writable"):
            run(binding, x, x, frozen, 100, grid=2)


def test_a_binary_that_takes_what_cannot_be_given():
    with pytest.raises(DeviceError, match="takes 'z', which is not a parameter; known: x, y"):
        bound(LaunchInfo("add", (LayoutSlot("z", AbiType.I32),)))
    with pytest.raises(DeviceError, match="tensor map"):
        bound(LaunchInfo("add", (LayoutSlot("x", AbiType.TENSORMAP),)))


def test_grids_are_checked_when_bound():
    launch = LaunchInfo("add", LAYOUT)
    with pytest.raises(ExpressionError, match="1 to 3 dimensions"):
        bound(launch, grid=())
    for node in (ConfigValue("WIDTH"), DeviceFact("sm_count"), Argument("m")):
        with pytest.raises(ExpressionError):
            bound(launch, grid=(node,))
    x = np.ones(128, np.float32)
    out = np.zeros_like(x)
    run(bound(launch, grid=(DeviceFact("sm_count"),), facts={"sm_count": 2}), x, x, out, 128)
    assert (out == 2).all()


def test_too_many_parameters():
    signature = kernels.any_parameters(*[f"p{i}" for i in range(257)])
    with pytest.raises(SourceError, match="has 257 parameters; Silo launches kernels with up to 256"):
        make_launcher("k", signature, on_miss=lambda call: None)


def test_as_many_parameters_as_there_may_be():
    names = [f"p{i}" for i in range(256)]
    signature = Signature(tuple(Parameter(name, ParameterKind.CONSTEXPR) for name in names))
    asked = kernels.Asked("nothing")
    launch = make_launcher("k", signature, on_miss=asked, key=names)
    options = {"num_warps": 1, "num_stages": 2, "maxnreg": 3}
    for _ in range(2):
        launch[1](*[(i, f"{i}") for i in range(256)], **options)
    assert launch.misses == 1
    assert dict(asked.calls[0].options) == options


# ---- facts ----


def test_facts_for_the_source_layer():
    signature = kernels.any_parameters("x", "n", "f", "b", "none", "C", "D")
    signature = Signature(
        (*signature.parameters[:5], Parameter("C", ParameterKind.CONSTEXPR), Parameter("D", ParameterKind.CONSTEXPR))
    )
    launch = make_launcher("k", signature, on_miss=lambda call: None, config_names=("D",))
    x = np.zeros((4, 4), np.float16)
    call = inspect_call(launch, signature, x, np.int64(48), 0.5, True, None, int)
    facts = call.facts(lambda value: value.__name__)
    assert list(facts) == ["x", "n", "f", "b", "none", "C"]
    assert (facts["x"].is_pointer, str(facts["x"].dtype)) == (True, "float16")
    assert (facts["x"].address % 16 == 0) == (x.ctypes.data % 16 == 0)
    assert [facts[name].value for name in ("n", "f", "b", "none", "C")] == [48, 0.5, True, None, "int"]
    assert type(facts["n"].value) is int
    assert call["D"].kind is ValueKind.ABSENT
    with pytest.raises(KeyError):
        call["missing"]
    assert call.device == (1, 0)
    assert call.on_host


def test_facts_agree_with_the_source_layer():
    from silo.kinds.triton.front.triton_specialize import specialize

    signature = kernels.any_parameters("x", "n", "one")
    launch = make_launcher("k", signature, on_miss=lambda call: None)
    for value in (5, 16, 2**31, 2**63, -16):
        call = inspect_call(launch, signature, np.zeros(4), value, 1)
        typed, found = specialize(signature, call.facts())
        assert typed["n"].dtype is call["n"].dtype
        assert ("divisible16" in {fact.value for fact in found.facts_of("n")}) == call["n"].divisible16
        assert ("equal1" in {fact.value for fact in found.facts_of("one")}) == call["one"].equal1
        assert ("aligned16" in {fact.value for fact in found.facts_of("x")}) == call["x"].aligned16


def test_calls_in_words():
    signature = kernels.any_parameters("x", "n")
    launch = make_launcher("k", signature, on_miss=lambda call: None)
    x = np.zeros(64, np.float32)[4:]
    text = describe_call(inspect_call(launch, signature, x, 32, num_warps=8))
    assert text.startswith("k(x=float32[60]")
    assert text.endswith("; n=32, int32, divisible16; num_warps=8)")
    assert len(describe("y" * 500)) == 60


# ---- the device ----


def test_the_cpu_is_a_device():
    (cpu,) = devices()
    device: Device = cpu
    assert device.target.kind == "cpu"
    assert device.target.is_concrete
    assert device.index == 0
    assert device.model.units >= 1
    assert device.model.memory_bytes > 1 << 20
    assert device.model.arch == device.target.arch
    assert device.facts()["sm_count"] >= 1
    assert device.facts()["warp_size"] == 1
    assert device.runs(device.target)
    assert not device.runs(Target.parse("cuda:sm_90"))


def consent(entry, blob):
    return consent_to_compiled(HostCode(hashlib.sha256(blob).hexdigest(), "so", LaunchInfo(entry, LAYOUT)), "a test")


def load(entry, blob, kind="so"):
    (cpu,) = devices()
    return cpu.load(LaunchInfo(entry, LAYOUT), blob, kind, "vector add", consent=consent(entry, blob))


def test_the_cpu_loads_objects():
    kernel = load("add", kernels.blob())
    assert (kernel.entry, kernel.name, kernel.driver) == ("add", "vector add", "cpu")
    with pytest.raises(DeviceError, match="kind so"):
        load("add", kernels.blob(), "cubin")
    with pytest.raises(DeviceError, match=r"vector add: .*no kernel 'other'"):
        load("other", kernels.blob())
    with pytest.raises(DeviceError, match="vector add: cannot load"):
        load("add", b"junk")


@pytest.mark.parametrize("entry", ["abort", "memcpy", "_exit"])
def test_the_entry_lies_in_the_object_itself(entry):
    with pytest.raises(DeviceError, match=rf"vector add: .*'{entry}' is a function of .*, not of the code"):
        load(entry, kernels.blob())


DATA = """
int numbers[64] = {1};
__attribute__((section(".text"))) const int constants[64] = {1};
__asm__(".globl named\\n.type named, @function\\n.data\\nnamed: .zero 64\\n.text");
int own(void) { return 0; }
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries do not tell")
@pytest.mark.parametrize("entry", ["numbers", "constants", "named"])
def test_the_entry_is_a_function(entry, tmp_path):
    """Not data, not data among the code, and nothing that calls itself a function where nothing may be run."""
    (tmp_path / "data.c").write_text(DATA)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / "data.so", tmp_path / "data.c"], check=True)
    blob = (tmp_path / "data.so").read_bytes()
    assert load("own", blob).entry == "own"
    with pytest.raises(DeviceError, match=rf"vector add: .*'{entry}' is data of the code, not a function"):
        load(entry, blob)


def test_the_cpu_loads_nothing_without_consent_to_it():
    (cpu,) = devices()
    blob, launch = kernels.blob(), LaunchInfo("add", LAYOUT)
    with pytest.raises(TrustError, match=r"vector add: native code .* without consent"):
        cpu.load(launch, blob, "so", "vector add")
    with pytest.raises(TrustError, match=r"vector add: consent was given to so .*, which these bytes are not"):
        cpu.load(launch, blob + b"\0", "so", "vector add", consent=consent("add", blob))
    for other in (
        LaunchInfo("abort", LAYOUT),
        LaunchInfo("add", LAYOUT[:1]),
        LaunchInfo("add", LAYOUT, scratch_bytes=8),
    ):
        with pytest.raises(TrustError, match="another layout or scratch"):
            cpu.load(other, blob, "so", "vector add", consent=consent("add", blob))


def test_importing_the_launch_layer_loads_no_framework():
    import subprocess
    import sys

    code = (
        "import sys, silo.launch.runtime, silo.launch.arguments, silo.launch.buffers, silo.drivers.cpu.cpu_device;"
        "print([n for n in ('numpy', 'torch', 'triton', 'jax') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_native_module_says_how_to_build_it():
    import subprocess
    import sys

    code = "import sys; sys.modules['silo._native'] = None\nimport silo.launch.native"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DeviceError: Silo's native module cannot be loaded" in done.stderr
    assert "setup.py build_ext --inplace" in done.stderr
