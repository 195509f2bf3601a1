# no "from __future__ import annotations": typer reads these annotations at run time, and
# evaluating forty of them from text would be felt at every start
"""The options of chat and one shot (CLI-3, CLI-4), and what they mean.

Values come as text; the methods turn them into their types. A wrong one is a ``UsageError``.
"""

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from agentcli.cli.commands import OptionSet, option_names
from agentcli.domain.errors import UsageError

if TYPE_CHECKING:
    from agentcli.domain.ports import PermissionMode

N = TypeVar("N", int, float)

FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
MODES = ("default", "accept-edits", "plan", "yolo")
SANDBOXES = ("auto", "bwrap", "landlock", "off")
EFFORTS = ("none", "minimal", "low", "medium", "high")


class PromptArgument(OptionSet):
    """The prompt, as one word or many."""

    prompt: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="What you want; several words are joined."),
    ] = None


class SharedOptions(OptionSet):
    """Options of every command that talks to a model (CLI-3)."""

    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="PROVIDER/MODEL", help="Model to use.")
    ] = None
    fallback_model: Annotated[
        list[str] | None,
        typer.Option(
            "--fallback-model",
            metavar="PROVIDER/MODEL",
            help="Model to switch to when the first stays overloaded; repeatable.",
        ),
    ] = None
    continue_: Annotated[
        bool,
        typer.Option("-c", "--continue", help="Continue the newest session of this directory."),
    ] = False
    resume: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--resume",
            metavar="[ID|NAME]",
            help="Resume a session; without a value, pick one from a list.",
        ),
    ] = None
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Resume the session ID.")
    ] = None
    fork: Annotated[
        bool, typer.Option("--fork", help="Continue in a copy; the session itself stays as it is.")
    ] = False
    new: Annotated[
        bool, typer.Option("--new", help="Start a new session even if one was interrupted here.")
    ] = False
    cd: Annotated[str | None, typer.Option("-C", "--cd", metavar="DIR", help="Work in DIR.")] = None
    add_dir: Annotated[
        list[str] | None,
        typer.Option("--add-dir", metavar="DIR", help="Another directory to work in; repeatable."),
    ] = None
    permission_mode: Annotated[
        str | None,
        typer.Option(
            "--permission-mode", metavar="|".join(MODES), help="What runs without asking."
        ),
    ] = None
    plan: Annotated[
        bool, typer.Option("--plan", help="Read only: short for --permission-mode plan.")
    ] = False
    yolo: Annotated[
        int,
        typer.Option(
            "-y",
            "--yolo",
            "--dangerously-skip-permissions",
            count=True,
            show_default=False,
            help="Ask nothing: short for --permission-mode yolo; twice: not even before"
            " a command that would destroy the workspace or your home.",
        ),
    ] = 0
    allow_tool: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-tool",
            metavar="RULE",
            help="Run matching calls without asking, e.g. 'bash(git diff *)'; repeatable.",
        ),
    ] = None
    deny_tool: Annotated[
        list[str] | None,
        typer.Option("--deny-tool", metavar="RULE", help="Never run matching calls; repeatable."),
    ] = None
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Trust the directory's own .agents for this run."),
    ] = False
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools", metavar="LIST", help="Only these tools or groups, separated by commas."
        ),
    ] = None
    effort: Annotated[
        str | None,
        typer.Option("--effort", metavar="|".join(EFFORTS), help="How much the model thinks."),
    ] = None
    system_prompt: Annotated[
        str | None,
        typer.Option("--system-prompt", metavar="TEXT", help="Replace the system prompt."),
    ] = None
    append_system_prompt: Annotated[
        str | None,
        typer.Option("--append-system-prompt", metavar="TEXT", help="Add to the system prompt."),
    ] = None
    mcp_config: Annotated[
        str | None,
        typer.Option("--mcp-config", metavar="FILE", help="MCP servers (not in this version)."),
    ] = None
    sandbox: Annotated[
        str | None,
        typer.Option(
            "--sandbox",
            metavar="|".join(SANDBOXES),
            help="Sandbox for commands; default: the best that works here.",
        ),
    ] = None
    no_session: Annotated[bool, typer.Option("--no-session", help="Do not save this session.")] = (
        False
    )
    verbose: Annotated[bool, typer.Option("--verbose", help="Print more on stderr.")] = False
    debug: Annotated[
        str | None,
        typer.Option("--debug", metavar="FILE", help="Write a debug log with tracebacks to FILE."),
    ] = None
    version: Annotated[
        bool, typer.Option("-v", "--version", help="Print the version and exit.")
    ] = False

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
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other", "give one of them")
        if self.session is not None and not self.session.strip():
            raise UsageError("--session needs an ID", "agent sessions list shows them")
        if self.fork and (not given or self.new):
            raise UsageError("--fork needs a session", "add --continue, --resume or --session ID")
        if self.no_session and self.fork:
            raise UsageError("--no-session and --fork exclude each other", "give one of them")
        if self.mcp_config is not None:
            raise not_supported("--mcp-config")
        choice("--sandbox", self.sandbox, SANDBOXES)

    def fallback_models(self) -> list[str] | None:
        """The models to fall back on, in order; ``None`` when not given."""
        if self.fallback_model is None:
            return None
        names = [name.strip() for text in self.fallback_model for name in text.split(",")]
        return [name for name in names if name]

    def mode(self) -> "PermissionMode | None":
        """The permission mode asked for, or ``None``."""
        from agentcli.domain.ports import PermissionMode

        asked = {
            mode
            for mode in (self.permission_mode, self.plan and "plan", self.yolo and "yolo")
            if mode
        }
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
        typer.Option(
            "-o",
            "--output-format",
            metavar="|".join(FORMATS),
            help="What goes to stdout: the answer, one JSON object, or one per event.",
        ),
    ] = "text"
    input_format: Annotated[
        str,
        typer.Option(
            "--input-format",
            metavar="|".join(INPUT_FORMATS),
            help="What stdin holds: the prompt, or one JSON message per line.",
        ),
    ] = "text"
    replay_user_messages: Annotated[
        bool,
        typer.Option(
            "--replay-user-messages",
            help="With stream-json input: echo each message once it is recorded.",
        ),
    ] = False
    permission_prompt_tool: Annotated[
        str | None,
        typer.Option(
            "--permission-prompt-tool",
            metavar="stdio",
            help="With stream-json input: ask the program on stdin for approvals.",
        ),
    ] = None
    include_partial_messages: Annotated[
        bool,
        typer.Option(
            "--include-partial-messages",
            help="With stream-json output: send the answer in pieces.",
        ),
    ] = False
    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            "--output-schema",
            metavar="FILE",
            help="JSON schema of the answer: a file, or the schema itself.",
        ),
    ] = None
    max_turns: Annotated[
        str | None,
        typer.Option("--max-turns", metavar="N", help="Stop after N model requests; 0: no limit."),
    ] = None
    max_budget_usd: Annotated[
        str | None,
        typer.Option("--max-budget-usd", metavar="X", help="Stop before costing more than X USD."),
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="SECONDS", help="Stop after this many seconds."),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no warnings on stderr.")
    ] = False

    def check(self) -> None:
        """Raise ``UsageError`` for values that are wrong or exclude each other."""
        choice("--output-format", self.output_format, FORMATS)
        self._check_input()
        if self.include_partial_messages and self.output_format != "stream-json":
            raise UsageError(
                "--include-partial-messages needs stream-json", "add --output-format stream-json"
            )
        number("--max-turns", self.max_turns, int)
        number("--max-budget-usd", self.max_budget_usd, float)
        number("--timeout", self.timeout, float)
        super().check()
        if self.resume == "":
            raise UsageError(
                "--resume needs a session here",
                "agent sessions list shows them; --continue takes the newest",
            )

    def timeout_s(self) -> float | None:
        """Seconds that the run may take; ``None``: no limit."""
        return number("--timeout", self.timeout, float) or None

    @property
    def speaks_json(self) -> bool:
        """Whether stdin holds messages, one JSON object per line."""
        return self.input_format == "stream-json"

    def _check_input(self) -> None:
        choice("--input-format", self.input_format, INPUT_FORMATS)
        choice("--permission-prompt-tool", self.permission_prompt_tool, ("stdio",))
        if self.speaks_json and self.output_format != "stream-json":
            raise UsageError(
                "--input-format stream-json needs stream-json output",
                "add --output-format stream-json",
            )
        wanted = {
            "--replay-user-messages": self.replay_user_messages,
            "--permission-prompt-tool": self.permission_prompt_tool is not None,
        }
        for name, is_given in wanted.items():
            if is_given and not self.speaks_json:
                raise UsageError(
                    f"{name} needs stream-json input", "add --input-format stream-json"
                )


def print_version() -> int:
    """``agentcli X.Y.Z``: other programs are called ``agent`` too (CLI-1)."""
    from agentcli import __version__
    from agentcli.headless.streams import write_out

    write_out(f"agentcli {__version__}\n")
    return 0


def not_supported(option: str) -> UsageError:
    """The error for an option that a later version will know."""
    return UsageError(f"{option} is not supported in this version", "leave it out")


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


def declared(options: type[OptionSet]) -> set[str]:
    """Every spelling of every option in ``options``."""
    spellings: set[str] = set()
    for annotation in option_names(options).values():
        info = annotation.__metadata__[0]
        if isinstance(info.default, str):
            spellings |= {info.default, *(info.param_decls or ())}
    return spellings
