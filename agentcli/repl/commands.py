"""Slash commands: what one is, what it may do to the chat, and which there are.

Law: adding a command is adding a file to ``slash`` that exports ``COMMAND``. A message that only
begins with a slash, such as a path, is no command.
"""

from __future__ import annotations

import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Protocol, TypeVar

from agentcli.app.extensions.calling import (
    CustomCommand,
    in_force,
    message_of,
    names_path,
    parse_line,
)
from agentcli.app.library import SessionLibrary
from agentcli.app.session import Session
from agentcli.app.user_files import UserFiles
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.domain.events import Prompt
from agentcli.domain.values import frozen
from agentcli.repl import slash
from agentcli.repl.panel import PickRow
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import Theme

T = TypeVar("T")
MAX_HELP = 100


class Chat(Protocol):
    """The chat as a command sees it."""

    @property
    def sessions(self) -> SessionLibrary:
        """All sessions of the user."""

    @property
    def user(self) -> UserFiles:
        """The user's settings, rules, instructions, trust; the workspace."""

    @property
    def session(self) -> Session:
        """The conversation that is open."""

    @property
    def theme(self) -> Theme:
        """How to paint what is shown."""

    def show(self, lines: Sequence[str]) -> None:
        """Print lines that are painted and sanitized."""

    def open_transcript(self) -> None:
        """Show the whole session in a pager, soon."""

    def leave(self) -> None:
        """End the chat after this command."""

    async def switch_to(self, session_id: str | None) -> None:
        """Open that session in place of this one; ``None``: a new one."""

    async def reload(self) -> None:
        """Open this session again, with what the user brings as it is by now."""

    async def pick_session(self) -> str | None:
        """Let the user choose a session; its id, or ``None``."""

    async def choose(
        self,
        title: str,
        rows: Sequence[PickRow],
        start: int = 0,
        on_move: Callable[[int], None] = lambda _: None,
        about: Callable[[], Sequence[str]] = tuple,
    ) -> int | None:
        """Let the user choose a row, ``start`` first; ``None``: none of them.

        ``on_move`` gets the row where the cursor is, for a preview; ``about`` gives painted lines.
        """

    def put_in_input(self, text: str) -> None:
        """Let the user edit ``text`` and say it."""

    def commands(self) -> Sequence[SlashCommand]:
        """All commands, by name."""

    async def send(self, making: AbstractAsyncContextManager[Prompt | None]) -> None:
        """Say the prompt that ``making`` gives, if any, which lasts for its turn alone.

        What waits has turns of its own before and after it.
        """

    async def say(self, text: str) -> None:
        """Say ``text`` to the agent: a turn, or what waits for the next one.

        The screen has the command that stands for it.
        """

    def send_to_terminal(self, sequence: str) -> bool:
        """A control sequence of our own that moves nothing; false where there is no terminal."""

    async def edit(self, text: str) -> str:
        """``text`` as the user's editor leaves it. Raises ``AgentError``."""

    async def log_in(self, provider: str) -> bool:
        """Let the user store a key of ``provider``; whether that was done."""

    async def work(self, run: Callable[[CancelToken], Awaitable[T]], label: str) -> T | None:
        """Do something that takes time as the agent's work, shown as ``label``.

        Ctrl-C and Esc set the token given to ``run``, again: by force, which also cancels the
        wait. What ``run`` returned; ``None`` when it was cancelled. Its errors are raised.
        """


@frozen
class SlashCommand:
    """``/name arguments``. ``run`` gets the arguments as typed; ``AgentError`` is shown.

    ``while_working``: it changes nothing that a turn is built on, so that it runs at once while
    the agent works; the others wait until it is done. ``completes`` gives what its argument may be.
    """

    name: str
    help: str
    run: Callable[[Chat, str], Awaitable[None]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    while_working: bool = False
    completes: Callable[[Chat], Sequence[str]] = lambda _: ()


def check_can_reload(chat: Chat) -> None:
    """Raise ``UsageError`` where the session cannot be opened again."""
    if chat.session.active_runs:
        raise UsageError("background runs are under way", "wait until they have ended: /tasks")
    if chat.user.history_file is None and chat.session.turns:
        raise UsageError("this session is not kept", "begin another one first: /new")


def custom_command(custom: CustomCommand) -> SlashCommand:
    """The slash command for a file of the user's."""

    async def run(chat: Chat, arguments: str) -> None:
        session, cwd = chat.session, chat.user.cwd

        @asynccontextmanager
        async def called() -> AsyncIterator[Prompt | None]:
            async with in_force(session, custom, arguments):
                message = await chat.work(
                    lambda token: message_of(session, cwd, custom, arguments, token),
                    f"/{custom.name}",
                )
                yield None if message is None else Prompt(message)

        await chat.send(called())

    short = fit(clean_line(custom.description), MAX_HELP)
    kind = "skill" if custom.is_skill else "yours"
    return SlashCommand(custom.name, f"{short} ({kind})".strip(), run, clean_line(custom.hint))


# --- finding them -----------------------------------------------------------------------------

_custom: list[SlashCommand] = []


def all_commands() -> tuple[SlashCommand, ...]:
    """Every command, by name; then the user's own."""
    return (*_own_commands(), *_usable().values())


def use_custom(commands: Iterable[SlashCommand]) -> None:
    """Have these as well, in place of those before; a name that is taken stays as it is."""
    _custom[:] = commands


def _usable() -> dict[str, SlashCommand]:
    return {each.name: each for each in _custom if each.name not in _own_names()}


@cache
def _own_commands() -> tuple[SlashCommand, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(slash.__path__))
    found: list[SlashCommand] = []
    for name in names:
        command = import_module(f"{slash.__name__}.{name}").COMMAND
        found.append(command)
    return tuple(sorted(found, key=lambda command: command.name))


@cache
def _own_names() -> dict[str, SlashCommand]:
    return {
        name: command for command in _own_commands() for name in (command.name, *command.aliases)
    }


def _by_name() -> Mapping[str, SlashCommand]:
    return _own_names() | _usable()


def helps() -> dict[str, str]:
    """Name and help of each command and alias, for completion."""
    own = {name: command.help for name, command in _own_names().items()}
    return own | {name: f"{each.usage} {each.help}".strip() for name, each in _usable().items()}


def parse(text: str) -> tuple[str, str] | None:
    """The command's name and arguments when ``text`` reads as one, else ``None``."""
    return parse_line(text)


def is_prompt(text: str) -> bool:
    """Whether ``text`` is a message: no command, or one that is not known and reads as a path."""
    found = parse(text)
    return found is None or (find(found[0]) is None and names_path(text))


def parse_typed(text: str) -> tuple[str, bool] | None:
    """The shell command after ``!``, and whether the model learns of it: not after ``!!``.

    ``None`` when ``text`` is a message.
    """
    typed = text.strip()
    if not typed.startswith("!"):
        return None
    command = typed.removeprefix("!").removeprefix("!")
    return command.strip(), not typed.startswith("!!")


HOW_TO_LEAVE = "To leave: /exit, or Ctrl-D on the empty line. Nothing was sent."


def is_leaving(text: str) -> bool:
    """Whether ``text`` is the word with which one leaves other programs."""
    return text.strip().lower() in {"exit", "quit", ":q", "bye", "logout"}


def find(name: str) -> SlashCommand | None:
    """The command or alias of that name."""
    return _by_name().get(name)


def near(name: str) -> list[str]:
    """Names like ``name``, best first."""
    starts = [known for known in _by_name() if known.startswith(name)]
    return list(dict.fromkeys([*starts, *get_close_matches(name, _by_name(), 3, 0.6)]))[:3]


def unknown(name: str) -> tuple[str, str]:
    """What to say of a name that is no command, and what may have been meant."""
    like = " or ".join(f"/{other}" for other in near(name))
    advice = f"Did you mean {like}?" if like else "/help lists the commands."
    return f"There is no command /{name}.", advice
