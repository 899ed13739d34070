"""The files of `deploy/single`: what they promise is in them, and every setting that they name exists."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from forestay.kernel import Config, config

ROOT = Path(__file__).parents[2]
SINGLE = ROOT / "deploy" / "single"
PAGE = (ROOT / "docs" / "how-to" / "run-on-a-server.md").read_text("utf-8")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "deploy" / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_the_image_is_not_root_and_has_a_health_check_and_a_volume() -> None:
    found = instructions()
    said = dict(found)
    assert said["FROM"].endswith("-slim")
    assert [word for word, _ in found].index("USER") > max(at for at, (word, _) in enumerate(found) if word == "RUN")
    assert said["USER"] not in ("root", "0")
    assert said["VOLUME"] == "/data" and "/readyz" in said["HEALTHCHECK"]
    assert (said["ENTRYPOINT"], said["CMD"]) == ('["forestay"]', '["up"]')


def variables() -> set[str]:
    files = ("deploy/Dockerfile", "deploy/single/compose.yaml", "deploy/single/forestay.service")
    texts = [(ROOT / name).read_text("utf-8") for name in files]
    return {name for text in (*texts, PAGE) for name in re.findall(r"\bFORESTAY_[A-Z_]+\b", text)}


def test_every_variable_is_a_setting() -> None:
    own = {"FORESTAY_DOMAIN", "FORESTAY_PROJECT", "FORESTAY_UPSTREAM"}  # of the compose file and of Caddy's
    known = {"FORESTAY_" + name.upper().replace(".", "_") for name, _ in config._leaves(Config())}
    assert variables() - own <= known
    environ = {"FORESTAY_HTTP_TRUSTED_PROXIES": "172.16.0.0/12,10.0.0.0/8", "FORESTAY_HTTP_PUBLIC_URL": "https://a.b"}
    loaded = config.load(SINGLE, environ=environ).config.http
    assert (loaded.trusted_proxies, loaded.public_url) == (["172.16.0.0/12", "10.0.0.0/8"], "https://a.b")


def test_the_compose_file_keeps_the_host_behind_the_proxy() -> None:
    found: dict[str, Any] = yaml.safe_load((SINGLE / "compose.yaml").read_text("utf-8"))
    host, proxy = found["services"]["forestay"], found["services"]["caddy"]
    assert "ports" not in host and host["read_only"] and host["cap_drop"] == ["ALL"]
    assert (SINGLE / host["build"]["context"] / host["build"]["dockerfile"]).is_file()
    mounted = {text.split(":")[0] for service in (host, proxy) for text in service["volumes"]}
    assert set(found["volumes"]) <= mounted and (SINGLE / "Caddyfile").is_file()
    assert proxy["depends_on"]["forestay"]["condition"] == "service_healthy"


def test_the_unit_is_confined_and_lets_the_sandbox_work() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(SINGLE / "forestay.service")
    service = unit["Service"]
    assert service["User"] == "forestay" and service["ExecStart"].endswith("/forestay up")
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert not {"MemoryDenyWriteExecute", "RestrictNamespaces"} & set(service)
    assert int(service["TimeoutStopSec"]) > 10


def test_the_page_shows_the_files_of_the_proxies() -> None:
    for name in ("Caddyfile", "nginx.conf"):
        assert (SINGLE / name).read_text("utf-8") in PAGE
    assert "proxy_buffering off;" in PAGE and "flush_interval -1" in PAGE


@pytest.mark.sweep
def test_sweep_the_image_is_built_and_answers() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("there is no builder of images here")
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True)
    subprocess.run(["docker", "build", "-f", ROOT / "deploy" / "Dockerfile", "-t", "forestay-test", ROOT], check=True)
    done = subprocess.run(["docker", "run", "--rm", "forestay-test", "version"], check=True, capture_output=True)
    assert b"forestay" in done.stdout
