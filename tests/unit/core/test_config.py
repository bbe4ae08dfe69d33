import pytest

from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Parameter, Signature
from silo.core.specialization import Specialization
from silo.core.values import canonical_json, parse_json
from silo.core.variant import CompileJob, Variant


def test_names_of_options_become_options():
    config = Config.of({"num_warps": 4, "BLOCK": 64}, ACT="relu", num_stages=3)
    assert config.values == (("ACT", "relu"), ("BLOCK", 64))
    assert config.options == (("num_stages", 3), ("num_warps", 4))
    assert config.as_dict() == {"ACT": "relu", "BLOCK": 64, "num_stages": 3, "num_warps": 4}
    assert str(config) == "ACT=relu, BLOCK=64, num_stages=3, num_warps=4"
    assert str(Config()) == "(default)"


def test_order_of_writing_does_not_matter():
    one, two = Config((("b", 1), ("a", 2))), Config((("a", 2), ("b", 1)))
    assert one == two
    assert one.order_key == two.order_key
    assert hash(one) == hash(two)


def test_json_round_trip():
    config = Config.of(A=1.5, B=None, C=(1, "x"), D=True, num_warps=8)
    again = Config.from_json(parse_json(canonical_json(config.to_json())))
    assert again == config
    assert again.order_key == config.order_key


def test_equal_numbers_of_different_kinds_have_different_keys():
    assert len({Config.of(A=value).order_key for value in (1, True, 1.0, "1")}) == 4


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"values": {}},
        {"values": {}, "options": {}, "more": 1},
        {"values": [], "options": {}},
        {"values": {"A": 1.5}, "options": {}},
        {"values": {"A": [1]}, "options": {}},
        {"values": {}, "options": 3},
    ],
)
def test_json_refuses_what_it_never_writes(data):
    with pytest.raises(ValueError, match="not "):
        Config.from_json(data)


def variant(**changes):
    members = {
        "kernel": "add",
        "source": "ab" * 32,
        "signature": Signature((Parameter("n"),)),
        "specialization": Specialization((), (("B", 1),)),
        "config": Config.of(BLOCK=64),
        "target": Target.parse("cpu:x86-64-v3"),
    }
    return Variant(**{**members, **changes})


def test_variants_round_trip_and_have_keys_of_every_part():
    assert Variant.from_json(parse_json(canonical_json(variant().to_json()))) == variant()
    others = [
        variant(kernel="sub"),
        variant(source="cd" * 32),
        variant(signature=Signature(())),
        variant(specialization=Specialization()),
        variant(config=Config.of(BLOCK=65)),
        variant(target=Target.parse("cpu:x86-64-v2")),
    ]
    keys = {one.artifact_key("cc 1") for one in (variant(), *others)} | {variant().artifact_key("cc 2")}
    assert len(keys) == 8


def test_jobs_round_trip_and_have_keys():
    job = CompileJob("cpu", "add", Target.parse("cpu:x86-64-v3"), "module {}", {"flags": ["-O2"]})
    assert CompileJob.from_json(parse_json(canonical_json(job.to_json()))) == job
    assert job.key("cc 1") != job.key("cc 2")


@pytest.mark.parametrize("kind", [Variant, CompileJob])
@pytest.mark.parametrize("data", [None, {}, [], {"kernel": "add"}])
def test_variant_and_job_json_refuses_what_it_never_writes(kind, data):
    with pytest.raises(ValueError, match="not a"):
        kind.from_json(data)
