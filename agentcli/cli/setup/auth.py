"""``agent auth login|logout|status``: keys of providers, kept for the next time (SEC-9).

Law: a key is typed without echo or read from stdin, never an argument, and never shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, NamedTuple

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.config.credentials import (
    SAME_ACCOUNT,
    CredentialEntry,
    remove_key,
    store_key,
)
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.extensions.extras import install_command
from agentcli.headless.streams import is_terminal, write_error_line
from agentcli.ui.sanitize import clean_line

_MAX_KEY = 16_384
_SHOWN = 4
_LONG_ENOUGH = 20
_PROVIDER_HELP = "A provider, e.g. anthropic or openai."


class LoginOptions(OptionSet):
    """Options of ``login``."""

    provider: Annotated[str | None, typer.Argument(metavar="PROVIDER", help=_PROVIDER_HELP)] = None
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the key from standard input.")] = (
        False
    )
    file: Annotated[
        bool, typer.Option("--file", help="Keep it in a file (0600) and not in the OS keyring.")
    ] = False


class LogoutOptions(OptionSet):
    """Options of ``logout``."""

    provider: Annotated[str | None, typer.Argument(metavar="PROVIDER", help=_PROVIDER_HELP)] = None
    all: Annotated[bool, typer.Option("--all", help="Forget every stored key.")] = False


class StatusOptions(FormatOption):
    """Options of ``status``."""

    provider: Annotated[
        str | None, typer.Argument(metavar="PROVIDER", help=_PROVIDER_HELP + " None: all.")
    ] = None


class _KeyRow(NamedTuple):
    """A provider and where its key comes from. ``end`` are a long key's last characters."""

    provider: str
    source: str
    end: str
    overridden: str


def login(options: LoginOptions) -> int:
    """Ask for a key and keep it."""
    settings = _settings()
    asks = not options.stdin and is_terminal(sys.stdin)
    provider = _account(options.provider or _chosen(settings, asks=asks), settings)
    key = _read_key(provider, from_stdin=options.stdin)
    is_custom = _is_custom(provider, settings)
    entry = CredentialEntry(key, is_custom=is_custom)
    why = store_key(settings.paths, provider, entry, keyring=not options.file)
    if not why:
        write_error_line(f"the key of {provider} is in the OS keyring")
    else:
        if not options.file:
            is_missing = "not installed" in why
            advice = f" - for a keyring: {install_command('keyring')}" if is_missing else ""
            write_error_line(f"warning: the OS keyring is not used: {clean_line(why)}{advice}")
        write_error_line(
            f"the key of {provider} is in {settings.paths.credentials_file}, readable by you only"
        )
    if winner := _variable(provider, load_settings(settings.paths, os.environ)):
        write_error_line(f"warning: {winner} is set and wins over it")
    return 0


def logout(options: LogoutOptions) -> int:
    """Forget keys."""
    settings = _settings()
    stored = list(settings.stored.entries) if settings.stored is not None else []
    if options.all and options.provider is not None:
        raise UsageError("--all and a provider were given", "give one of them")
    if options.provider is not None:
        provider = SAME_ACCOUNT.get(options.provider, options.provider)
        names = [provider] if provider in stored else []
        if not names:
            _account(options.provider, settings)
    elif options.all or len(stored) <= 1:
        names = stored
    else:
        raise UsageError(
            f"there are keys of {', '.join(stored)}", "name one of them, or give --all"
        )
    code = 0
    for name in names:
        if why := remove_key(settings.paths, name):
            write_error_line(
                f"warning: {name}: its key may still be in the OS keyring: {clean_line(why)}"
            )
            code = 1
        write_error_line(f"the stored key of {name} is forgotten")
    if not names:
        write_error_line("there is no stored key to forget")
    for name in names or ([options.provider] if options.provider else []):
        if winner := _variable(name, settings):
            write_error_line(f"{winner} is set and still gives a key of {name}")
    return code


def status(options: StatusOptions) -> int:
    """Where the key of each provider comes from; the keys themselves are not shown."""
    as_json = options.as_json
    settings = _settings()
    if settings.stored is not None and settings.stored.problem:
        write_error_line(f"warning: {settings.stored.problem}")
    if options.provider is not None:
        _known(options.provider, settings)
    rows = _rows(settings, options.provider)
    if as_json:
        print_json(
            [
                {
                    "provider": row.provider,
                    "source": row.source or None,
                    "ends_with": row.end or None,
                    "stored": row.overridden or None,
                }
                for row in rows
            ]
        )
    elif rows:
        print_table(
            ("PROVIDER", "KEY FROM", "ENDS WITH"),
            [(row.provider, _source(row), f"...{row.end}" if row.end else "-") for row in rows],
        )
    else:
        write_error_line("no provider has a key - store one with: agent auth login PROVIDER")
    wanted = options.provider is not None
    return 1 if wanted and not any(row.source for row in rows) else 0


def _source(row: _KeyRow) -> str:
    if row.overridden:
        return f"{row.source} (wins over the key in the {row.overridden})"
    return row.source or "none"


def _rows(settings: Settings, wanted: str | None) -> list[_KeyRow]:
    """Providers with a key, or the one that is asked for."""
    from agentcli.providers._registry import has_key, provider_names

    names = (wanted,) if wanted else provider_names(settings.providers)
    rows = []
    for name in names:
        if not wanted and not has_key(name, settings.env, settings.providers):
            continue
        variable = _variable(name, settings)
        own = settings.providers.get(name)
        stored = own.stored if own is not None else None
        place = stored.place if stored is not None else ""
        if variable:
            named = f"{variable} (environment)"
            if own is not None and own.key_env == variable:
                named = f"{variable} (environment, named by api_key_env)"
            rows.append(_KeyRow(name, named, _end(settings.env[variable].strip()), place))
        else:
            # a key in the keyring is not fetched to be talked about
            end = _end(stored.get()) if stored is not None and stored.at_hand else ""
            rows.append(_KeyRow(name, place, end, ""))
    return rows


def _end(key: str) -> str:
    """The last characters of a key so long that they give nothing away."""
    return clean_line(key[-_SHOWN:]) if len(key) >= _LONG_ENOUGH else ""


def _variable(provider: str, settings: Settings) -> str:
    """The environment variable that gives the provider's key, or an empty text."""
    from agentcli.providers._registry import key_variables, spec_of

    names = key_variables(settings.providers.get(provider), spec_of(provider))
    return next((name for name in names if settings.env.get(name, "").strip()), "")


def _settings() -> Settings:
    return load_settings(Paths.from_env(os.environ), os.environ)


def _is_custom(provider: str, settings: Settings) -> bool:
    from agentcli.providers._registry import spec_of

    return provider in settings.providers and spec_of(provider) is None


def _known(name: str, settings: Settings) -> None:
    """Raises for what is no provider; its error never says what was typed: it may be a key."""
    from agentcli.providers._registry import is_provider, unknown_provider

    if not is_provider(name, settings.providers):
        if len(name) >= _LONG_ENOUGH:
            raise UsageError(
                "that is no provider", "a key is not an argument: agent auth login PROVIDER asks"
            )
        raise unknown_provider(name, settings.providers)


def _account(name: str, settings: Settings) -> str:
    """The name under which the key of provider ``name`` is kept; raises for what has none."""
    from agentcli.providers._registry import spec_of

    _known(name, settings)
    spec = spec_of(name)
    if name not in settings.providers and spec is not None and not spec.key_envs:
        raise UsageError(f"{name} needs no key", "log in to a provider that has one")
    return SAME_ACCOUNT.get(name, name)


def _chosen(settings: Settings, *, asks: bool) -> str:
    """The provider that the user names; raises ``UsageError`` where nobody ``asks`` for it."""
    from agentcli.providers._registry import login_names

    names = login_names(settings.providers)
    if asks:
        write_error_line(f"Providers: {', '.join(names)}")
        sys.stderr.write("Provider: ")
        sys.stderr.flush()
        if typed := sys.stdin.readline().strip():
            return next((name for name in names if name.lower() == typed.lower()), typed)
    raise UsageError("no provider was named", f"one of: {', '.join(names)}")


def _read_key(provider: str, *, from_stdin: bool) -> str:
    """The key; raises ``UsageError`` for none, ``ConfigError`` for what cannot be one."""
    if from_stdin:
        text = sys.stdin.buffer.read(_MAX_KEY + 1).decode("utf-8", "replace")
    elif is_terminal(sys.stdin):
        text = _ask(provider)
    else:
        raise UsageError("there is no terminal to ask for the key", "give it with --stdin")
    key = text.strip()
    if not key:
        raise UsageError("no key was given", "nothing was changed")
    if len(key) > _MAX_KEY or not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            "that is not a usable key: it is too long, or holds a space, a line break or a"
            " character outside ASCII",
            "copy it again; nothing was changed",
        )
    return key


def _ask(provider: str) -> str:
    import getpass
    import signal
    import warnings

    from agentcli.process.guard import PR_SET_PDEATHSIG, prctl

    if sys.platform == "linux":  # what is typed once the chat was killed is for the shell
        prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    prompt = f"Key of {provider} (not shown): "
    try:
        with warnings.catch_warnings(), _hidden_after_stop(prompt):
            # where echo cannot be switched off, nothing is asked
            warnings.simplefilter("error", getpass.GetPassWarning)
            typed = getpass.getpass(prompt)
    except EOFError:
        return ""
    except getpass.GetPassWarning:
        raise UsageError("this terminal would show the key", "give it with --stdin") from None
    if _has_lost_terminal():
        raise UsageError("the terminal belongs to another program now", "nothing was changed")
    return typed


def _has_lost_terminal() -> bool:
    """Whether what was typed was meant for a shell: who had started us was killed meanwhile."""
    if sys.platform != "win32":
        with suppress(OSError):  # it controls nothing
            return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    return False


@contextmanager
def _hidden_after_stop(prompt: str) -> Iterator[None]:
    """Echo is off again when a shell goes on with us after Ctrl-Z: it has switched it on."""
    if sys.platform == "win32":
        yield
        return
    import signal
    import termios

    def hide(_number: int, _frame: FrameType | None) -> None:
        with suppress(termios.error):
            modes = termios.tcgetattr(sys.stdin)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, modes)
            sys.stderr.write(prompt)
            sys.stderr.flush()

    before = signal.signal(signal.SIGCONT, hide)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


APP = new_app("Store the keys of providers, or forget them.", "status")
add_command(
    APP,
    CommandSpec("login", "Ask for a provider's key, and keep it in the OS keyring or a file."),
    LoginOptions,
    login,
)
add_command(APP, CommandSpec("logout", "Forget a stored key."), LogoutOptions, logout)
add_command(
    APP, CommandSpec("status", "Where the key of each provider comes from."), StatusOptions, status
)
