"""Plugins as data: the rules of Agent Plugins 1.0, and what Claude Code's layout adds.

The facts are those of https://github.com/agentplugins/agent-plugins-spec, ``spec/1.0.0.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ConfigError
from agentcli.extensions.packages import (
    MCP_SCHEMA,
    SCHEMA,
    PluginFile,
    content_mark,
    files_below,
    read_package,
    write_files,
)

SKILL = "---\nname: one\ndescription: d\n---\nText.\n"


def plugin(root: Path, manifest: Any = None, **files: Any) -> Path:
    """A plugin in ``root``; dots in names of ``files`` stand for themselves, ``__`` for a slash."""
    fields = {"$schema": SCHEMA, "name": "demo", **(manifest or {})}
    put(
        root / "plugin.json", fields if manifest is None or isinstance(manifest, dict) else manifest
    )
    for name, content in files.items():
        put(root / name.replace("__", "/"), content)
    return root


def put(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize("name", ["my-plugin", "acme.tools", "lint3r", "a", "a" * 64])
def test_names_of_the_standard_are_taken(tmp_path: Path, name: str) -> None:
    assert read_package(plugin(tmp_path, {"name": name})).name == name


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize(
    "manifest",
    [
        *(
            {"name": name}
            for name in ("My-Plugin", "-start", "end.", "has--double", "two..dots", "")
        ),
        *(
            {"name": "a" * 65},
            {"name": 3},
            {"name": None},
            {"$schema": None},
            {"$schema": SCHEMA[:-1]},
        ),
        *({"version": 1}, {"author": "me"}, {"author": {"name": 1}}, {"author": {"x": "y"}}),
        *({"keywords": "one"}, {"keywords": [1]}, {"license": []}),
    ],
)
def test_a_manifest_that_breaks_the_schema_rejects_all(
    tmp_path: Path, manifest: Mapping[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="is refused"):
        read_package(plugin(tmp_path, manifest))


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"name": "demo"}', "[" * 100_000])
def test_what_is_no_manifest_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    put(tmp_path / "plugin.json", text)
    with pytest.raises(ConfigError, match=r"plugin\.json is refused"):
        read_package(tmp_path)


@pytest.mark.spec("EXT-5")
def test_unknown_fields_are_reported_and_ignored(tmp_path: Path) -> None:
    found = read_package(plugin(tmp_path, {"skills": "elsewhere", "extensions": 3, "version": "1"}))
    assert found.version == "1"
    assert any("field skills is unknown" in each for each in found.notices)
    assert any("extensions is no object" in each for each in found.notices)


@pytest.mark.spec("EXT-5")
def test_only_immediate_children_with_the_exact_name_are_skills(tmp_path: Path) -> None:
    root = plugin(
        tmp_path,
        skills__one__SKILL=None,
        **{
            "skills__one__SKILL.md": SKILL,
            "skills__deep__er__SKILL.md": SKILL,
            "skills__x__skill.md": SKILL,
        },
    )
    assert read_package(root).skills == ("one",)


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"type": "stdio", "command": "./bin/x", "cwd": "${PLUGIN_DATA}/a", "args": ["-"]}, ""),
        ({"type": "streamable-http", "url": "https://a.example/mcp"}, ""),
        ({"type": "sse", "url": "http://127.0.0.1:1/x"}, ""),
        ({"command": "x"}, "type None is unknown"),
        ({"type": "stdio"}, "no command"),
        ({"type": "stdio", "command": "../x"}, "neither a plain name"),
        ({"type": "stdio", "command": "./../x"}, "leads out"),
        ({"type": "stdio", "command": "x", "cwd": "data"}, "cwd leads out"),
        ({"type": "stdio", "command": "x", "cwd": "${PLUGIN_ROOT}/../.."}, "cwd leads out"),
        ({"type": "stdio", "command": "x", "url": "https://x"}, "field url"),
        ({"type": "stdio", "command": "x", "env": {"PLUGIN_ROOT": "/"}}, "env"),
        ({"type": "streamable-http", "url": "http://a.example"}, "not https"),
        ({"type": "streamable-http", "url": "https://u:p@a.example"}, "holds a user"),
        ({"type": "sse", "url": "https://a.example", "headers": {"A": "1", "a": "2"}}, "headers"),
    ],
)
def test_each_server_is_taken_or_left_out_by_itself(
    tmp_path: Path, entry: Mapping[str, Any], said: str
) -> None:
    good = {"type": "stdio", "command": "npx"}
    file = {"$schema": MCP_SCHEMA, "mcpServers": {"good": good, "tried": entry}}
    found = read_package(plugin(tmp_path, **{"mcp.json": file}))
    names = list(found.servers)
    assert names == (["good"] if said else ["good", "tried"])
    assert said in " ".join(found.notices)


@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize("extra", [{"more": 1}, {"$schema": "other"}, {"mcpServers": []}])
def test_a_bad_file_of_servers_leaves_the_skills(tmp_path: Path, extra: Mapping[str, Any]) -> None:
    file = {"$schema": MCP_SCHEMA, "mcpServers": {}, **extra}
    found = read_package(plugin(tmp_path, **{"mcp.json": file, "skills__one__SKILL.md": SKILL}))
    assert found.skills == ("one",) and found.servers == {}
    assert any(each.startswith("mcp.json is left out") for each in found.notices)


@pytest.mark.spec("EXT-5")
def test_the_layout_of_claude_code(tmp_path: Path) -> None:
    put(tmp_path / ".claude-plugin/plugin.json", {"name": "demo", "author": "x", "commands": "./c"})
    put(tmp_path / "commands/git/push.md", "Push")
    put(tmp_path / "agents/helper.md", "Help")
    put(tmp_path / "hooks/hooks.json", {"hooks": {"Stop": []}})
    put(tmp_path / ".mcp.json", {"db": {"command": "npx"}})
    found = read_package(tmp_path)
    assert (found.commands, found.agents) == (("git:push",), ("helper",))
    assert found.hooks == {"Stop": []} and len(found.servers) == 1
    assert any("only the usual places" in each for each in found.notices)


@pytest.mark.spec("EXT-5", "SEC-5")
def test_a_copy_has_no_links_and_nothing_from_outside(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    put(tmp_path / "secret", "secret")
    put(source / "real/file.txt", "text")
    (source / "inside").symlink_to("real/file.txt")
    (source / "whole").symlink_to("real")
    (source / "outside").symlink_to(tmp_path / "secret")
    (source / "up").symlink_to("..")
    (source / "self").symlink_to("self")
    put(source / ".git/config", "x")
    notices: list[str] = []
    write_files(files_below(source, notices), target)
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert there == {"real/file.txt", "inside", "whole/file.txt"}
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert {each.split()[0] for each in notices} == {"outside", "up", "self"}


@pytest.mark.spec("EXT-5", "SEC-13")
def test_a_copy_is_bounded_and_stays_below_its_root(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a/around").symlink_to(".")
    with pytest.raises(ConfigError, match="more than"):
        write_files(files_below(source, []), tmp_path / "target")
    with pytest.raises(ConfigError, match="leads out"):
        write_files(iter([PluginFile("../x", b"")]), tmp_path / "other")
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("EXT-5")
def test_the_mark_is_that_of_names_bytes_and_what_is_a_program(tmp_path: Path) -> None:
    marks = set()
    for number, file in enumerate(
        (
            PluginFile("a", b"1"),
            PluginFile("a", b"2"),
            PluginFile("b", b"1"),
            PluginFile("a", b"1", is_program=True),
        )
    ):
        write_files(iter([file]), tmp_path / str(number))
        marks.add(content_mark(tmp_path / str(number)))
    assert len(marks) == 4
