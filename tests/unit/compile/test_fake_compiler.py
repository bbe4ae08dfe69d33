import pytest

from fake_backend.compiler import FakeCompiler
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import CompileError

SIGNATURE = Signature(
    (
        Parameter("x", ParameterKind.POINTER, dtype("float32")),
        Parameter("n", ParameterKind.INTEGER, dtype("int32")),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)


class FakeSource:
    kind = "triton"
    name = "kernel"
    fingerprint = "f" * 64
    signature = SIGNATURE


def job(**values):
    compiler = FakeCompiler()
    variant = Variant(
        "kernel", "f" * 64, SIGNATURE, Specialization(), Config.of(BLOCK=64, **values), Target.parse("fake:one")
    )
    return compiler.lower(FakeSource(), variant).job


def test_equal_jobs_give_equal_bytes_and_others_do_not():
    compiler = FakeCompiler()
    assert compiler.compile(job()) == compiler.compile(job())
    assert compiler.compile(job()).blob != compiler.compile(job(num_warps=8)).blob
    assert compiler.compile(job()).blob != compiler.compile(job(REGISTERS=7)).blob


def test_launch_info_follows_the_config():
    launch = FakeCompiler().compile(job(num_warps=8, REGISTERS=7, SPILLS=3)).launch
    assert (launch.entry, launch.num_warps, launch.threads) == ("kernel", 8, 256)
    assert (launch.registers, launch.spills) == (7, 3)
    assert [slot.name for slot in launch.layout] == ["x", "n"]


def test_it_raises_what_it_is_told_to():
    with pytest.raises(CompileError, match="as told"):
        FakeCompiler().compile(job(RAISE="as told"))
    with pytest.raises(RuntimeError, match="a bug"):
        FakeCompiler().compile(job(BUG="a bug"))


@pytest.mark.parametrize(("target", "accepted"), [("fake:one", True), ("fake", False), ("cuda:sm_80", False)])
def test_it_accepts_concrete_fake_targets_only(target, accepted):
    assert bool(FakeCompiler().accepts("triton", Target.parse(target))) is accepted
