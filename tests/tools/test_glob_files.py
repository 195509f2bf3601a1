"""The glob_files tool as the model sees it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from agentcli.domain.tools import Asks, OutputKind, ToolOutput
from agentcli.process.run import end_processes
from agentcli.tools.glob_files import TOOL
from tests.support.tool_context import text_of, tool_context


@pytest.fixture(params=["rg", "python"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setenv("PATH", "/nonexistent")
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    return str(request.param)


def glob(root: Path, pattern: str, cwd: Path | None = None, **more: object) -> ToolOutput:
    async def body() -> ToolOutput:
        ctx = tool_context(root, cwd=cwd)
        output = await TOOL.run(TOOL.parse({"pattern": pattern, **more}), ctx)
        await end_processes()
        return output

    return asyncio.run(body())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    names = "a.py src/b.py src/deep/c.py src/deep/d.ts .env .github/ci.yml node_modules/m/i.js build/o.py"
    for name in names.split():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / ".gitignore").write_text("node_modules\n/build/\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.{py,ts}", ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("src/b.py", ["src/b.py"]),
        ("**/deep/**", ["src/deep/c.py", "src/deep/d.ts"]),
        ("src/", ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        (".env", [".env"]),
        (".github/*.yml", [".github/ci.yml"]),
        ("node_modules/**/*.js", ["node_modules/m/i.js"]),
        ("*.none", []),
        ("absent/*.py", []),
    ],
)
def test_files_are_found_by_name(project: Path, pattern: str, found: list[str]) -> None:
    text = text_of(glob(project, pattern))
    assert text == ("\n".join(found) if found else f"No files match {pattern}.")


@pytest.mark.spec("TOOL-10")
def test_the_place_may_be_given_and_may_be_outside(project: Path) -> None:
    assert text_of(glob(project, "*.ts", path="src")) == "src/deep/d.ts"
    assert text_of(glob(project, f"{project}/src/*.py")) == "src/b.py"
    assert text_of(glob(project, "../*.py", cwd=project / "src")) == str(project / "a.py")


@pytest.mark.spec("TOOL-10", "TOOL-6")
def test_what_is_found_is_bounded_and_says_so(tmp_path: Path) -> None:
    for number in range(1_100):
        (tmp_path / f"{number:04}").touch()
    output = glob(tmp_path, "*")
    assert text_of(output).startswith("0000\n0001\n")
    assert "0999\n[the first 1000 files; there are more" in text_of(output)
    assert output.summary == "first 1000 files"


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"pattern": "[a"}, "Cannot use the glob"),
        ({"pattern": "*", "path": "absent"}, "does not exist"),
        ({"pattern": "*", "path": "a.py"}, "is a file"),
    ],
)
def test_bad_input_is_an_error_with_advice(
    project: Path, arguments: dict[str, str], advice: str
) -> None:
    output = glob(project, **arguments)
    assert output.kind is OutputKind.TOOL_ERROR
    assert advice in text_of(output)


@pytest.mark.spec("TOOL-1")
def test_the_call_reads_in_a_line_and_names_where_it_looks(project: Path) -> None:
    args = TOOL.parse({"pattern": "src/**/*.py"})
    assert TOOL.summary(args) == "Find src/**/*.py"
    assert TOOL.paths(args, tool_context(project).workspace) == (project / "src",)
    assert TOOL.definition.asks is Asks.NOTHING
