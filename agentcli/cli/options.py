# no "from __future__ import annotations": these annotations are read at run time, and evaluating
# forty of them from text would be felt at every start
"""The options of chat and one shot (CLI-3, CLI-4): all that there is to say of one, in one place.

A line of ``SharedOptions`` or ``RunOptions`` declares an option for the parser, the help, the
completion, and for ``argv``, which sorts the line before there is a parser; what it means for a
session is said in ``session_request.session_options``, for the output in ``run``. Values come as
text; the methods turn them into their types. A wrong one is a ``UsageError``. Importing this module
imports no parser: a line that is plainly right is read here (``read_values``), any other is left to
typer, whose help, errors and completion are made from the same declarations.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from agentcli.domain.errors import UsageError

if TYPE_CHECKING:
    from agentcli.domain.ports import PermissionMode

N = TypeVar("N", int, float)
_MANY = list[str] | None

FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
MODES = ("default", "accept-edits", "auto", "plan", "yolo")
SANDBOXES = ("auto", "bwrap", "landlock", "off")
_LONGEST_ID = 64
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Option(NamedTuple):
    """An option: its spellings with spaces between; an empty text makes it an argument.

    One without a ``metavar`` takes no value.
    """

    spellings: str
    help: str
    metavar: str = ""
    counts: bool = False


class OptionSet:
    """Options of a command as attributes: subclass it and annotate them in typer's way.

    A class instead of a function's parameters, so that commands can share them.
    """

    def __init__(self, **values: Any) -> None:
        for name in option_names(type(self)):
            setattr(self, name, values[name] if name in values else getattr(type(self), name, None))


class CommandSpec(NamedTuple):
    """What a command says of itself. ``epilog`` comes after the options, or the exit codes do.

    ``is_program`` marks the one whose help is the program's own, ``takes_command`` one whose words
    are a shell command with options of its own.
    """

    name: str
    help: str
    epilog: str | None = None
    is_program: bool = False
    tells_codes: bool = False
    takes_command: bool = False


class DirectCommand(NamedTuple):
    """A command with the shared options: how it is called, and what then runs without typer."""

    spec: CommandSpec
    options: type[OptionSet]
    handler: Callable[[Any], int]


def option_names(options: type[OptionSet]) -> dict[str, Any]:
    """Names and annotations of all options, those of base classes first."""
    found: dict[str, Any] = {}
    for base in reversed(options.__mro__):
        found.update(inspect.get_annotations(base, eval_str=True))
    return found


def read_values(options: type[OptionSet], arguments: Sequence[str]) -> dict[str, Any] | None:
    """The values in ``arguments`` as typer would give them; ``None`` at the least doubt.

    Doubtful is what may be an error, a request for help, or several short options in one word.
    """
    reader = _PlainLine(options)
    return reader.values if reader.reads(arguments) else None


class _PlainLine:
    """Reads one line. ``values`` are at first what each option is by default."""

    def __init__(self, options: type[OptionSet]) -> None:
        self.values: dict[str, Any] = {}
        self._by_spelling: dict[str, tuple[str, Option]] = {}
        self._arguments: list[str] = []
        for name, annotation in option_names(options).items():
            declared: Option = annotation.__metadata__[0]
            is_list = annotation.__origin__ == _MANY
            self.values[name] = () if is_list else getattr(options, name)
            if declared.spellings:
                self._by_spelling |= dict.fromkeys(declared.spellings.split(), (name, declared))
            else:
                self._arguments.append(name)

    def reads(self, line: Sequence[str]) -> bool:
        """Take the values from ``line``; whether all of it is plain."""
        words: list[str] = []
        rest = iter(line)
        for item in rest:
            if item == "--":
                words.extend(rest)
            elif item == "-" or not item.startswith("-"):
                words.append(item)
            elif not self._takes(item, rest):
                return False
        for name in self._arguments:
            if self.values[name] == ():
                self.values[name], words = tuple(words), []
            elif words:
                self.values[name] = words.pop(0)
        return not words

    def _takes(self, item: str, rest: Iterator[str]) -> bool:
        """Take the option ``item``, and its value from ``rest``; whether it is plain."""
        spelling, given, value = item.partition("=")
        name, declared = self._by_spelling.get(spelling, ("", None))
        if declared is None or (given and not (declared.metavar and spelling.startswith("--"))):
            return False
        before = self.values[name]
        if not declared.metavar:
            self.values[name] = before + 1 if declared.counts else True
            return True
        if not given:
            value = next(rest, "-")
            if value.startswith("-"):
                return False
        self.values[name] = (*before, value) if isinstance(before, tuple) else value
        return True


class PromptArgument(OptionSet):
    """The prompt, as one word or many."""

    prompt: Annotated[
        list[str] | None, Option("", "What you want; several words are joined.", "PROMPT")
    ] = None


class SharedOptions(OptionSet):
    """Options of every command that talks to a model (CLI-3)."""

    model: Annotated[str | None, Option("-m --model", "Model to use.", "PROVIDER/MODEL")] = None
    agent: Annotated[
        str | None, Option("--agent", "Work as one of your agents, by its name.", "NAME")
    ] = None
    fallback_model: Annotated[
        list[str] | None,
        Option(
            "--fallback-model",
            "Model to switch to when the first stays overloaded; repeatable.",
            "PROVIDER/MODEL",
        ),
    ] = None
    continue_: Annotated[
        bool, Option("-c --continue", "Continue the newest session of this directory.")
    ] = False
    resume: Annotated[
        str | None,
        Option(
            "-r --resume", "Resume a session; without a value, pick one from a list.", "[ID|NAME]"
        ),
    ] = None
    session: Annotated[str | None, Option("--session", "Resume the session ID.", "ID")] = None
    fork: Annotated[
        bool, Option("--fork", "Continue in a copy; the session itself stays as it is.")
    ] = False
    new: Annotated[
        bool, Option("--new", "Start a new session even if one was interrupted here.")
    ] = False
    worktree: Annotated[
        str | None,
        Option(
            "-w --worktree",
            "Work in a git worktree of its own, on the branch agent/NAME; without a value,"
            " a new one.",
            "[NAME]",
        ),
    ] = None
    cd: Annotated[str | None, Option("-C --cd", "Work in DIR.", "DIR")] = None
    add_dir: Annotated[
        list[str] | None, Option("--add-dir", "Another directory to work in; repeatable.", "DIR")
    ] = None
    permission_mode: Annotated[
        str | None, Option("--permission-mode", "What runs without asking.", "|".join(MODES))
    ] = None
    plan: Annotated[bool, Option("--plan", "Read only: short for --permission-mode plan.")] = False
    yolo: Annotated[
        int,
        Option(
            "-y --yolo --dangerously-skip-permissions",
            "Ask nothing: short for --permission-mode yolo; twice: not even before"
            " a command that would destroy the workspace or your home.",
            counts=True,
        ),
    ] = 0
    allow_tool: Annotated[
        list[str] | None,
        Option(
            "--allow-tool",
            "Run matching calls without asking, e.g. 'bash(git diff *)'; repeatable.",
            "RULE",
        ),
    ] = None
    deny_tool: Annotated[
        list[str] | None, Option("--deny-tool", "Never run matching calls; repeatable.", "RULE")
    ] = None
    trust: Annotated[bool, Option("--trust", "Trust the directory's own files for this run.")] = (
        False
    )
    tools: Annotated[
        str | None, Option("--tools", "Only these tools or groups, separated by commas.", "LIST")
    ] = None
    effort: Annotated[
        str | None, Option("--effort", "How much the model thinks.", "|".join(EFFORTS))
    ] = None
    system_prompt: Annotated[
        str | None, Option("--system-prompt", "Replace the system prompt.", "TEXT")
    ] = None
    append_system_prompt: Annotated[
        str | None, Option("--append-system-prompt", "Add to the system prompt.", "TEXT")
    ] = None
    mcp_config: Annotated[
        list[str] | None,
        Option("--mcp-config", "MCP servers for this start, as in .mcp.json; repeatable.", "FILE"),
    ] = None
    strict_mcp_config: Annotated[
        bool, Option("--strict-mcp-config", "Use only the MCP servers of --mcp-config.")
    ] = False
    sandbox: Annotated[
        str | None,
        Option(
            "--sandbox",
            "Sandbox for commands; default: the best that works here.",
            "|".join(SANDBOXES),
        ),
    ] = None
    no_session: Annotated[bool, Option("--no-session", "Do not save this session.")] = False
    verbose: Annotated[bool, Option("--verbose", "Print more on stderr.")] = False
    debug: Annotated[
        str | None, Option("--debug", "Write a debug log with tracebacks to FILE.", "FILE")
    ] = None
    version: Annotated[bool, Option("-v --version", "Print the version and exit.")] = False

    def check(self) -> None:
        """Raise ``UsageError`` for values that are wrong or exclude each other."""
        choice("--permission-mode", self.permission_mode, MODES)
        choice("--effort", self.effort, EFFORTS)
        self.mode()
        ways = {
            "--continue": self.continue_,
            "--resume": self.resume is not None,
            "--session": self.session is not None,
            "--new": self.new,
        }
        given = list(compress(ways, ways.values()))
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other", "give one of them")
        if self.worktree is not None and not self.worktree.strip() and self.continue_:
            raise UsageError(
                "a new worktree has no session to continue", "give its name: -w NAME --continue"
            )
        if self.session is not None and not self.session.strip():
            raise UsageError("--session needs an ID", "agent sessions list shows them")
        if self.fork and (not given or self.new):
            raise UsageError("--fork needs a session", "add --continue, --resume or --session ID")
        if self.no_session and self.fork:
            raise UsageError("--no-session and --fork exclude each other", "give one of them")
        choice("--sandbox", self.sandbox, SANDBOXES)
        for name, rules in (("--allow-tool", self.allow_tool), ("--deny-tool", self.deny_tool)):
            for rule in rules or ():
                from agentcli.policy.decision import parse_rule

                parse_rule(rule, name)

    @property
    def has_own_place(self) -> bool:
        """Whether the work may be in a worktree: a new one, or that of an earlier session."""
        resumes = self.continue_ or self.resume or self.session
        return self.worktree is not None or (self.cd is None and bool(resumes))

    def fallback_models(self) -> list[str] | None:
        """The models to fall back on, in order; ``None`` when not given."""
        if self.fallback_model is None:
            return None
        return list(filter(None, map(str.strip, ",".join(self.fallback_model).split(","))))

    def mode(self) -> "PermissionMode | None":
        """The permission mode asked for, or ``None``."""
        from agentcli.domain.ports import PermissionMode

        ways = (self.permission_mode, "plan" if self.plan else None, "yolo" if self.yolo else None)
        asked = set(filter(None, ways))
        if len(asked) > 1:
            raise UsageError(
                f"permission modes {' and '.join(sorted(map(str, asked)))} exclude each other",
                "give one of --permission-mode, --plan, --yolo",
            )
        return PermissionMode(asked.pop()) if asked else None


class RunOptions(SharedOptions):
    """Options of one shot only (CLI-4)."""

    output_format: Annotated[
        str,
        Option(
            "-o --output-format",
            "What goes to stdout: the answer, one JSON object, or one per event.",
            "|".join(FORMATS),
        ),
    ] = "text"
    input_format: Annotated[
        str,
        Option(
            "--input-format",
            "What stdin holds: the prompt, or one JSON message per line.",
            "|".join(INPUT_FORMATS),
        ),
    ] = "text"
    replay_user_messages: Annotated[
        bool,
        Option(
            "--replay-user-messages",
            "With stream-json input: echo each message once it is recorded.",
        ),
    ] = False
    permission_prompt_tool: Annotated[
        str | None,
        Option(
            "--permission-prompt-tool",
            "With stream-json input: ask the program on stdin for approvals.",
            "stdio",
        ),
    ] = None
    include_partial_messages: Annotated[
        bool,
        Option("--include-partial-messages", "With stream-json output: send the answer in pieces."),
    ] = False
    session_id: Annotated[
        str | None,
        Option(
            "--session-id",
            "Run as session ID; again, it goes on or tells its answer. Waits for no rate limit.",
            "ID",
        ),
    ] = None
    as_task: Annotated[
        bool,
        Option("--as-task", "Not a session of your own: -c and lists leave it out."),
    ] = False
    json_schema: Annotated[
        str | None,
        Option(
            "--json-schema --output-schema",
            "JSON schema of the answer: a file, or the schema itself.",
            "FILE",
        ),
    ] = None
    max_turns: Annotated[
        str | None, Option("--max-turns", "Stop after N model requests; 0: no limit.", "N")
    ] = None
    max_budget_usd: Annotated[
        str | None, Option("--max-budget-usd", "Stop before costing more than X USD.", "X")
    ] = None
    pause_usd: Annotated[
        str | None,
        Option("--pause-usd", "Stop before costing more than X USD, to go on later.", "X"),
    ] = None
    timeout: Annotated[
        str | None, Option("--timeout", "Stop after this many seconds.", "SECONDS")
    ] = None
    record: Annotated[
        str | None,
        Option("--record", "Keep the provider's replies in FILE, without keys.", "FILE"),
    ] = None
    replay: Annotated[
        str | None,
        Option("--replay", "Serve the replies recorded in FILE, without a network.", "FILE"),
    ] = None
    quiet: Annotated[bool, Option("--quiet", "No progress and no warnings on stderr.")] = False
    raw: Annotated[bool, Option("--raw", "Pass control sequences of the answer as they are.")] = (
        False
    )

    def check(self) -> None:
        """Raise ``UsageError`` for values that are wrong or exclude each other."""
        choice("--output-format", self.output_format, FORMATS)
        choice("--input-format", self.input_format, INPUT_FORMATS)
        choice("--permission-prompt-tool", self.permission_prompt_tool, ("stdio",))
        if self.speaks_json and self.output_format != "stream-json":
            raise UsageError(
                "--input-format stream-json needs stream-json output",
                "add --output-format stream-json",
            )
        for name, is_given in (
            ("--replay-user-messages", self.replay_user_messages),
            ("--permission-prompt-tool", self.permission_prompt_tool is not None),
        ):
            if is_given and not self.speaks_json:
                raise UsageError(
                    f"{name} needs stream-json input", "add --input-format stream-json"
                )
        if self.include_partial_messages and self.output_format != "stream-json":
            raise UsageError(
                "--include-partial-messages needs stream-json", "add --output-format stream-json"
            )
        if self.record is not None and self.replay is not None:
            raise UsageError("--record and --replay exclude each other", "give one of them")
        for name, value in (("--record", self.record), ("--replay", self.replay)):
            if value is not None and not value.strip():
                raise UsageError(
                    f"{name} needs the name of a file", f"for example {name} run.jsonl"
                )
        number("--max-turns", self.max_turns, int)
        number("--max-budget-usd", self.max_budget_usd, float)
        number("--pause-usd", self.pause_usd, float)
        number("--timeout", self.timeout, float)
        super().check()
        if self.session_id is not None:
            self._check_session_id(self.session_id)
        if self.resume == "":
            raise UsageError(
                "--resume needs a session here",
                "agent sessions list shows them; --continue takes the newest",
            )

    def _check_session_id(self, given: str) -> None:
        letters = given.replace("-", "")
        is_id = given.isascii() and letters.isalnum() and given[0] != "-"
        if not is_id or len(given) > _LONGEST_ID:
            raise UsageError(f"--session-id {given} is no id", "give a UUID, as uuidgen makes one")
        others = {
            "--continue": self.continue_,
            "--resume": self.resume is not None,
            "--session": self.session is not None,
            "--new": self.new,
            "--no-session": self.no_session,
            "--input-format": self.speaks_json,
        }
        if other := next(compress(others, others.values()), None):
            raise UsageError(f"--session-id and {other} exclude each other", "give one of them")

    def timeout_s(self) -> float | None:
        """Seconds that the run may take; ``None``: no limit."""
        return number("--timeout", self.timeout, float) or None

    @property
    def speaks_json(self) -> bool:
        """Whether stdin holds messages, one JSON object per line."""
        return self.input_format == "stream-json"


def print_version() -> int:
    """``agentcli X.Y.Z``: other programs are called ``agent`` too (CLI-1)."""
    from agentcli import __version__
    from agentcli.headless.streams import write_out

    write_out(f"agentcli {__version__}\n")
    return 0


def choice(option: str, value: str | None, valid: tuple[str, ...]) -> None:
    """Raise ``UsageError`` unless ``value`` is missing or one of ``valid``."""
    if value is not None and value not in valid:
        raise UsageError(f"{option} {value} is not valid", "one of: " + ", ".join(valid))


def number(option: str, text: str | None, kind: type[N]) -> N | None:
    """``text`` as a finite number of at least 0; ``None`` stays ``None``."""
    if text is None:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not 0 <= value < float("inf"):
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{option} {text} is not valid", f"give {what} of at least 0")
    return value


def take_over(options: type[OptionSet], names: Sequence[str]) -> type[OptionSet]:
    """A class with the options ``names`` of ``options``, to be subclassed: see ``in_words``."""
    declared = option_names(options)
    taken = type("_Taken", (OptionSet,), {name: getattr(options, name) for name in names})
    taken.__annotations__ = {name: declared[name] for name in names}
    return taken


def in_words(options: OptionSet, names: Sequence[str]) -> tuple[str, ...]:
    """The options ``names`` that are given, as words of a command line."""
    words: list[str] = []
    declared = option_names(type(options))
    for name in names:
        option: Option = declared[name].__metadata__[0]
        spelling = next(each for each in option.spellings.split() if each.startswith("--"))
        value = getattr(options, name)
        if not option.metavar:
            words += [spelling] * int(value)
        elif isinstance(value, list | tuple):
            words += [f"{spelling}={each}" for each in value]
        elif value is not None:
            words.append(f"{spelling}={value}")
    return tuple(words)


def spellings(options: type[OptionSet], *, with_value: bool = False) -> set[str]:
    """Every spelling of every option in ``options``, or of those that take a value."""
    found: set[str] = set()
    for annotation in option_names(options).values():
        declared = annotation.__metadata__[0]
        if isinstance(declared, Option) and (declared.metavar or not with_value):
            found.update(declared.spellings.split())
    return found
