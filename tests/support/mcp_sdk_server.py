"""A server made with the official SDK, of both eras: ``python mcp_sdk_server.py [http PORT]``."""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import b64decode

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
server = MCPServer("Example", instructions="Adds numbers.\nAnd more.", version="1.2")


class Name(BaseModel):
    name: str
    age: int = 3


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it does not work")


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def long(size: int) -> str:
    """A long text."""
    return "\n".join(f"line {number}" for number in range(size))


@server.tool()
def environment() -> str:
    """The names of the variables."""
    return " ".join(sorted(os.environ))


@server.tool()
async def slow(ctx: Context, steps: int = 3) -> str:
    """Tell of each step."""
    for number in range(steps):
        await ctx.report_progress(number + 1, steps, f"step {number + 1}")
    return "done"


@server.tool()
async def forever(ctx: Context) -> str:
    """Never end."""
    await ctx.report_progress(1, 2, "begun")
    try:
        await asyncio.Event().wait()
    finally:
        if path := os.environ.get("CANCELLED_FILE"):
            with open(path, "w", encoding="utf-8") as file:
                file.write("cancelled")
    return "never"


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Who are you?", Name)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
async def roots(ctx: Context) -> str:
    """The roots of the client."""
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def grow(ctx: Context, name: str) -> str:
    """Get one more tool."""
    server.add_tool(environment, name=name)
    await ctx.notify_tools_changed()
    return name


@server.tool()
def leave() -> str:
    """End the process."""
    os._exit(3)


@server.resource("note://{name}")
def note(name: str) -> str:
    """A note."""
    return f"the note {name}"


@server.resource("text://readme")
def readme() -> str:
    """What to read."""
    return "read me"


@server.prompt()
def review(code: str) -> str:
    """Review code."""
    return f"Please review: {code}"


if __name__ == "__main__":
    print("the example server begins", file=sys.stderr)
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
