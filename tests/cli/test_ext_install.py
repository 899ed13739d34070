"""`forestay ext install NAME`: a package from a registry, pinned by its hash, looked through, and then asked about."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay import assets
from forestay.extensions import is_package
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.test_command_line import forestay
from tests.models.local_servers import answering

pytestmark = pytest.mark.skipif(assets.npm_command() is None, reason="there is no npm here")
CODE = """
export default function (pi) {
  pi.registerTool({
    name: "greet", description: "Greets.", parameters: { type: "object", properties: {} },
    execute: async () => ({ content: [{ type: "text", text: "hello" }] }),
  });
}
"""


def packed(version: str, code: str = CODE) -> bytes:
    about = {
        "name": "pi-greeter",
        "version": version,
        "keywords": ["pi-package"],
        "pi": {"extensions": ["./index.js"]},
        "scripts": {"install": "touch /tmp/ran-by-npm", "postinstall": "touch /tmp/ran-by-npm"},
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(about)), ("index.js", code)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


@contextmanager
def registry(**versions: bytes) -> Iterator[dict[str, Any]]:
    """A registry with one package; what is in the dictionary is what it answers."""
    documents: dict[str, Any] = {}
    with answering(documents) as address:
        root = address.removesuffix("/v1")
        listed: dict[str, Any] = {}
        for name, data in versions.items():
            version = name.removeprefix("v").replace("_", ".")
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
            documents[f"/{version}.tgz"] = data
            dist = {"tarball": f"{root}/{version}.tgz", "integrity": integrity}
            listed[version] = {"name": "pi-greeter", "version": version, "dist": dist}
        documents["/pi-greeter"] = {"name": "pi-greeter", "dist-tags": {"latest": max(listed)}, "versions": listed}
        documents["address"] = root
        yield documents


def environ(folder: Path, found: dict[str, Any]) -> dict[str, str]:
    cache = {"npm_config_cache": str(folder / "npm-cache"), "npm_config_fetch_retries": "0"}
    return {"npm_config_registry": found["address"], "HOME": str(folder), **cache}


def test_a_package_is_pinned_looked_through_and_not_trusted_by_itself(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".pi").mkdir(parents=True)
    (project / ".pi" / "settings.json").write_text('{"theme": "dark", "packages": ["npm:pi-greeter", "./own"]}')
    with registry(v1_0_0=packed("1.0.0"), v1_1_0=packed("1.1.0")) as found:
        ran = forestay(project, "ext", "install", "pi-greeter@1.0.0", **environ(tmp_path, found))
        assert ran.code == 0, ran.out + ran.err
        result = ran.envelope["result"]
        assert (result["version"], result["trusted"]) == ("1.0.0", False)
        assert result["integrity"] == found["/pi-greeter"]["versions"]["1.0.0"]["dist"]["integrity"]
        assert [item["verdict"] for item in result["extensions"]] == ["compatible"]
        settings = json.loads((project / ".pi" / "settings.json").read_text())
        assert settings == {"theme": "dark", "packages": ["./own", "npm:pi-greeter@1.0.0"]}
        lock = json.loads((project / ".pi" / "npm" / "package-lock.json").read_text())
        assert lock["packages"]["node_modules/pi-greeter"]["integrity"] == result["integrity"]
        again = forestay(project, "ext", "install", "pi-greeter@latest", "--yes", **environ(tmp_path, found))
        assert (again.envelope["result"]["version"], again.envelope["result"]["trusted"]) == ("1.1.0", True)
        settings = json.loads((project / ".pi" / "settings.json").read_text())
        assert settings["packages"] == ["./own", "npm:pi-greeter@1.1.0"]
    assert not Path("/tmp/ran-by-npm").exists()


def test_what_is_not_as_its_hash_says_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with registry(v1_0_0=packed("1.0.0")) as found:
        found["/1.0.0.tgz"] = packed("1.0.0", CODE + "// another")
        ran = forestay(project, "ext", "install", "pi-greeter", **environ(tmp_path, found))
    assert ran.code != 0
    assert "EINTEGRITY" in ran.envelope["error"]["details"]["reason"]
    assert not (project / ".pi" / "settings.json").exists()


def test_an_extension_that_cannot_be_used_is_told_and_not_asked_about(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with registry(v1_0_0=packed("1.0.0", "export default function (pi) { process.binding('fs'); }")) as found:
        ran = forestay(project, "ext", "install", "pi-greeter", "--yes", **environ(tmp_path, found))
    assert ran.code != 0 and ran.envelope["result"]["trusted"] is False


def test_on_a_terminal_a_person_is_asked_after_seeing_what_it_needs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with registry(v1_0_0=packed("1.0.0")) as found:
        terminal = PseudoTerminal(project, "ext", "install", "pi-greeter", **environ(tmp_path, found))
        terminal.expect("npm:pi-greeter@1.0.0 is installed")
        terminal.expect(r"Trust what this project brings as it is now\?")
        terminal.type("y")
        terminal.expect("It is trusted as it is")
        assert terminal.end() == 0
        terminal.close()


@pytest.mark.parametrize("name", ["pi-greeter", "@scope/name", "npm:pi-greeter@^1.0", "a@latest"])
def test_names_of_packages(name: str) -> None:
    assert is_package(name)


@pytest.mark.parametrize("name", ["", "../x", "--flag", "git+ssh://h/x", "a@npm:b", "a b", "https://h/x.tgz", "A/b/c"])
def test_what_names_no_package(name: str) -> None:
    assert not is_package(name)
