"""The chat's start and end: settings in, the loop of ``repl`` in between, an exit code out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentcli.cli.session_request import prepare_settings, session_options

if TYPE_CHECKING:
    from agentcli.cli.options import SharedOptions


def talk(options: SharedOptions, first_prompt: str) -> int:
    """Run the chat; returns the exit code."""
    from agentcli.repl.loop import run_chat

    settings = prepare_settings(options)
    request = session_options(options, interactive=True)
    return asyncio.run(run_chat(settings, request, first_prompt))
