"""The documentation tells the truth: what it says to type works, what it lists is what there is."""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentcli.config.keys import KEYS, TABLES
from agentcli.config.paths import Paths
from agentcli.config.settings import validate
from agentcli.headless.errors import MEANINGS
from agentcli.providers._registry import BUILT_IN
from agentcli.repl.commands import helps, use_custom
from agentcli.store.schema import SCHEMA_VERSION, STATEMENTS, table_names
from tests.support.cli import run_agent
from tests.support.docs import (
    DOCUMENTS,
    ROOT,
    anchors,
    blocks,
    links,
    rows,
    shell,
    ticked,
    topic,
    without_code,
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory that the examples are typed in."""
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    (path / "notes.txt").write_text("hello from the notes\n")
    (path / "src" / "app.py").write_text("answer = 41  # TODO\n")
    return path


def test_there_are_blocks_to_test() -> None:
    assert len(blocks("sh")) >= 4
    assert len(blocks("sql")) >= 4
    assert len(blocks("toml")) >= 1


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(len(blocks("sh"))))
def test_commands_work_as_written(project: Path, home: Path, number: int) -> None:
    done = shell(blocks("sh")[number], project, home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("query", blocks("sql"))
def test_queries_work_on_a_real_session_file(project: Path, home: Path, query: str) -> None:
    done = run_agent("run", "--yolo", "run echo hi", env=dict(os.environ), cwd=project)
    assert done.code == 0, done.stderr
    (path,) = (home / "agentcli" / "sessions").glob("*.db")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = db.execute(query).fetchall()
    finally:
        db.close()
    assert found
    assert None not in found[0][:2]


def test_the_configuration_example_is_valid(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    for text in blocks("toml"):
        assert validate(text, paths) == ()


def test_the_result_object_has_the_keys_that_a_run_prints(project: Path) -> None:
    (shown,) = blocks("json", "the result object")
    done = run_agent("run", "-o", "json", "read notes.txt", env=dict(os.environ), cwd=project)
    assert _shape(json.loads(shown)) == _shape(json.loads(done.stdout))


def _shape(value: Any) -> Any:
    return {key: _shape(item) for key, item in value.items()} if isinstance(value, dict) else None


@pytest.mark.spec("CLI-6")
def test_exit_codes_are_listed() -> None:
    expected = {str(code.value): meaning for code, meaning in MEANINGS.items()}
    assert rows("exit-codes", "exit code") == expected


def test_every_setting_is_listed_with_its_default() -> None:
    listed = rows("configuration", "key")
    named = {f"{t}.NAME.{name}": key for t, keys in TABLES.items() for name, key in keys.items()}
    expected = {**KEYS, **named}
    assert list(listed) == list(expected)
    for name, key in expected.items():
        default, _, meaning = listed[name].partition("|")
        shown = {None: "", (): "[]", False: "false", True: "true"}.get(
            key.default, str(key.default)
        )  # type: ignore[call-overload]
        assert default.strip().strip("`") == shown, name
        assert key.help in meaning, name


def test_every_table_and_column_of_a_session_file_is_listed() -> None:
    db = sqlite3.connect(":memory:")
    for statement in STATEMENTS:
        db.execute(statement)
    listed = rows("sessions", "table")
    assert set(listed) == set(table_names())
    for name in table_names():
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        assert re.findall(r"`(\w+)`", listed[name].split(" | ")[0]) == columns, name
    db.close()
    assert f"version {SCHEMA_VERSION}," in topic("sessions")


def test_every_provider_is_listed_with_its_key() -> None:
    listed = rows("providers", "provider")
    expected = {name: row for name, row in BUILT_IN.items() if name not in {"scripted", "offline"}}
    assert list(listed) == list(expected)
    for name, row in expected.items():
        key, base = (cell.strip() for cell in listed[name].split("|"))
        assert base == f"`{row.base_env}`"
        assert key == (" or ".join(f"`{env}`" for env in row.key_envs) if row.needs_key else "none")


def test_every_slash_command_is_listed() -> None:
    table = topic("chat").partition("\n| command |")[2].partition("\n\n")[0]
    listed = re.findall(r"`/([a-z]+)`", table)
    use_custom(())  # of another test's session
    assert sorted(listed) == sorted(helps())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_linked_to_exists(document: str) -> None:
    base = ROOT / document
    for path, heading in links(DOCUMENTS[document]):
        target = base.parent / path if path else base
        assert target.exists(), path
        if heading:
            assert heading in anchors(target.read_text(encoding="utf-8")), f"{path}#{heading}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_topic_has_one_title_that_a_list_can_show(document: str) -> None:
    first, *_ = DOCUMENTS[document].splitlines()
    assert re.match(r"# \S", first)
    assert len(first) <= 80
    assert len(re.findall(r"^# ", without_code(DOCUMENTS[document]), re.MULTILINE)) == 1


def test_no_topic_says_what_another_says() -> None:
    seen: dict[str, str] = {}
    for document, text in DOCUMENTS.items():
        for part in re.split(r"\n\n+", without_code(text)):
            words = " ".join(part.split())
            if len(words) > 150:
                assert words not in seen, f"{document} and {seen[words]}: {words[:80]}"
                seen[words] = document


# --- architecture --------------------------------------------------------------------------


# whose names of files are all ours; elsewhere they may be the reader's
OF_PLACES = ("README.md", "agentcli/docs/architecture.md")
PLACES = [
    (document, place)
    for document, text in DOCUMENTS.items()
    for place in dict.fromkeys(ticked(text))
    if re.fullmatch(r"[.\w/-]+(\.py(::[\w.]+)?|/)", place)
    and "NAME" not in place
    and (document in OF_PLACES or place.startswith(("agentcli/", "tests/", ".ci/")))
]


def test_the_documents_say_where_things_are() -> None:
    assert len(PLACES) >= 80


def test_every_place_that_is_named_exists() -> None:
    missing = []
    for document, place in PLACES:
        path, _, name = place.partition("::")
        (file, *_) = [*filter(Path.exists, (ROOT / "agentcli" / path, ROOT / path)), None]
        if file is None or (name and name not in defined_names(file)):
            missing.append(f"{document}: {place}")
    assert not missing, "\n".join(missing)


def defined_names(file: Path) -> set[str]:
    """Functions, classes, assigned names, and what the classes define, of a module."""
    found: set[str] = set()

    def look(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found.add(prefix + node.name)
                look(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + t.id for t in targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.If | ast.Try):
                look(node.body, prefix)

    look(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return found


@pytest.mark.spec("CTRL-1", "CTRL-4", "CTRL-8")
def test_the_seams_of_the_loop_are_listed() -> None:
    table = topic("architecture").partition("| seam | port | ours |")[2].partition("\n\n")[0]
    ports = [line.split(" | ")[1] for line in table.strip().splitlines()[1:]]
    assert len([port for port in ports if re.fullmatch(r"`[\w/]+\.py::\w+`", port)]) == 8


# --- contract ------------------------------------------------------------------------------

BEHAVIOUR = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* (\(not yet\) )?\S.*$", re.MULTILINE)


def marked() -> set[str]:
    """Every number that a test is marked with."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for numbers in re.findall(r"pytest\.mark\.spec\(([^()]*)\)", path.read_text("utf-8")):
            found.update(re.findall(r'"([^"]+)"', numbers))
    return found


def test_the_contract_lists_each_number_once_and_in_order() -> None:
    listed = [number for number, _ in BEHAVIOUR.findall(topic("contract"))]
    assert len(listed) == len(set(listed))
    groups: dict[str, list[int]] = {}
    for number in listed:
        group, _, place = number.partition("-")
        groups.setdefault(group, []).append(int(place))
    assert all(places == list(range(1, len(places) + 1)) for places in groups.values()), groups


def test_the_contract_says_which_numbers_have_no_test_yet() -> None:
    """A number that a test is marked with is listed as proved, any other as "(not yet)"."""
    listed = dict(BEHAVIOUR.findall(topic("contract")))
    proved = marked()
    assert proved - set(listed) == set()
    assert {number for number, not_yet in listed.items() if not not_yet} == proved


def test_every_number_that_code_and_documents_cite_is_listed() -> None:
    listed = {number for number, _ in BEHAVIOUR.findall(topic("contract"))}
    groups = "|".join(sorted({number.partition("-")[0] for number in listed}))
    cited = re.compile(rf"(?<![\w-])(?:{groups})-\d+(?![\w-])")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "agentcli").rglob("*.py")}
    texts[ROOT / "SECURITY.md"] = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    texts |= {ROOT / name: text for name, text in DOCUMENTS.items()}
    found = {number: path for path, text in texts.items() for number in cited.findall(text)}
    assert {number: path for number, path in found.items() if number not in listed} == {}
