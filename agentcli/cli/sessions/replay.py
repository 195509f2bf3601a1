"""``agent replay ID``: a session plays again, offline (TT-4)."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from typing import Annotated

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import session_files, wait
from agentcli.cli.options import OptionSet
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import is_terminal, write_error_line


class ReplayOptions(OptionSet):
    """Which session, how fast."""

    id: Annotated[str, typer.Argument(metavar="ID", help="Id, its beginning or end, or name.")]
    speed: Annotated[
        str | None,
        typer.Option("--speed", metavar="N", help="N times as fast as then (1); 0: at once."),
    ] = None
    step: Annotated[
        bool, typer.Option("--step", help="Wait for Enter before each message and result.")
    ] = False
    thinking: Annotated[bool, typer.Option("--thinking", help="Show all thinking.")] = False


def replay(options: ReplayOptions) -> int:
    """Play it; 130 when the user has ended it, 128 and its number when a signal has."""
    from agentcli.repl.playing import Player, ended_line, scenes
    from agentcli.store.files import ledger_of, read_session
    from agentcli.ui.theme import theme_for

    is_watched = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    speed = _speed(options.speed, 1.0 if is_watched else 0.0)
    if options.step and not is_watched:
        raise UsageError("--step needs a terminal", "leave it out, or run it in a terminal")
    files = session_files()
    path = files.path_of(wait(files.resolve(options.id)))
    session = read_session(path, hidden=True)
    theme = theme_for(sys.stdout, os.environ)
    player = Player(theme, speed, steps=options.step, folds=not options.thinking)
    try:
        asyncio.run(player.play(scenes(session, ledger_of(path))))
    except KeyboardInterrupt:
        return 130
    if not player.exit_code and is_watched and (speed or options.step):
        write_error_line(ended_line(session, theme))
    return player.exit_code


def _speed(given: str | None, otherwise: float) -> float:
    if given is None:
        return otherwise
    try:
        speed = float(given)
    except ValueError:
        speed = -1.0
    if not math.isfinite(speed) or speed < 0:
        raise UsageError(f"--speed {given}: not a speed", "give a number, for example 2, or 0")
    return speed


APP = new_app("")
add_command(
    APP,
    CommandSpec(
        "replay",
        "Play a session again, from its record.\n\nNo model is asked and no tool is run. Space"
        " pauses, Enter goes a step, + and - change the speed, q ends.",
    ),
    ReplayOptions,
    replay,
)
