"""Whether two artifacts hold the same code: the bytes decide, but for the name of the entry."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from silo.artifacts.artifact import Artifact, BlobRef
from silo.artifacts.elf import same_code
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.store.stored_objects import MemoryBlobs

BLOBS = MemoryBlobs()


def artifact(data, entry="kernel", kind="cubin", **launch):
    variant = Variant("k", "s", Signature(()), Specialization(), Config(), Target.parse("cuda:sm_90"))
    ref = BlobRef(BLOBS.put(data), kind, len(data))
    return Artifact(variant, LaunchInfo(entry, (), **launch), ref, (), "compiler 1", "job")


def same(one, other):
    return same_code(one, other, BLOBS.get)


def test_equal_bytes_that_are_launched_alike_are_the_same_code():
    one = artifact(b"code", threads=128)
    assert same(one, replace(artifact(b"code", threads=128), compiler="compiler 2", job="another"))
    assert not same(one, artifact(b"edoc", threads=128))
    assert "another way" in same(one, artifact(b"code", threads=64)).reason
    assert not same(one, artifact(b"code", kind="hsaco", threads=128))
    assert not same(one, artifact(b"code", entry="other", threads=128))


def test_code_that_is_gone_is_not_known_to_be_the_same():
    one, other = artifact(b"a silo_a_1\0", "silo_a_1", "so"), artifact(b"a silo_a_2\0", "silo_a_2", "so")
    assert same(one, other)
    assert "no longer" in same_code(one, other, lambda _: None).reason


def test_the_name_counts_wherever_it_is_no_whole_name():
    one, other = artifact(b"silo_a_1z\0", "silo_a_1", "so"), artifact(b"silo_a_2z\0", "silo_a_2", "so")
    assert not same(one, other)


# ---- shared objects of a real compiler ----

TEXT = "float ENTRY(float x) { return x * 2.0f + 1.0f; }\n"


@pytest.fixture
def built(tmp_path):
    """A function that compiles a text with an entry's name to an artifact."""
    cc = shutil.which("gcc") or shutil.which("cc")
    if cc is None:
        pytest.skip("no C compiler is here")

    def build(entry, text=TEXT, *flags):
        output = tmp_path / "out.so"
        words = [cc, "-O2", "-g0", "-fPIC", "-shared", "-nostartfiles", "-Wl,-s", "-Wl,--build-id=none"]
        words += ["-Wl,--hash-style=gnu", *flags, "-x", "c", "-", "-o", str(output)]
        subprocess.run(words, input=text.replace("ENTRY", entry), text=True, check=True)
        return artifact(output.read_bytes(), entry, "so")

    return build


def test_native_code_under_another_name_is_the_same_code(built):
    one, other = built("silo_k_0123456789ab"), built("silo_k_ba9876543210")
    assert BLOBS.get(one.blob.sha256) != BLOBS.get(other.blob.sha256)
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize("change", ["a constant", "an option"])
def test_native_code_that_was_changed_is_other_code(built, change):
    one = built("silo_k_0123456789ab")
    other = (
        built("silo_k_ba9876543210", TEXT.replace("2.0f", "3.0f"))
        if change == "a constant"
        else built("silo_k_ba9876543210", TEXT, "-O0")
    )
    assert same(one, other).reason == "other machine code"


def test_every_byte_of_an_object_counts_but_names_and_their_hashes(built):
    one, other = built("silo_k_0123456789ab"), built("silo_k_ba9876543210")
    data = BLOBS.get(other.blob.sha256)
    counted = 0
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        damaged = replace(other, blob=BlobRef(BLOBS.put(bytes(changed)), "so", len(data)))
        counted += not same(one, damaged)
    assert counted >= len(data) - 64 - 8  # a table of hashes of one name has some forty bytes
