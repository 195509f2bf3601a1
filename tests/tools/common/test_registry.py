"""The registry of tools."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentcli.domain.errors import UsageError
from agentcli.domain.tools import Tool, ToolBox
from agentcli.tools.common.registry import DEFINITIONS_FILE, Registry, build_definitions
from agentcli.tools.read_file import ReadFile

NAMES = Registry.builtin().list()
FILES = {
    "read_file",
    "write_file",
    "edit_file",
    "apply_patch",
    "list_directory",
    "stat_file",
    "delete_file",
}


class Other(ReadFile):
    name = "mcp__x__read"
    group = "mcp"


def test_the_generated_definitions_are_current() -> None:
    assert DEFINITIONS_FILE.read_text(encoding="utf-8") == build_definitions(), (
        "run .ci/generate_definitions.py"
    )


@pytest.mark.spec("TOOL-1")
@pytest.mark.parametrize("name", NAMES)
def test_a_tool_is_what_the_file_says_of_it(name: str) -> None:
    registry = Registry.builtin()
    tool = registry.get(name)
    assert tool is not None
    assert tool.definition == next(d for d in registry.definitions if d.name == name)
    assert tool.definition.description
    assert tool.definition.parameters["type"] == "object"
    assert tool.definition.parameters["additionalProperties"] is False


@pytest.mark.spec("CTX-2")
def test_the_schemas_of_all_tools_stay_within_their_budget() -> None:
    sent = [
        {"name": d.name, "description": d.description, "input_schema": d.parameters}
        for d in Registry.builtin().definitions
    ]
    assert len(json.dumps(sent)) < 12_000  # at 3 characters a token under 4,000 tokens


@pytest.mark.spec("TOOL-5")
def test_arguments_have_the_names_of_the_contract() -> None:
    expected = {
        "read_file": (["path"], ["offset", "limit", "pages"]),
        "write_file": (["path", "content"], []),
        "edit_file": (["path", "old_string", "new_string"], ["replace_all"]),
        "apply_patch": (["patch"], []),
        "list_directory": ([], ["path"]),
        "stat_file": (["path"], []),
        "delete_file": (["path"], []),
    }
    definitions = {d.name: d for d in Registry.builtin().definitions}
    for name, (required, optional) in expected.items():
        parameters = definitions[name].parameters
        assert parameters.get("required", []) == required
        assert list(parameters["properties"]) == required + optional


@pytest.mark.spec("TOOL-4")
def test_tools_can_be_registered_got_listed_and_taken_out() -> None:
    registry = Registry()
    box: ToolBox = registry
    assert box.definitions == ()
    tool: Tool = Other()
    registry.register(tool)
    assert registry.list() == ("mcp__x__read",)
    assert registry.get("mcp__x__read") is tool
    assert registry.group("mcp") == (tool.definition,)
    with pytest.raises(ValueError, match="already"):
        registry.register(Other())
    registry.unregister("mcp__x__read")
    registry.unregister("mcp__x__read")
    assert registry.get("mcp__x__read") is None
    assert registry.definitions == ()


@pytest.mark.spec("TOOL-4")
def test_a_built_in_tool_that_was_taken_out_is_gone() -> None:
    registry = Registry.builtin()
    registry.unregister("read_file")
    assert registry.get("read_file") is None
    assert registry.get("_registry") is None
    assert registry.get("../x") is None


@pytest.mark.spec("TOOL-5")
def test_capabilities_can_be_switched_on_and_off_by_group_and_name() -> None:
    assert set(Registry.builtin(["files"]).list()) >= FILES
    assert Registry.builtin(["read_file"]).list() == ("read_file",)
    assert "read_file" not in Registry.builtin(disabled=["files"]).list()
    assert Registry.builtin(["files"], disabled=["files"]).list() == ()
    assert Registry.builtin([]).list() == ()
    with pytest.raises(UsageError, match="did you mean"):
        Registry.builtin(["fils"])
    with pytest.raises(UsageError):
        Registry.builtin(disabled=["4711"])


@pytest.mark.spec("TOOL-4")
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("read_fil", "read_file"),
        ("Read", "read_file"),
        ("str_replace", "edit_file"),
        ("ApplyPatch", "apply_patch"),
        ("list-directory", "list_directory"),
    ],
)
def test_an_unknown_name_has_near_names(name: str, near: str) -> None:
    assert Registry.builtin().near(name)[0] == near


def test_no_near_name_is_invented() -> None:
    assert Registry.builtin().near("zzzzqqqq") == ()
    assert Registry.builtin().near("") == ()


def test_listing_the_tools_imports_no_tool_and_no_pydantic() -> None:
    code = (
        "import sys; from agentcli.tools.common.registry import Registry;"
        "Registry.builtin().definitions;"
        "print([m for m in sys.modules if m == 'pydantic' or m.startswith('agentcli.tools.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.strip() == "['agentcli.tools.common', 'agentcli.tools.common.registry']"
