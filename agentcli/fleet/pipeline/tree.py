"""A pipeline as a tree: each step below the last of those that it waits for (SCALE-5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentcli.domain.clean import plural
from agentcli.fleet.pipeline.file import Step, StepPipeline
from agentcli.ui.sanitize import clean_line

_MAX_SHOWN = 60


def tree_lines(pipeline: StepPipeline) -> Iterator[str]:
    """The pipeline drawn, a line each, fit for a terminal."""
    yield f"{_cut(pipeline.name)}: {plural(len(pipeline.steps), 'step')}"
    if pipeline.description:
        yield f"  {clean_line(pipeline.description)}"
    for name, value in pipeline.inputs.items():
        yield f"  input {name} = {_cut(json.dumps(value, ensure_ascii=False))}"
    if pipeline.max_budget_usd is not None:
        yield f"  at most {pipeline.max_budget_usd:g} USD"
    below: dict[str, list[Step]] = {}
    for step in pipeline.steps:
        below.setdefault(_parent(pipeline, step), []).append(step)

    todo: list[tuple[Step, str, bool, bool]] = [
        (step, "", False, True) for step in reversed(below.get("", ()))
    ]
    while todo:
        step, indent, is_last, is_root = todo.pop()
        mark = "" if is_root else ("└─ " if is_last else "├─ ")
        facts = "; ".join(_facts(step, _parent(pipeline, step)))
        yield f"{indent}{mark}{step.name}" + (f"  ({facts})" if facts else "")
        inner = indent if is_root else indent + ("   " if is_last else "│  ")
        children = below.get(step.name, [])
        last = len(children) - 1
        todo += [
            (child, inner, place == last, False)
            for place, child in reversed([*enumerate(children)])
        ]


def as_json(pipeline: StepPipeline) -> Mapping[str, Any]:
    """The same as data, the steps in an order in which they can run."""
    return {
        "name": pipeline.name,
        "description": pipeline.description,
        "inputs": pipeline.inputs,
        "max_budget_usd": pipeline.max_budget_usd,
        "steps": [
            {
                "name": step.name,
                "line": step.line,
                **step.definition,
                "needs": list(step.needs),
            }
            for step in pipeline.steps
        ],
    }


def _parent(pipeline: StepPipeline, step: Step) -> str:
    return next((other.name for other in reversed(pipeline.steps) if other.name in step.needs), "")


def _facts(step: Step, parent: str) -> Iterator[str]:
    """What is worth knowing of a step before it runs."""
    run, said = step.settings, step.definition
    each = said.get("for_each")
    values = f"{len(each)} values" if isinstance(each, list) else each
    retries = "1 retry" if run.retry == 1 else f"{run.retry} retries"
    for fact, value in (
        ("also after {}", ", ".join(name for name in step.needs if name != parent)),
        ("for each of {}", values),
        ("if {}", said.get("when")),
        ("agent {}", run.agent),
        ("{}", run.model),
        ("{}", run.permission_mode),
        ("allows {}", ", ".join(run.allow_tools)),
        ("in {}", said.get("cwd")),
        ("own worktree", run.worktree),
        ("{}", run.retry and retries),
        ("at most {} s", run.timeout_s and f"{run.timeout_s:g}"),
        ("at most {} USD", run.max_budget_usd and f"{run.max_budget_usd:g}"),
        ("gives {}", _result_fields(step.schema)),
    ):
        if value or (value is False and fact == "if {}"):
            yield fact.format(_cut(str(value)))


def _result_fields(schema: Any) -> str:
    named = schema.get("properties") if isinstance(schema, dict) else None
    return ", ".join(named) if isinstance(named, dict) else ""


def _cut(text: str) -> str:
    line = clean_line(text)
    return line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…"
