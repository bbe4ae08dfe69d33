"""The form of minisign's files: read as it writes them, refused in every other form."""

import base64

import pytest

from silo.core.minisign import (
    MAX_COMMENT_BYTES,
    MAX_SIGNATURE_BYTES,
    MinisignSignature,
    PublicKey,
    is_weak_point,
    prehashed,
)
from silo.errors import SignatureError

# Made by minisign 0.11: minisign -G -W; minisign -S -t 'a comment'.
KEY = "RWRXYFTj/cvKiReG/Kcfi0NUT0CLkT75eYqol7jBpHXwSTjzQLefb5vP"
FILE = (
    b"untrusted comment: signature from minisign secret key\n"
    b"RURXYFTj/cvKifdr5SytNHurFTYKzyqTyVepObCXAzZ8IvJEqVZES5M0fIzV6nSgLPV5amECBLJmUA6/4rh02gmJpuNVt5S4Owc=\n"
    b"trusted comment: my comment\n"
    b"IPKsOVTzR5epHpoSS7ejGHFWpMW0/70o9OCOcCdYSr5dwOEd/OT7RQosP4KDMV1/rNgJMVG7y4qDyzaCyFbWAQ==\n"
)
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def test_files_of_minisign_are_read_and_written_alike():
    key, signature = PublicKey.parse(KEY), MinisignSignature.parse(FILE)
    assert key.id == signature.id == "89CACBFDE3546057"
    assert signature.comment_text == "my comment"
    assert signature.file_bytes("signature from minisign secret key") == FILE
    assert PublicKey.parse_file(key.file_text.encode()) == PublicKey.parse_file(f"{KEY}\n".encode()) == key


def test_a_comment_may_hold_what_minisign_signs():
    for comment in (b"", b"\x1b[31m\t[red]", "\u202e".encode(), b"\xff\xfe", b"x" * MAX_COMMENT_BYTES):
        lines = FILE.split(b"\n")
        lines[2] = b"trusted comment: " + comment
        assert MinisignSignature.parse(b"\n".join(lines)).comment == comment


def changed(line, text):
    lines = FILE.split(b"\n")
    lines[line] = text
    return b"\n".join(lines)


def coded(algorithm, size=72):
    return base64.b64encode(algorithm + bytes(size))


BAD = {
    "nothing": (b"", "four lines"),
    "two signatures": (FILE + FILE, "four lines"),
    "a line more": (FILE + b"\n", "four lines"),
    "a line less": (FILE.split(b"\n", 1)[1], "four lines"),
    "no trusted comment": (changed(2, b"untrusted comment: my comment"), "four lines"),
    "another system's ends of lines": (FILE.replace(b"\n", b"\r\n"), "ends of lines"),
    "a zero": (changed(2, b"trusted comment: a\0b"), "zeros"),
    "the old algorithm": (changed(1, coded(b"Ed")), "old form"),
    "an unknown algorithm": (changed(1, coded(b"RS")), "algorithm b'RS'"),
    "a short signature": (changed(1, coded(b"ED", 71)), "74 bytes in base64"),
    "a long signature": (changed(1, coded(b"ED", 73)), "74 bytes in base64"),
    "unused bits": (changed(1, FILE.split(b"\n")[1].replace(b"Owc=", b"Owd=")), "74 bytes in base64"),
    "a blank": (changed(1, FILE.split(b"\n")[1] + b" "), "74 bytes in base64"),
    "no comment's signature": (changed(3, b""), "64 bytes in base64"),
    "a long comment": (changed(2, b"trusted comment: " + b"x" * (MAX_COMMENT_BYTES + 1)), "more than 8192"),
    "a long file": (FILE + b"x" * MAX_SIGNATURE_BYTES, "more than the 16384"),
}


@pytest.mark.parametrize("name", BAD)
def test_no_other_form_is_a_signature(name):
    data, reason = BAD[name]
    with pytest.raises(SignatureError, match=reason):
        MinisignSignature.parse(data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "42 bytes in base64"),
        (KEY[:-1], "42 bytes in base64"),
        (KEY + "=", "42 bytes in base64"),
        ("é" * 56, "42 bytes in base64"),
        (base64.b64encode(b"RS" + bytes(40)).decode(), "algorithm b'RS'"),
        (base64.b64encode(b"Ed" + bytes(40)).decode(), "anybody can sign for"),
        (base64.b64encode(b"Ed" + bytes(8) + (P + 3).to_bytes(32, "little")).decode(), "anybody can sign for"),
    ],
)
def test_no_other_form_is_a_key(text, reason):
    with pytest.raises(SignatureError, match=reason):
        PublicKey.parse(text)


@pytest.mark.parametrize("data", [b"", b"untrusted comment: x\n", f"{KEY}\n{KEY}\n".encode(), b"a\nb\n", b"\xff" * 50])
def test_a_key_file_holds_one_key(data):
    with pytest.raises(SignatureError):
        PublicKey.parse_file(data)


def added(one, other):
    (a, b), (c, d) = one, other
    product = D * a * b * c * d % P
    return (a * d + b * c) * pow(1 + product, -1, P) % P, (b * d + a * c) * pow(1 - product, -1, P) % P


def roots(y):
    """The first coordinates of the points of the curve with this second one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    return {root, P - root} if root * root % P == square else set()


def test_keys_that_anybody_can_sign_for_are_those_whose_order_divides_eight():
    # The order of the main subgroup times any point of the whole curve is one of them.
    weak = set()
    for y in range(2, 40):
        for x in roots(y):
            order = 2**252 + 27742317777372353535851937790883648493
            small, power, base = (0, 1), order, (x, y)
            while power:
                small = added(small, base) if power & 1 else small
                base, power = added(base, base), power >> 1
            weak.add(small)
    assert len(weak) == 8
    for x, y in weak:
        assert is_weak_point((y | (x & 1) << 255).to_bytes(32, "little"))
    assert not any(is_weak_point(y.to_bytes(32, "little")) for y in range(2, 1000))


def test_what_is_signed_is_the_hash_of_the_message():
    assert prehashed(b"abc").hex().startswith("ba80a53f981c4d0d")  # RFC 7693, appendix A
