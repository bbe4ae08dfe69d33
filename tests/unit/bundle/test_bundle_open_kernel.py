"""Kernels whose variants are read one by one: the same variants, the same choice."""

import json
from types import SimpleNamespace

import pytest

import bundle_samples
from bundle_samples import sample, sealed
from fuzz.chooser import ranked
from silo.artifacts.runs_on import runs_on
from silo.bundle.contents import CallHead, calls_of, host_code
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.drivers.cpu import cpu_device
from silo.drivers.cpu.levels import host_target
from silo.errors import BundleError, BundleFormatError, SiloError
from silo.frozen import replace
from silo.kernels.bundle_kernels import BundledKernel
from silo.launch.arguments import CallArgument, SeenCall, ValueKind
from silo.launch.native import LibraryCode, LoadedKernel

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90", "cuda:sm_80", "cuda:sm_100")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = sample(2, 96, blob_bytes=80, targets=TARGETS)
    path = tmp_path_factory.mktemp("bundle") / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    return path


@pytest.fixture(scope="module")
def underived(tmp_path_factory):
    """The same without derived constexprs, which hardly any call suits."""
    made = sample(2, 96, blob_bytes=80, targets=TARGETS)
    path = tmp_path_factory.mktemp("bundle") / "underived.silo"
    kernels = tuple(replace(one, derived=()) for one in made.contents.kernels)
    write_bundle(path, replace(made.contents, kernels=kernels), made.read_blob)
    return path


def device(target):
    here = Target.parse(target)
    return SimpleNamespace(target=here, runs=lambda built, kind: runs_on(built, here, kind), facts=dict)


def call(n, *, element="float32", aligned=True, **constants):
    kind = ValueKind
    block = constants.get("BLOCK")
    return SeenCall(
        "kernel_0",
        (
            CallArgument("x", kind.POINTER, None, dtype(element), aligned16=aligned),
            CallArgument("out", kind.POINTER, None, dtype(element), aligned16=True),
            CallArgument("n", kind.INT, n, dtype("int32"), divisible16=n % 16 == 0, equal1=n == 1),
            CallArgument("BLOCK", kind.ABSENT if block is None else kind.CONSTANT, block),
        ),
        {name: value for name, value in constants.items() if name != "BLOCK"},
        (2, 0),
    )


def test_a_launch_sees_of_a_variant_what_its_value_has(path):
    with open_bundle(path) as bundle:
        opened = bundle.open_kernel("kernel_0")
        head, calls = opened.head, calls_of(opened.head)
        assert opened.call_head == CallHead(
            head.name,
            head.signature,
            head.key,
            head.config_names,
            tuple(name for name, _ in head.derived),
            head.contiguous,
        )
        for number in range(len(opened)):
            code, one = opened.packed(number), opened[number]
            variant = one.artifact.variant
            assert (code.kernel, code.launch, code.blob) == (variant.kernel, one.artifact.launch, one.artifact.blob)
            assert (code.target, code.config) == (str(variant.target), str(variant.config))
            assert code.values == (
                *variant.specialization.constants,
                *variant.config.values,
                *variant.config.options,
            )
            assert opened.host_digest(number) == host_code(one, calls).digest


def test_a_variant_is_bound_as_its_values_are(tmp_path):
    made = sample(1, 1, targets=(str(host_target()),))
    (kernel,) = made.contents.kernels
    write_bundle(tmp_path / "k.silo", replace(made.contents, kernels=(replace(kernel, derived=()),)), made.read_blob)
    with open_bundle(tmp_path / "k.silo") as bundle:
        opened = bundle.open_kernel("kernel_0")
        code, artifact = opened.packed(0), opened[0].artifact
        (here,) = cpu_device.devices()
        loaded = LoadedKernel(LibraryCode(print, "cpu", 0, (1,)), artifact.launch.entry, "kernel_0")
        binding = opened.bind(0, loaded, code, here)
        assert binding.config == {
            **artifact.variant.specialization.constant_values,
            **artifact.variant.config.as_dict(),
        }
        assert binding.tag.artifact == artifact
        with pytest.raises(SiloError, match="kernel_0 has 1 variants: there is no variant 1"):
            opened.bind(1, loaded, code, here)
        with pytest.raises(TypeError):
            opened.bind(0, object(), code, here)


def test_every_variant_is_the_same_and_in_one_group(path):
    with open_bundle(path) as bundle:
        whole, opened = bundle.kernel("kernel_0"), bundle.open_kernel("kernel_0")
        assert len(opened) == len(whole.variants) == 96
        assert tuple(opened[number] for number in range(96)) == whole.variants
        assert replace(whole, variants=(), rules=()) == opened.head
        assert sorted(number for group in opened.groups() for number in group.numbers) == list(range(96))
        assert len(list(opened.groups())) == 8
        assert sorted(number for one in opened.code for number in one.numbers) == list(range(96))
        for one in opened.code:
            artifacts = [opened[number].artifact for number in one.numbers]
            assert {(artifact.variant.target, artifact.blob.kind) for artifact in artifacts} == {
                (one.target, one.blob_kind)
            }
        for group in opened.groups():
            for number in group.numbers:
                artifact = opened[number].artifact
                variant = artifact.variant
                assert (group.target, group.blob_kind) == (variant.target, artifact.blob.kind)
                assert (group.signature, group.specialization) == (variant.signature, variant.specialization)


def test_groups_for_other_constants_are_left_out(tmp_path):
    made = sample(1, 12, targets=(str(host_target()),))
    (kernel,) = made.contents.kernels
    values = ({}, {"A": 1}, {"A": True}, {"A": 1, "B": 2.0}, {"A": 1, "B": -0.0}, {"A": "silu", "B": None})
    variants = []
    for number, one in enumerate(kernel.variants):
        variant = one.artifact.variant
        given = variant.specialization.with_constants(values[number % len(values)])
        variants.append(replace(one, artifact=replace(one.artifact, variant=replace(variant, specialization=given))))
    kernel = replace(kernel, variants=tuple(variants), derived=(), rules=())
    write_bundle(tmp_path / "k.silo", replace(made.contents, kernels=(kernel,)), made.read_blob)
    with open_bundle(tmp_path / "k.silo") as bundle:
        opened = bundle.open_kernel("kernel_0")

        def named(known):
            return {tuple(group.specialization.constants) for group in opened.groups(known)}

        assert named(None) == {tuple(sorted(one.items())) for one in values}
        assert named({}) == {()}
        assert [type(value) for one in named({"A": 1, "C": 3}) for _, value in one] == [int]
        assert [type(value) for one in named({"A": True}) for _, value in one] == [bool]
        assert named({"A": 1, "B": 2.0}) == {(), (("A", 1),), (("A", 1), ("B", 2.0))}
        assert named({"A": 1, "B": 0.0}) == {(), (("A", 1),)}
        assert named({"A": "silu", "B": None}) == {(), (("A", "silu"), ("B", None))}


def test_opening_reads_no_variant(path, monkeypatch):
    with open_bundle(path) as bundle:
        monkeypatch.setattr(type(bundle.manifest), "variant", lambda *_: pytest.fail("it was read"))
        assert list(bundle.open_kernel("kernel_0").groups())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "one",
    [
        call(1024),
        call(1024, aligned=False),
        call(33),
        call(1 << 20, BLOCK=64),
        call(48, BLOCK=128, num_warps=4),
        call(48, num_stages=7),
        call(64, element="float16"),
    ],
)
def test_the_choice_is_that_of_deciding_on_every_variant(underived, target, one):
    usual = not one.options and one["n"].number in (1024, 33, 48) and target != "cuda:sm_100"
    with open_bundle(underived) as bundle:
        kernel = BundledKernel(bundle, bundle.open_kernel("kernel_0"), "k.silo", trust=False)
        here = device(target)
        whole = bundle.kernel("kernel_0")
        numbers = ranked(whole, one, here)
        assert numbers or not usual
        assert kernel.rank_numbers(one, here) == tuple(numbers)
        assert kernel.rank(one, here) == [whole.variants[number] for number in numbers]


def test_one_wrong_variant_is_named_when_it_is_read(path):
    data = path.read_bytes()
    manifest = json.loads(Bundle.from_bytes(data).manifest_text)
    manifest["kernels"][0]["variants"][5]["config"] = 10_000
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    bundle = Bundle.from_bytes(sealed(data, text, compress=False), "k.silo")
    kernel = bundle.open_kernel("kernel_0")
    assert kernel[4].artifact.variant.kernel == "kernel_0"
    with pytest.raises(BundleFormatError, match=r"kernels\[0\]\.variants\[5\]\.config"):
        kernel[5]
    with pytest.raises(BundleFormatError, match=r"kernels\[0\]\.variants\[5\]\.config"):
        bundle.kernel("kernel_0")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("target", 99),
        ("target", "0"),
        ("signature", True),
        ("specialization", [0]),
        ("blob", -1),
        ("blob", 1 << 40),
        (None, None),
    ],
)
def test_variants_that_cannot_be_grouped_are_named(path, member, value):
    data = path.read_bytes()
    manifest = json.loads(Bundle.from_bytes(data).manifest_text)
    if member is None:
        manifest["kernels"][0]["variants"][7] = [1, 2]
    else:
        manifest["kernels"][0]["variants"][7][member] = value
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    kernel = Bundle.from_bytes(sealed(data, text, compress=True), "k.silo").open_kernel("kernel_0")
    with pytest.raises(BundleFormatError, match=r"kernels\[0\]\.variants\[7\]"):
        assert list(kernel.groups())


def test_a_kernel_that_is_not_there(path):
    with (
        open_bundle(path) as bundle,
        pytest.raises(BundleError, match="no kernel 'nope'; it holds: kernel_0, kernel_1"),
    ):
        bundle.open_kernel("nope")


def test_each_variant_is_found_by_its_text_and_nothing_else_is_read(path, monkeypatch):
    with open_bundle(path) as bundle:
        whole = bundle.kernel("kernel_0")
        fresh = Bundle.from_bytes(path.read_bytes()).open_kernel("kernel_0")
        for number, one in enumerate(whole.variants):
            wanted = one.artifact.variant
            untold = replace(wanted, signature=wanted.signature.without_effects())  # nobody has compiled it yet
            assert fresh.exact(untold) == one
            assert len(fresh._read) == number + 1
        monkeypatch.setattr(type(bundle.manifest), "variant", lambda *_: pytest.fail("it was read"))
        opened = bundle.open_kernel("kernel_0")
        for other in (
            replace(wanted, source="0" * 64),
            replace(wanted, kernel="kernel_1"),
            replace(wanted, target=Target.parse("cuda:sm_86")),
            replace(wanted, config=Config.of(wanted.config.as_dict() | {"num_warps": True})),
            replace(wanted, config=Config.of(wanted.config.as_dict() | {"maxnreg": 32})),
            replace(wanted, config=Config.of({"num_warps": 1})),
            replace(wanted, specialization=Specialization((("x", Fact.ALIGNED_16),))),
            replace(wanted, specialization=Specialization(wanted.specialization.facts, grid=(1, 1, 1))),
            replace(wanted, signature=call_types("float64")),
            replace(wanted, signature=Signature(wanted.signature.parameters[1:])),
        ):
            assert opened.exact(other) is None


def call_types(element):
    return bundle_samples.typed(element).without_effects()


def test_constants_of_the_config_and_of_the_call_are_one(path):
    with open_bundle(path) as bundle:
        opened = bundle.open_kernel("kernel_0")
        written = opened[5].artifact.variant
        constants = dict(written.config.values)
        options = Config((), written.config.options)
        called = replace(written, config=options, specialization=written.specialization.with_constants(constants))
        assert opened.exact(called) is opened[5]
        assert (
            opened.exact(replace(called, specialization=written.specialization.with_constants({"BLOCK": 1.0}))) is None
        )


def with_rows(path, specialization, config):
    """Variant 5 of the first kernel with these rows."""
    data = path.read_bytes()
    manifest = json.loads(Bundle.from_bytes(data).manifest_text)
    variant, tables = manifest["kernels"][0]["variants"][5], manifest["tables"]
    for name, table, row in (("specialization", "specializations", specialization), ("config", "configs", config)):
        variant[name] = len(tables[table])
        tables[table].append(row)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return Bundle.from_bytes(sealed(data, text, compress=True), "k.silo").open_kernel("kernel_0")


def block(path, value):
    """What variant 5 is but for its rows, with no constant but the block; None: with none."""
    with open_bundle(path) as bundle:
        written = bundle.open_kernel("kernel_0")[5].artifact.variant
    constants = () if value is None else (("BLOCK", value),)
    return replace(written, config=Config(), specialization=Specialization((), constants))


@pytest.mark.parametrize(
    ("constants", "values", "wanted"),
    [
        ([["BLOCK", 1]], {}, 1),
        ([], {"BLOCK": 1}, 1),
        ([["BLOCK", 1]], {"BLOCK": 2}, 1),  # the last one counts
        ([["BLOCK", 2], ["BLOCK", 1]], {}, 1),
        ([["BLOCK", True]], {}, True),
        ([], {}, None),
    ],
)
def test_rows_that_say_the_same_are_found(path, constants, values, wanted):
    opened = with_rows(path, {"facts": [], "constants": constants}, {"options": {}, "values": values})
    assert opened._manifest.exact(0, block(path, wanted)) == 5
    for other in (1, True, 2, None):
        if other is not wanted:
            assert opened._manifest.exact(0, block(path, other)) is None


@pytest.mark.parametrize(
    ("specialization", "config"),
    [
        (None, {"options": {}, "values": {}}),
        ({"facts": [], "constants": {}}, {"options": {}, "values": {}}),
        ({"facts": [], "constants": [["BLOCK"]]}, {"options": {}, "values": {}}),
        ({"facts": [], "constants": [[1, 2]]}, {"options": {}, "values": {}}),
        ({"facts": [], "constants": [["BLO\0CK", 1]]}, {"options": {}, "values": {}}),
        ({"facts": [], "constants": [], "grid": [1, 1, 1]}, {"options": {}, "values": {}}),
        ({"facts": [], "constants": []}, {"options": [], "values": {}}),
        ({"facts": [], "constants": []}, {"options": {}, "values": {"\0": 1}}),
        ({"facts": [], "constants": []}, None),
        ({"facts": [["x", "aligned16"]], "constants": []}, {"options": {}, "values": {}}),
    ],
)
def test_rows_of_another_form_hold_no_variant(path, specialization, config):
    assert with_rows(path, specialization, config).exact(block(path, None)) is None


def test_a_kernel_with_other_parameters_than_its_variant_is_not_used(path):
    data = path.read_bytes()
    manifest = json.loads(Bundle.from_bytes(data).manifest_text)
    row = manifest["kernels"][0]
    signatures = manifest["tables"]["signatures"]
    row["signature"] = len(signatures)
    signatures.append([{"kind": "any", "name": "other"}])
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    with open_bundle(path) as bundle:
        wanted = bundle.open_kernel("kernel_0")[0].artifact.variant
        assert bundle.open_kernel("kernel_0").exact(wanted) is not None
    opened = Bundle.from_bytes(sealed(data, text, compress=True), "k.silo").open_kernel("kernel_0")
    assert opened.exact(wanted) is None
