"""``agent completions bash|zsh|fish [--install]``: static scripts from the command tree (CLI-9).

Law: a script runs nothing of ours while it completes, so that a key press costs nothing; what
it knows is what the tree had when it was generated (``completions/``, kept current by a test).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from agentcli.cli.argv import COMMANDS
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.main import PROGRAM, load
from agentcli.cli.options import choice
from agentcli.domain.errors import AgentError
from agentcli.headless.streams import write_error_line, write_out

# --- the command tree as data, for completion and for the documentation --------------------------


class OptionInfo(NamedTuple):
    """One option: its spellings, its help, and what its value may be."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    metavar: str


class CommandInfo(NamedTuple):
    """One command: the words that call it, its help, its options and its sub-commands.

    ``values`` are what its argument can be, where that is known.
    """

    words: tuple[str, ...]
    help: str
    options: tuple[OptionInfo, ...]
    commands: tuple[str, ...]
    values: tuple[str, ...]


def all_commands() -> list[CommandInfo]:
    """The program itself, then every command and sub-command."""
    root = _info((), load("chat"))._replace(commands=tuple(COMMANDS))
    found = [root]
    for name in COMMANDS:
        command = load(name)
        found.append(_info((name,), command))
        found += [_info((name, sub), child) for sub, child in _children(command).items()]
    return found


def help_text(words: tuple[str, ...]) -> str:
    """What ``--help`` prints for the command called by ``words``, 80 columns wide."""
    command: Any = load(words[0] if words else "chat")
    label = " ".join((PROGRAM, *words[:1]))
    with _columns("80"), command.make_context(label, [], resilient_parsing=True) as context:
        if len(words) == 1 or not words:
            return str(command.get_help(context))
        child = _children(command)[words[1]]
        with child.make_context(words[1], [], parent=context, resilient_parsing=True) as inner:
            return str(child.get_help(inner))


@contextmanager
def _columns(width: str) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = width
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _names(spellings: list[str]) -> tuple[str, ...]:
    """As declared; those of ``--help`` come from a set and are put in order."""
    return tuple(sorted(spellings) if "--help" in spellings else spellings)


def _children(command: Any) -> dict[str, Any]:
    children: dict[str, Any] = getattr(command, "commands", {})
    return children


def _info(words: tuple[str, ...], command: Any) -> CommandInfo:
    with command.make_context("agent", [], resilient_parsing=True) as context:
        options = tuple(
            OptionInfo(
                names=_names(param.opts),
                help=(param.help or "").split("  [")[0],
                takes_value=not param.is_flag and not param.count,
                metavar=param.metavar or "",
            )
            for param in command.get_params(context)
            if param.param_type_name == "option"
        )
        values = tuple(
            item.value
            for param in command.get_params(context)
            if param.param_type_name == "argument"
            for item in param.shell_complete(context, "")
        )
    first_line = (command.help or "").split("\n")[0]
    return CommandInfo(words, first_line, options, tuple(_children(command)), values)


# --- the face ------------------------------------------------------------------------------------


SHELLS = ("bash", "zsh", "fish")
FILE_NAMES = {"bash": "agent.bash", "zsh": "_agent", "fish": "agent.fish"}
_NAMES = ("agent", "agentcli")
MODEL = "PROVIDER/MODEL"
_ZSH_ACTIONS = {"DIR": "_directories", "FILE": "_files"}


def script(shell: str) -> str:
    """The completion script for ``shell``, one of ``SHELLS``."""
    commands = all_commands()
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _models() -> list[str]:
    """The well-known models as they are named on the command line."""
    from agentcli.providers._registry import BUILT_IN
    from agentcli.providers.models.table import known_models

    defaults = [
        f"{name}/{row.default_model}" for name, row in BUILT_IN.items() if row.default_model
    ]
    found = dict.fromkeys([*(info.id for info in known_models()), *defaults])
    return [name for name in found if not name.startswith("scripted/")]


def _values(option: OptionInfo) -> list[str]:
    """The words that the option's value can be, when its metavar lists them."""
    metavar = option.metavar
    if metavar == MODEL:
        return _models()
    if metavar.islower() and metavar.replace("|", "").replace("-", "").isalpha():
        return metavar.split("|")
    return []


# --- bash ----------------------------------------------------------------------------------


def _bash(commands: list[CommandInfo]) -> str:
    valued = sorted({name for c in commands for o in _valued(c) for name in o.names})
    where = "\n".join(
        f"          '{'/'.join(command.words)}') where='{'/'.join(command.words)}' ;;"
        for command in commands
        if command.words
    )
    values = "\n".join(line for command in commands for line in _bash_values(command))
    cases = "\n".join(
        f"    '{'/'.join(command.words)}')\n"
        f"      options='{' '.join(name for o in command.options for name in o.names)}'\n"
        f"      commands='{' '.join(command.commands + command.values)}' ;;"
        for command in commands
    )
    return f"""\
# bash completion of agentcli; generated by "agent completions bash"
_agentcli_complete() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local word where='' options='' commands='' skip=0 index
  local models='{" ".join(_models())}'
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    word="${{COMP_WORDS[index]}}"
    if ((skip)); then skip=0; continue; fi
    case "$word" in
      --) COMPREPLY=($(compgen -f -- "$current")); return ;;
      {"|".join(valued)}) skip=1 ;;
      -*) ;;
      *)
        case "${{where:+$where/}}$word" in
{where}
        esac ;;
    esac
  done
  case "$where $previous" in
{values}
  esac
  case "$where" in
{cases}
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$current") $(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _agentcli_complete {" ".join(_NAMES)}
"""


def _valued(command: CommandInfo) -> list[OptionInfo]:
    """Options that take the next word; those that only may are left out."""
    return [o for o in command.options if o.takes_value and not _may_lack_value(o)]


def _may_lack_value(option: OptionInfo) -> bool:
    return option.metavar.startswith("[")


def _bash_values(command: CommandInfo) -> list[str]:
    where = "/".join(command.words)
    lines = []
    for option in _valued(command):
        pattern = "|".join(f"'{where} {name}'" for name in option.names)
        if option.metavar == MODEL:
            found = '$(compgen -W "$models" -- "$current")'
        elif values := _values(option):
            found = f'$(compgen -W "{" ".join(values)}" -- "$current")'
        else:
            kind = {"DIR": "-d", "FILE": "-f"}.get(option.metavar)
            found = f'$(compgen {kind} -- "$current")' if kind else ""
        lines.append(f"    {pattern}) COMPREPLY=({found}); return ;;")
    return lines


# --- zsh -----------------------------------------------------------------------------------


def _zsh(commands: list[CommandInfo]) -> str:
    root = commands[0]
    helps = {command.words: command.help for command in commands}
    functions = "\n".join(_zsh_function(command, helps) for command in commands if command.words)
    return f"""\
#compdef {" ".join(_NAMES)}
# zsh completion of agentcli; generated by "agent completions zsh"

_agentcli_root() {{
  local -a commands
  commands=(
{_zsh_commands(root, helps)}
  )
  _arguments -C -S \\
{_zsh_options(root)}
    '1: :{{ _describe command commands; _files }}' \\
    '*:: :->rest'
  [[ $state == rest ]] || return
  case $words[1] in
{_zsh_cases(root)}
    *) _files ;;
  esac
}}

{functions}
if [ "$funcstack[1]" = "_agent" ]; then
  _agentcli_root "$@"
else
  compdef _agentcli_root {" ".join(_NAMES)}
fi
"""


def _zsh_function(command: CommandInfo, helps: dict[tuple[str, ...], str]) -> str:
    name = "_agentcli_" + "_".join(command.words)
    if not command.commands:
        options = _zsh_options(command)
        what = f"({' '.join(command.values)})" if command.values else "_files"
        return f"{name}() {{\n  _arguments -S \\\n{options}\n    '*:argument:{what}'\n}}\n"
    return (
        f"{name}() {{\n  local -a commands\n  commands=(\n{_zsh_commands(command, helps)}\n  )\n"
        f"  _arguments -C -S \\\n{_zsh_options(command)}\n"
        "    '1: :{ _describe command commands }' \\\n    '*:: :->rest'\n"
        "  [[ $state == rest ]] || return\n  case $words[1] in\n"
        f"{_zsh_cases(command)}\n  esac\n}}\n"
    )


def _zsh_commands(command: CommandInfo, helps: dict[tuple[str, ...], str]) -> str:
    return "\n".join(
        f"    '{name}:{_zsh_quoted(helps[(*command.words, name)])}'" for name in command.commands
    )


def _zsh_cases(command: CommandInfo) -> str:
    return "\n".join(
        f"    {name}) _agentcli_{'_'.join((*command.words, name))} ;;" for name in command.commands
    )


def _zsh_options(command: CommandInfo) -> str:
    lines = []
    for option in command.options:
        text = _zsh_quoted(option.help)
        value = ""
        if option.takes_value:
            values = _values(option)
            action = f"({' '.join(values)})" if values else _ZSH_ACTIONS.get(option.metavar, " ")
            optional = "::" if _may_lack_value(option) else ":"
            value = f"{optional}{_zsh_quoted(option.metavar.lower())}:{action}"
        lines += [f"    '*{name}[{text}]{value}' \\" for name in option.names]
    return "\n".join(lines)


def _zsh_quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    for sign in ":[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


# --- fish ----------------------------------------------------------------------------------


def _fish(commands: list[CommandInfo]) -> str:
    lines = ['# fish completion of agentcli; generated by "agent completions fish"']
    names = " ".join(commands[0].commands)
    for program in _NAMES:
        for command in commands:
            condition = _fish_condition(command, names)
            for sub in command.commands:
                info = next(c for c in commands if c.words == (*command.words, sub))
                lines.append(
                    f"complete -c {program} -n '{condition}' -a {sub}"
                    f" -d '{_fish_quoted(info.help)}'"
                )
            if command.values:
                values = " ".join(command.values)
                lines.append(f"complete -c {program} -n '{condition}' -f -a '{values}'")
            lines += [_fish_option(program, condition, option) for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_condition(command: CommandInfo, names: str) -> str:
    match command.words:
        case ():
            return f"not __fish_seen_subcommand_from {names}"
        case (group,) if command.commands:
            subs = " ".join(command.commands)
            return (
                f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {subs}"
            )
        case words:
            return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)


def _fish_option(program: str, condition: str, option: OptionInfo) -> str:
    parts = [f"complete -c {program} -n '{condition}'"]
    parts += [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.takes_value and not _may_lack_value(option):
        values = _values(option)
        if values:
            parts.append(f"-x -a '{' '.join(values)}'")
        elif option.metavar == "DIR":
            parts.append("-x -a '(__fish_complete_directories)'")
        else:
            parts.append("-r" if option.metavar == "FILE" else "-x")
    parts.append(f"-d '{_fish_quoted(option.help)}'")
    return " ".join(parts)


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


# --- the command ---------------------------------------------------------------------------


class CompletionOptions(OptionSet):
    """The shell, and whether to install."""

    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL", help="Yours: bash, zsh or fish.", autocompletion=lambda: list(SHELLS)
        ),
    ]
    install: Annotated[
        bool, typer.Option("--install", help="Put the script where the shell looks for it.")
    ] = False


def completions(options: CompletionOptions) -> int:
    """Print the script, or install it."""
    choice("SHELL", options.shell, SHELLS)
    text = script(options.shell)
    if not options.install:
        write_out(text)
        return 0
    for path in install_paths(options.shell):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            advice = f"agent completions {options.shell} > FILE puts it elsewhere"
            raise AgentError(f"cannot write {path}: {error.strerror}", advice) from error
        write_error_line(f"written: {path}")
    if options.shell == "zsh":
        write_error_line(
            "add to ~/.zshrc, before compinit: fpath=(~/.local/share/zsh/site-functions $fpath)"
        )
    write_error_line("it works in the next shell that you start")
    return 0


def install_paths(shell: str) -> list[Path]:
    """Where the user's shell looks for completion scripts, one file per name of the program."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    match shell:
        case "bash":
            directory = data / "bash-completion/completions"
            return [directory / "agent", directory / "agentcli"]
        case "zsh":
            return [data / "zsh/site-functions/_agent"]
        case _:
            directory = config / "fish/completions"
            return [directory / "agent.fish", directory / "agentcli.fish"]


APP = new_app("")
add_command(
    APP,
    CommandSpec("completions", "Print the completion script of your shell, or install it."),
    CompletionOptions,
    completions,
)
