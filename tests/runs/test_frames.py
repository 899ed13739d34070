"""Where a node's code failed: the user's frames, bounded, without source and without the machine's paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.kernel import Problem
from forestay.runs.frames import frames_of, logged
from forestay.runs.nodes.registry import NodeError
from forestay.runs.outcome import error_of


def caught(call: object) -> Exception:
    assert callable(call)
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def written(folder: Path, source: str) -> dict[str, object]:
    """The names of a module of somebody else."""
    file = folder / "theirs.py"
    file.write_text(source)
    names: dict[str, object] = {}
    exec(compile(source, str(file), "exec"), names)
    return names


def test_file_line_and_function_are_named_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = written(tmp_path, "def deep():\n    return {}['x']\n\ndef outer():\n    return deep()\n")
    assert frames_of(caught(names["outer"]))[-2:] == ["theirs.py:5 in outer", "theirs.py:2 in deep"]


def test_outside_of_the_working_folder_only_the_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    names = written(tmp_path, "def f():\n    raise KeyError('x')\n")
    assert frames_of(caught(names["f"]))[-1] == "theirs.py:2 in f"


def test_a_deep_recursion_is_bounded(tmp_path: Path) -> None:
    names = written(tmp_path, "def f(n=0):\n    return f(n + 1)\n")
    lines = frames_of(caught(names["f"]))
    assert len(lines) <= 17 and any(line.startswith("…") for line in lines)


def test_of_a_library_only_the_place_of_the_failure_is_told(tmp_path: Path) -> None:
    names = written(tmp_path, "import json\n\ndef f():\n    return json.loads('{')\n")
    error = caught(names["f"])
    assert isinstance(error, json.JSONDecodeError)
    lines = frames_of(error)
    assert lines[-2].startswith("theirs.py:4") and lines[-1].startswith("decoder.py:")


def test_our_own_frames_are_no_users_trace() -> None:
    from forestay.kernel import canonical

    lines = frames_of(caught(lambda: canonical.decode(b"{")))
    assert all("canonical" not in line for line in lines)


def test_a_secret_in_the_source_is_in_no_event_and_redacted_in_the_log(tmp_path: Path) -> None:
    names = written(tmp_path, "def f():\n    return {}['x'], 'password=hunter22222'\n")
    error = caught(names["f"])
    assert "hunter" not in json.dumps(error_of(error)) and "hunter" not in logged(error)
    assert "theirs.py:2 in f" in logged(error) and "return {}['x']" in logged(error)


def test_what_was_raised_on_purpose_keeps_its_details() -> None:
    def meant() -> None:
        raise NodeError("mine", "on purpose", details={"a": 1})

    assert error_of(caught(meant))["details"] == {"a": 1}


def test_a_problem_met_by_users_code_has_the_place_too() -> None:
    def met() -> None:
        raise Problem("not_found", "There is none.", what="x")

    details = error_of(caught(met))["details"]
    assert details["what"] == "x" and any("in " in line for line in details["traceback"])
