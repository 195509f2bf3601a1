"""The floor plan: who may import whom, no circles, no printing below the screen; and its size."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "agentcli"

FLOOR_3 = {
    "engine",
    "tools",
    "providers",
    "store",
    "config",
    "extensions",
    "mcp",
    "codemap",
    "telemetry",
}
# room -> (rooms of ours, outside packages)
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "domain": (set(), set()),
    "policy": ({"domain"}, {"tree_sitter", "tree_sitter_bash"}),
    "process": ({"domain"}, set()),
    "wire": ({"domain"}, {"certifi", "h11", "httpcore", "httpx"}),
    "rpc": ({"domain"}, set()),
    "engine": ({"domain", "policy"}, {"cronsim", "json_repair"}),
    "tools": (
        {"domain", "policy", "process", "wire"},
        {
            "PIL",
            "html_to_markdown",
            "jsonschema",
            "pathspec",
            "pydantic",
            "pydantic_core",
            "pypdf",
            "referencing",
            "typing_extensions",
        },
    ),
    "providers": ({"domain", "wire"}, set()),
    "store": ({"domain"}, {"aiosqlite"}),
    "config": ({"domain"}, {"keyring", "tomlkit"}),
    "extensions": ({"domain", "process"}, {"yaml"}),
    "mcp": ({"domain", "process", "wire", "rpc"}, set()),
    # its grammars are imported by name, those that are installed
    "codemap": ({"domain", "process"}, {"tree_sitter"}),
    "telemetry": ({"domain"}, {"opentelemetry"}),
    "ui": ({"domain"}, {"rich", "markdown_it"}),  # Rich and the parser that it brings along
    # the composition root: it names concrete classes
    "app": ({"domain", "policy", "process", "wire", *FLOOR_3}, set()),
    "api": ({"domain", "app"}, {"pydantic", "typing_extensions"}),
    "repl": ({"domain", "app", "ui"}, {"prompt_toolkit"}),
    "headless": ({"domain", "app", "ui"}, set()),
    "acp": ({"domain", "app", "rpc"}, set()),
    "fleet": ({"domain", "app", "process", "ui"}, {"pydantic", "ray"}),
    "cli": (
        {
            *{"domain", "policy", "process", "wire", *FLOOR_3},
            *{"ui", "app", "api", "repl", "headless", "acp", "fleet"},
        },
        {"typer"},
    ),
    "harbor": (set(), {"harbor"}),  # run by Harbor, in its process
    "__main__": ({"cli"}, set()),
}
MAX_LINES = 700
MAX_FAN_OUT = 15
MAX_SINGLE_IMPORTERS = 39
# they bring the others together
COMPOSITION_ROOTS = {"agentcli.app.compose", "agentcli.app.session", "agentcli.app.subagents"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass
class Source:
    """A file that was parsed once: with their lines its imports and calls, and its classes."""

    imports: list[tuple[int, str]]
    calls: list[tuple[int, str]]
    classes: list[str]


@cache
def source(path: Path) -> Source:
    """The file's imports, as absolute dotted names, and its calls, wherever they stand."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Source([], [], [node.name for node in tree.body if isinstance(node, ast.ClassDef)])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            found.imports += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            found.calls.append((node.lineno, ast.unparse(node.func)))
    return found


def imports(path: Path) -> list[tuple[int, str]]:
    """Every import in the file, wherever it stands, as absolute dotted names."""
    return source(path).imports


def violations() -> list[str]:
    wrong = []
    for path in sources():
        room = room_of(path)
        if room == "__init__":
            continue
        ours, outside = ALLOWED[room]
        ours = ours | {room}
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


def imported_modules() -> dict[str, set[str]]:
    """What each module imports of ours, wherever the import stands."""
    modules = {module_name(path): path for path in sources()}
    return {
        name: {
            target if target in modules else target.rpartition(".")[0]
            for _, target in imports(path)
            if target in modules or target.rpartition(".")[0] in modules
        }
        - {name}
        for name, path in modules.items()
    }


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


def test_only_the_upper_rooms_print_or_exit() -> None:
    wrong: list[str] = []
    for path in sources():
        if room_of(path) in {"cli", "repl", "headless", "ui", "__main__"}:
            continue
        wrong += [
            f"{path.relative_to(PACKAGE)}:{line}: {called}"
            for line, called in source(path).calls
            if called in {"print", "sys.exit", "exit", "quit", "os._exit"}
        ]
    assert not wrong, wrong


def test_no_file_is_too_long() -> None:
    counts = {path: len(path.read_text().splitlines()) for path in sources()}
    long = [f"{path.name}: {count}" for path, count in counts.items() if count > MAX_LINES]
    assert not long, f"over {MAX_LINES} lines: {long}"


def test_no_module_imports_too_many_of_ours() -> None:
    graph = imported_modules()
    wide = {name for name, targets in graph.items() if len(targets) > MAX_FAN_OUT}
    assert wide <= COMPOSITION_ROOTS, sorted(wide - COMPOSITION_ROOTS)


def test_few_modules_have_a_single_importer() -> None:
    """What one module of its room alone imports is a part of that module, or a law of its own."""
    graph = imported_modules()
    single = []
    for name in graph:
        importers = [other for other, targets in graph.items() if name in targets]
        if len(importers) == 1 and importers[0].split(".")[:2] == name.split(".")[:2]:
            single.append(name)
    assert len(single) <= MAX_SINGLE_IMPORTERS, sorted(single)


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for path in sources():
        for name in source(path).classes:
            places.setdefault(name, []).append(module_name(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
