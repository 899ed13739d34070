"""Resource packs: found, named, checked, and never outside their package."""

from __future__ import annotations

import json
from pathlib import Path

from forestay.extensions.packs import discover, front_matter, package_resources
from forestay.extensions.themes import TOKENS


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_discovery_in_project_and_user_folders(tmp_path: Path) -> None:
    project, home = tmp_path / "p", tmp_path / "h"
    write(project / ".pi/skills/review/SKILL.md", "---\nname: review\ndescription: Reads code.\n---\nbody")
    write(project / ".pi/skills/Bad_Name/SKILL.md", "---\ndescription: x\n---\n")
    write(project / ".pi/prompts/fix.md", "---\ndescription: Fix it\n---\nFix $1")
    write(project / ".forestay/themes/night.json", json.dumps({"name": "Night", "colors": dict.fromkeys(TOKENS, 4)}))
    write(project / ".forestay/themes/half.json", '{"name": "half", "colors": {"accent": 1}}')
    write(project / ".forestay/themes/broken.json", "{")
    write(project / ".pi/extensions/one.ts")
    write(project / ".pi/extensions/two/index.ts")
    write(home / ".pi/agent/prompts/fix.md", "another")
    write(home / ".pi/agent/skills/home/SKILL.md", "---\nname: home\ndescription: At home.\n---\n")
    found = {(item.kind, item.name): item for item in discover(project, home)}
    assert found["skill", "review"].description == "Reads code." and found["skill", "review"].problem == ""
    assert "lower-case" in found["skill", "Bad_Name"].problem
    assert found["prompt", "fix"].scope == "project" and found["prompt", "fix"].description == "Fix it"
    assert found["theme", "Night"].problem == "" and found["theme", "broken"].problem
    half = found["theme", "half"].problem
    assert "50 of 51 colours are missing" in half and "bashMode" in half
    assert {name for kind, name in found if kind == "extension"} == {"one", "two"}
    assert found["skill", "home"].scope == "user"


def test_a_package_stays_inside_itself(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    write(tmp_path / "secret.ts")
    write(package / "src/ext.ts")
    write(package / "skills/a/SKILL.md", "---\nname: a\ndescription: b\n---\n")
    listed = {"extensions": ["src/ext.ts", "../secret.ts", "gone.ts"], "skills": ["skills"]}
    write(package / "package.json", json.dumps({"name": "pkg", "pi": listed}))
    found = [(item.kind, item.name, item.problem) for item in package_resources(package)]
    assert ("extension", "ext", "") in found and ("skill", "a", "") in found
    assert ("extension", "../secret.ts", "lies outside the package") in found
    assert ("extension", "gone.ts", "is not there") in found


def test_front_matter_needs_both_marks() -> None:
    assert front_matter("---\na: 1\nb: 'x'\n---\nc: 2") == {"a": "1", "b": "x"}
    assert front_matter("---\na: 1\n") == {} and front_matter("a: 1") == {}
