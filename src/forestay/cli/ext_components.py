"""Make WASM components from core modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forestay.cli.command import Group
from forestay.cli.files import read_bytes, write_file
from forestay.cli.output import Answer

app = Group("ext")


@app.command("wrap")
def wrap(
    core: Annotated[Path, typer.Argument(help="A core module, binary or text (.wat), that exports the world.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the component goes.")],
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="An extension.json that the component is to carry.")
    ] = None,
) -> Answer:
    """Make a component of the world pi:extension/pi-extension from a core module."""
    from forestay.extensions import parse_manifest, wrapped
    from forestay.kernel import canonical

    carried = None
    if manifest is not None:
        carried = parse_manifest(canonical.decode(read_bytes(manifest)), manifest.name)
    component = wrapped(read_bytes(core), carried)
    write_file(output, component)
    result = {"file": output.name, "bytes": len(component), "carries": carried.extension_id if carried else None}
    return Answer(result, human=[f"{output.name}: {len(component)} bytes"])
