"""``silo push`` and ``silo pull``: bundles in a registry, as OCI artifacts with a layer for each target.

Each layer is a slice: a whole bundle with the code for one target. So a machine pulls only the code that it runs.
Signatures are artifacts that refer to the bundle's manifest. Native code from a registry needs consent before it runs,
as native code from any other file does.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from silo.bundle.bundle_slices import is_for, targets_of
from silo.bundle.reader import open_bundle
from silo.bundle.signing import SUFFIX, header_of, read_signature, settle_signature, signature_bytes, signature_paths
from silo.bundle.verify import verify_open
from silo.core.device import Target
from silo.core.minisign import MAX_SIGNATURE_BYTES
from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import BundleFormatError, RegistryError, TargetError
from silo.shipping.oci_client import EMPTY, INDEX, MANIFEST, Descriptor, Registry, read_login
from silo.shipping.slice_bundle import merge_bundles, slice_by_target
from silo.store.atomic_files import AtomicFile
from silo.store.signatures import SecretKey

__all__ = ["OciReference", "PullSummary", "PushSummary", "pull_bundle", "push_bundle"]


# ---- References ----


# The pattern of repository names in the OCI distribution specification.
_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_FORM = re.compile(
    r"oci://(?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_REPOSITORY})"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class OciReference:
    """The place of a bundle: the registry's host with its port, the repository, and a tag or a digest, or both.

    A digest is the SHA-256 of a manifest, so it always names the same bundle; a tag names the bundle last pushed to it.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> OciReference:
        """Parses a reference. Raises RegistryError if the text is not one.

        >>> OciReference.parse("oci://example.org/team/kernels:1.0").tag
        '1.0'
        """
        match = _FORM.fullmatch(text)
        if match is None or len(match["repository"]) > 255 or not (match["tag"] or match["digest"]):
            raise RegistryError(
                f"{text!r} names no bundle in a registry; write oci://HOST/REPOSITORY:TAG, or @sha256:... for :TAG"
            )
        return cls(match["host"], match["repository"], match["tag"] or "", match["digest"] or "")

    def at(self, digest: str) -> OciReference:
        """Returns a reference to the bundle with this digest in the same repository."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


# ---- silo push and silo pull ----


_BUNDLE = "application/vnd.silo.bundle.v1"
_SIGNATURE = "application/vnd.silo.bundle.signature.v1"
_TITLE = "org.opencontainers.image.title"
_IDENTITY = "vnd.silo.identity"
_TARGET = "vnd.silo.target"
_MOST_LAYERS = 1024


@dataclass(frozen=True, slots=True)
class PushSummary:
    """A pushed bundle: its reference by digest, identity, targets, and the numbers of sent layers and of signatures."""

    reference: str
    identity: str
    targets: tuple[str, ...]
    sent: int
    signatures: int


@dataclass(frozen=True, slots=True)
class PullSummary:
    """A pulled bundle.

    ``reference`` names the bundle by digest. ``whole`` is True if the written file equals the pushed file byte for
    byte. ``signature`` describes the signature beside the file.
    """

    path: str
    reference: str
    identity: str
    targets: tuple[str, ...]
    size_bytes: int
    whole: bool
    signature: str


def push_bundle(
    path: Path, reference: str, *, key: SecretKey | None = None, login: Path | None = None, plain: bool = False
) -> PushSummary:
    """Pushes a bundle and the signature beside it after checking every byte of the bundle; ``key`` signs each layer.

    Raises:
        BundleError: the bundle cannot be read, or is damaged.
        RegistryError: the reference is invalid, or the registry cannot be reached or rejects the bundle.
    """
    where = OciReference.parse(reference)
    if where.digest:
        raise RegistryError(f"{reference}: a digest is of what is there already; push to a tag")
    registry = _registry(where, login, plain=plain)
    with tempfile.TemporaryDirectory(prefix="silo-push-") as folder, open_bundle(path) as bundle:
        if problems := verify_open(bundle):
            raise BundleFormatError(
                f"{problems[0]}; it is not pushed", field=problems[0].field, offset=problems[0].offset
            )
        targets = targets_of(bundle.contents())
        signature = read_signature(path)
        signatures = {bundle.identity: signature} if isinstance(signature, bytes) else {}
        parts: list[tuple[Path, str, str]] = [(path, " ".join(map(str, targets)), bundle.identity)]
        if len(targets) > 1:
            slices = slice_by_target(path, Path(folder))
            parts = [
                (Path(layer_slice.path), " ".join(layer_slice.targets), layer_slice.identity) for layer_slice in slices
            ]
        if key is not None:
            signatures[bundle.identity] = signature_bytes(path.name, bundle.signed_bytes, key)
            for part, _, identity in parts if len(parts) > 1 else ():
                with open_bundle(part) as cut:
                    signatures[identity] = signature_bytes(part.name, cut.signed_bytes, key)
        layers: list[Descriptor] = []
        sent = 0
        for part, target, identity in parts:
            notes = {_TITLE: part.name, _TARGET: target, _IDENTITY: identity}
            layers.append(Descriptor.of_file(_BUNDLE, part, notes))
            sent += registry.put_blob(layers[-1], part)
        registry.put_blob(EMPTY, b"{}")
        manifest = _manifest(_BUNDLE, layers, {_TITLE: path.name, _IDENTITY: bundle.identity})
        registry.put_manifest(where.tag, MANIFEST, manifest)
        descriptor = Descriptor.of_bytes(MANIFEST, manifest)
        if signatures:
            _put_signatures(registry, descriptor, signatures)
        return PushSummary(
            str(where.at(descriptor.digest)), bundle.identity, tuple(map(str, targets)), sent, len(signatures)
        )


def pull_bundle(
    reference: str,
    output: Path | None = None,
    *,
    targets: Sequence[str] | None = None,
    login: Path | None = None,
    plain: bool = False,
) -> PullSummary:
    """Pulls a bundle. With ``targets``, only the layers with code for these targets are transferred.

    Without ``output``, the file is written into the current folder under the name that the pushed file had.

    Raises:
        RegistryError: the bundle does not exist, or the registry sends other data than requested.
        BundleError: the received data is damaged, or cannot be written.
        TargetError: a target that does not parse.
    """
    where = OciReference.parse(reference)
    wanted_targets = None if targets is None else [Target.parse(target) for target in targets]
    registry = _registry(where, login, plain=plain)
    data = registry.manifest(where.digest or where.tag)
    if data is None:
        raise RegistryError(f"{where}: there is no such bundle")
    layers, notes = _layers(data, str(where), _BUNDLE)
    chosen = [layer for layer in layers if wanted_targets is None or _serves(layer, wanted_targets)]
    if not chosen:
        has = ", ".join(layer.annotations.get(_TARGET, "?") for layer in layers) or "nothing"
        raise RegistryError(f"{where} has no code for {', '.join(targets or ())}; it has code for {has}")
    manifest = Descriptor.of_bytes(MANIFEST, data)
    path = output or Path(_safe_name(notes.get(_TITLE, "")))
    if path.suffix != ".silo":
        raise RegistryError(
            f"{path}: a bundle's name ends in .silo; write for example -o {path.stem or 'kernels'}.silo"
        )
    before = header_of(path)
    with tempfile.TemporaryDirectory(prefix="silo-pull-") as folder:
        parts: list[Path] = []
        for number, layer in enumerate(chosen):
            parts.append(Path(folder, f"{number}.silo"))
            with parts[-1].open("wb") as file:
                registry.fetch(layer, file)
        removed = _publish(parts, path, before)
    with open_bundle(path) as bundle:
        expected = notes.get(_IDENTITY, "") if len(chosen) == len(layers) else ""
        if len(chosen) == 1:
            expected = chosen[0].annotations.get(_IDENTITY, "")
        notice = _take_signature(registry, manifest.digest, path, bundle.identity) or removed or "it is not signed"
        return PullSummary(
            str(path),
            str(where.at(manifest.digest)),
            bundle.identity,
            tuple(map(str, targets_of(bundle.contents()))),
            bundle.size_bytes,
            bundle.identity == expected,
            notice,
        )


def _registry(where: OciReference, login: Path | None, *, plain: bool) -> Registry:
    file = login or Path.home() / ".docker" / "config.json"
    return Registry(where.host, where.repository, login=read_login(file, where.host), plain=plain)


def _manifest(
    kind: str, layers: Sequence[Descriptor], notes: dict[str, str], subject: Descriptor | None = None
) -> bytes:
    """Returns the manifest of an artifact. Equal contents give equal bytes, and so the same digest."""
    data: dict[str, JSON] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": kind,
        "config": EMPTY.to_json(),
        "layers": [layer.to_json() for layer in layers],
        "annotations": dict(notes),
    }
    return canonical_json(data | ({} if subject is None else {"subject": subject.to_json()}))


def _layers(data: bytes, label: str, kind: str) -> tuple[list[Descriptor], dict[str, str]]:
    """Parses the manifest of an artifact of type ``kind``; returns its layers and its annotations."""
    reason = f"no artifact of type {kind}"
    try:
        manifest = parse_json(data)
        match manifest:
            case {"artifactType": str(found), "layers": list(items)} if (
                found == kind and 0 < len(items) <= _MOST_LAYERS
            ):
                layers = [Descriptor.from_json(item) for item in items]
                notes = manifest.get("annotations")
                texts = notes.items() if isinstance(notes, dict) else ()
                if all(layer.media_type == kind for layer in layers):
                    return layers, {name: text for name, text in texts if isinstance(text, str)}
                reason = f"a layer is not of type {kind}"
            case _:
                pass
    except ValueError as error:
        reason = str(error)
    raise RegistryError(f"{label} is not a bundle that silo push made: {reason}")


def _serves(layer: Descriptor, wanted: Sequence[Target]) -> bool:
    for text in layer.annotations.get(_TARGET, "").split():
        try:
            target = Target.parse(text)
        except TargetError:
            continue
        if any(is_for(target, wanted_target) for wanted_target in wanted):
            return True
    return False


def _safe_name(name: str) -> str:
    """Returns a name that a registry sent. Raises RegistryError unless it names a file in the current folder."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise RegistryError(f"the bundle's name {name!r} is none for a file here: name the file with -o")
    return name


def _publish(parts: Sequence[Path], path: Path, before: bytes | None) -> str:
    """Checks every byte of the parts and writes them to ``path`` in one step.

    Returns a message if the signature of the file that was there before was removed, otherwise "".
    """
    for part in parts:
        with open_bundle(part) as bundle:
            if problems := verify_open(bundle):
                raise BundleFormatError(str(problems[0]), field=problems[0].field, offset=problems[0].offset)
    if len(parts) > 1:
        return merge_bundles(parts, path).signature
    try:
        with parts[0].open("rb") as source, AtomicFile(path, mode=0o666) as file:
            while piece := source.read(1 << 20):
                file.write(piece)
            file.commit()
    except OSError as error:
        raise RegistryError(f"cannot write {path}: {error.strerror}") from error
    return settle_signature(path, before, header_of(parts[0]) or b"", None)


def _put_signatures(registry: Registry, subject: Descriptor, signatures: dict[str, bytes]) -> None:
    layers: list[Descriptor] = []
    for identity, data in sorted(signatures.items()):
        layers.append(Descriptor.of_bytes(_SIGNATURE, data, {_IDENTITY: identity, _TITLE: f"{identity[:16]}{SUFFIX}"}))
        registry.put_blob(layers[-1], data)
    data = _manifest(_SIGNATURE, layers, {}, Descriptor(subject.media_type, subject.digest, subject.size, {}))
    descriptor = Descriptor.of_bytes(MANIFEST, data)
    if registry.put_manifest(descriptor.digest, MANIFEST, data):
        return
    # This registry keeps no list of the manifests that refer to a manifest. For such registries, the specification
    # requires that clients keep the list, under a tag made of the manifest's digest.
    referrers = {referrer.digest: referrer.to_json() for referrer in registry.referrers(subject.digest)}
    referrers[descriptor.digest] = descriptor.to_json() | {"artifactType": _SIGNATURE}
    index = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(referrers.values())})
    registry.put_manifest(subject.digest.replace(":", "-"), INDEX, index)


def _take_signature(registry: Registry, digest: str, path: Path, identity: str) -> str:
    """Writes the signature of a pulled bundle beside the bundle, whichever key signed it.

    Returns a message that names the file, or "" if the registry has no signature of the bundle.
    """
    for referrer in registry.referrers(digest):
        data = registry.manifest(referrer.digest)
        try:
            layers, _ = _layers(data or b"", referrer.digest, _SIGNATURE)
        except RegistryError:
            continue  # this artifact refers to the bundle, but isn't a signature
        for layer in layers:
            if layer.annotations.get(_IDENTITY) == identity and layer.size <= MAX_SIGNATURE_BYTES:
                signature_path = Path(signature_paths(path)[-1])
                with AtomicFile(signature_path, mode=0o666) as file:
                    registry.fetch(layer, file)
                    file.commit()
                return f"{signature_path.name}: check it with silo verify"
    return ""
