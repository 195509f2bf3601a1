"""Plugins: real distributions on a real path; only those that are named, and none can do harm."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from agentcli.domain.errors import GateFailed
from agentcli.domain.events import Notice
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    user_text,
)
from agentcli.domain.ports import GateAnswer, StepFacts
from agentcli.engine.gates import resolve
from agentcli.extensions.plugins import Plugins, load_plugins

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundSink

GOOD = """
from agentcli.domain.ports import GateAnswer
class Gate:
    name, priority = "g", 3
    def allow(self, facts): return GateAnswer(facts.tools - {"bash"})
class Transform:
    name = "t"
    def apply(self, messages, facts): return list(messages)[-1:]
seen = []
class Plugin:
    def __init__(self):
        self.gates, self.transforms, self.observers = [Gate()], [Transform()], [seen.append]
"""
FACTS = StepFacts(1, frozenset({"bash", "read_file"}))


class Site:
    """A directory of installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []

    def install(self, name: str, code: str, target: str = "Plugin") -> None:
        """A distribution with one module and one entry point, both called ``name``."""
        (self.path / f"{name}.py").write_text(code)
        info = self.path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = f"[agentcli.plugins]\n{name} = {name}:{target}\n"
        (info / "entry_points.txt").write_text(points)

    def load(self, *names: str) -> Plugins:
        plugins = load_plugins(names)
        plugins.say = self.said.append
        return plugins


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_parts_of_a_plugin_that_is_named_are_used(site: Site) -> None:
    site.install("plugin_good", GOOD)
    site.install("plugin_other", "raise SystemError('nobody has named this one')")
    found = site.load("plugin_good", "plugin_good")
    assert found.warnings == [] and found.tools == []
    (gate,), (transform,), (observer,) = found.seams.gates, found.seams.transforms, found.observers
    assert (gate.name, gate.priority) == ("g", 3)
    assert gate.allow(FACTS) == GateAnswer(frozenset({"read_file"}))
    assert transform.apply([user_text("a"), user_text("b")], FACTS) == [user_text("b")]
    observer(Notice("x"))
    assert sys.modules["plugin_good"].seen == [Notice("x")]
    assert "plugin_other" not in sys.modules


def test_a_module_or_an_object_may_be_the_plugin(site: Site) -> None:
    site.install("plugin_object", "class P:\n  observers = [print]\nplugin = P()", "plugin")
    (site.path / "plugin_module.py").write_text("observers = (print,)")
    info = site.path / "plugin_module-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: m\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[agentcli.plugins]\nplugin_module = plugin_module\n")
    found = site.load("plugin_object", "plugin_module")
    assert found.warnings == [] and len(found.observers) == 2


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("this is no python", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("class Plugin:\n  def __init__(self): raise KeyError('lost')", "KeyError"),
        ("Other = 1", "AttributeError"),
        ("class Plugin: pass", "it has none of gates"),
        ("class Plugin:\n  gates = 3", "TypeError"),
        ("class Plugin:\n  gates = [object()]", "one of its gates has no name"),
        ("class Plugin:\n  observers = [3]", "one of its observers has no __call__"),
    ],
)
def test_a_broken_plugin_is_one_line_and_brings_nothing(site: Site, code: str, part: str) -> None:
    site.install("plugin_broken", code)
    site.install("plugin_good", GOOD)
    found = site.load("plugin_broken", "plugin_good")
    (warning,) = found.warnings
    assert warning.startswith("warning: the plugin plugin_broken was not loaded: ")
    assert part in warning and "\n" not in warning
    assert len(found.seams.gates) == len(found.observers) == 1
    for name in ("plugin_broken",):
        sys.modules.pop(name, None)


def test_a_plugin_that_is_not_there_is_one_line_with_those_that_are(site: Site) -> None:
    site.install("plugin_good", GOOD)
    (warning,) = site.load("plugin_god").warnings
    assert "no plugin 'plugin_god'" in warning and "plugin_good" in warning


FAILING = """
class Transform:
    name = "t"
    def apply(self, messages, facts): raise ValueError("no")
def observe(event): raise ValueError("no")
class Plugin:
    transforms, observers = [Transform()], [observe]
"""


@pytest.mark.spec("CTRL-8")
def test_a_plugin_that_fails_later_changes_nothing_and_is_told_of_once(site: Site) -> None:
    site.install("plugin_failing", FAILING)
    found = site.load("plugin_failing")
    messages = [user_text("a")]
    for _ in range(3):
        assert found.seams.transforms[0].apply(messages, FACTS) is messages
        found.observers[0](Notice("x"))
    (said,) = site.said
    assert said == "the plugin plugin_failing failed: ValueError: no (see the log)"


LEAVING = """
class Gate:
    name, priority = "g", 0
    def allow(self, facts): raise SystemExit(2)
def observe(event): raise SystemExit(2)
class Plugin:
    gates, observers = [Gate()], [observe]
"""


@pytest.mark.spec("CLI-5", "CTRL-4")
def test_a_plugin_cannot_end_the_program(site: Site) -> None:
    site.install("plugin_leaving", LEAVING)
    found = site.load("plugin_leaving")
    with pytest.raises(GateFailed, match="the gate g failed: SystemExit: 2"):
        resolve(found.seams.gates, FACTS)
    found.observers[0](Notice("x"))
    assert len(site.said) == 1


@pytest.mark.spec("CTRL-8", "HIS-1")
@pytest.mark.parametrize("made", ["[]", "[1, 2]", "messages[:-1]", "messages[:1] + messages[2:]"])
def test_a_transform_that_breaks_the_history_changes_nothing(site: Site, made: str) -> None:
    name = f"plugin_breaking_{abs(hash(made))}"
    code = f"class Transform:\n  name = 't'\n  def apply(self, messages, facts): return {made}\n"
    site.install(name, f"{code}class Plugin: transforms = [Transform()]\n")
    found = site.load(name)
    called = AssistantMessage((ToolCall("a", "bash", {}),), "p", "m")
    messages: list[Message] = [user_text("go"), called, ToolResult("a", "bash", (TextPart("x"),))]
    assert found.seams.transforms[0].apply(messages, FACTS) is messages and len(site.said) == 1


@pytest.mark.spec("CTRL-4")
@pytest.mark.parametrize(
    "wrong", ["description=None", "parameters=5", "parameters={'type': object()}"]
)
def test_a_tool_that_no_provider_could_be_told_of_is_left_out(site: Site, wrong: str) -> None:
    name = f"plugin_untold_{abs(hash(wrong))}"
    right = "description='d', parameters={}"
    key = wrong.partition("=")[0]
    said = ", ".join([part for part in right.split(", ") if not part.startswith(key)] + [wrong])
    code = (
        "from agentcli.domain.tools import Asks, ToolDefinition\nclass T:\n"
        f"  definition = ToolDefinition(name='t', display_name='T', asks=Asks.NOTHING,"
        f" group='g', {said})\n  parse = summary = paths = preview = run = print\n"
        "class Plugin: tools = [T()]\n"
    )
    site.install(name, code)
    found = site.load(name)
    assert not found.tools and len(found.warnings) == 1


@pytest.mark.spec("BG-1")
def test_a_plain_tool_keeps_what_it_has_beyond_the_least(site: Site) -> None:
    code = (
        "from agentcli.domain.tools import Asks, ToolDefinition, ToolHints, ToolOutput\nclass T:\n"
        "  definition = ToolDefinition('t', 'T', 'd', {}, Asks.NOTHING, 'g',"
        " hints=ToolHints(background=True))\n"
        "  parse = summary = paths = preview = print\n"
        "  def parse_background(self, arguments): return 'in the background'\n"
        "  async def run(self, args, ctx): return ToolOutput.text('in the turn')\n"
        "  async def run_background(self, args, ctx, sink): return ToolOutput.text(args)\n"
        "class Plugin: tools = [T()]\n"
    )
    site.install("plugin_plain", code)
    (tool,) = site.load("plugin_plain").tools
    args = tool.parse_background({})
    output = asyncio.run(tool.run_background(args, None, cast("BackgroundSink", None)))
    assert output.parts == (TextPart("in the background"),)
    assert tool.stands_for(args) is None
