"""What checks print, and which of it is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.extensions.checks import Problem, found_checks, new_among, problems_in
from agentcli.process.program import ProgramResult


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/app.py").write_text("import os\nx = 1\ny = 2\n")
    return tmp_path


def texts(root: Path, output: str, code: int = 1) -> list[str]:
    path = root / "src/app.py"
    result = ProgramResult(code, output.encode())
    return [each.text for each in problems_in(result, root, {"src/app.py": path})]


@pytest.mark.spec("EXT-6")
@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("src/app.py:1:8: F401 `os`\nFound 1 error.", ["src/app.py:1:8: F401 `os`"]),
        ("src/app.py:2: error: bad\nsrc/app.py:2: note: why", ["src/app.py:2: error: bad"]),
        ("src/app.py(2,3): error TS1: no", ["src/app.py(2,3): error TS1: no"]),
        (
            "{root}/src/app.py\n  2:5  error  no  rule\n\n1 problem",
            ["src/app.py:2: error  no  rule"],
        ),
        ("\x1b[31msrc/app.py:1:1: red\x1b[0m", ["src/app.py:1:1: red"]),
        (
            '  File "src/app.py", line 2\n    x =\n       ^\nSyntaxError: invalid syntax',
            ["src/app.py:2: SyntaxError: invalid syntax"],
        ),
        ("12:30:45 started\nall is lost", ["12:30:45 started", "all is lost"]),
    ],
)
def test_the_usual_formats_are_read(root: Path, output: str, expected: list[str]) -> None:
    assert texts(root, output.replace("{root}", str(root))) == expected


@pytest.mark.spec("EXT-6")
def test_words_without_a_place_count_only_when_the_check_failed(root: Path) -> None:
    assert texts(root, "all good", code=0) == []
    assert texts(root, "src/app.py:1: warning: old", code=0) == ["src/app.py:1: warning: old"]


def problem(text: str, source: str = "") -> Problem:
    return Problem("a.py", text, text.partition(":")[2], source)


@pytest.mark.spec("EXT-6")
def test_what_only_moved_is_not_new_and_of_equals_the_one_on_a_new_line_is() -> None:
    old = problem("1:unused", "import os")
    moved, added = problem("7:unused", "import os"), problem("2:unused", "import re")
    assert new_among([moved], [old]) == []
    assert new_among([added, moved], [old]) == [added]
    assert new_among([moved, moved], [old]) == [moved]
    assert new_among([], [old]) == []


@pytest.mark.spec("EXT-6")
def test_checks_are_found_by_the_configuration_of_the_project(tmp_path: Path) -> None:
    def names(*there: str) -> list[tuple[str, bool]]:
        found = found_checks(tmp_path, lambda name: name if name in there else None)
        return [(each.name, each.runs_project) for each in found]

    assert names("ruff", "mypy", "gofmt", "cargo", "rustfmt", "prettier", "eslint") == []
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n[tool.mypy]\n")
    (tmp_path / "go.mod").touch()
    (tmp_path / "Cargo.toml").write_text('[package]\nedition = "2018"\n')
    (tmp_path / ".prettierrc").touch()
    (tmp_path / "eslint.config.mjs").touch()
    assert names("ruff") == [("ruff", False)]
    assert names("ruff", "mypy", "gofmt", "cargo", "rustfmt", "prettier", "eslint") == [
        ("ruff", False),
        ("mypy", True),
        ("gofmt", False),
        ("rustfmt", False),
        ("cargo", True),
        ("prettier", True),
        ("eslint", True),
    ]
    own = tmp_path / "node_modules/.bin/eslint"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    (found,) = found_checks(tmp_path, lambda _: None)
    assert found.check == f"{own} --no-color {{files}}" and found.runs_project


@pytest.mark.spec("EXT-6")
def test_ruff_formats_only_where_the_project_says_so(tmp_path: Path) -> None:
    (tmp_path / "ruff.toml").write_text("line-length = 100\n")
    (found,) = found_checks(tmp_path, str)
    assert not found.format
    (tmp_path / "ruff.toml").write_text("[format]\n")
    (found,) = found_checks(tmp_path, str)
    assert found.format.startswith("ruff format")


@pytest.mark.spec("EXT-6", "SEC-2")
def test_a_formatter_that_the_directory_chooses_runs_code_of_it(tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").touch()
    home = tmp_path / "home"
    home.mkdir()
    (home / "rustup").touch()
    (home / "rustfmt").symlink_to("rustup")
    (found,) = found_checks(tmp_path, lambda name: str(home / name) if name == "rustfmt" else None)
    assert found.runs_project
