"""`litellm`, installed from the registry, talks with an agent through both interfaces: tools, whole and streamed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.served import KEY, served
from tests.surface.test_unchanged_clients import ASSISTANT, PLAY

PROGRAM = """
import json, os, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its prices come from the network otherwise
import litellm
litellm.suppress_debug_info = True
url, key, agent = sys.argv[1:]
tool = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters":
        {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}}}
places = [("openai/" + agent, url + "/openai/v1"), ("anthropic/" + agent, url + "/anthropic")]
for model, base in places:
    said = [{"role": "user", "content": "What is the weather?"}]
    def turn(stream):
        found = litellm.completion(model=model, api_base=base, api_key=key, messages=said, tools=[tool], stream=stream)
        return litellm.stream_chunk_builder(list(found), messages=said) if stream else found
    for stream in (False, True):
        del said[1:]
        first = turn(stream).choices[0]
        (call,) = first.message.tool_calls
        assert first.finish_reason == "tool_calls", first
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"town": "Kiel"}), call
        said.append(first.message.model_dump(exclude_none=True))
        said.append({"role": "tool", "tool_call_id": call.id, "content": "rainy"})
        last = turn(stream).choices[0]
        assert (last.message.content, last.finish_reason) == ("It rains in Kiel.", "stop"), last
    print(model)
"""


@pytest.mark.sweep
def test_litellm_holds_a_conversation_with_its_own_tool(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
    install = [
        str(place / "bin/pip"),
        "install",
        "-q",
        "--disable-pip-version-check",
        "litellm",
        "mcp",
    ]  # it imports mcp for tools
    subprocess.run(install, check=True, timeout=600)
    project = tmp_path / "project"
    project.mkdir()
    (project / "forestay.toml").write_text('[models]\ndefault = "scripted:play.jsonl"\n')
    (project / "play.jsonl").write_text("\n".join(map(json.dumps, PLAY)))
    with served(project) as host:
        command = [str(place / "bin/python"), "-P", "-c", PROGRAM, host.url, KEY, ASSISTANT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [f"openai/{ASSISTANT}", f"anthropic/{ASSISTANT}"]
