"""``silo keygen``, ``silo sign``, ``silo verify``: makes keys, signs bundles, and checks bundles and signatures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from silo.bundle.format import HEADER_BYTES
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.signing import sign_header, signature_of
from silo.bundle.verify import shared_by_look_alikes, verify_open
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.minisign import MinisignSignature, PublicKey
from silo.errors import BundleFormatError, PackageError, SignatureError
from silo.machine.process_session import session
from silo.plain_files import open_plain
from silo.store.signatures import SecretKey, check_signature, make_key_files, signer_among

__all__ = [
    "KeySummary",
    "SignSummary",
    "SignatureSummary",
    "VerifySummary",
    "look_at_signature",
    "make_keys",
    "sign_bundle",
    "verify_bundle_signature",
]


@dataclass(frozen=True, slots=True)
class KeySummary:
    """A new pair of keys: the number of the pair, the public key to give to others, and the paths of both files."""

    id: str
    key: str
    secret_file: str
    public_file: str


@dataclass(frozen=True, slots=True)
class SignSummary:
    """A new signature: the bundle, the key, and the signature's file."""

    path: str
    identity: str
    id: str
    signature: str


@dataclass(frozen=True, slots=True)
class SignatureSummary:
    """Whether a trusted or named key signed a bundle, and the reason. :class:`VerifySummary` explains the members."""

    reason: str
    signed: bool = False
    id: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """The result of checking every byte of a bundle and its signature.

    ``signed`` is True if the named key, or without one a trusted key, signed the bundle; ``reason`` is the reason.
    ``id`` is the number of the key that the signature names, "" without a signature. ``comment`` is the comment that
    the key signed together with the bundle, "" unless ``signed``. ``problems`` are faults of the file, and ``doubts``
    are variants whose code may belong to another variant (:mod:`silo.bundle.verify`).
    """

    path: str
    identity: str
    problems: tuple[str, ...]
    reason: str
    signed: bool = False
    id: str = ""
    comment: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the bundle is signed and undamaged."""
        return self.signed and not self.problems


def make_keys(secret: Path, password: Callable[[], str | None]) -> KeySummary:
    """Makes a pair of keys in two files: ``secret``, readable by its owner only, and ``*.pub`` beside it, for others.

    ``password`` is called only once it is sure that a key can be made; it returns the password, or None for no
    encryption.

    Raises:
        SignatureError: one of the files exists already, or cannot be written.
        PackageError: the package that signs is not installed.
    """
    public = secret.with_suffix(".pub")
    if public == secret:
        raise SignatureError(
            f"{secret} is to be the secret key, and .pub is how the public one's name ends: name another"
        )
    written = make_key_files(secret, public, password)
    return KeySummary(written.id, written.text, str(secret), str(public))


def sign_bundle(path: Path, key: SecretKey) -> SignSummary:
    """Signs a bundle after checking every byte of it.

    Raises:
        BundleError: the bundle cannot be read, or is damaged.
        SignatureError: the signature cannot be written.
    """
    with open_bundle(path) as bundle:
        if problems := verify_open(bundle):
            first = problems[0]
            raise BundleFormatError(f"{first}; it is not signed", field=first.field, offset=first.offset)
        written = sign_header(path, bundle.signed_bytes, key)
        return SignSummary(str(path), bundle.identity, key.public.id, written)


def verify_bundle_signature(path: Path, key: PublicKey | None = None) -> VerifySummary:
    """Checks every byte of a bundle, and whether ``key`` signed it.

    Without ``key``, any trusted key may have signed it.

    Raises:
        BundleError: the bundle cannot be read, or its header or manifest is damaged.
        PackageError: the package that checks signatures is not installed.
    """
    with open_bundle(path) as bundle:
        problems = tuple(str(problem) for problem in verify_open(bundle))
        doubts = () if problems else shared_by_look_alikes(bundle.contents().kernels)
        decision = _looked_at(path, bundle, key)
        return VerifySummary(
            str(path),
            bundle.identity,
            problems,
            decision.reason,
            decision.signed,
            decision.id,
            decision.comment,
            doubts,
        )


def look_at_signature(path: Path, bundle: Bundle) -> SignatureSummary:
    """Checks the signature beside an open bundle; records nothing in the trust ledger."""
    try:
        return _looked_at(path, bundle, None)
    except PackageError as error:
        signature = signature_of(path)
        return SignatureSummary(f"it is not checked: {error}", id="" if signature is None else signature.id)


def _looked_at(path: Path, bundle: Bundle, key: PublicKey | None) -> SignatureSummary:
    try:
        signature, reason = signature_of(path), "there is no signature beside it"
    except SignatureError as error:
        signature, reason = None, str(error)
    if signature is None:
        return SignatureSummary(reason)
    decision = _decided(signature, bundle, key)
    if not decision and _covers_file(signature, path, key):
        decision = Rejected(
            f"the key {signature.id} signed the whole file, as minisign -S does; the signature of a bundle covers its "
            f"first {HEADER_BYTES} bytes: sign it with silo sign --key, or head -c {HEADER_BYTES} {path.name} > header "
            f"&& minisign -S -m header -x {path.name}.minisig"
        )
    comment = signature.comment_text if decision else ""
    return SignatureSummary(decision.reason, bool(decision), signature.id, comment)


def _covers_file(signature: MinisignSignature, path: Path, key: PublicKey | None) -> bool:
    """Returns whether a key signed the whole file, as minisign does. A bundle's signature must be of the header alone.

    Only signatures by ``key`` count; without ``key``, signatures by any trusted key.
    """
    keys = (PublicKey.parse(entry.text) for entry in session().store.trust.keys.trusted()) if key is None else (key,)
    signers = [key for key in keys if key.number == signature.number]
    if not signers:
        return False
    with open(open_plain(path), "rb") as file:  # noqa: PTH123  # pathlib cannot open a descriptor
        return isinstance(signer_among(signature, signers, file.read()), PublicKey)


def _decided(signature: MinisignSignature, bundle: Bundle, key: PublicKey | None) -> Decision:
    if key is not None:
        return check_signature(signature, key, bundle.signed_bytes)
    trusted = [PublicKey.parse(entry.text) for entry in session().store.trust.keys.trusted()]
    if all(trusted_key.number != signature.number for trusted_key in trusted):
        return Rejected(
            f"it says that the key {signature.id} made it, which is not trusted here; name the key with --key, or "
            "trust it with silo trust --key"
        )
    signer = signer_among(signature, trusted, bundle.signed_bytes)
    if isinstance(signer, Rejected):
        return signer
    return Accepted(f"signed by {signer.id}, which is trusted here")
