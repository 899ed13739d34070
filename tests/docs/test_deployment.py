"""The files in deploy/: their commands are of this version, their numbers fit it, and their processes come up."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from forestay.kernel import config
from forestay.surface import DRAIN_SECONDS
from tests.docs.pages import ROOT
from tests.postgres import new_ledger

DEPLOY = ROOT / "deploy"
OPEN_REQUESTS_SECONDS = 10  # what the server gives requests that are open when it stops
SETTINGS = ("FORESTAY_DATABASE", "FORESTAY_DATA_DIR", "FORESTAY_SECRET", "FORESTAY_API_KEY", "PGPASSWORD")


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "forestay-worker@.service")
    return parser["Service"]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for item in manifests():
        if item["kind"] == "Deployment":
            yield item["metadata"]["name"], item["spec"]["template"]["spec"]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for name in ("api", "worker"):
        yield f"compose {name}", compose()["services"][name]["command"]
    for name, pod in pods():
        yield f"kubernetes {name}", pod["containers"][0]["args"]
    yield "systemd", shlex.split(unit()["ExecStart"])[1:]


@pytest.mark.parametrize(
    ("where", "words"), list(command_lines()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_line_is_one(where: str, words: list[str]) -> None:
    name, *rest = words
    assert name in ("up", "worker")
    section = (
        (ROOT / "docs/reference/commands.md").read_text().partition(f"\n## forestay {name}\n")[2].partition("\n## ")[0]
    )
    options = [word for word in rest if word.startswith("--")]
    assert options and all(f"`{option}" in section for option in options)


def test_who_is_stopped_has_the_time_to_drain() -> None:
    least = DRAIN_SECONDS + OPEN_REQUESTS_SECONDS
    grace = [pod["terminationGracePeriodSeconds"] for _, pod in pods()]
    grace += [int(re.sub("s$", "", compose()["services"][name]["stop_grace_period"])) for name in ("api", "worker")]
    grace.append(int(unit()["TimeoutStopSec"]))
    assert len(grace) == 5 and min(grace) >= least


def test_every_part_that_answers_says_when_it_is_ready_and_one_always_does() -> None:
    known = (ROOT / "docs/reference/operations.md").read_text()
    for name, pod in pods():
        if name == "forestay-api":
            for probe in ("readinessProbe", "livenessProbe"):
                assert f"`GET {pod['containers'][0][probe]['httpGet']['path']}`" in known
    kept = {item["metadata"]["name"] for item in manifests() if item["kind"] == "PodDisruptionBudget"}
    assert kept == {name for name, _ in pods()}


def test_their_environment_is_what_forestay_reads() -> None:
    given = compose()["services"]["api"]["environment"]
    assert set(given) == set(SETTINGS)
    flags = {"FORESTAY_DATABASE": given["FORESTAY_DATABASE"], "FORESTAY_DATA_DIR": given["FORESTAY_DATA_DIR"]}
    read = config.load(environ=flags).config.data
    assert (read.ledger, read.dir) == (flags["FORESTAY_DATABASE"], "/data")
    for _, pod in pods():
        assert {item["name"] for item in pod["containers"][0]["env"]} - {"FORESTAY_HTTP_HOSTS"} == set(flags)
    assert config.load(environ={"FORESTAY_HTTP_HOSTS": "forestay, agents.example"}).config.http.hosts == [
        "forestay",
        "agents.example",
    ]


def test_what_compose_starts_comes_up(tmp_path: Path) -> None:
    """Its processes, with the database of the tests in place of its own, on ports of their own."""
    ledger, started = new_ledger(), []
    for name in ("api", "worker"):
        (tmp_path / name).mkdir()
        own = {"FORESTAY_DATABASE": ledger, "FORESTAY_DATA_DIR": "data", "FORESTAY_SECRET": "x" * 32}
        environment = {**os.environ, **own, "FORESTAY_API_KEY": "key-of-the-compose-file", "HOME": str(tmp_path)}
        words = ["127.0.0.1" if word == "0.0.0.0" else "0" if word == "8787" else word for word in _words(name)]
        line = [sys.executable, "-P", "-m", "forestay", *words, "--json"]
        started.append(
            subprocess.Popen(line, cwd=tmp_path / name, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    try:
        for process in started:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["result"]["name"]
        for process in started:
            process.terminate()
            assert process.wait(30) == 0
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _words(name: str) -> list[str]:
    return list(compose()["services"][name]["command"])
