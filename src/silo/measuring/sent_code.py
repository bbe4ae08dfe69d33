"""Code on its way to the measuring process: the description of its consent, and the consent made from it there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from silo.core.consent import Consent, HostCode
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Variant
from silo.store.trust_ledger import consent_to_confirmed

if TYPE_CHECKING:
    from silo.launch.runtime import VouchedCode

__all__ = ["consent_to_json", "received_consent"]


def consent_to_json(code: VouchedCode) -> dict[str, Any] | None:
    """Describes the consent to some code for another process: the digest, and the facts that process lacks."""
    consent = code.consent
    if consent is None:
        return None
    vouched = consent.host_code
    return {"digest": vouched.digest, "text": vouched.text, "calls": vouched.calls}


def received_consent(
    given: Mapping[str, Any] | None, kind: str, variant: Variant, launch: LaunchInfo, blob: bytes, who: str
) -> Consent | None:
    """The consent of ``who``, the requesting process. Raises TrustError if it is for other code than arrived."""
    if given is None:
        return None
    code = HostCode(
        blob=hashlib.sha256(blob).hexdigest(),
        kind=kind,
        launch=launch,
        signature=variant.signature,
        specialization=variant.specialization,
        text=given["text"],
        calls=given["calls"],
    )
    return consent_to_confirmed(code, given["digest"], who)
