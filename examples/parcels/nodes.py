import asyncio
from pathlib import Path

from forestay import NodeContext, node


def happened(what: str) -> str:
    """Stands for the world outside: what was done there is a line in a file."""
    with Path("happened.txt").open("a") as file:
        file.write(f"{what}\n")
    return what


async def print_label() -> str:
    happened("label begun")
    await asyncio.sleep(10)
    return happened("label done")


@node("parcels.prepare")
async def prepare(ctx: NodeContext) -> dict:
    receipt = await ctx.effect("charge", lambda: happened(f"card charged: {ctx.inputs['sum']}"))
    label = await ctx.effect("label", print_label)
    return {"receipt": receipt, "label": label}


@node("parcels.ship")
async def ship(ctx: NodeContext) -> dict:
    return {"shipped": await ctx.effect("carrier", lambda: happened("carrier called"))}
