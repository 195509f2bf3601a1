"""TASKS: what a row may say, what is wrong with it, and by what a task is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.fleet.tasks import BatchTask, TasksFile, check_template, read_tasks


def read(
    text: str | bytes, base: Path, *, name: str = "t.jsonl", template: str | None = None
) -> tuple[BatchTask, ...]:
    data = text.encode() if isinstance(text, str) else text
    return read_tasks(TasksFile(data, name, base, template))


def test_a_row_says_what_its_task_is(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    text = (
        '\ufeff{"prompt": "one\\u2028line", "id": 7, "cwd": "repo", "model": "a/b",'
        ' "permission_mode": "plan", "max_budget_usd": 1, "timeout_s": 2.5}\r\n\r\n'
        '{"prompt": "two", "timeout_s": 0, "model": null}'
    )
    one, two = read(text, tmp_path)
    assert (one.id, one.prompt, one.cwd) == ("7", "one\u2028line", tmp_path / "repo")
    assert (one.model, one.permission_mode) == ("a/b", "plan")
    assert (one.max_budget_usd, one.timeout_s, one.line) == (1.0, 2.5, 1)
    assert (two.cwd, two.model, two.timeout_s, two.line) == (tmp_path, None, None, 3)


def test_a_task_is_known_by_what_it_says_wherever_it_stands(tmp_path: Path) -> None:
    rows = ['{"prompt": "a"}', '{"prompt": "b"}', '{"model": "m/n", "prompt": "a"}']
    first = {task.id: task.prompt for task in read("\n".join([*rows, rows[0]]), tmp_path)}
    again = {task.id: task.prompt for task in read("\n".join([rows[0], *rows[::-1]]), tmp_path)}
    assert first == again and len(first) == 4
    assert sum(name.endswith("-2") for name in first) == 1


def test_a_table_fills_a_template(tmp_path: Path) -> None:
    text = '\r\nfile;what is;other\r\n"a ""b"";c";"two\nlines"; \r\n;;\r\nd;e;f\r\n'
    one, two = read(text, tmp_path, name="x.csv", template="{{fix}} {file}: {what is} {other}")
    assert one.prompt == '{fix} a "b";c: two\nlines '
    assert (two.prompt, two.line) == ("{fix} d: e f", 6)
    (task,) = read("prompt,id\nhello,h\n", tmp_path, name="-")
    assert (task.prompt, task.id) == ("hello", "h")
    (task,) = read('{"n": 3, "l": [1]}', tmp_path, template="{n} of {l}")
    assert task.prompt == "3 of [1]"


@pytest.mark.parametrize(
    ("text", "name", "template", "parts"),
    [
        ('{"prompt": "x"}\n{"promt": "y"}', "t.jsonl", None, "line 2: unknown key promt|prompt?"),
        ('{"prompt": "x"}\n{"prompt": }', "t.jsonl", None, "line 2: not JSON|column"),
        ('{"prompt": "x", "prompt": "y"}', "t.jsonl", None, "line 1|twice"),
        ("[1]", "t.jsonl", None, "line 1: not an object"),
        ('{"id": "a"}', "t.jsonl", None, "line 1: there is no prompt"),
        ('{"prompt": " "}', "t.jsonl", None, "line 1: the prompt is empty"),
        ('{"prompt": ["x"]}', "t.jsonl", None, "prompt is a list|must be a text"),
        ('{"prompt": "x", "timeout_s": "3"}', "t.jsonl", None, "timeout_s is 3|number"),
        ('{"prompt": "x", "timeout_s": true}', "t.jsonl", None, "timeout_s is true|number"),
        ('{"prompt": "x", "max_budget_usd": -1}', "t.jsonl", None, "max_budget_usd|at least 0"),
        ('{"prompt": "x", "max_budget_usd": NaN}', "t.jsonl", None, "max_budget_usd|at least 0"),
        ('{"prompt": "x", "permission_mode": "yo"}', "t.jsonl", None, "yo is not valid|yolo"),
        ('{"prompt": "x", "model": "a\\u0000b"}', "t.jsonl", None, "the model|PROVIDER/MODEL"),
        ('{"prompt": "x", "model": "\\ud800"}', "t.jsonl", None, "the model|PROVIDER/MODEL"),
        ('{"prompt": "x", "cwd": "gone"}', "t.jsonl", None, "cwd gone does not exist"),
        ('{"prompt": "x", "id": ""}', "t.jsonl", None, "the id is empty"),
        ('{"prompt": "x", "id": "a\\nb"}', "t.jsonl", None, "cannot be used"),
        ('{"prompt":"x","id":"a"}\n{"prompt":"y","id":"a"}', "t.jsonl", None, "line 2|in line 1"),
        ("[" * 100_000, "t.jsonl", None, "line 1"),
        ("", "t.jsonl", None, "holds no tasks"),
        (b'{"prompt": "x"}\n\xff', "t.jsonl", None, "line 2: not UTF-8"),
        ("file,n\na,1\n", "t.csv", "fix {fil}", "line 1: there is no column fil|file?"),
        ("file,n\na,1\n", "t.csv", None, "line 1: there is no column prompt|--prompt"),
        ("file,file\na,1\n", "t.csv", "{file}", "two columns are called file"),
        ("file,n\na,1,2\n", "t.csv", "{file}", "line 2: 3 cells"),
        ('file,n\n"a"b,1\n', "t.csv", "{file}", "line 2: not CSV"),
        ('prompt,timeout_s\n"a",soon\n', "t.csv", None, "line 2: timeout_s is soon"),
        ('{"file": "a"}', "t.jsonl", "fix {fil}", "line 1: there is no fil|file?"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(
    text: str | bytes, name: str, template: str | None, parts: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, tmp_path, name=name, template=template)
    said = str(caught.value)
    assert said.startswith(name) and "\n" not in said
    for part in parts.split("|"):
        assert part in said


@pytest.mark.spec("SEC-1")
def test_a_row_gives_no_permission_and_data_chooses_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    base, said = tmp_path / "in", list[str]()

    def read_with(row: str, template: str | None, field: str | None = None) -> BatchTask:
        source = TasksFile(row.encode(), "t.jsonl", base, template, field, "auto", said.append)
        return read_tasks(source)[0]

    for mode in ("auto", "default", "plan"):
        row = f'{{"prompt": "x", "permission_mode": "{mode}"}}'
        assert read_with(row, None).permission_mode == mode
    with pytest.raises(UsageError, match="line 1: permission_mode yolo is more than auto"):
        read_with('{"prompt": "x", "permission_mode": "yolo"}', None)
    assert not said
    row = '{"n": 1, "model": "a/b", "permission_mode": "odd", "timeout_s": 3, "max_budget_usd": 2}'
    task = read_with(row, "{n} {model}")
    assert (task.model, task.permission_mode, task.timeout_s) == (None, None, 3.0)
    assert (task.prompt, task.max_budget_usd) == ("1 a/b", 2.0)
    assert said == ["t.jsonl: with --prompt, permission_mode is data and chooses nothing"]
    for place in ("..", str(tmp_path), "~"):
        row = f'{{"cwd": "{place}"}}'
        with pytest.raises(UsageError, match="give --cwd-field cwd"):
            read_with(row, "x")
        assert read_with(row, "x", "cwd").cwd.is_dir()
    assert read_with('{"prompt": "x", "cwd": ".."}', None).cwd.samefile(tmp_path)


def test_a_brace_that_encloses_no_column_is_told_of() -> None:
    check_template("{{a}} {b}")
    for template in ("{", "a }", "{}", "{a{b}}"):
        with pytest.raises(UsageError, match="brace at character"):
            check_template(template)
