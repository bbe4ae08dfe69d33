"""Code on its way to the process that measures it: what is said of consent, and the consent that is given there."""

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
    """What tells the other process that there is consent, and to what: the digest, and what it does not know of it."""
    consent = code.consent
    if consent is None:
        return None
    vouched = consent.host_code
    return {"digest": vouched.digest, "text": vouched.text, "calls": vouched.calls}


def received_consent(
    given: Mapping[str, Any] | None, kind: str, variant: Variant, launch: LaunchInfo, blob: bytes, who: str
) -> Consent | None:
    """The consent of ``who``, the process that asks. ``TrustError`` where it is to something else than what arrived."""
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
