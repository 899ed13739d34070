"""Turns a server's offer into definitions: its tools, access to its resources, and its prompts.

F1  The host defines two tools for resources, `list_resources` and `read_resource`; a server's own tool of that name
    wins. Their results are data from outside like any other result.
F2  A prompt is a definition like a tool: it is pinned and compared, and a call passes its arguments. Its name begins
    with `prompt:`, so that it cannot replace a tool.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types

from forestay.extensions.mcp.definitions import Definition

PROMPT = "prompt:"
_URI = {"type": "string", "minLength": 1, "maxLength": 8192, "description": "As list_resources names it."}
RESOURCE_TOOLS = (
    Definition(
        "list_resources",
        "List what this MCP server has to read, with the address of each.",
        {"type": "object", "properties": {"cursor": {"type": "string", "description": "Where a long list goes on."}}},
        kind="resources",
    ),
    Definition(
        "read_resource",
        "Read something that this MCP server has, by its address.",
        {"type": "object", "properties": {"uri": _URI}, "required": ["uri"]},
        kind="resource",
    ),
)


def of_tool(tool: types.Tool) -> Definition:
    plain = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Definition(
        name=tool.name,
        description=tool.description or "",
        input_schema=plain.get("inputSchema", {}),
        title=tool.title or "",
        output_schema=plain.get("outputSchema"),
        annotations=plain.get("annotations"),
    )


def of_prompt(prompt: types.Prompt) -> Definition:
    """Return the definition of a prompt (F2); its arguments are strings."""
    given = prompt.arguments or []
    fields = {item.name: {"type": "string", "description": item.description or ""} for item in given}
    schema: dict[str, Any] = {"type": "object", "properties": fields, "additionalProperties": False}
    if required := [item.name for item in given if item.required]:
        schema["required"] = required
    return Definition(PROMPT + prompt.name, prompt.description or "", schema, prompt.title or "", kind="prompt")


def prompt_params(definition: Definition, arguments: dict[str, Any]) -> types.GetPromptRequestParams:
    return types.GetPromptRequestParams(name=definition.name.removeprefix(PROMPT), arguments=arguments)


def from_prompt(result: types.GetPromptResult) -> types.CallToolResult:
    """Return the messages of a prompt, each after its role."""
    content: list[types.ContentBlock] = []
    for message in result.messages:
        content += [types.TextContent(type="text", text=f"[{message.role}]"), message.content]
    return types.CallToolResult(content=content)


def from_resources(result: types.ListResourcesResult) -> types.CallToolResult:
    """Return one line for each resource, and the cursor of the next page."""
    lines = [
        " ".join(filter(None, (str(item.uri), item.mime_type, item.title or item.name))) for item in result.resources
    ]
    if result.next_cursor is not None:
        lines.append(f"[The list continues: cursor {result.next_cursor}]")
    return types.CallToolResult(content=[types.TextContent(type="text", text="\n".join(lines) or "[nothing]")])


def from_resource(result: types.ReadResourceResult) -> types.CallToolResult:
    blocks = (types.EmbeddedResource(type="resource", resource=item) for item in result.contents)
    return types.CallToolResult(content=list(blocks))
