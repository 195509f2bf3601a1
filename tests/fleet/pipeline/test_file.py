"""Files of pipelines: what is right is read, what is wrong is told, all at once, with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ConfigError, UsageError
from agentcli.fleet.pipeline.file import Check, RunSettings, StepPipeline, read_pipeline
from agentcli.fleet.pipeline.tree import as_json, tree_lines
from tests.support.docs import blocks

GOOD = '''
name = "New client"
description = "Moves what uses the old one."
max_budget_usd = 5

[inputs]
directory = "src"
limit = 10
careful = true
files = ["a.py", "b.py"]

[defaults]
model = "openai/gpt-4.1"
retry = 1
permission_mode = "accept-edits"

[steps.report]
prompt = "Sum up {{steps.change.results}}; tests: {{steps.test.state}} {{steps.test.error}}"
permission_mode = "plan"

[steps.find]
prompt = """
Which modules in {{inputs.directory}} use it? At most {{inputs.limit}}.
[steps.not_a_step]
key = "not a key"
"""
schema = "modules.json"

[steps.change]
for_each = "steps.find.result.modules"
when = "item.path not in inputs.files and (inputs.careful or index < 3)"
prompt = "Change {{item.path}}: {{item.why}}"
cwd = "{{inputs.directory}}"
worktree = true
timeout_s = 60
max_budget_usd = 0.5
allow_tools = ["bash(pytest *)"]

[steps.test]
needs = ["change"]
when = "length(steps.change.results) > 0 and steps.find.result.kind == 'api'"
prompt = "Run the tests."
retry = 3
'''
MODULES = {
    "type": "object",
    "properties": {
        "modules": {"type": "array", "items": {"$ref": "#/$defs/module"}},
        "kind": {"enum": ["api", "docs"]},
    },
    "required": ["modules", "kind"],
    "$defs": {
        "module": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "why": {"type": ["string", "null"]}},
            "required": ["path"],
            "additionalProperties": False,
        }
    },
}


def read(tmp_path: Path, text: str, check: Check | None = None, /, **given: str) -> StepPipeline:
    (tmp_path / "modules.json").write_text(json.dumps(MODULES))
    path = tmp_path / "move.toml"
    path.write_text(text, encoding="utf-8")
    return read_pipeline(path, given, check)


def mistakes(tmp_path: Path, text: str, check: Check | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, check)
    assert caught.value.headline.endswith("move.toml cannot run")
    return list(caught.value.details)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD, limit="3", directory="lib")
    assert [step.name for step in pipeline.steps] == ["find", "change", "test", "report"]
    assert pipeline.inputs == {
        "directory": "lib",
        "limit": 3,
        "careful": True,
        "files": ["a.py", "b.py"],
    }
    find, change, test, report = pipeline.steps
    assert find.settings == RunSettings(
        model="openai/gpt-4.1", permission_mode="accept-edits", retry=1
    )
    assert find.schema == MODULES
    assert change.needs == ("find",)
    assert change.settings.allow_tools == ("bash(pytest *)",)
    assert (test.needs, test.watches, test.settings.retry) == (("change", "find"), frozenset(), 3)
    assert (set(report.needs), report.watches) == ({"change", "test"}, {"test"})
    assert report.settings.permission_mode == "plan"
    assert GOOD.split("\n")[change.line - 1] == "[steps.change]"


def test_it_is_drawn_as_a_tree(tmp_path: Path) -> None:
    assert list(tree_lines(read(tmp_path, GOOD))) == [
        "New client: 4 steps",
        "  Moves what uses the old one.",
        '  input directory = "src"',
        "  input limit = 10",
        "  input careful = true",
        '  input files = ["a.py", "b.py"]',
        "  at most 5 USD",
        "find  (openai/gpt-4.1; accept-edits; 1 retry; gives modules, kind)",
        (
            "└─ change  (for each of steps.find.result.modules; if item.path not in inputs.files and"
            " (inputs.careful or index <…; openai/gpt-4.1; accept-edits; allows bash(pytest *);"
            " in {{inputs.directory}}; own worktree; 1 retry; at most 60 s; at most 0.5 USD)"
        ),
        (
            "   └─ test  (also after find; if length(steps.change.results) > 0 and"
            " steps.find.result.kind …; openai/gpt-4.1; accept-edits; 3 retries)"
        ),
        "      └─ report  (also after change; openai/gpt-4.1; plan; 1 retry)",
    ]
    shown: Any = as_json(read(tmp_path, GOOD))
    assert json.loads(json.dumps(shown))["steps"][1]["needs"] == ["find"]


def test_hostile_texts_are_drawn_harmless(tmp_path: Path) -> None:
    text = 'name = "a\\u001b[31m\\nb"\n[steps.a]\nprompt = "x"\nmodel = "\\u001b]0;t\\u0007"\n'
    drawn = "\n".join(tree_lines(read(tmp_path, text)))
    assert "\x1b" not in drawn
    assert "\x07" not in drawn


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """[inputs]
dir = "src"
[steps.find]
prompt = "{{inputs.dirr}} {{steps.find.result}}"
schema = "nope.json"
[steps.open]
prompt = "{{steps.fix.result}} {{ 3"
[steps.text]
prompt = "hi"
when = "steps.fix.state == 'finished' or length(3) > 2 or inputs.dir == 3"
[steps.fix]
for_each = "steps.text.result"
prompt = "{{steps.text.result.a}} {{steps.typed.result.moduls}} {{steps.typed.result.modules[0].p}}"
[steps.report]
needs = ["fixx"]
prompt = "{{steps.fix.result}} {{item}} {{foo}} {{steps.typed.results}} {{steps.typed.output}}"
[steps.typed]
prompt = " "
schema = "modules.json"
[steps.numbers]
for_each = 3
when = 4
cwd = "{{index}}"
prompt = "{{steps.typed.result.kind.x}}"
schema = { type = "objekt" }
"""
    found = mistakes(tmp_path, text)
    assert [line.replace(str(tmp_path), "DIR") for line in found] == [
        "line 4: steps.find.prompt: inputs.dirr: there is no input dirr (did you mean dir?)",
        "line 4: steps.find.prompt: steps.find.result: a step cannot use its own result",
        (
            "line 5: steps.find.schema: cannot read DIR/nope.json: no such file or directory"
            " (a path beside this file)"
        ),
        "line 7: steps.open.prompt: has {{ 3 without }} after it",
        "line 8: steps.text: waits for itself: text needs fix needs text",
        (
            'line 10: steps.text.when: steps.fix.state is never "finished"; it is one of: "done",'
            ' "failed", "skipped", "blocked"'
        ),
        "line 10: steps.text.when: length of number",
        'line 10: steps.text.when: "==" cannot hold between text and number',
        "line 12: steps.fix.for_each: is no list: steps.text.result is string",
        (
            "line 13: steps.fix.prompt: steps.text.result.a: step text has no schema, so its result is"
            " a text"
        ),
        (
            "line 13: steps.fix.prompt: steps.typed.result.moduls: steps.typed.result is without a"
            " field moduls (did you mean modules?)"
        ),
        (
            "line 13: steps.fix.prompt: steps.typed.result.modules[0].p:"
            " steps.typed.result.modules[0] is without a field p"
        ),
        "line 15: steps.report.needs: there is no step fixx (did you mean fix or find?)",
        "line 16: steps.report.prompt: steps.fix.result: step fix has results, a list",
        "line 16: steps.report.prompt: item: there is no item without for_each",
        (
            "line 16: steps.report.prompt: foo: foo is unknown; a value begins with inputs, steps,"
            " item, index"
        ),
        "line 16: steps.report.prompt: steps.typed.results: step typed has result, as it runs once",
        (
            "line 16: steps.report.prompt: steps.typed.output: a step has result, results, state,"
            " error"
        ),
        "line 18: steps.typed.prompt: is empty",
        "line 21: steps.numbers.for_each: must be a list, or in quotes what names one",
        "line 22: steps.numbers.when: must be an expression in quotes, or true or false",
        "line 23: steps.numbers.cwd: index: there is no index without for_each",
        (
            "line 24: steps.numbers.prompt: steps.typed.result.kind.x: steps.typed.result.kind is"
            " string and has no fields"
        ),
        (
            "line 25: steps.numbers.schema: the schema is not valid: type: 'objekt' is not valid under"
            " any of the given schemas (correct the schema, see https://json-schema.org/learn)"
        ),
    ]


def test_wrong_keys_and_types_are_told(tmp_path: Path) -> None:
    text = """max_budget = 3
[defaults]
modell = "x"
retry = "often"
[steps.a]
retry = 99
timeout_s = inf
worktree = 1
permission_mode = "root"
promt = "x"
max_budget_usd = 0
needs = "b"
[steps.b]
foreach = [1]
prompt = "{{item}} {{inputs.nothing}}"
model = "wrong"
[steps."c d"]
cwd = "gone"
prompt = "{{steps.c.result}}"
"""
    assert mistakes(tmp_path, text, lambda key, value: f"wrong: {value}") == [
        "line 1: max_budget: is unknown (did you mean max_budget_usd?)",
        "line 3: defaults.modell: is unknown (did you mean model?)",
        "line 3: defaults.model: wrong: x",
        "line 4: defaults.retry: must be a whole number",
        "line 6: steps.a.retry: must be at most 10",
        "line 7: steps.a.timeout_s: must be a finite number",
        "line 8: steps.a.worktree: must be true or false",
        (
            "line 9: steps.a.permission_mode: must be one of: 'default', 'accept-edits', 'auto',"
            " 'plan' or 'yolo'"
        ),
        "line 10: steps.a.promt: is unknown (did you mean prompt?)",
        "line 11: steps.a.max_budget_usd: must be more than 0",
        "line 12: steps.a.needs: must be a list",
        "line 14: steps.b.foreach: is unknown (did you mean for_each?)",
        "line 15: steps.b.prompt: inputs.nothing: there is no input nothing",
        "line 16: steps.b.model: wrong: wrong",
        "line 17: steps.c d: is no name: letters, digits, - and _ only",
        "line 18: steps.c d.cwd: wrong: gone",
        "line 19: steps.c d.prompt: steps.c.result: there is no step c (did you mean c d?)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "steps: is missing"),
        ("[steps.a]\nmodel = 'm/n'", "line 1: steps.a.prompt: is missing"),
        ("steps = {}", "line 1: steps: has no step"),
        ("steps = 3", "line 1: steps: must be a table"),
        ("\n[step.a]\nprompt = 'x'", "line 2: step: is unknown (did you mean steps?)"),
        ('[steps."a b"]\nprompt = "x"', "line 1: steps.a b: is no name: letters, digits, - and _"),
        ("[steps.a\n", "expected ']' at the end of a table declaration (at line 1, column 9)"),
        ('[steps.a]\nprompt = "x"\n[steps.a]\nprompt = "y"', "cannot declare"),
    ],
)
def test_a_file_without_steps_is_told(tmp_path: Path, text: str, said: str) -> None:
    (line, *more) = mistakes(tmp_path, text)
    assert said in line
    assert not more


def test_a_circle_is_told_once(tmp_path: Path) -> None:
    text = """[steps.start]
prompt = "x"
[steps.a]
prompt = "{{steps.c.result}} {{steps.start.result}}"
[steps.b]
when = "steps.a.state == 'done'"
prompt = "x"
[steps.c]
needs = ["b"]
prompt = "x"
[steps.alone]
needs = ["alone", "c"]
prompt = "x"
"""
    assert mistakes(tmp_path, text) == [
        "line 3: steps.a: waits for itself: a needs c needs b needs a",
        "line 11: steps.alone: waits for itself: alone needs alone",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nobody": "1"}, "has no input nobody - there are: directory, limit, careful, files"),
        ({"limit": "many"}, "--input limit=many is not valid - give JSON: number"),
        ({"careful": "1"}, "--input careful=1 is not valid - give true or false"),
        ({"files": "a"}, "--input files=a is not valid - give a list as JSON"),
    ],
)
def test_wrong_inputs_are_told(tmp_path: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, GOOD, **given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"#" * 1_000_001),
        lambda path: None,
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "x.toml"
    make(path)
    with pytest.raises(UsageError) as caught:
        read_pipeline(path)
    assert "name a file of steps" in str(caught.value)


@pytest.mark.spec("SCALE-5")
def test_the_example_in_the_topic_can_run(tmp_path: Path) -> None:
    (example,) = blocks("toml", "tested as a pipeline")
    (tmp_path / "p.toml").write_text(example)
    assert [step.name for step in read_pipeline(tmp_path / "p.toml").steps] == ["find", "change"]


def test_optional_and_open_schemas_leave_open_what_they_do(tmp_path: Path) -> None:
    text = """[steps.a]
prompt = "x"
[steps.a.schema]
type = "object"
properties.any = {}
properties.either = { anyOf = [{ type = "null" }, { type = "array", items = { type = "object" } }] }
properties.tree = { "$ref" = "#" }
additionalProperties = { type = "array" }
[steps.b]
for_each = "steps.a.result.either"
prompt = "{{item.what.ever}} {{steps.a.result.any.thing[0]}} {{steps.a.result.tree.tree.any}}"
[steps.c]
for_each = "steps.a.result.other"
prompt = "{{item}}"
[steps.d]
for_each = ["x", { path = "y" }]
prompt = "{{item.path}}"
"""
    assert len(read(tmp_path, text).steps) == 4
