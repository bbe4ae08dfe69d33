"""A bundle with CPU code in an account that did not build it: with a signature, with a false one, and without.

The bundle, its code and its store are real. What is altered is altered as somebody would who wants code to run.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")
pytest.importorskip("triton", reason="the bundle is built from a Triton kernel")

import silo
from made_keys import OTHER, minisign, without_cryptography
from silo.bundle.reader import open_bundle
from silo.bundle.signing import signature_of
from silo.commands.build_bundle import build_bundle
from silo.commands.run_cases import run_cases
from silo.commands.trust_code import trust_key, trusted_keys, untrust, untrust_key
from silo.commands.tune_cases import tune_path
from silo.errors import BundleFormatError, SignatureError, StoreError, TrustError
from silo.settings import child_environment, override
from silo.shipping.sign_bundle import make_keys, verify_bundle_signature
from silo.store.signatures import read_secret_key
from twice_kernel import twice

KERNEL = twice('space={"BLOCK": [64, 128]}, key=["n"]')


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with two bundles of one author, both signed, and his keys."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "k.py").write_text(KERNEL)
    make_keys(folder / "team.key", lambda: None)
    key = read_secret_key(folder / "team.key", str)
    with override(home=folder / "theirs", jobs=1):
        build_bundle([folder / "k.py"], folder / "one.silo", tune="off", configs="1", key=key)
        build_bundle([folder / "k.py"], folder / "two.silo", tune="off", configs="all", key=key)
    return folder


@pytest.fixture
def here(made, tmp_path):
    """A copy of all that is shipped, and an account that knows nothing of it."""
    for name in ("one.silo", "one.silo.minisig", "two.silo", "two.silo.minisig", "team.pub"):
        shutil.copy(made / name, tmp_path / name)
    with override(home=tmp_path / "store", jobs=1):
        yield tmp_path


def use(path):
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    silo.load(path).twice(x, out, 100)
    assert (out == 2 * x).all()


def command(folder, *words, text=""):
    done = subprocess.run(
        [sys.executable, "-c", "from silo.cli.main import main; main()", *map(str, words)],
        env=child_environment(SILO_HOME=str(folder / "store"), SILO_JOBS="1", COLUMNS="200"),
        capture_output=True,
        text=True,
        input=text,
        check=False,
        timeout=120,
        cwd=folder,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_bundle_loads_with_a_trusted_key_and_not_without(here):
    with pytest.raises(
        TrustError, match=r"one\.silo\.minisig: it says that the key [0-9A-F]{16} made it, which is not"
    ):
        use(here / "one.silo")
    row, added = trust_key(str(here / "team.pub"))
    assert added
    use(here / "one.silo")
    use(here / "two.silo")
    run_cases(here / "one.silo")
    assert trusted_keys() == [row]
    assert untrust_key(row.id) == [row]
    for name in ("one.silo", "two.silo"):
        with pytest.raises(TrustError, match="nobody vouched"):
            use(here / name)
    with pytest.raises(StoreError, match="is not trusted"):
        untrust_key(row.key)


PROGRAM = """
import sys
before = set(sys.modules)
import numpy as np
import silo
x, out = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
silo.load(sys.argv[1]).twice(x, out, 100)
assert (out == 2 * x).all()
print(*sorted(set(sys.modules) - before))
"""


def modules_of_a_process(home, path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        env=child_environment(SILO_HOME=str(home)),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


def test_the_second_process_imports_next_to_nothing_for_a_signature(here, made):
    """What a first launch takes is what it imports: a signature costs four small modules, and the package once."""
    trust_key(str(here / "team.pub"))
    first = modules_of_a_process(here / "store", here / "one.silo")
    second = modules_of_a_process(here / "store", here / "one.silo")
    builder = modules_of_a_process(made / "theirs", made / "one.silo")
    assert "cryptography" in first
    assert not {name for name in second if name.startswith(("cryptography", "_cffi"))}
    own = {name for name in second - builder if name.startswith("silo")}
    assert own == {"silo.bundle.signing", "silo.store.signatures", "silo.core.minisign", "silo.sanitized_text"}
    assert second - builder == own, "nothing of the standard library besides"
    assert not {name for name in builder if "trusted_keys" in name or "signature_file" in name}


def test_a_gpu_bundle_and_code_that_was_built_here_ask_nobody(made, monkeypatch):
    without_cryptography(monkeypatch)
    with override(home=made / "theirs"):
        use(made / "one.silo")


def test_without_the_package_the_refusal_says_what_to_install(here, monkeypatch):
    trust_key(str(here / "team.pub"))
    without_cryptography(monkeypatch)
    with pytest.raises(TrustError, match=r"pip install 'kernel-silo\[sign\]'"):
        use(here / "one.silo")


# ---- what somebody may put in the way ----


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_signature_of_another_bundle_of_the_same_author_does_not_count(here):
    trust_key(str(here / "team.pub"))
    shutil.copy(here / "two.silo.minisig", here / "one.silo.minisig")
    with pytest.raises(TrustError, match="not a signature of this file by the key"):
        use(here / "one.silo")


def test_altered_code_is_refused_although_header_and_signature_are_true(here):
    trust_key(str(here / "team.pub"))
    with open_bundle(here / "one.silo") as bundle:
        offsets = [one.offset for one in bundle.blobs if one.kind == "so"]
    for offset in offsets:
        flipped(here / "one.silo", offset + 20)
    with pytest.raises(BundleFormatError, match="blob so"):
        use(here / "one.silo")


def test_a_file_that_is_replaced_after_it_was_opened_is_not_what_is_judged(here):
    """The header as it was read decides, not the file that has the name when somebody asks."""
    trust_key(str(here / "team.pub"))
    evil = here / "evil.silo"
    shutil.copy(here / "two.silo", evil)
    (here / "one.silo").rename(here / "good.silo")
    evil.rename(here / "one.silo")  # nobody signed that under this name
    loaded = silo.load(here / "one.silo")
    (here / "good.silo").replace(here / "one.silo")  # now the good one lies beside its signature
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    with pytest.raises(TrustError, match="not a signature of this file"):
        loaded.twice(x, out, 100)
    use(here / "one.silo")
    # The other way round: what was opened is good, and stays so.
    again = silo.load(here / "one.silo")
    shutil.copy(here / "two.silo", here / "copy")
    (here / "copy").replace(here / "one.silo")
    again.twice(x, out, 100)
    assert (out == 2 * x).all()


def test_a_link_exchanged_between_two_looks_changes_nothing(here):
    trust_key(str(here / "team.pub"))
    link = here / "current.silo"
    link.symlink_to(here / "two.silo")
    loaded = silo.load(link)
    link.unlink()
    link.symlink_to(here / "one.silo")
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    with pytest.raises(TrustError, match="not a signature of this file"):
        loaded.twice(x, out, 100)
    use(link)


def test_a_program_that_changes_its_folder_finds_the_signature(here, monkeypatch):
    trust_key(str(here / "team.pub"))
    monkeypatch.chdir(here)
    loaded = silo.load("one.silo")
    monkeypatch.chdir("/")
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    loaded.twice(x, out, 100)
    assert (out == 2 * x).all()


def test_a_forged_comment_or_a_key_with_the_same_number_does_not_count(here):
    from silo.frozen import replace

    signature = signature_of(here / "one.silo")
    trust_key(str(here / "team.pub"))
    place = here / "one.silo.minisig"
    place.write_bytes(replace(signature, comment=b"trust me").file_bytes("x"))
    with pytest.raises(TrustError, match="comment was not signed"):
        use(here / "one.silo")
    mine = replace(OTHER, number=signature.number)
    with open_bundle(here / "one.silo") as bundle:
        place.write_bytes(mine.sign(bundle.signed_bytes, "x").file_bytes("x"))
    with pytest.raises(TrustError, match="not a signature of this file"):
        use(here / "one.silo")
    # Who trusts both keys of that number has either's word.
    trust_key(mine.public.text)
    use(here / "one.silo")


def test_code_that_a_signed_bundle_brings_is_not_trusted_in_another_bundle(here):
    trust_key(str(here / "team.pub"))
    use(here / "one.silo")
    shutil.copy(here / "one.silo", here / "plain.silo")
    use(here / "plain.silo")  # the same bytes
    (here / "two.silo.minisig").unlink()
    with pytest.raises(TrustError, match=r"no signature two\.silo\.minisig"):
        use(here / "two.silo")


def test_a_bundle_may_be_refused_though_its_key_is_trusted(here):
    trust_key(str(here / "team.pub"))
    use(here / "one.silo")
    assert untrust([str(here / "one.silo")]) == 1
    with pytest.raises(TrustError, match="silo untrust"):
        use(here / "one.silo")
    use(here / "two.silo")


# ---- build, tune ----


def test_tuning_signs_anew_or_removes_what_became_false(here, made):
    key = read_secret_key(made / "team.key", str)
    trust_key(str(here / "team.pub"))
    rows = tune_path(here / "two.silo", evaluations=2, key=key)
    assert rows[-1].remarks[-1] == f"signed by {key.public.id}: two.silo.minisig"
    use(here / "two.silo")
    assert verify_bundle_signature(here / "two.silo").good
    rows = tune_path(here / "one.silo", evaluations=1)
    assert "one.silo.minisig is removed" in rows[-1].remarks[-1]
    with pytest.raises(TrustError):
        use(here / "one.silo")
    with pytest.raises(SignatureError, match="a key signs bundles"):
        tune_path(made / "k.py", key=key)


def test_a_build_over_a_signed_bundle_leaves_no_false_signature(here, made):
    (here / "k.py").write_text(KERNEL)
    again = build_bundle([here / "k.py"], here / "one.silo", tune="off", configs="1")
    assert again.signature == ""  # the same bytes: what was signed is still there
    assert signature_of(here / "one.silo") is not None
    other = build_bundle([here / "k.py"], here / "one.silo", tune="off", configs="all")
    assert "one.silo.minisig is removed" in other.signature
    assert signature_of(here / "one.silo") is None


# ---- the commands ----


def test_the_commands_from_keys_to_a_verified_bundle(here):
    shutil.copy(here / "one.silo", here / "k.silo")
    assert command(here, "keygen", "my.key", "--no-password").returncode == 0
    assert command(here, "keygen", "my.key", "--no-password").returncode == 3
    assert (here / "my.key").stat().st_mode & 0o777 == 0o600
    assert command(here, "verify", "k.silo").returncode == 1
    assert command(here, "sign", "k.silo", "--key", "my.key").returncode == 0
    unknown = command(here, "verify", "k.silo")
    assert unknown.returncode == 1
    assert "not trusted here" in unknown.stderr
    assert "every byte is as it was written" in unknown.stdout
    known = command(here, "verify", "k.silo", "--key", "my.pub", "--json")
    assert known.returncode == 0
    assert json.loads(known.stdout)["signed"] is True
    assert command(here, "verify", "k.silo", "--key", "team.pub").returncode == 1
    said = command(here, "trust", "--key", "my.pub")
    assert "is trusted" in said.stdout
    assert "was and is trusted" in command(here, "trust", "--key", "my.pub").stdout
    listed = command(here, "trust", "--list")
    number = (here / "my.pub").read_text().split()[-2]
    assert number in listed.stdout
    (row,) = json.loads(command(here, "trust", "--list", "--json").stdout)
    assert (row["id"], row["origin"]) == (number, "my.pub")
    assert command(here, "verify", "k.silo").returncode == 0
    assert command(here, "run", "k.silo").returncode == 0
    assert command(here, "untrust", "--key", number).returncode == 0
    assert command(here, "run", "k.silo").returncode == 3
    assert command(here, "untrust", "--key", number).returncode == 3
    assert command(here, "untrust").returncode == 2
    assert command(here, "trust", "--key", "my.pub", "k.silo").returncode == 2
    assert command(here, "trust", "--key", "my.key").returncode == 3


def test_a_password_is_read_from_standard_input_where_there_is_no_terminal(here):
    from silo.store import signatures

    light = signatures.ScryptLimits(1 << 15, 1 << 24)
    signatures.make_key_files(here / "p.key", here / "p.pub", lambda: "secret", light)
    wrong = command(here, "sign", "one.silo", "--key", "p.key", text="other\n")
    assert wrong.returncode == 3
    assert "the password is wrong" in wrong.stderr
    assert command(here, "sign", "one.silo", "--key", "p.key").returncode == 3
    assert command(here, "sign", "one.silo", "--key", "p.key", text="secret\n").returncode == 0
    assert command(here, "verify", "one.silo", "--key", "p.pub").returncode == 0
    assert "no terminal" in command(here, "keygen", "q.key").stderr


def test_a_damaged_bundle_is_neither_signed_nor_verified(here, made):
    flipped(here / "one.silo", 70)
    assert command(here, "sign", "one.silo", "--key", made / "team.key").returncode == 3
    done = command(here, "verify", "one.silo", "--key", "team.pub")
    assert done.returncode == 1
    assert "one.silo: the zstd frame" in done.stdout
    flipped(here / "one.silo", 70)
    assert command(here, "verify", "one.silo", "--key", "team.pub").returncode == 0


def test_a_comment_gives_no_orders_to_a_terminal(here):
    """Whoever signs may write anything there, and minisign prints it as it is."""
    head = here / "h"
    head.write_bytes((here / "one.silo").read_bytes()[:64])
    minisign("-G", "-W", "-s", here / "m.key", "-p", here / "m.pub")
    comment = "evil \x1b]0;title\x07 \u202e [red]x[/red] [link=http://x]"
    minisign("-S", "-s", here / "m.key", "-m", head, "-x", here / "one.silo.minisig", "-t", comment)
    for words in (["verify", "one.silo", "--key", "m.pub"], ["verify", "one.silo", "--key", "m.pub", "--json"]):
        done = command(here, *words)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
        assert "\u202e" not in done.stdout
        assert "[red]x[/red]" in done.stdout


def test_a_key_that_others_may_read_signs_nothing(here, made):
    shutil.copy(made / "team.key", here / "open.key")
    (here / "open.key").chmod(0o644)
    before = (here / "one.silo.minisig").read_bytes()
    done = command(here, "sign", "one.silo", "--key", "open.key")
    assert done.returncode == 3
    assert "others may read" in done.stderr
    assert (here / "one.silo.minisig").read_bytes() == before
    build = command(here, "build", made / "k.py", "-o", "new.silo", "--tune", "off", "--key", "open.key")
    assert build.returncode == 3
    assert not (here / "new.silo").exists(), "a key that cannot be used is an error before anything is compiled"


def test_inspect_shows_the_signature_and_notes_nothing(here, monkeypatch):
    said = command(here, "inspect", "one.silo")
    assert "signature: it says that the key" in said.stdout
    assert "not trusted here" in said.stdout
    trust_key(str(here / "team.pub"))
    before = sorted((here / "store" / "trust").iterdir()), (here / "store" / "trust" / "keys.jsonl").read_bytes()
    found = json.loads(command(here, "inspect", "one.silo", "--json").stdout)["signature"]
    number = (here / "team.pub").read_text().split()[-2]
    assert (found["signed"], found["id"]) == (True, number)
    assert "one.silo" in found["comment"]
    assert f"signed by {number}" in command(here, "inspect", "one.silo").stdout
    assert (
        sorted((here / "store" / "trust").iterdir()),
        (here / "store" / "trust" / "keys.jsonl").read_bytes(),
    ) == before
    shutil.copy(here / "two.silo.minisig", here / "one.silo.minisig")
    wrong = json.loads(command(here, "inspect", "one.silo", "--json").stdout)["signature"]
    assert (wrong["signed"], wrong["comment"]) == (False, "")
    (here / "one.silo.minisig").unlink()
    assert "signature: there is no signature beside it" in command(here, "inspect", "one.silo").stdout
    shutil.copy(here / "two.silo.minisig", here / "one.silo.minisig")
    without_cryptography(monkeypatch)
    from silo.commands.bundle_description import describe_bundle

    told = describe_bundle(here / "two.silo").signature
    assert (told.signed, told.id) == (False, number)
    assert "pip install 'kernel-silo[sign]'" in told.reason
