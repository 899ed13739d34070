"""`forestay schedule`, `webhook` and `config set`, as typed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_runs import Shell, write
from tests.contracts.openwop.conftest import LocalHost


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("cli")
    host = LocalHost(folder / "data")
    made = Shell(folder, FORESTAY_URL=host.start(), FORESTAY_API_KEY=host.keys["full"])
    made("workflow", "put", *write(folder, "noop"))
    yield made
    host.stop()


def test_a_schedule_is_made_paused_and_deleted(shell: Shell) -> None:
    made = shell(
        "schedule", "create", "suite-noop", "0 7 * * 1-5", "--timezone", "Europe/Berlin", "--tag", "early"
    ).result
    assert (made.get("state", "active"), made["spec"]["timezone"], made["spec"]["tags"]) == (
        "active",
        "Europe/Berlin",
        ["early"],
    )
    name = made["scheduleId"]
    line = shell("schedule", "list", "--human").out
    assert "0 7 * * 1-5 Europe/Berlin" in line and "suite-noop  next 20" in line
    assert shell("schedule", "pause", name).result["state"] == "paused"
    assert shell("schedule", "resume", name).result.get("state", "active") == "active"
    past = shell("schedule", "backfill", name, "--from", "2026-01-05T00:00:00Z", "--to", "2026-01-06T23:00:00Z").result
    assert [item["scheduledFor"][:10] for item in past["runs"]] == ["2026-01-05", "2026-01-06"]
    assert shell("schedule", "delete", name).code == 0
    assert shell("schedule", "show", name).code == 4
    assert shell("schedule", "create", "suite-noop", "every day").code == 2


def test_a_webhook_is_registered_rotated_and_removed(shell: Shell) -> None:
    made = shell("webhook", "register", "https://example.com/hook", "run.completed", "run.failed").result
    again = shell("webhook", "rotate", made["webhookId"]).result
    assert made["secret"] != again["secret"]
    listed = shell("webhook", "list", "--human").out
    assert "https://example.com/hook  run.completed run.failed" in listed and made["secret"] not in listed
    assert shell("webhook", "deliveries", made["webhookId"]).result["deliveries"] == []
    assert shell("webhook", "retry", made["webhookId"], "none").code == 4
    assert shell("webhook", "remove", made["webhookId"]).code == 0
    assert shell("webhook", "list").result["webhooks"] == []


def test_a_setting_is_set_and_taken_back_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    shell, file = Shell(tmp_path), tmp_path / "forestay.toml"
    file.write_text("# mine\n[http]\nport = 8787 # the port\n")
    said = shell("config", "set", "http.port", "9000").result
    assert said["settings"] == [{"name": "http.port", "value": 9000, "source": "project file"}], said
    shell("config", "set", "models.default", "local")
    assert tomllib.loads(file.read_text()) == {"http": {"port": 9000}, "models": {"default": "local"}}
    assert "# mine" in file.read_text()
    assert shell("config", "unset", "models.default").code == 0
    assert tomllib.loads(file.read_text()) == {"http": {"port": 9000}}
    for words, code in ((("http.prot", "1"), 2), (("http.port", "many"), 2), (("nothing.here", "1"), 2)):
        before = file.read_text()
        refused = shell("config", "set", *words)
        assert refused.code == code, refused.out
        assert refused.error["suggestedAction"]
        assert file.read_text() == before
    assert "http.port" in shell("config", "set", "htp.port", "1").error["suggestedAction"]


def test_commands_that_only_read_need_no_host(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell("run", "list").result == {"runs": [], "total": 0}
    assert shell("agent", "list").code == 0
    assert shell("ledger", "tail").code == 0
