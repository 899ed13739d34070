"""Targets of governance: suites of evaluations, signed webhooks, forms, mail."""

from __future__ import annotations

from forestay.governance import MailRules, mail_event
from forestay.governance.eval_suite import read_suite
from forestay.governance.inbound_signature import Signed, check, sign
from forestay.governance.intake_form import FormField, form_inputs, form_page, form_token
from forestay.kernel import Problem, canonical
from tests.fuzz.target import lines_of, target

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


@target(
    ["governance.eval_suite"],
    [
        b'{"suiteId":"a.evals.b","version":"1.0.0","modes":["golden"],"tasks":[{"taskId":"t","input":{},"expected":'
        b'{"kind":"golden","match":{"strategy":"exact","value":1}},"fixtures":{"toolResponses":[{"tool":"x"}]}},'
        b'{"taskId":"u","input":1,"expected":{"kind":"rubric","rubric":[{"criterion":"c","weight":1}]}}]}',
    ],
    (*_JSON, b'"tasks":', b'"expected":', b'"thresholds":', b'"fixtures":', b'"match":', b'"pattern":'),
)
def evaluation_suite(data: bytes) -> None:
    """A suite of evaluations."""
    canonical.encode(read_suite(canonical.decode(data)))


_SECRET = "whsec_" + "AAAA" * 8
_NOW = 1_700_000_000_000


@target(
    ["governance.inbound_signature"],
    [b"id\n1700000000\nv1,AAAA\nbody", b"id\n1700000000\nSIGN\nbody", b"i\n1\nSIGN\nb"],
    (b"v1,", b"SIGN", b" ", b"1700000000", b"\n", b"=="),
)
def webhook_signature(data: bytes) -> None:
    """Signed headers; only what the secret signed is taken (`SIGN` stands for the right signature)."""
    id, timestamp, signature, rest = lines_of(data, 4)
    try:
        right = sign(_SECRET, id, timestamp, rest.encode())
    except ValueError:
        right = ""
    given = signature.replace("SIGN", right)
    check(_SECRET, Signed(id, timestamp, given), rest.encode(), _NOW)
    assert right in given.split()


_FIELDS = [
    FormField("text", "text", "Text", True),
    FormField("number", "number", "Number", False),
    FormField("tick", "checkbox", "Tick", False),
]
_TOKEN = form_token(b"k" * 32, "s", _NOW, b"c" * 16)


@target(
    ["governance.intake_form"],
    [f"{_TOKEN}\nhello\n1.5\non".encode(), b"\n\n1e400\n", b"1.a.b\nx\n-0\n", f"{_TOKEN}\nx\nnan\n".encode()],
    (_TOKEN.encode(), b"1e308", b"nan", b"infinity", b"0x10", b"1_0", b".", b"\xd9\xa3", b"\x00"),
)
def form(data: bytes) -> None:
    """A form that was filled in, and the token of its page: no other token is taken."""
    token, *values = lines_of(data, 4)
    inputs = form_inputs(_FIELDS, dict(zip(("text", "number", "tick"), values, strict=True)))
    canonical.encode_strict(inputs)
    try:
        form_page(b"k" * 32, "s", token, _NOW)
    except Problem:
        return
    assert token == _TOKEN


_MAIL = b"From: Ann <ann@example.com>\r\nTo: o@example.org\r\nSubject: =?utf-8?Q?H=C3=A9?=\r\nMessage-ID: <1@x>\r\n"


@target(
    ["governance.inbound_mail"],
    [
        _MAIL + b"Content-Type: text/plain; charset=utf-8\r\n\r\nHello",
        _MAIL + b"Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\nPHA+SGk8L3A+",
        _MAIL
        + b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\na\r\n--b\r\n'
        b"Content-Disposition: attachment; filename*=utf-8''a%20b\r\n\r\nx\r\n--b--",
        _MAIL + b"Authentication-Results: mx.example.org; dmarc=pass\r\n\r\nHi",
    ],
    (
        *(
            b"From:",
            b"Subject:",
            b"Message-ID:",
            b"Content-Type: ",
            b"multipart/mixed; boundary=b",
            b"--b",
            b"\r\n\r\n",
        ),
        *(b"charset=", b"=?x?Q?=00?=", b"<@", b'"', b"base64", b"quoted-printable", b"message/rfc822", b"dmarc=pass"),
    ),
)
def mail(data: bytes) -> None:
    """A message of a mailbox becomes an event that JSON can carry, or none."""
    for rules in (MailRules(), MailRules(["*@example.com"], "mx.example.org")):
        event = mail_event(data, "7:1", rules)
        if event is not None:
            canonical.encode_strict(event.inputs)
            assert event.id
