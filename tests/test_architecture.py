"""The floor plan: who may import whom, no circles, small files, no printing below the screen."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "agentcli"
MAX_LINES = 400

STDLIB_ONLY: set[str] = set()
# room -> (rooms of ours, outside packages)
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "domain": (set(), STDLIB_ONLY),
    "providers": ({"domain"}, {"httpx"}),
    "tools": (
        {"domain"},
        {
            "PIL",
            "html_to_markdown",
            "httpcore",
            "jsonschema",
            "pydantic",
            "pydantic_core",
            "referencing",
        },
    ),
    "store": ({"domain"}, {"pydantic", "aiosqlite"}),
    "hooks": ({"domain"}, STDLIB_ONLY),
    "engine": ({"domain"}, {"cronsim", "json_repair", "tree_sitter", "tree_sitter_bash"}),
    "config": ({"domain"}, {"keyring", "pydantic", "tomlkit"}),
    "ui": ({"domain"}, {"rich"}),
    "app": ({"domain", "engine"}, set()),
    "api": ({"domain", "app"}, {"pydantic"}),
    "repl": ({"domain", "app", "ui"}, {"prompt_toolkit"}),
    "cli": (
        {"domain", "providers", "tools", "store", "engine", "config", "ui", "app", "repl"},
        {"typer"},
    ),
    "__main__": ({"cli"}, set()),
}
# the only place that names concrete classes, in two halves
EXTRA = {
    "api/agent.py": {"config", "tools"},
    "api/function_tool.py": {"tools"},
    "app/backgrounding.py": {"config", "store", "tools"},
    "app/compose.py": {"config", "tools", "store"},
    "app/extensions.py": {"config", "tools", "hooks"},
    "app/keeping.py": {"store"},
    "app/models.py": {"config", "providers"},
    "app/opening.py": {"config", "store", "tools"},
    "app/options.py": {"tools"},
    "app/delegation.py": {"config", "store", "tools"},
    "app/sandboxing.py": {"config", "tools"},
    "app/subagents.py": {"config", "store", "tools"},
    "app/toolset.py": {"tools"},
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> list[tuple[int, str]]:
    """Every import in the file, wherever it stands, as absolute dotted names."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def violations() -> list[str]:
    wrong = []
    for path in sources():
        room = room_of(path)
        if room == "__init__":
            continue
        ours, outside = ALLOWED[room]
        ours = ours | {room} | EXTRA.get(path.relative_to(PACKAGE).as_posix(), set())
        for line, name in imports(path):
            parts = name.split(".")
            where = f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
            if parts[0] == "agentcli":
                if len(parts) > 1 and parts[1] != "__version__" and parts[1] not in ours:
                    wrong.append(where)
            elif parts[0] not in sys.stdlib_module_names and parts[0] not in outside:
                wrong.append(where)
    return wrong


def test_rooms_import_only_what_the_floor_plan_allows() -> None:
    wrong = violations()
    table = "\n".join(f"  {room}: {sorted(o | p)}" for room, (o, p) in ALLOWED.items())
    assert not wrong, "\n".join(wrong) + "\nallowed:\n" + table


def test_there_are_no_import_circles() -> None:
    modules = {module_name(path): path for path in sources()}
    graph = {
        name: {
            target
            for _, imported in imports(path)
            for target in (imported, imported.rpartition(".")[0])
            if target in modules and target not in {name, "agentcli"}
        }
        for name, path in modules.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_only_the_upper_rooms_print_or_exit() -> None:
    wrong = []
    for path in sources():
        if room_of(path) in {"cli", "repl", "ui", "__main__"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in {"print", "sys.exit", "exit", "quit", "os._exit"}:
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {called}")
    assert not wrong, wrong
