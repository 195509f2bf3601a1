"""A command or skill that is called by ``/NAME``: its text, what it runs first, what it permits.

Laws: what it runs is judged, and asked about, like a command of the model's, before anything is
sent; a refusal sends nothing; output that was put in is not read for files to attach; what it
permits, its model and its effort hold for the one turn (EXT-3).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agentcli.app.extensions.found import CHANGED
from agentcli.app.files.mentions import naming_only_inside, typed_or_inside
from agentcli.app.models import model_named
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import one_line
from agentcli.domain.errors import AgentError, ConfigError, TurnCancelled, UsageError
from agentcli.domain.messages import TextPart, UserMessage, UserPart
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import Effort
from agentcli.domain.tools import PREFIX, OutputKind, ToolOutput
from agentcli.extensions.commands import CustomCommand, Shell
from agentcli.policy.decision import Rule, parse_rule
from agentcli.tools.common.registry import standard_name

__all__ = ["CustomCommand", "find_called", "in_force", "message_of", "names_path", "parse_line"]
MAX_TITLE = 80
PROMPT_WAIT_S = 60.0
_NEARLY_ALL = 0.6
_LINE = LazyPattern(r"/((?=[\w.:-]*[^\W\d_])[^\W_](?:[\w.-]*:)?[\w:-]*)(?:\s+(.*))?\Z", re.DOTALL)
_FOOTER = LazyPattern(r"\n?\[exit code 0, [^\]\n]*\]\Z")
_RULE = LazyPattern(r"([\w*-]+)(?:\((.*)\))?", re.DOTALL)
_OPEN_END = LazyPattern(r":\*\Z")


def parse_line(text: str) -> tuple[str, str] | None:
    """The name, in small letters, and the arguments when ``text`` reads as a command."""
    found = _LINE.match(text.strip())
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def find_called(session: Session, text: str) -> tuple[CustomCommand, str] | None:
    """The command or skill that ``text`` calls, and its arguments; ``None``: it is a prompt.

    A prompt that begins with a path (``/etc/hosts says``, ``/tmp is full``) is one. Raises
    ``UsageError`` for a name that means nothing, with those that are near.
    """
    parsed = parse_line(text)
    if parsed is None:
        return None
    name, arguments = parsed
    known = {command.name: command for command in session.extensions.commands}
    if found := known.get(name):
        return found, arguments
    if names_path(text):
        return None
    import difflib

    name = one_line(name, MAX_TITLE)
    starts = [each for each in known if each.startswith(name)]
    near = dict.fromkeys([*starts, *difflib.get_close_matches(name, known, 3, _NEARLY_ALL)])
    meant = " or ".join(f"/{each}" for each in list(near)[:3])
    there = ", ".join(f"/{each}" for each in sorted(known)[:10])
    advice = f"did you mean {meant}?" if meant else f"there are: {there or 'none'}"
    advice = f"{advice}; the chat's own, such as /help, work in the chat alone"
    raise UsageError(f"there is no command /{name}", advice)


def names_path(text: str) -> bool:
    """Whether ``text`` begins with a path that exists: it is a prompt then."""
    try:
        return Path(text.split(None, 1)[0]).exists()
    except (OSError, ValueError):
        return False


async def message_of(
    session: Session,
    cwd: Path,
    command: CustomCommand,
    arguments: str,
    token: CancelToken,
) -> UserMessage:
    """What ``/NAME arguments`` sends: the file as it is by now, with what it runs and names.

    Raises ``AgentError``, also when a command of its own was refused, and ``TurnCancelled``.
    """
    if command.name.startswith(PREFIX):
        return await _served(session, command.name, arguments, token)
    if command.place.in_repository and await asyncio.to_thread(session.extensions.is_changed):
        raise AgentError(f"/{command.name} is not sent: {CHANGED}")
    workspace = replace(session.workspace, root=cwd, cwd=cwd, extra=())
    effort = str(session.effort or "")
    variables = {
        "CLAUDE_SESSION_ID": session.id,
        "CLAUDE_PROJECT_DIR": str(workspace.root),
        "CLAUDE_EFFORT": effort,
    }
    pieces = await asyncio.to_thread(command.prompt, arguments, variables)
    text, named = "", ""
    for piece in pieces:
        if isinstance(piece, Shell):
            text += _printed(await session.run_asked(piece.command, token))
            continue
        own = naming_only_inside(piece, arguments, workspace)
        text += own
        named += f"{own}\n"
    parts: tuple[UserPart, ...] = ()
    if "@" in named:
        from agentcli.app.files.attachments import attached_parts

        may = typed_or_inside(arguments, workspace)
        parts = await asyncio.to_thread(attached_parts, named, workspace, None, may)
    return UserMessage((TextPart(text.strip()), *parts))


async def _served(session: Session, name: str, arguments: str, token: CancelToken) -> UserMessage:
    """What a prompt of an MCP server says; words of the line are its arguments, in order."""
    import shlex

    servers = session.servers
    if servers is None:
        raise AgentError(f"/{name} is a prompt of an MCP server, and there is none here")
    await servers.tools(token, session.notify, PROMPT_WAIT_S)
    prompts = [each for facts in servers.facts() for each in facts.prompts]
    prompt = next((each for each in prompts if each.full_name.lower() == name), None)
    if prompt is None:
        raise AgentError(f"no MCP server has a prompt /{name}", "see /mcp")
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    names = [each for each, _, _ in prompt.arguments]
    if len(words) > len(names) > 0:  # the last takes the rest
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    missing = [each for each, _, is_needed in prompt.arguments[len(words) :] if is_needed]
    if missing:
        raise UsageError(f"/{name} needs {', '.join(missing)}", f"/{name} {' '.join(names)}")
    given = dict(zip(names, words, strict=False))
    parts = await servers.prompt(prompt, given, token)
    if token.cancelled:
        raise TurnCancelled
    if not parts:
        raise AgentError(f"the prompt /{name} says nothing")
    return UserMessage(tuple(parts))


def _printed(output: ToolOutput) -> str:
    text = "\n".join(part.text for part in output.parts if isinstance(part, TextPart))
    if output.kind is OutputKind.CANCELLED:
        raise TurnCancelled
    if output.kind is OutputKind.SUCCESS:
        text = _FOOTER.sub("", text)
        return "" if text.strip() == "(no output)" else text
    return text


@asynccontextmanager
async def in_force(session: Session, command: CustomCommand, arguments: str) -> AsyncIterator[None]:
    """What the file permits, and its model and effort, for as long as this lasts.

    A session that begins so is called as the user called the file.
    """
    before, effort, is_new = session.model.id, session.effort, not session.turns
    with _allowed(session, command):
        model = _model(session, command.head.text("model"))
        wanted = command.head.text("effort").lower()
        try:
            if model and model != before:
                try:
                    await session.switch_model(model)
                except ConfigError as error:
                    session.notify(f"the model of /{command.name} cannot be used: {error}")
            if wanted in set(Effort):
                session.set_effort(Effort(wanted))
            with session.quoting():
                yield
        finally:
            session.set_effort(effort)
            if session.model.id != before:
                await session.switch_model(before)
            if is_new and session.turns:
                with suppress(AgentError):
                    title = one_line(f"/{command.name} {arguments}", MAX_TITLE)
                    await session.rename(title.strip())


def _model(session: Session, name: str) -> str:
    found, problem = model_named(name, session.model)
    if problem:
        session.notify(problem)
    return found


@contextmanager
def _allowed(session: Session, command: CustomCommand) -> Iterator[None]:
    command_rules = session.policy.command_rules
    rules = []
    for text in command.allowed_tools:
        try:
            rules.append(as_rule(text))
        except UsageError:
            session.notify(f"/{command.name}: allowed-tools: {one_line(text, 100)!r} is no rule")
    command_rules += rules
    try:
        yield
    finally:
        ours = {id(rule) for rule in rules}
        command_rules[:] = [rule for rule in command_rules if id(rule) not in ours]


def as_rule(text: str) -> Rule:
    """A rule as Claude Code writes it (``Bash(git add:*)``), as one of ours.

    https://code.claude.com/docs/en/permissions. Raises ``UsageError``.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no rule")
    name = found[1] if found[1].startswith("mcp__") else standard_name(found[1])
    pattern = found[2]
    if pattern is None:
        return parse_rule(name)
    pattern = _OPEN_END.sub(" *", pattern.strip()).removeprefix("domain:")
    return parse_rule(f"{name}({pattern})")
