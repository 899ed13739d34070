"""The one table: what is said in it is there, and what is there is said in it."""

from __future__ import annotations

import re

import msgspec
import pytest

from forestay.extensions.api_table import CAPABILITIES, GRANT_SCOPES, METHODS, NODE_METHODS, NODE_MODULES, PI_MEMBERS
from forestay.extensions.capabilities import derive
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.standard import Neighbours, standard
from forestay.extensions.guest.build import SOURCES, generated
from forestay.extensions.manifest import parse_manifest
from forestay.extensions.schemas import schemas
from forestay.kernel import Problem

NODE = SOURCES / "node"


def test_every_module_with_a_stub_is_defined_by_that_file() -> None:
    for name, row in NODE_MODULES.items():
        if row.stub and not row.forbidden:
            sources = "".join(path.read_text("utf-8") for path in NODE.glob("*.ts") if _loads(row.stub, path.stem))
            place = f"pi:web/{name}" if row.package else name.replace("/", "_")
            assert re.search(rf'"(?:pi:node/)?{re.escape(place)}"', sources), name


def _loads(stub: str, file: str) -> bool:
    """The stub itself, or a file that it imports."""
    return file == stub or f'"./{file}"' in (NODE / f"{stub}.ts").read_text("utf-8")


def test_every_file_that_defines_a_module_is_loaded() -> None:
    found, reached = re.findall(r'"\./node/(\w+)"', generated()["stubs"]), set()
    while found:
        name = found.pop()
        if name not in reached:
            reached.add(name)
            found += re.findall(r'(?:from|import) "\./(\w+)"', (NODE / f"{name}.ts").read_text("utf-8"))
    call = re.compile(r"^(?:export const \w+ = )?define(?:Node|Module)\(", re.MULTILINE)
    defining = {path.stem for path in NODE.glob("*.ts") if call.search(path.read_text("utf-8"))}
    assert defining and defining <= reached


def test_every_method_has_a_connector_and_needs_a_capability_that_exists() -> None:
    environment = Environment({})
    connectors = standard(environment, ExecConnector(environment=environment), Neighbours())
    assert {item.method for item in connectors} == set(METHODS)
    for row in METHODS.values():
        assert {row.capability, *row.choices.values()} - {None, ""} <= set(CAPABILITIES)
    assert set(GRANT_SCOPES) <= set(CAPABILITIES)
    assert all(method in METHODS and capability in CAPABILITIES for capability, method in PI_MEMBERS.values())
    needed = {capability for row in NODE_MODULES.values() for found in row.members.values() for capability in found}
    assert needed <= set(NODE_METHODS)


def test_what_no_row_names_is_no_call() -> None:
    for method, params in (("nothing", {}), ("fs", {"op": "format"}), ("fs", {"op": 7}), ("fs", {})):
        with pytest.raises(Problem) as refused:
            derive(method, params)
        assert refused.value.key == "invalid_request"


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
def test_a_manifest_may_declare_every_capability(capability: str) -> None:
    manifest = {
        "schema": "pi.ext.manifest.v1", "extension_id": "x", "name": "x", "version": "1", "api_version": "1.0",
        "runtime": "js", "entrypoint": "x.ts", "capabilities": [capability],
    }  # fmt: skip
    assert parse_manifest(manifest, "extension.json").declared()[0].capability == capability
    text = msgspec.json.encode(schemas()["manifest"])
    assert f'"{capability}"'.encode() in text
