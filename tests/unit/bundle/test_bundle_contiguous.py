"""Arrays that a kernel of a bundle declares contiguous: read by both readers, checked by launches from Python and C."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

import libsilo
import silo
from bundle_samples import sample, sealed
from made_bundles import write_made
from silo.bundle.bundle_slices import cut_contents, cut_slice, join_slices, targets_of
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.errors import ArgumentError, BundleError, BundleFormatError


def declaring(contents, name="kernel_0", names=("x",)):
    """The contents with a kernel that declares arrays contiguous."""
    kernels = tuple(replace(one, contiguous=names) if one.name == name else one for one in contents.kernels)
    return replace(contents, kernels=kernels)


@pytest.fixture(name="path")
def made_bundle(tmp_path):
    made = sample(2, 2)
    path = tmp_path / "a.silo"
    write_bundle(path, declaring(made.contents), made.read_blob)
    return path


def said(contents):
    return {kernel.name: kernel.contiguous for kernel in contents.kernels}


def test_both_readers_take_it_and_python_tells_it(path):
    with open_bundle(path) as bundle:
        assert bundle.header.minor == 6
        assert said(bundle.contents()) == {"kernel_0": ("x",), "kernel_1": ()}
        assert bundle.open_kernel("kernel_0").head.contiguous == ("x",)
    assert verify_bundle(path) == ()


def test_without_any_a_file_is_of_an_older_version(tmp_path):
    made = sample(1, 2)
    path = tmp_path / "plain.silo"
    write_bundle(path, made.contents, made.read_blob)
    with open_bundle(path) as bundle:
        assert bundle.header.minor < 6
        assert b"contiguous" not in bundle.manifest_text


def test_updates_cuts_and_slices_keep_it(path):
    before = path.read_bytes()
    update_bundle(path, {"kernel_0": KernelUpdate()})
    assert path.read_bytes() == before
    with open_bundle(path) as bundle:
        wanted = said(bundle.contents())
        assert said(cut_contents(bundle.contents(), None, None)) == wanted
        for target in targets_of(bundle.contents()):
            assert said(cut_slice(bundle, [target]).contents) == wanted


def both_refuse(data):
    """The field that the reader names, and what it says."""
    with pytest.raises(BundleFormatError) as refused:
        Bundle.from_bytes(data).contents()
    return refused.value.field, str(refused.value)


@pytest.mark.parametrize("value", [[], "x", None, {}, ["y"], ["x", "x"], [1], ["x", ""], ["X"]])
def test_both_readers_refuse_what_is_no_list_of_parameters(path, value):
    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    manifest["kernels"][0]["contiguous"] = value
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    field, _ = both_refuse(sealed(path.read_bytes(), text, compress=False))
    assert field.startswith("kernels[0].contiguous")


def test_a_file_of_an_older_version_has_no_such_member(path):
    with open_bundle(path) as bundle:
        text = bundle.manifest_text.replace(b'"format":[1,6]', b'"format":[1,5]')
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 10, 5)
    field, message = both_refuse(sealed(bytes(data), text, compress=False))
    assert field == "kernels[0]"
    assert "contiguous" in message


def test_launches_from_python_and_c_refuse_other_layouts(tmp_path):
    plain = write_made(tmp_path / "plain.silo")
    path = tmp_path / "declared.silo"
    with open_bundle(plain) as bundle:
        write_bundle(path, declaring(bundle.contents(), "add", ("x", "out")), bundle.blob)
    base = np.arange(256, dtype=np.float32).reshape(16, 16)
    out = np.zeros((8, 8), np.float32)
    kernels = silo.load(path, trust=True)
    with libsilo.Bundle(path, vouch=lambda code: 1) as opened:
        for add, error in ((kernels.add, ArgumentError), (opened["add"], libsilo.LibraryError)):
            out[:] = 0
            add(base[:4], base[4:8].T, out, 64)  # y is free
            assert out.ravel()[5] == base[0, 5] + base[4, 5]
            for x, target in ((base.T, out), (base[:8, :8], out), (base, out.T), (base, base[:8, :8])):
                with pytest.raises(error, match=r"'(x|out)' needs a contiguous array, as the kernel declares"):
                    add(x, base, target, 64)
        opened["add"](libsilo.pointer(base.ctypes.data), base, out, 64)  # an address has no layout
        assert out.ravel()[5] == 2 * base[0, 5]


def test_bundles_that_declare_other_arrays_are_not_joined(tmp_path):
    made = sample(1, 2)
    bundles = []
    for number, names in enumerate([("x",), ()]):
        path = tmp_path / f"{number}.silo"
        write_bundle(path, declaring(made.contents, names=names), made.read_blob)
        bundles.append(open_bundle(path))
    with pytest.raises(BundleError, match="kernel_0 has another contiguous in each of two bundles"):
        join_slices(bundles)
