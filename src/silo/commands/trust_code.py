"""``silo trust`` and ``silo untrust``: this user's consent to native code that others built, and to signing keys."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.bundle.contents import calls_of, host_cases, host_code, host_plans, host_text
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.signing import signed_file
from silo.core.consent import HostCases, HostCode, HostPlan, HostText
from silo.core.minisign import PublicKey
from silo.errors import StoreError
from silo.machine.process_session import session
from silo.store.signatures import KeyEntry, read_public_key
from silo.variables import REMOTE_SCHEMES

__all__ = [
    "KeyRow",
    "TrustRow",
    "TrustSummary",
    "trust_bundle",
    "trust_key",
    "trust_remote",
    "trusted_code",
    "trusted_keys",
    "trusted_remotes",
    "untrust",
    "untrust_key",
]

_SHA256 = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True, slots=True)
class TrustRow:
    """A piece of native code that is trusted.

    ``sha256`` is the digest of the code and of the way it is called, ``blob`` the digest of its bytes alone; ``since``
    is seconds of Unix time. Entries written by an older Silo have only the bytes and do not count: their ``sha256`` is
    "" and their ``since`` 0.
    """

    sha256: str
    blob: str
    kernel: str
    origin: str
    since: int


@dataclass(frozen=True, slots=True)
class TrustSummary:
    """The result of ``silo trust FILE``.

    ``codes`` is the number of pieces of native code in the file, ``added`` the number of those that were not trusted
    before, and ``size_bytes`` the size of all the code.
    """

    codes: int
    added: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One trusted key: its number, its 56 characters, its file, and when it became trusted (seconds of Unix time)."""

    id: str
    key: str
    origin: str
    since: int


def trust_key(text_or_path: str) -> tuple[KeyRow, bool]:
    """Trusts everything that a key signs; returns the key, and whether it is newly trusted.

    Raises:
        SignatureError: the text or file is not a public key.
    """
    key = read_public_key(text_or_path)
    origin = "" if key.looks_like(text_or_path) else Path(text_or_path).name
    keys = session().store.trust.keys
    added = keys.note_key(key, origin, int(time.time()))
    entry = next(row for row in keys.trusted() if row.text == key.text)
    return _key_row(entry), added


def trusted_keys() -> list[KeyRow]:
    """Returns the trusted keys, the oldest first."""
    return [_key_row(entry) for entry in session().store.trust.keys.trusted()]


def untrust_key(name: str) -> list[KeyRow]:
    """Withdraws trust in a key, and with it consent to everything that only this key vouched for.

    ``name`` is the key, a file that holds it, or its number, which removes all keys with that number.

    Raises:
        SignatureError: ``name`` is not a key.
        StoreError: the key is not trusted.
    """
    from silo.store.remote.signed_outcomes import sealed_origin  # noqa: PLC0415  # few users have a remote store

    keys = session().store.trust.keys
    number = name.upper() if re.fullmatch(r"[0-9A-Fa-f]{16}", name) and not Path(name).exists() else None
    text = None if number is not None else read_public_key(name).text
    rows = [row for row in map(_key_row, keys.trusted()) if row.id == number or row.key == text]
    if not rows:
        raise StoreError(f"the key {name} is not trusted; see silo trust --list")
    for row in rows:
        keys.untrust(row.key, int(time.time()))
        session().store.trust.take_back(sealed_origin(row.id))
    return rows


def _key_row(entry: KeyEntry) -> KeyRow:
    return KeyRow(PublicKey.parse(entry.text).id, entry.text, entry.origin, entry.since)


def trust_bundle(path: Path) -> TrustSummary:
    """Consents to a bundle's native code as the bundle calls it, to its cases and plans, and to its C text.

    Every byte of these is verified first.

    Raises:
        BundleError: the bundle cannot be read, or is damaged.
    """
    with open_bundle(path) as bundle:
        codes, cases, texts = list(_codes(bundle)), list(_cases(bundle)), list(_texts(bundle))
        for sha256 in dict.fromkeys(sha256 for code, _ in codes for sha256 in (code.blob, code.text) if sha256):
            bundle.blob(sha256)
        for item, _ in (*cases, *texts):
            bundle.blob(item.blob)
        sizes = {entry.sha256: entry.raw_bytes for entry in bundle.blobs}
        ledger = session().store.trust
        added = ledger.note_trusted(codes, path.name)
        ledger.note_trusted((*cases, *texts, *_plans(bundle)), path.name)
        return TrustSummary(len(codes), added, sum(sizes[blob] for blob in {code.blob for code, _ in codes}))


def trust_remote(address: str) -> tuple[str, bool]:
    """Consents to native code from a remote store; returns the store's name, and whether it is newly trusted.

    Raises:
        SettingsError: the address is not a remote store's.
    """
    from silo.store.remote.address import RemoteAddress  # noqa: PLC0415  # few users have one

    name = RemoteAddress.parse(address).name
    return name, session().store.trust.trust_remote(name)


def trusted_remotes() -> dict[str, int]:
    """Returns the trusted remote stores, each with the Unix time in seconds since which it is trusted."""
    return session().store.trust.remotes()


def untrust(names: Sequence[str]) -> int:
    """Withdraws consent: to the code of a bundle, to the code with a sha256 (or 12 digits of it), or to a remote store.

    Returns the number of pieces of code; a bundle that a trusted key signed counts as 1. Code that was built here
    counts too: afterwards it is compiled again or needs consent. If a bundle was
    named, its signature does not count as consent afterwards.

    Raises:
        BundleError: a file cannot be read.
        StoreError: a name is neither a file nor the sha256 of trusted code.
    """
    ledger = session().store.trust
    digests: set[str] = set()
    withdrawn = 0
    for name in names:
        if name.partition(":")[0].lower() in REMOTE_SCHEMES:
            from silo.store.remote.address import RemoteAddress  # noqa: PLC0415  # see above

            withdrawn += ledger.distrust_remote(RemoteAddress.parse(name).name)
            continue
        path = Path(name)
        if path.exists() or not _SHA256.fullmatch(name):
            with open_bundle(path) as bundle:
                vouched = (*_codes(bundle), *_cases(bundle), *_texts(bundle), *_plans(bundle))
                digests.update(entry.digest for entry, _ in vouched)
                withdrawn += ledger.keys.untrust_file(signed_file(bundle, path), int(time.time()))
            continue
        rows = [entry for entry in ledger.trusted() if entry.digest.startswith(name) or entry.blob.startswith(name)]
        if not rows and len(name) < 64:
            raise StoreError(f"{name} is not a file, and no sha256 of what is trusted begins so; see silo trust --list")
        digests.update(row.digest or row.blob for row in rows)
        if len(name) == 64:
            digests.add(name)
    return withdrawn + (ledger.untrust(digests) if digests else 0)


def trusted_code() -> list[TrustRow]:
    """Returns the code that ``silo trust`` recorded and ``silo untrust`` did not withdraw, the oldest first."""
    entries = session().store.trust.trusted()
    return [TrustRow(entry.digest, entry.blob, entry.kernel, entry.origin, entry.since) for entry in entries]


def _codes(bundle: Bundle) -> Iterator[tuple[HostCode, str]]:
    """Yields each piece of a bundle's native code, with a description."""
    for name in bundle.kernel_names:
        kernel = bundle.kernel(name)
        calls = calls_of(kernel)
        for variant in kernel.variants:
            if variant.artifact.runs_on_host:
                yield host_code(variant, calls), f"{name} for {variant.artifact.variant.target}"


def _texts(bundle: Bundle) -> Iterator[tuple[HostText, str]]:
    """Yields the C text beside each piece of native code, with a description."""
    for name in bundle.kernel_names:
        kernel = bundle.kernel(name)
        calls = calls_of(kernel)
        for variant in kernel.variants:
            if variant.artifact.runs_on_host and (text := host_text(variant, host_code(variant, calls))) is not None:
                yield text, f"the C text of {name} for {variant.artifact.variant.target}"


def _plans(bundle: Bundle) -> Iterator[tuple[HostPlan, str]]:
    """Yields the plans that launch CPU code, with a description."""
    for plan, name in host_plans(bundle.contents()):
        yield plan, f"the plan {name}"


def _cases(bundle: Bundle) -> Iterator[tuple[HostCases, str]]:
    """Yields the cases of each kernel that has native code, with a description."""
    for name in bundle.kernel_names:
        kernel = bundle.kernel(name)
        calls = calls_of(kernel)
        cases = host_cases(
            kernel, (host_code(variant, calls) for variant in kernel.variants if variant.artifact.runs_on_host)
        )
        if cases is not None:
            yield cases, f"the cases of {name}"
