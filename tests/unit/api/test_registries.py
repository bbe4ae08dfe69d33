"""Bundles in a registry: what goes there comes back, and nothing that a registry makes up is taken."""

import base64
import hashlib
import json
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from bundle_samples import sample
from made_keys import SECRET, without_cryptography
from registry_double import registry
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.errors import BundleError, BundleFormatError, RegistryError
from silo.shipping import oci_client
from silo.shipping.distribution import OciReference, pull_bundle, push_bundle
from silo.shipping.oci_client import is_loopback, read_login

NO_LOGIN = Path("/nonexistent/config.json")


def written(path, variants=6, kernels=2):
    made = sample(kernels, variants, blob_bytes=3000)
    write_bundle(path, made.contents, made.read_blob)
    return path


@pytest.fixture
def bundle(tmp_path):
    return written(tmp_path / "k.silo")


@pytest.fixture
def double():
    with registry() as made:
        yield made


def push(double, path, tag="1.0", **how):
    return push_bundle(path, f"oci://{double.host}/r:{tag}", login=how.pop("login", NO_LOGIN), **how)


def pull(double, path, name=":1.0", **how):
    return pull_bundle(f"oci://{double.host}/r{name}", path, login=how.pop("login", NO_LOGIN), **how)


def layers(double):
    (manifest,) = [json.loads(data) for name, (_, data) in double.manifests.items() if name == "1.0"]
    return manifest["layers"]


@pytest.mark.parametrize("referrers", [True, False])
def test_what_is_pushed_comes_back_byte_for_byte(double, bundle, tmp_path, referrers):
    double.referrers = referrers
    Path(f"{bundle}.minisig").write_bytes(b"a signature, of which nobody here says that it is good")
    pushed = push(double, bundle)
    assert pushed.identity == open_bundle(bundle).identity
    assert (pushed.sent, pushed.signatures) == (2, 1)
    digest = pushed.reference.partition("@")[2]
    for name in (":1.0", f"@{digest}", f":1.0@{digest}"):
        out = tmp_path / "pulled.silo"
        pulled = pull(double, out, name)
        assert pulled.whole
        assert pulled.reference.endswith(digest)
        assert out.read_bytes() == bundle.read_bytes()
        assert Path(f"{out}.minisig").read_bytes() == Path(f"{bundle}.minisig").read_bytes()
        out.unlink()
    again = push(double, bundle, "2.0")
    assert again.sent == 0
    assert again.reference.partition("@")[2] == digest, "the same bundle has the same digest"


def test_a_target_moves_its_own_bytes_alone(double, bundle, tmp_path):
    push(double, bundle)
    size = {layer["annotations"]["vnd.silo.target"]: layer["size"] for layer in layers(double)}
    assert len(size) == 2
    double.sent_bytes.clear()
    pulled = pull(double, tmp_path / "part.silo", targets=["cuda"])
    assert list(double.sent_bytes.values()) == [size["cuda:sm_90"]]
    assert pulled.targets == ("cuda:sm_90",)
    assert pulled.whole, "the layer as it was pushed"
    assert verify_bundle(tmp_path / "part.silo") == ()
    with pytest.raises(RegistryError, match=r"no code for tpu; it has code for cpu:x86-64-v3, cuda:sm_90"):
        pull(double, tmp_path / "none.silo", targets=["tpu"])


def test_each_layer_is_signed_where_there_is_a_key(double, bundle, tmp_path):
    pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")
    from silo.bundle.signing import signed_by

    pushed = push(double, bundle, key=SECRET)
    assert pushed.signatures == 3
    for targets in (None, ["cpu"], ["cuda"]):
        out = tmp_path / "pulled.silo"
        pull(double, out, targets=targets)
        assert signed_by(out, open_bundle(out).signed_bytes, SECRET.public)


def test_without_a_key_nothing_imports_cryptography(double, bundle, tmp_path, monkeypatch):
    without_cryptography(monkeypatch)
    push(double, bundle)
    assert pull(double, tmp_path / "a.silo").signature == "it is not signed"


def test_a_bundle_of_one_target_is_its_own_layer(double, tmp_path):
    one = written(tmp_path / "one.silo", variants=1)
    push(double, one)
    (layer,) = layers(double)
    assert layer["digest"] == f"sha256:{hashlib.sha256(one.read_bytes()).hexdigest()}"
    assert pull(double, tmp_path / "again.silo").whole


def test_a_tag_that_moved_names_another_bundle_and_a_digest_does_not(double, bundle, tmp_path):
    first = push(double, bundle)
    other = written(tmp_path / "other.silo", variants=4)
    push(double, other)
    assert pull(double, tmp_path / "a.silo").identity == open_bundle(other).identity
    by_digest = pull(double, tmp_path / "b.silo", f":1.0@{first.reference.partition('@')[2]}")
    assert by_digest.identity == first.identity


def test_a_false_signature_of_the_file_that_was_there_goes(double, bundle, tmp_path):
    push(double, bundle)
    out = written(tmp_path / "pulled.silo", variants=4)
    Path(f"{out}.minisig").write_bytes(b"of what was there")
    assert "is removed" in pull(double, out).signature
    assert not Path(f"{out}.minisig").exists()


def test_without_a_name_the_file_is_called_as_it_was_pushed(double, bundle, tmp_path, monkeypatch):
    push(double, bundle)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert pull(double, None).path == "k.silo"
    assert (tmp_path / "here" / "k.silo").read_bytes() == bundle.read_bytes()


# ---- logins ----


def login_file(tmp_path, host, login):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(login.encode()).decode()}}}))
    return path


def test_a_token_is_asked_for_with_the_login(double, bundle, tmp_path):
    double.login = "me:secret"
    file = login_file(tmp_path, double.host, "me:secret")
    push(double, bundle, login=file)
    assert pull(double, tmp_path / "a.silo", login=file).whole
    assert set(double.token_asked) == {"repository:r:pull,push"}
    for how in (
        NO_LOGIN,
        login_file(tmp_path, double.host, "me:wrong"),
        login_file(tmp_path, "other.org", "me:secret"),
    ):
        with pytest.raises(RegistryError, match=r"docker login"):
            pull(double, tmp_path / "b.silo", login=how)


def test_a_redirection_takes_no_login_along(double, bundle, tmp_path):
    double.login = "me:secret"
    file = login_file(tmp_path, double.host, "me:secret")
    push(double, bundle, login=file)
    with registry() as storage:
        for digest, data in double.blobs.items():
            storage.blobs[digest] = data
            double.lies[f"/blobs/{digest}"] = (
                307,
                {"Location": f"http://{storage.host}/v2/r/blobs/{digest}?signed=1"},
                b"",
            )
        assert pull(double, tmp_path / "a.silo", login=file).whole
        assert storage.asked
        assert all("Authorization" not in headers for _, _, headers in storage.asked)


def test_a_login_that_a_program_keeps_is_not_asked_for(tmp_path):
    path = tmp_path / "config.json"
    assert read_login(path, "h") == ""
    path.write_text(json.dumps({"credHelpers": {"h": "gcloud"}}))
    assert read_login(path, "other") == ""
    with pytest.raises(RegistryError, match=r"kept by a program \(gcloud\)"):
        read_login(path, "h")
    for text in ("[]", "5", '{"auths": 5}', '{"auths": {"h": 5}}', '{"auths": {"h": {"auth": 5}}}'):
        path.write_text(text)
        assert read_login(path, "h") == ""
    path.write_text("no JSON")
    with pytest.raises(RegistryError, match="cannot be read"):
        read_login(path, "h")


# ---- a registry that lies ----


@contextmanager
def refused(path, match):
    """A pull that fails changes nothing of what was there."""
    before = path.read_bytes()
    with pytest.raises((RegistryError, BundleError), match=match):
        yield
    assert path.read_bytes() == before
    assert [one for one in path.parent.iterdir() if one.name.startswith(".silo-tmp")] == []


@pytest.fixture
def there(tmp_path):
    return written(tmp_path / "there.silo", variants=2, kernels=1)


def test_bytes_of_another_hash(double, bundle, there):
    push(double, bundle)
    digest = layers(double)[0]["digest"]
    data = double.blobs[digest]
    for other, match in [
        (data[:-1] + bytes([data[-1] ^ 1]), "other bytes than sha256"),
        (data[:-1], "other bytes than sha256"),
        (b"", "other bytes than sha256"),
        (data + b"\0", "more than"),
        (data + bytes(50 << 20), "more than"),
    ]:
        double.lies = {digest: (200, {}, other)}
        with refused(there, match):
            pull(double, there)
    double.lies = {digest: (200, {"Content-Length": str(len(data))}, data[:100])}
    with refused(there, r"broke off|other bytes"):
        pull(double, there)


def test_another_manifest_than_the_digest_says(double, bundle, there):
    digest = push(double, bundle).reference.partition("@")[2]
    double.lies = {digest: (200, {}, b'{"schemaVersion":2}')}
    with refused(there, "another manifest"):
        pull(double, there, f"@{digest}")


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"artifactType":"application/vnd.silo.bundle.v1","layers":[]}',
        b'{"artifactType":"application/vnd.silo.bundle.v1","layers":[{}]}',
        b'{"artifactType":"application/vnd.silo.bundle.v1","layers":[{"mediaType":"x","digest":"sha256:0","size":1}]}',
        b'{"artifactType":"application/vnd.silo.bundle.v1","layers":[{"mediaType":"x","digest":"sha256:%s","size":1}]}'
        % (b"0" * 64),
        b'{"artifactType":"another","layers":[{"mediaType":"x","digest":"sha256:%s","size":1}]}' % (b"0" * 64),
        b"[" * 100000,
    ],
)
def test_what_is_no_manifest_of_a_bundle(double, there, manifest):
    double.lies = {"/manifests/1.0": (200, {}, manifest)}
    with refused(there, "is not a bundle that silo push made"):
        pull(double, there)


def test_answers_without_end_or_sense(double, bundle, there):
    push(double, bundle)

    def endless(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            for _ in range(10000):
                handler.wfile.write(bytes(1 << 16))
        except OSError:
            pass

    def garbage(handler):
        handler.wfile.write(b"\x00\xff\n\n\n")

    again = (307, {"Location": "/v2/r/manifests/1.0"}, b"")
    for lie, match in [
        (endless, "sends more than the 4194304 bytes that were to come"),
        (garbage, "cannot be asked"),
        (again, "again and again"),
        ((307, {"Location": "file:///etc/passwd"}, b""), "not asked by TLS"),
        ((307, {"Location": "http://[::1"}, b""), r"cannot be read|not asked by TLS"),
        ((307, {}, b""), "again and again"),
        ((500, {}, b""), "500, Internal Server Error"),
        ((401, {}, b""), "the login does not do"),
        ((401, {"WWW-Authenticate": "Bearer"}, b""), "asks for a login"),
        ((401, {"WWW-Authenticate": 'Bearer realm="file:///etc/passwd"'}, b""), "not by TLS"),
        ((404, {}, b""), "there is no such bundle"),
    ]:
        double.lies = {"/manifests/1.0": lie}
        with refused(there, match):
            pull(double, there)


@pytest.mark.parametrize(
    ("begin", "seconds", "match"),
    [
        (b"", 0.3, r"cannot be asked \(GET /v2/r/manifests/1.0\): it does not answer within"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", 1.5, r"sends too slowly .*: 3 bytes came of up to"),
    ],
)
def test_answers_that_do_not_come_in_time(double, bundle, there, monkeypatch, begin, seconds, match):
    push(double, bundle)
    ended = threading.Event()

    def slow(handler):
        handler.wfile.write(begin)
        ended.wait(60)

    monkeypatch.setattr(oci_client, "_TIMEOUT_S", seconds)
    double.lies = {"/manifests/1.0": slow}
    with refused(there, match):
        pull(double, there)
    ended.set()


def test_nobody_there(there):
    with refused(there, "cannot be asked"):
        pull_bundle("oci://127.0.0.1:9/r:1", there, login=NO_LOGIN)


@pytest.mark.parametrize("name", ["../k.silo", "/etc/k.silo", ".k.silo", "", "k", "a\0.silo"])
def test_a_name_that_a_registry_gives_stays_in_the_folder(double, bundle, tmp_path, monkeypatch, name):
    push(double, bundle)
    kind, data = double.manifests["1.0"]
    changed = json.loads(data)
    changed["annotations"]["org.opencontainers.image.title"] = name
    double.manifests["1.0"] = kind, json.dumps(changed).encode()
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(RegistryError, match=r"-o"):
        pull(double, None)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "k.silo"]
    assert list((tmp_path / "in").iterdir()) == []


def test_layers_that_do_not_belong_together(double, bundle, tmp_path, there):
    push(double, bundle)
    kind, data = double.manifests["1.0"]
    changed = json.loads(data)
    changed["annotations"]["vnd.silo.identity"] = "0" * 64
    double.manifests["1.0"] = kind, json.dumps(changed).encode()
    assert not pull(double, tmp_path / "a.silo").whole
    # A layer that is no bundle has its hash right, and is refused all the same.
    bad = b"x" * 500
    digest = f"sha256:{hashlib.sha256(bad).hexdigest()}"
    double.blobs[digest] = bad
    changed["layers"][0] |= {"digest": digest, "size": len(bad)}
    double.manifests["1.0"] = kind, json.dumps(changed).encode()
    with refused(there, "not a .silo file"):
        pull(double, there)


def test_what_refers_to_a_bundle_and_is_no_signature_is_passed_over(double, bundle, tmp_path):
    digest = push(double, bundle).reference.partition("@")[2]
    for data in (b"{}", b"no JSON", json.dumps({"subject": {"digest": digest}, "artifactType": "sbom"}).encode()):
        double.manifests[f"sha256:{hashlib.sha256(data).hexdigest()}"] = ("x", data)
    double.lies = {
        f"/referrers/{digest}": (
            200,
            {},
            json.dumps(
                {
                    "manifests": [
                        {"mediaType": "x", "digest": name, "size": 1}
                        for name in double.manifests
                        if name.startswith("sha256:")
                    ]
                }
            ).encode(),
        )
    }
    assert pull(double, tmp_path / "a.silo").signature == "it is not signed"


def test_a_damaged_bundle_is_not_pushed(double, bundle):
    data = bytearray(bundle.read_bytes())
    data[100] ^= 8
    bundle.write_bytes(data)
    with pytest.raises(BundleFormatError, match="it is not pushed"):
        push(double, bundle)
    assert double.blobs == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "oci://", "oci://h/r", "h/r:1", "oci://h/R:1", "oci://h/r:", "oci://h/../r:1", "oci://h/r@sha256:0",
        "oci://u:p@h/r:1", "oci://h:999999/r:1", "oci://h/r:1?x", "oci://h/r:1\n", "oci://h//r:1", "oci://-h/r:1",
        "oci://h/" + "a" * 300 + ":1",
    ],
)  # fmt: skip
def test_what_is_no_reference(text):
    with pytest.raises(RegistryError, match="names no bundle in a registry"):
        OciReference.parse(text)


def test_references_are_written_as_they_are_read():
    for text in ("oci://h:5000/a/b-c/d:1.0", f"oci://[::1]:80/r@sha256:{'0' * 64}", f"oci://h/r:t@sha256:{'a' * 64}"):
        assert str(OciReference.parse(text)) == text
    with pytest.raises(RegistryError, match="push to a tag"):
        push_bundle(Path("k.silo"), f"oci://h/r@sha256:{'0' * 64}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:5000", "[::1]:5000"])
def test_plain_http_is_for_this_machine(host):
    assert is_loopback(host)
    assert not is_loopback(f"x{host}" if not host.startswith("[") else "[::2]")
    assert not is_loopback("127.0.0.1.example.org")


# ---- a real one ----


@pytest.fixture
def real(tmp_path):
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (the package docker-registry of Debian)")
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{host}'}}\n"
        f"storage: {{filesystem: {{rootdirectory: '{tmp_path}/storage'}}}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(host.rpartition(":")[2]))) == 0:
                    break
            time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait()


def test_a_real_registry_keeps_a_bundle(real, bundle, tmp_path):
    Path(f"{bundle}.minisig").write_bytes(b"a signature")
    pushed = push_bundle(bundle, f"oci://{real}/team/kernels:1.0", login=NO_LOGIN)
    assert pushed.sent == 2
    assert push_bundle(bundle, f"oci://{real}/team/kernels:1.1", login=NO_LOGIN).sent == 0
    out = tmp_path / "pulled.silo"
    pulled = pull_bundle(pushed.reference.replace(":1.0@", "@"), out, login=NO_LOGIN)
    assert pulled.whole
    assert pulled.identity == pushed.identity
    assert out.read_bytes() == bundle.read_bytes()
    assert Path(f"{out}.minisig").read_bytes() == b"a signature"
    part = pull_bundle(f"oci://{real}/team/kernels:1.0", tmp_path / "part.silo", targets=["cuda"], login=NO_LOGIN)
    assert part.targets == ("cuda:sm_90",)
    assert (tmp_path / "part.silo").stat().st_size < bundle.stat().st_size
