"""Mail of a real IMAP server starts runs (B1 to B3)."""

from __future__ import annotations

import datetime
import imaplib
import ipaddress
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from forestay.governance import SourceSettings, Subscription
from forestay.host import Host
from forestay.host.mail_intake import MailIntake
from forestay.kernel import OPERATOR, Config, Mailbox, Problem
from forestay.runs import RunFilter
from tests.runs.documents import node, workflow

PASSWORD = "CANARY-PASSWORD-83"
PATIENCE = 30
MAIL = workflow("mail", [node("n")], variables=[{"name": "subject", "type": "string", "required": True}])


class Server:
    """pymap, with an empty mailbox in memory, over TLS that a certificate of our own vouches for."""

    def __init__(self, folder: Path, password: str = PASSWORD) -> None:
        self.password = password
        self.certificate = folder / "cert.pem"
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
            .sign(key, hashes.SHA256())
        )
        self.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private = folder / "key.pem"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        start = "import sys; from pymap.main import main; sys.exit(main())"
        place = (
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--cert",
            str(self.certificate),
            "--key",
            str(private),
        )
        login = ("dict", "--demo-user", "orders", "--demo-password", password)
        self.process = subprocess.Popen([sys.executable, "-c", start, *place, *login], stderr=subprocess.DEVNULL)

    def mailbox(self) -> imaplib.IMAP4:
        """The mailbox, as a person's mail program has it."""
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=PATIENCE)
        while True:
            try:
                made = imaplib.IMAP4("127.0.0.1", self.port, timeout=PATIENCE)
                break
            except ConnectionRefusedError:  # it is still starting
                assert self.process.poll() is None and datetime.datetime.now(datetime.UTC) < until
        made.starttls(ssl.create_default_context(cafile=str(self.certificate)))
        made.login("orders", self.password)
        made.select("INBOX")
        return made

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def settings(self, **changed: Any) -> Mailbox:
        made = Mailbox("127.0.0.1", "orders", "MAIL_PASSWORD", self.port, "starttls", poll_seconds=3600.0)
        return msgspec.structs.replace(made, **changed)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("imap"))
    yield made
    made.end()


@pytest.fixture
def inbox(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[imaplib.IMAP4]:
    """An empty mailbox; the host believes its certificate and knows the password."""
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    made = server.mailbox()
    made.store("1:*", "+FLAGS", r"(\Deleted)") if made.search(None, "ALL")[1][0] else None
    made.expunge()
    yield made
    made.logout()


def sent(inbox: imaplib.IMAP4, subject: str, sender: str = "ann@example.com") -> None:
    made = EmailMessage()
    made["From"], made["Subject"], made["Message-ID"] = sender, subject, f"<{subject}@example.com>"
    made.set_content("Two boats.")
    assert inbox.append("INBOX", "", "", made.as_bytes())[0] == "OK"


def unseen(inbox: imaplib.IMAP4) -> int:
    inbox.noop()
    return len(inbox.search(None, "UNSEEN")[1][0].split())


class World:
    """A host whose settings have the mailbox, and a look into it at the test's own times."""

    def __init__(self, host: Host, subscription: Subscription, settings: Mailbox) -> None:
        self.host, self.subscription = host, subscription
        self.intake = MailIntake(host.ledger, host.triggers, {"orders": settings}, host.locks)

    async def look(self) -> list[str]:
        """Look once; the subjects of all runs that were started."""
        await self.intake.look("orders")
        await self.host.triggers.deliver_due()
        page = await self.host.runs.list_runs(RunFilter(), OPERATOR, None, 100)
        found = [await self.host.runs.get_run(run.run_id, OPERATOR) for run in page.runs]
        return sorted(run.inputs["subject"] for run in found)

    async def state(self) -> str:
        return (await self.host.triggers.subscriptions.get(OPERATOR, self.subscription.subscription_id)).state


@asynccontextmanager
async def world(folder: Path, settings: Mailbox) -> AsyncIterator[World]:
    async with Host.open(Config(mailboxes={"orders": settings}), root=folder, data=folder) as host:
        assert "email" in host.capabilities()["triggerBridge"]["sources"]
        await host.runs.put_workflow(MAIL, tenant=OPERATOR)
        made = await host.triggers.subscriptions.subscribe(
            OPERATOR, "email", "mail", settings=SourceSettings(mailbox="orders")
        )
        yield World(host, made, settings)


async def test_b1_b2_mail_starts_one_run_and_waits_while_nobody_takes_it(
    server: Server, inbox: imaplib.IMAP4, tmp_path: Path
) -> None:
    async with world(tmp_path, server.settings()) as there:
        sent(inbox, "first")
        sent(inbox, "second")
        assert await there.look() == ["first", "second"]
        assert unseen(inbox) == 0
        inbox.store("1", "-FLAGS", r"(\Seen)")  # as if the host had died before it marked it
        assert await there.look() == ["first", "second"] and unseen(inbox) == 0
        subscriptions, name = there.host.triggers.subscriptions, there.subscription.subscription_id
        await subscriptions.pause(OPERATOR, name)
        sent(inbox, "third")
        assert await there.look() == ["first", "second"] and unseen(inbox) == 1
        await subscriptions.resume(OPERATOR, name)
        assert await there.look() == ["first", "second", "third"] and unseen(inbox) == 0
        with pytest.raises(Problem):
            elsewhere = SourceSettings(mailbox="orders")
            await there.host.runs.put_workflow(MAIL, tenant="other")
            await subscriptions.subscribe("other", "email", "mail", settings=elsewhere)


async def test_b3_a_mailbox_that_cannot_be_read_fails_its_subscriptions_until_it_can(
    server: Server, inbox: imaplib.IMAP4, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async with world(tmp_path, server.settings()) as there:
        sent(inbox, "first")
        monkeypatch.setenv("MAIL_PASSWORD", "wrong")
        for expected in ("active", "active", "failed"):
            with pytest.raises(Problem) as refused:
                await there.look()
            assert refused.value.key == "unavailable" and PASSWORD not in str(refused.value.details)
            assert await there.state() == expected
        monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
        monkeypatch.delenv("SSL_CERT_FILE")  # a certificate that nobody vouches for
        with pytest.raises(Problem):
            await there.look()
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        assert await there.look() == ["first"] and await there.state() == "active"
    assert PASSWORD not in caplog.text and "wrong" not in caplog.text


async def test_only_those_whom_the_settings_name_start_runs(
    server: Server, inbox: imaplib.IMAP4, tmp_path: Path
) -> None:
    async with world(tmp_path, server.settings(senders=["*@example.com"])) as there:
        sent(inbox, "stranger", "eve@evil.example")
        sent(inbox, "friend")
        assert await there.look() == ["friend"] and unseen(inbox) == 0
        assert inbox.search(None, "FLAGGED")[1][0].split() == [b"1"], "a person can find what was not taken"


async def test_a_password_does_not_travel_in_the_clear(tmp_path: Path) -> None:
    plain = Mailbox("mail.example.com", "orders", "MAIL_PASSWORD", tls="none")
    with pytest.raises(Problem) as refused:
        async with Host.open(Config(mailboxes={"orders": plain}), root=tmp_path, data=tmp_path):
            raise AssertionError
    assert refused.value.key == "config_invalid"
