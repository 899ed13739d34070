"""Mail that starts runs: what a run is given, what counts once, and who may (Z1 to Z3)."""

from __future__ import annotations

from email.message import EmailMessage

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.governance import MailRules, mail_event
from forestay.governance.inbound_mail import mail_id, mail_inputs, may_start, read_mail


def letter(**headers: str) -> EmailMessage:
    made = EmailMessage()
    for name, value in {"From": "Ann <ann@example.com>", "To": "orders@example.org", **headers}.items():
        made[name.replace("_", "-")] = value
    made.set_content("Two boats, please.\n")
    return made


def test_z1_a_run_is_given_what_the_message_says() -> None:
    made = letter(Subject="An order", Message_ID="<1@example.com>", Date="Mon, 16 Nov 2026 12:00:00 +0000")
    made.add_alternative("<p>Two <b>boats</b></p>", subtype="html")
    made.add_attachment(b"12345", maintype="application", subtype="pdf", filename="list.pdf")
    found = mail_inputs(read_mail(made.as_bytes()))
    assert found == {
        "from": "ann@example.com",
        "to": ["orders@example.org"],
        "subject": "An order",
        "date": "Mon, 16 Nov 2026 12:00:00 +0000",
        "messageId": "<1@example.com>",
        "text": "Two boats, please.",
        "attachments": [{"name": "list.pdf", "contentType": "application/pdf", "bytes": 5}],
        "contentTrust": "untrusted",
    }


def test_z1_the_words_of_a_page_without_what_no_reader_sees() -> None:
    made = EmailMessage()
    made.set_content("<style>p{}</style><script>x()</script><p>Two&nbsp;boats</p><p>please</p>", subtype="html")
    assert mail_inputs(read_mail(made.as_bytes()))["text"] == "Two boats please"


def test_z1_a_page_with_a_mark_that_nobody_knows_is_read() -> None:
    made = letter()
    made.set_content("<p>Two <![odd>boats</p>", subtype="html")
    event = mail_event(made.as_bytes(), "7:1", MailRules())
    assert event is not None and event.inputs["text"] == "Two boats"


ODD = st.sampled_from(
    [b"From:", b"Subject:", b"Message-ID:", b"Content-Type: text/plain; charset=", b"\r\n", b"=?x?Q?=00?=", b"<@", b'"']
)


@given(st.lists(ODD | st.binary(max_size=20), max_size=30).map(b"".join))
def test_z1_whatever_comes_in_is_an_event_that_json_can_carry_or_none(raw: bytes) -> None:
    """Every exception of the parser ends in `mail_event`, and every text goes through `_clean`."""
    event = mail_event(raw, "7:1", MailRules())
    if event is not None:
        msgspec.json.encode(event)
        assert event.id and "\x00" not in event.inputs["text"]


def test_z2_a_message_counts_once() -> None:
    assert mail_id(letter(Message_ID="<1@example.com>"), "7:1") == mail_id(letter(Message_ID="<1@example.com>"), "7:2")
    assert mail_id(letter(), "7:1") != mail_id(letter(), "7:2")


REAL = "mx.example.org; spf=pass smtp.mailfrom=example.com; dmarc=pass header.from=example.com"


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({"Authentication_Results": REAL}, True),
        ({"Authentication_Results": REAL, "From": "ANN@EXAMPLE.COM"}, True),
        ({}, False),
        ({"Authentication_Results": REAL.replace("dmarc=pass", "dmarc=fail")}, False),
        ({"Authentication_Results": REAL.replace("mx.example.org", "mx.evil.example")}, False),
        ({"Authentication_Results": REAL, "From": "ann@evil.example"}, False),
        ({"Authentication_Results": REAL, "From": "a@evil.example, ann@example.com"}, False),
        ({"Authentication_Results": REAL, "From": '"ann@example.com" <a@evil.example>'}, False),
    ],
)
def test_z3_only_a_sender_who_was_found_real_may_start_a_run(headers: dict[str, str], may: bool) -> None:
    rules = MailRules(["*@example.com"], "mx.example.org")
    assert may_start(read_mail(letter(**headers).as_bytes()), rules) is may


def test_z3_a_result_that_the_sender_wrote_is_not_believed() -> None:
    """The receiving server puts its own above what came in."""
    raw = b"Authentication-Results: mx.example.org; dmarc=fail\r\n" + letter(Authentication_Results=REAL).as_bytes()
    assert not may_start(read_mail(raw), MailRules([], "mx.example.org"))
