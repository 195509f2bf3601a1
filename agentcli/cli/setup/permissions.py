"""``agent permissions explain|list``: what would run without asking, and why (SEC-3)."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.cli.options import MODES, SANDBOXES, choice
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import write_error_line, write_out

if TYPE_CHECKING:
    from agentcli.app.options import SessionOptions
    from agentcli.config.settings import Settings


class PolicyOptions(FormatOption):
    """What a session would be started with."""

    permission_mode: Annotated[
        str | None,
        typer.Option("--permission-mode", metavar="|".join(MODES), help="As if in this mode."),
    ] = None
    sandbox: Annotated[
        str | None,
        typer.Option("--sandbox", metavar="|".join(SANDBOXES), help="As if with this sandbox."),
    ] = None
    allow_tool: Annotated[
        list[str] | None,
        typer.Option("--allow-tool", metavar="RULE", help="As if this were allowed; repeatable."),
    ] = None
    deny_tool: Annotated[
        list[str] | None,
        typer.Option("--deny-tool", metavar="RULE", help="As if this were denied; repeatable."),
    ] = None


class ExplainOptions(PolicyOptions):
    """The call to explain."""

    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A shell command, best in quotes."),
    ] = None
    tool: Annotated[str, typer.Option("--tool", metavar="NAME", help="Another tool than bash.")] = (
        "bash"
    )
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the tool; repeatable."),
    ] = None


def explain_(options: ExplainOptions) -> int:
    """Say what would happen to a call; nothing is run."""
    from agentcli.app.permissions import explain, policy_in_force
    from agentcli.app.toolset import make_toolbox
    from agentcli.domain.tools import Workspace
    from agentcli.ui.exact import explanation_lines
    from agentcli.ui.theme import PLAIN

    as_json = options.as_json
    settings, wanted = _in_force(options)
    policy = policy_in_force(settings, wanted)
    toolbox, _ = make_toolbox(settings, wanted)
    workspace = Workspace(wanted.cwd, wanted.cwd)
    found = explain(toolbox, workspace, policy, options.tool, _arguments(options))
    if as_json:
        print_json(asdict(found))
    else:
        write_out("".join(f"{line}\n" for line in explanation_lines(found, PLAIN)))
    return 0


def _arguments(options: ExplainOptions) -> dict[str, Any]:
    text = " ".join(options.command or ())
    if text.startswith("-"):
        raise UsageError(
            f"unknown option {text.split()[0]}", "see: agent permissions explain --help"
        )
    arguments: dict[str, Any] = {"command": text} if text else {}
    for pair in options.arg or ():
        name, given, value = pair.partition("=")
        if not given or not name:
            raise UsageError(f"--arg {pair} is not valid", "write it like --arg path=src/a.py")
        arguments[name] = value
    if not arguments:
        raise UsageError(
            "there is nothing to explain",
            "give a command, for example: agent permissions explain 'git push'",
        )
    if text and options.tool != "bash":
        raise UsageError(f"{options.tool} takes no command here", "give its arguments with --arg")
    return arguments


def list_(options: PolicyOptions) -> int:
    """The mode and every rule, with where it is written."""
    from agentcli.app.boundary import policy_for

    as_json = options.as_json
    policy = policy_for(*_in_force(options))
    rows = [
        (kind, str(rule), rule.source)
        for kind in ("deny", "ask", "allow")
        for rule in getattr(policy, kind)
    ]
    if as_json:
        rules = [{"kind": kind, "rule": rule, "source": source} for kind, rule, source in rows]
        print_json({"mode": str(policy.mode), "rules": rules})
    else:
        print_table(("KIND", "RULE", "SOURCE"), [("mode", str(policy.mode), ""), *rows])
    return 0


def _in_force(options: PolicyOptions) -> tuple[Settings, SessionOptions]:
    """The settings here and now, and what a session would be asked for."""
    from agentcli.app.options import SessionOptions
    from agentcli.cli.session_request import settings_here
    from agentcli.domain.ports import PermissionMode

    choice("--permission-mode", options.permission_mode, MODES)
    choice("--sandbox", options.sandbox, SANDBOXES)
    settings, warnings = settings_here()
    for warning in warnings:
        write_error_line(f"warning: {warning}")
    if options.sandbox is not None:
        settings = replace(settings, sandbox=options.sandbox)
    name = options.permission_mode
    return settings, SessionOptions(
        Path.cwd(),
        mode=None if name is None else PermissionMode(name),
        allow=tuple(options.allow_tool or ()),
        deny=tuple(options.deny_tool or ()),
    )


APP = new_app("Explain what runs without asking, and why.", "list")
add_command(
    APP,
    CommandSpec(
        "explain", "Explain what would become of a command or another call.", takes_command=True
    ),
    ExplainOptions,
    explain_,
)
add_command(
    APP,
    CommandSpec("list", "The permission mode and every rule, with its source."),
    PolicyOptions,
    list_,
)
