"""A WASM component in Python: the host reads files, this counts words. Build it with build.sh."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host

REGISTRATION = {
    "name": "NAME",
    "version": "0.1.0",
    "api_version": "1.0",
    "tools": [
        {
            "name": "count_words",
            "description": "Count the words of a file in the project",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        }
    ],
    "slash_commands": [{"name": "hello", "description": "Say hello"}],
    "event_hooks": ["session_start"],
}


class Extension(exports.Extension):
    def init(self, manifest_json: str) -> str:
        return json.dumps(REGISTRATION)

    def handle_tool(self, name: str, input_json: str) -> str:
        if name != "count_words":
            raise Err(json.dumps(f"There is no tool {name}."))
        path = json.loads(input_json)["path"]
        # A refusal of the host is an Err too; it passes through and keeps its code.
        answer = host.call("fs", json.dumps({"op": "read", "path": path, "encoding": "utf8"}))
        words = len(json.loads(answer)["text"].split())
        return json.dumps({"content": [{"type": "text", "text": f"{words} words"}], "details": {"words": words}})

    def handle_slash(self, command: str, args: list[str], input_json: str) -> str:
        return json.dumps({"output": {"text": f"Hello {' '.join(args) or 'there'}"}, "is_error": False})

    def handle_event(self, event_json: str) -> str:
        return ""

    def shutdown(self) -> None:
        pass
