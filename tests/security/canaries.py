"""Strings that stand for content and for secrets, a different one at each place where somebody gives some.

They are plain words: nothing about them looks like a credential, so no pattern can hide what a path forgets to hide.
"""

from __future__ import annotations

import base64
import hashlib

# What nobody is ever shown again: what opens doors, what was forgotten, what somebody failed to sign in with.
SECRETS = (
    "credentialvalue",
    "modelkey",
    "oauthclientsecret",
    "mailboxpassword",
    "forgottenmemory",
    "wrongkey",
    "forgedcode",
    "refusedvalue",
)
# What people and models say. It is shown where the contract shows it, and nowhere else.
CONTENT = (
    "systemprompt",
    "templatetext",
    "templateinput",
    "question",
    "reasoning",
    "toolargument",
    "toolresult",
    "answer",
    "requestheader",
    "requestbody",
    "responsebody",
    "responseheader",
    "providererror",
    "memorycontent",
    "memoryseed",
    "toolfixture",
    "taskinput",
    "expectedanswer",
    "criterion",
    "correction",
    "formanswer",
    "mailsubject",
    "mailbody",
    "queueinput",
    "webhookinput",
    "scheduleinput",
    "approvalcomment",
    "hookargument",
    "forgedbody",
    "failedinput",
)
NAMES = (*SECRETS, *CONTENT)


def canary(name: str) -> str:
    """The string that is planted at the place `name`."""
    assert name in NAMES, name
    return f"heron{name}{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _forms(text: str) -> list[bytes]:
    """The string as it stands, in hexadecimal, and in base64 wherever it begins in what was encoded."""
    raw = text.encode()
    encoded = [base64.b64encode(b"\0" * shift + raw + b"\0" * 3)[4 : 4 + len(raw)] for shift in range(3)]
    return [raw, raw.hex().encode(), *(part.lower() for part in encoded)]


_FORMS = {name: _forms(canary(name)) for name in NAMES}


def found(data: str | bytes) -> set[str]:
    """The names of the canaries in `data`, in any case and in the usual encodings."""
    said = (data.encode() if isinstance(data, str) else data).lower()
    return {name for name, forms in _FORMS.items() if any(form in said for form in forms)}
