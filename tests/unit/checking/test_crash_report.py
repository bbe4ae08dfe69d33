"""Reports of crashes: the reader, and the decisions about suspects."""

import hashlib
import json
import struct

import pytest

from silo.checking.crash_report import Argument, read_report
from silo.commands.crash_suspects import judge, suspects_of, unchecked_reason
from silo.errors import BundleError, CheckError

LAUNCH = {
    "entry": "k",
    "layout": [["x", "ptr"], ["index", "ptr"], ["n", "i32"]],
    "num_warps": 1,
    "threads": 1,
    "cluster": [1, 1, 1],
    "shared_bytes": 0,
    "scratch_bytes": 0,
    "scratch_align": 1,
    "profile_bytes": 0,
    "profile_align": 1,
    "cooperative": False,
    "pdl": False,
    "registers": None,
    "spills": None,
}


def kernel(**changes):
    return {
        "kernel": "k",
        "parameters": [["x", True], ["index", True], ["n", False]],
        "driver": "cpu",
        "reason": "",
        "config": {},
        "device": [1, 0],
        "form": "ttir",
        "text": "module",
        "launch": LAUNCH,
        "elements": ["f32", "i32", "i32"],
        "fp_fusion": True,
        "decisive": [],
        "stored": [],
        "read": [0],
        "written": [],
        **changes,
    }


def row(number, n=100, *, state="returned", size=400, view=0, word=4096):
    arguments = [[word, 4096, size, view], [8192, 8192, 400, 0], [n]]
    return {"arguments": arguments, "grid": [4, 1, 1], "kernel": 0, "number": number, "state": state, "stream": 0}


def written(path, launches, *, kernels=None, cause=None, arrays=(), change=None):
    data = bytearray(64)
    rows = []
    for one in kernels or [kernel()]:
        text = json.dumps(one).encode()
        rows.append({"bytes": len(text), "offset": len(data)})
        data += text
    kept = []
    for launch, address, content, copy in arrays:
        kept.append({"address": address, "bytes": len(content), "copy": copy, "launch": launch, "offset": len(data)})
        data += content
    manifest = {
        "arrays": kept,
        "cause": {"address": 0, "code": 0, "kernel": "", "kind": "request", "program": [], "text": "", **(cause or {})},
        "format": "silo crash 1",
        "kernels": rows,
        "launches": launches,
        "process": 1,
    }
    if change is not None:
        change(manifest)
    offset = len(data)
    data += json.dumps(manifest).encode()
    digest = hashlib.sha256(data[64:]).digest()
    data[:64] = struct.pack("<8sQQ32s8x", b"SILOCRSH", offset, len(data) - offset, digest)
    path.write_bytes(data)
    return path


def report(tmp_path, launches, **more):
    return read_report(written(tmp_path / "crash.silo", launches, **more))


# ---- the reader


def test_what_is_read(tmp_path):
    found = report(tmp_path, [row(1), row(2, -1 % 2**64)], arrays=[(2, 8192, b"abcd", True)])
    assert found.launches[1].arguments == (
        Argument(4096, 4096, 400),
        Argument(8192, 8192, 400),
        Argument(2**64 - 1),
    )
    assert found.content(found.arrays[0]) == b"abcd"
    assert found.kernels[0].members["text"] == "module"


def test_every_changed_byte_is_refused(tmp_path):
    path = written(tmp_path / "crash.silo", [row(1)])
    data = path.read_bytes()
    for at in [*range(56), *range(64, len(data), 7)]:
        changed = bytearray(data)
        changed[at] ^= 0x20
        path.write_bytes(changed)
        with pytest.raises(BundleError):
            read_report(path)
    for size in (0, 8, 63, 64, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(BundleError):
            read_report(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("cause"),
        lambda m: m.update(format="silo crash 2"),
        lambda m: m["kernels"][0].update(offset=1 << 60),
        lambda m: m["kernels"][0].update(bytes=-1),
        lambda m: m["launches"][0].update(kernel=1),
        lambda m: m["launches"][0].update(grid=[1, 1]),
        lambda m: m["launches"][0]["arguments"].pop(),
        lambda m: m["launches"][0]["arguments"].__setitem__(0, ["x"]),
        lambda m: m["launches"][0].update(number=True),
        lambda m: m.update(launches={}, arrays=3),
    ],
)
def test_other_manifests_are_refused(tmp_path, change):
    path = written(tmp_path / "crash.silo", [row(1)], change=change)
    with pytest.raises(BundleError, match=r"damaged|this Silo reads"):
        read_report(path)


@pytest.mark.parametrize("changes", [{"decisive": [3]}, {"read": ["x"]}, {"launch": {}}, {"form": 1}, {"stored": None}])
def test_other_descriptions_are_refused(tmp_path, changes):
    with pytest.raises(BundleError, match="damaged"):
        report(tmp_path, [row(1)], kernels=[kernel(**changes)])


# ---- suspects


def numbers(found):
    return [one.numbers for one in suspects_of(found)]


def test_the_latest_first_and_launches_alike_once(tmp_path):
    assert numbers(report(tmp_path, [row(1), row(2, 7), row(3), row(4, 7)])) == [(4, 2), (3, 1)]


def test_a_signal_is_of_a_launch_in_its_call(tmp_path):
    launches = [row(1), row(2, 7, state="running"), row(3, 8, state="running")]
    assert numbers(report(tmp_path, launches, cause={"kind": "signal", "kernel": "k"})) == [(3,), (2,)]
    assert numbers(report(tmp_path, launches)) == [(3,), (2,), (1,)]


def test_reasons_against_a_check(tmp_path):
    def reason(one, **changes):
        found = report(tmp_path, [one], kernels=[kernel(**changes)])
        return unchecked_reason(found, found.launches[0])

    assert reason(row(1)) == ""
    assert "unknown" in reason(row(1, size=0))
    assert "outside" in reason(row(1, word=5000))
    assert "bytes, and a check takes" in reason(row(1, size=1 << 40))
    assert reason(row(1), text="", reason="it takes a tensor descriptor") == "it takes a tensor descriptor"
    assert "other parameters" in reason(row(1), elements=["f32"])


# ---- verdicts


def verdict(tmp_path, error, *, arrays=(), view=0, **changes):
    found = report(tmp_path, [row(1, view=view)], kernels=[kernel(**changes)], arrays=arrays)
    return judge(found, suspects_of(found)[0], error)


def fault(kind="out of bounds", text="k: a load out of bounds", argument="x"):
    return CheckError(text, kind=kind, place="k.py:3", program=(0, 0, 0), index=(1,), argument=argument)


INDEX = (1, 8192, bytes(400), True)


def test_a_fault_of_addresses_is_named(tmp_path):
    found = verdict(tmp_path, fault())
    assert (found.outcome, found.place, found.argument) == ("named", "k.py:3", "x")


def test_loaded_addresses_need_their_values(tmp_path):
    found = verdict(tmp_path, fault(), decisive=[1])
    assert found.outcome == "undecided"
    assert "index" in found.text
    assert verdict(tmp_path, None, decisive=[1]).outcome == "undecided"
    assert verdict(tmp_path, fault(), decisive=[1], arrays=[INDEX]).outcome == "named"
    assert verdict(tmp_path, fault(), decisive=[-1], arrays=[INDEX]).outcome == "undecided"


def test_content_at_the_report_counts_unless_the_kernel_writes_it(tmp_path):
    now = (1, 8192, bytes(400), False)
    assert verdict(tmp_path, fault(), decisive=[1], arrays=[now]).outcome == "named"
    assert verdict(tmp_path, fault(), decisive=[1], written=[1], arrays=[now]).outcome == "undecided"
    assert verdict(tmp_path, fault(), decisive=[1], arrays=[(1, 8192, bytes(396), False)]).outcome == "undecided"


@pytest.mark.parametrize("kind", ["masked-off value", "uninitialized", "division by zero", "assertion", "collision"])
def test_faults_of_values_need_all_values(tmp_path, kind):
    assert verdict(tmp_path, fault(kind)).outcome == "undecided"
    assert verdict(tmp_path, fault(kind), arrays=[(1, 4096, bytes(400), True)]).outcome == "named"


def test_a_race_of_stores_depends_on_the_values(tmp_path):
    stores = fault("race", "k: a store that races with another program's\n  Program (0, 0, 0) wrote there at k.py:3")
    assert verdict(tmp_path, stores).outcome == "undecided"
    assert verdict(tmp_path, stores, read=[]).outcome == "named"
    reads = fault("race", "k: a load that races with another program's\n  Program (0, 0, 0) wrote there at k.py:3")
    assert verdict(tmp_path, reads).outcome == "named"


def test_beyond_a_view_is_no_fault_of_the_allocation(tmp_path):
    found = verdict(tmp_path, fault(), view=1)
    assert found.outcome == "undecided"
    assert "may be larger" in found.text


def test_clean_needs_all_that_is_read(tmp_path):
    found = verdict(tmp_path, None)
    assert (found.outcome, found.kind) == ("undecided", "values")
    assert verdict(tmp_path, None, arrays=[(1, 4096, bytes(400), True)]).outcome == "clean"
