"""Text from outside takes a time that grows with its length, not with its square (SEC-13).

Each row is what a text is given to and what it is made of; the time of the processor alone counts,
for one length and for four times that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.app import project_memory
from agentcli.config import hooks, toml_file
from agentcli.config.redaction import Redactor
from agentcli.domain import said
from agentcli.domain.ports import PermissionMode
from agentcli.domain.secrecy import is_credential
from agentcli.domain.stream import StopReason, StreamEnd, TextDelta
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.engine import finishing
from agentcli.extensions import front_matter
from agentcli.mcp import oauth
from agentcli.policy import destructive, places
from agentcli.policy.decision import CallFacts, CallPlace, Policy
from agentcli.process import sandbox_home
from agentcli.providers import _errors
from agentcli.providers.text_calls.reading import CallScan, ReplyReading
from agentcli.repl.slash import copy
from agentcli.tools import bash
from agentcli.tools.files import patch, pdf
from agentcli.ui import exact, render
from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.theme import PLAIN
from tests.policy.asking import Asked, judged, policy_of
from tests.providers.text_calls.test_reading import asked

pytestmark = pytest.mark.spec("SEC-13")
SIZE = 16_000
FREE_S = 0.4  # what is over by then is no harm, however it grows
BASH = ToolDefinition("bash", "bash", "", {"type": "object"}, Asks.ANYTHING, "shell")


def judge(command: str) -> None:
    here = Workspace(Path("/"), Path("/"))
    facts = CallFacts(BASH, {"command": command}, ())
    policy = policy_of(PermissionMode.AUTO, [], [])
    policy.contained = True
    judged(Asked(facts, here), policy)


def placed(name: str) -> None:
    places.protected_place((Path("/") / name,), ())


def shown(text: str) -> None:
    stream = MarkdownStream(PLAIN, lambda: 80)
    stream.feed(text)
    stream.finish()


def scanned(text: str) -> None:
    scan = CallScan({"a": {}}, as_asked=True)
    scan.feed(text)
    scan.finish(cut=False)


def read(text: str) -> None:
    reading = ReplyReading(asked(), as_text=False)
    reading.take(TextDelta(0, text))
    reading.take(StreamEnd(StopReason.END_TURN))


def unwrapped(text: str) -> None:
    with pytest.raises(patch.PatchProblem):
        patch.parse_patch(text)


ROWS: tuple[tuple[str, Callable[[str], object], str, str, str], ...] = (
    ("braces", places.forms_of, "{", "..", ","),
    ("a variable", places.forms_of, "${", "a", ""),
    ("a default", places.forms_of, "${a[a]:-", "[", ""),
    ("a deep name", judge, "rm -rf ", "a/", ""),
    ("a deep place", placed, "", "a/", ""),
    ("a number that redirects nothing", judge, "if ", "1", ""),
    ("the number of a redirection", judge, "cat ", "1", "<x"),
    ("comments", judge, "cat ", "# x\n", ""),
    ("a script of sed", judge, "sed -n 'p", ";0,0p", "!' f"),
    ("options that cut", judge, "git log | grep '-", "o", "\n'"),
    ("marks on a letter", shown, "e", "\u0301", ""),
    ("characters without width", shown, "", "\u200b", ""),
    ("images in images", shown, "", "[![a](", ""),
    ("a fence of spaces", finishing._FENCE.fullmatch, "```", " ", "!"),
    ("spaces at the end", exact._END.search, "", " ", "a"),
    ("a command that runs", render._COMMAND.fullmatch, "Run `", "`", "\n"),
    ("a name that is sought", scanned, "<function=", " ", "!"),
    ("calls that are begun", scanned, "", "<function=", ""),
    ("DeepSeek's call", scanned, "<\uff5ctool\u2581call\u2581begin\uff5c>a", " ", "!"),
    ("DeepSeek's end", scanned, "<\uff5ctool\u2581call\u2581begin\uff5c>a{", " ", "!"),
    ("GLM's arguments", scanned, "<tool_call>a<arg_key>", "</arg_key><arg_value></arg_value>x", ""),
    ("an element's ends", scanned, '<function=a>{"', "</function>", "!"),
    ("ends of thinking in code", read, "```\n", "</think>", ""),
    ("a page with a script", _errors._plain, "<", "script<", ""),
    ("a page with a title", _errors._plain, "<", "title><", ""),
    ("an address with a login", lambda text: is_credential("a", text), "://", "a+", ""),
    ("a fence of a patch", patch._FENCE.fullmatch, "```", " ", "!"),
    ("fences in fences", unwrapped, "", "```\n", ""),
    ("what fetches", bash._FETCHES.search, "", "curl localhost ", ""),
    ("pages", pdf._PAGES.fullmatch, "1", " ", "!"),
    (
        "git's settings",
        lambda text: sandbox_home._CREDENTIAL.search(text.encode()),
        "://a",
        ":",
        "",
    ),
    ("what a script names", hooks._NAMED_IN_SCRIPT.findall, "", "a", "!"),
    ("what a script calls", hooks._CALLS_ONE.search, "", ";a=", "!"),
    ("what Python names", hooks._PYTHON_FILE.findall, "", "a", "!"),
    (
        "what a script runs by a pattern",
        lambda text: said._patterns_run(text.encode()),
        "xargs sh ",
        "$ab",
        "/",
    ),
    (
        "what a script starts",
        lambda text: list(said.scripts_said(text.encode(), ["/nowhere"], re.compile("x"))),
        "",
        "sh -x/",
        "",
    ),
    (
        "spaces after what a script runs",
        lambda text: list(said.scripts_said(text.encode(), ["/nowhere"], re.compile("x"))),
        "source",
        " ",
        "",
    ),
    (
        "words of loops",
        lambda text: said._patterns_run(text.encode()),
        "",
        "for a in " + "x " * 200 + "; do . $a" + "; . y*" * 40 + "; done\n",
        "",
    ),
    ("options of node", lambda text: said._said_partly(text.encode()), "", "node -,/", ""),
    ("a long variable", lambda text: said._said_partly(text.encode()), "node $", "a", "="),
    ("loops", lambda text: said._runs_found(text.encode()), "", "for -", ""),
    ("values before a call", hooks._CALLS_ONE.search, "", "x=env ", ""),
    ("pipes", hooks._RUNS_TEXTS.search, "", "|", ""),
    ("a table's name", toml_file._HEADER.match, "[", " ", "x"),
    ("a key", toml_file._ENTRY.match, "", "a", ""),
    ("spaces before a key", toml_file._ENTRY.match, "", " ", "!"),
    ("fences", copy._FENCED.search, "", "~", ""),
    ("a challenge", oauth._PARAMETER.findall, "", "a", ""),
    ("a field", front_matter._FIELD.fullmatch, "a: b", " ", "c"),
    ("web tokens that are begun", Redactor().redact, "", "-eyJ", ""),
    ("parts of web tokens", Redactor().redact, "", "-eyJaaaaaaaa.", "-eyJ" * 4_000),
    ("sentences", project_memory._SENTENCE_END.split, "", ".", "a"),
)


LONG = {"options that cut", "a deep name"}  # seconds each, though their time grows with the length


@pytest.mark.parametrize(
    ("work", "start", "piece", "end"),
    [
        pytest.param(*row, id=name, marks=[pytest.mark.slow] if name in LONG else [])
        for name, *row in ROWS
    ],
)
def test_the_time_grows_with_the_length(
    work: Callable[[str], object], start: str, piece: str, end: str
) -> None:
    def spent(size: int) -> float:
        text = start + piece * (size // len(piece)) + end
        begun = time.thread_time()
        work(text)
        return time.thread_time() - begun

    spent(100)
    most = max(8 * spent(SIZE), FREE_S)
    # beside other work the same takes longer: what fails twice grows
    assert spent(4 * SIZE) < most or spent(4 * SIZE) < most


def test_for_a_command_of_thousands_of_names_our_own_directories_are_looked_up_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked_up = []
    real = places.real_path

    def counted(path: Path) -> Path:
        looked_up.append(path)
        return real(path)

    monkeypatch.setattr(places, "real_path", counted)
    text = "cat > big <<'E'\n" + "".join(f"l{n} d/w{n}\n" for n in range(6_000)) + "E\n"
    policy = Policy(own_directories=tuple(tmp_path / f"own{n}" for n in range(20)))
    place = CallPlace(Workspace(tmp_path, tmp_path), policy)
    assert not list(destructive.dangers_of(text, place, contained=True))
    assert sum(path.name.startswith("own") for path in looked_up) == 20
