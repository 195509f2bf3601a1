"""The grep_files tool as the model sees it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tools import Asks, OutputKind, ToolOutput
from agentcli.process.run import end_processes
from agentcli.tools.grep_files import TOOL
from agentcli.tools.search import search as _search
from tests.support.tool_context import EveryPort, text_of, tool_context


@pytest.fixture(params=["rg", "python"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setenv("PATH", "/nonexistent")
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    return str(request.param)


def grep(root: Path | EveryPort, pattern: str, **more: object) -> ToolOutput:
    ctx = root if isinstance(root, EveryPort) else tool_context(root)

    async def body() -> ToolOutput:
        output = await TOOL.run(TOOL.parse({"pattern": pattern, **more}), ctx)
        await end_processes()
        return output

    return asyncio.run(body())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/app.py").write_text("import os\n\ndef main():\n    pass\n\ndef other():\n")
    (tmp_path / "notes.txt").write_text("call main()\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "x.log").write_text("main\n")
    return tmp_path


@pytest.mark.spec("TOOL-10")
def test_lines_come_with_path_and_number_in_order(project: Path) -> None:
    output = grep(project, r"main\(")
    assert text_of(output) == (
        "notes.txt:1:call main()\nsrc/app.py:3:def main():\n[2 matches in 2 files]"
    )
    assert output.summary == "2 matches in 2 files"


@pytest.mark.slow
@pytest.mark.spec("TOOL-10")
def test_context_glob_case_and_path(project: Path) -> None:
    assert text_of(grep(project, "DEF", ignore_case=True, context=1, path="src")) == (
        "src/app.py-2-\nsrc/app.py:3:def main():\nsrc/app.py-4-    pass\nsrc/app.py-5-\n"
        "src/app.py:6:def other():\n[2 matches in 1 file]"
    )
    assert "notes" not in text_of(grep(project, "main", glob="*.py"))
    assert text_of(grep(project, "main", path="notes.txt")).startswith("notes.txt:1:")
    assert text_of(grep(project, "nothing", glob="*.py")) == "No matches (only files *.py)."


@pytest.mark.spec("TOOL-10", "TOOL-6")
def test_what_is_found_is_bounded_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "many").write_text("foo\n" * 5_000)
    text = text_of(grep(tmp_path, "foo"))
    assert text.count("many:") == 200
    assert "first 200 matches in 1 file; there are more" in text
    assert text_of(grep(tmp_path, "foo", limit=3)).count("many:") == 3
    (tmp_path / "many").write_text("foo" + "x" * 100_000 + "\n")
    text = text_of(grep(tmp_path, "foo"))
    assert len(text) < 700
    assert "[99503 more]" in text


@pytest.mark.spec("TOOL-10", "LOOP-5")
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"pattern": "("}, r"unterminated subpattern at position 0; escape .* backslash"),
        ({"pattern": r"a\nb"}, r"within one line: .* use context\.$"),
        ({"pattern": "a\nb"}, r"within one line: .* use context\.$"),
        ({"pattern": "\0"}, r"NUL in it\.$"),
        ({"pattern": "a" * 20_000}, r"too long, or has a NUL in it\.$"),
        ({"pattern": "x", "glob": "["}, "glob"),
        ({"pattern": "x", "path": "absent"}, "does not exist"),
        ({"pattern": "x", "path": "fifo"}, "neither a file nor a directory"),
        ({"pattern": "x", "path": "binary"}, "binary"),
    ],
)
def test_bad_input_is_an_error_with_advice(
    tmp_path: Path, arguments: dict[str, str], advice: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\0x\0\1\2")
    output = grep(tmp_path, **arguments)
    assert output.kind is OutputKind.TOOL_ERROR
    assert re.search(advice, text_of(output)), text_of(output)


@pytest.mark.slow
@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("func() {", "func {"),
        ("interface{}", "interface{}"),
        ("x{2}y", "xxy"),
        ("a{b,c}", "a{b,c}"),
        (r"\"quoted\" \/", '"quoted" /'),
        ("(?P<name>ab)|c", "c"),
        ("(?i)foo", "FOO"),
        ("[]a]", "]"),
        (r"\bfoo\b(?! two)", "a foo one"),
        (r"(a|b)\1", "bb"),
        (r"\\n", "a\\n"),
        ("\u00e9+$", "\u00e9\u00e9"),
    ],
)
def test_either_engine_s_way_of_writing_is_understood(
    tmp_path: Path, pattern: str, line: str
) -> None:
    (tmp_path / "f").write_text(f"{line}\nzzz\n")
    assert text_of(grep(tmp_path, pattern)) == f"f:1:{line}\n[1 match in 1 file]"


@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize("pattern", ["[[:upper:]_]", r"\p{Lu}"])
def test_what_python_reads_otherwise_is_an_error_without_ripgrep(
    tmp_path: Path, pattern: str, engine: str
) -> None:
    (tmp_path / "f").write_text("Ab&\n")
    output = grep(tmp_path, pattern)
    assert (output.kind is OutputKind.TOOL_ERROR) is (engine == "python")


@pytest.mark.parametrize(
    "arguments", [{"pattern": ""}, {"pattern": "x", "limit": 0}, {"pattern": "x", "context": 99}]
)
def test_arguments_are_bounded(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments):
        TOOL.parse(arguments)


@pytest.mark.spec("TOOL-10")
def test_a_search_that_takes_too_long_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if engine == "rg":
        pytest.skip("ripgrep has no slow patterns")
    monkeypatch.setattr(_search, "TIME_LIMIT_S", 0.3)
    (tmp_path / "f").write_text("a" * 60 + "!\n")
    output = grep(tmp_path, "(a|a)*(a|a)*$")
    assert output.kind is OutputKind.TOOL_ERROR
    assert "simpler pattern" in text_of(output)


def test_control_characters_are_visible(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("foo\t\x1b[31m\u00a0\n")
    assert text_of(grep(tmp_path, "foo")).startswith("a\\nb:1:foo\t\\x1b[31m\u00a0\n")


@pytest.mark.spec("CAN-3")
def test_a_cancelled_token_searches_nothing(tmp_path: Path) -> None:
    cancel = CancelToken()
    cancel.cancel()
    assert grep(tool_context(tmp_path, cancel=cancel), "x").kind is OutputKind.CANCELLED


@pytest.mark.spec("TOOL-1")
def test_the_call_reads_in_a_line_and_names_where_it_looks(project: Path) -> None:
    args = TOOL.parse({"pattern": "foo", "path": "src", "glob": "*.py"})
    assert TOOL.summary(args) == "Search `foo` in *.py src"
    assert TOOL.paths(args, tool_context(project).workspace) == (project / "src",)
    assert TOOL.definition.asks is Asks.NOTHING


@pytest.mark.slow
@pytest.mark.spec("TOOL-17")
def test_a_search_finds_what_reading_shows_in_any_encoding(tmp_path: Path) -> None:
    text = "un café\nplain\nnoël café\n"
    for codec in ("latin-1", "cp1252", "utf-8", "utf-16", "utf-16-le", "utf-32"):
        (tmp_path / f"{codec}.txt").write_bytes(text.encode(codec))
    (tmp_path / "a.bin").write_bytes(b"caf\xe9\0\1\2\3 plain caf\xe9")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/late.txt").write_bytes(b"plain\n" * 20_000 + "“café”\n".encode("cp1252"))
    (tmp_path / "skipped.log").write_bytes("café".encode("latin-1"))
    (tmp_path / ".gitignore").write_text("*.log\n")
    said = text_of(grep(tmp_path, "caf.$", context=1))
    names = ("cp1252", "latin-1", "utf-16-le", "utf-16", "utf-32", "utf-8")
    expected = "\n--\n".join(
        f"{name}.txt:1:un café\n{name}.txt-2-plain\n{name}.txt:3:noël café" for name in names
    )
    assert said == f"{expected}\n[12 matches in 6 files]"
    assert "b/late.txt:20001:“café”" in text_of(grep(tmp_path, "“café”"))
    assert text_of(grep(tmp_path, "CAFÉ$", path="latin-1.txt", ignore_case=True)).count("café") == 2
    few = text_of(grep(tmp_path, "café$", limit=3))
    assert "utf" not in few and "[first 3 matches in 2 files; there are more" in few


@pytest.mark.sampled
@pytest.mark.spec("TOOL-17")
@pytest.mark.parametrize(
    "where",
    [
        {"glob": ".github/**/*.yml"}, {"glob": "**/.github/**/*.yml"}, {"path": ".github"},
        {"path": ".github", "glob": "**/*.yml"}, {"glob": "{.github,src}/**"}, {"glob": ".*/**"},
        {"glob": "**/*.yml"},
    ],
)  # fmt: skip
def test_hidden_directories_are_searched_when_they_are_named(
    project: Path, where: dict[str, str]
) -> None:
    (project / ".github/workflows").mkdir(parents=True)
    (project / ".github/workflows/ci.yml").write_text("on: main()\n")
    assert ".github/workflows/ci.yml:1:on: main()" in text_of(grep(project, "main", **where))
    (project / ".venv").mkdir()
    (project / ".venv/a.yml").write_text("on: main()\n")
    assert ".venv" not in text_of(grep(project, "main", glob="**/*.yml"))
    assert ".venv" in text_of(grep(project, "main", glob=".venv/*.yml"))
    for glob in ("*.yml", "!**/*.py"):
        assert ".github" not in text_of(grep(project, "main", glob=glob))
    (project / ".gitignore").write_text(".github\n")
    assert ".github" not in text_of(grep(project, "main", glob="**/*.yml"))


@pytest.mark.spec("TOOL-17")
def test_files_that_a_pattern_cannot_be_tried_on_are_counted(tmp_path: Path, engine: str) -> None:
    if engine == "python":
        pytest.skip("only ripgrep takes such a pattern")
    (tmp_path / "new.txt").write_text("café\n")
    (tmp_path / "old.txt").write_bytes("café\n".encode("latin-1"))
    said = text_of(grep(tmp_path, r"\p{L}+$"))
    assert said.startswith("new.txt:1:café\n[1 match in 1 file]")
    assert "[files in older encodings not searched (1): simplify the pattern]" in said
