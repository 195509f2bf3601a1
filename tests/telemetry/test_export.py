"""The real program and a collector on the loopback interface: what arrives, and what must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text, calls, fails
from tests.test_import_budget import modules

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is missing")
from tests.support.collector import CollectedSpan, Collector

TOKEN = "k3y-9fA7xQz81LmPq02RtVb"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
YOLO = ("--permission-mode", "yolo")


def work() -> list[Any]:
    """A turn with a retry, a command, a sub-agent that fails to read, and an answer."""
    return [
        fails(529, retry_after="0"),
        Reply(
            (Text("I look."), Call("bash", {"command": "echo [$OTEL_EXPORTER_OTLP_HEADERS]"}, "c1"))
        ),
        calls(Call("task", {"description": "d", "prompt": "canary-sub"}, "t1")),
        calls(Call("read_file", {"path": "canary-path.txt"}, "s1")),
        "canary-report",
        "canary-answer",
    ]


def one(spans: list[CollectedSpan], name: str) -> CollectedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


@pytest.mark.slow
@pytest.mark.spec("SCALE-7")
def test_a_run_arrives_as_a_tree_without_any_content(tmp_path: Path) -> None:
    with ModelServer(work()) as server, Collector() as collector:
        env = agent_env(
            server,
            OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{TOKEN}",
            TRACEPARENT=PARENT,
            **collector.env(),
        )
        done = run_agent("run", "canary-prompt", *YOLO, env=env, cwd=tmp_path)
        results = str(server.requests[2].body["messages"])
    assert done.code == 0 and "canary-answer" in done.stdout, done.stderr
    assert collector.headers[0]["authorization"] == f"Bearer {TOKEN}"
    assert "[]" in results  # no command sees the collector's key
    assert b"canary" not in collector.raw and str(tmp_path).encode() not in collector.raw

    spans = collector.spans()
    turn, sub = one(spans, "invoke_agent agentcli"), one(spans, "invoke_agent task")
    assert (turn.trace, turn.parent) == (PARENT[3:35], PARENT[36:52])
    bash, task = one(spans, "execute_tool bash"), one(spans, "execute_tool task")
    read = one(spans, "execute_tool read_file")
    requests = [span for span in spans if span.name == "chat claude-sonnet-4-5"]
    first, second, *of_sub, last = requests
    assert [span.parent for span in (first, second, last)] == [turn.id] * 3
    assert [span.parent for span in of_sub] == [sub.id] * 2
    assert (bash.parent, task.parent, sub.parent) == (first.id, second.id, task.id)
    assert read.parent == of_sub[0].id and read.error == "tool_error"
    assert len(spans) == 10 and {span.trace for span in spans} == {turn.trace}

    assert first.events == ("agentcli.retry",) and first.error is None
    about = {key.removeprefix("gen_ai."): value for key, value in first.attributes.items()}
    assert about["provider.name"] == "anthropic" and about["operation.name"] == "chat"
    assert about["response.model"] == about["request.model"] == "claude-sonnet-4-5"
    assert about["response.finish_reasons"] == ["tool_call"]
    assert (about["usage.input_tokens"], about["usage.output_tokens"]) == (100, 20)
    assert about["agentcli.request.attempts"] == 2
    whole = turn.attributes
    assert whole["gen_ai.conversation.id"] != sub.attributes["gen_ai.conversation.id"]
    assert (
        whole["gen_ai.usage.input_tokens"] == 500 and whole["gen_ai.provider.name"] == "anthropic"
    )
    assert whole["agentcli.turn.outcome"] == "done" and turn.error is None
    assert collector.resource()["service.name"] == "agentcli"

    points = collector.points()
    tokens = {more["gen_ai.token.type"]: count for name, count, more in points if "token" in name}
    assert tokens == {"input": 500, "output": 100}
    assert {name for name, *_ in points} >= {"gen_ai.client.operation.duration"}
    cost = [count for name, count, _ in points if name == "agentcli.cost.usage"]
    assert cost == [whole["agentcli.cost_usd"]] and cost[0] > 0


@pytest.mark.spec("SCALE-7")
@pytest.mark.spec("SEC-9")
def test_content_is_a_switch_of_its_own_and_has_no_keys(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(f"the key is {TOKEN}\n")
    script = [calls(Call("read_file", {"path": "key.txt"}, "r1")), "said-in-answer"]
    with ModelServer(script) as server, Collector() as collector:
        env = agent_env(server, SOME_API_KEY=TOKEN, **collector.env())
        env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
        done = run_agent("run", "said-by-user", env=env, cwd=tmp_path)
        assert TOKEN in str(server.requests[1].body)
    assert done.code == 0, done.stderr
    assert TOKEN.encode() not in collector.raw
    spans = collector.spans()
    turn, read = (
        one(spans, "invoke_agent agentcli").attributes,
        one(spans, "execute_tool read_file"),
    )
    assert "said-by-user" in turn["gen_ai.input.messages"]
    assert "said-in-answer" in turn["gen_ai.output.messages"]
    assert read.attributes["gen_ai.tool.call.arguments"] == '{"path": "key.txt"}'
    assert "the key is [redacted]" in read.attributes["gen_ai.tool.call.result"]
    chat = [span.attributes for span in spans if span.name.startswith("chat")]
    assert "said-by-user" in chat[0]["gen_ai.input.messages"]
    assert '"tool_call"' in chat[0]["gen_ai.output.messages"]
    assert '"tool_call_response"' in chat[1]["gen_ai.input.messages"]
    assert "said-by-user" not in chat[1]["gen_ai.input.messages"]  # what is new since


@pytest.mark.slow
@pytest.mark.spec("SCALE-7")
def test_a_collector_that_never_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with ModelServer(["the answer"]) as server, Collector(silent=True) as collector:
        env = agent_env(server, **{**collector.env(), "OTEL_BSP_EXPORT_TIMEOUT": "300"})
        done = run_agent("run", "hi", env=env, cwd=tmp_path, timeout=25)
    # it has ended while the collector, which would have taken a minute, was still silent
    assert (done.code, done.stdout.strip(), done.stderr.strip()) == (0, "the answer", "")
    assert not collector.bodies


@pytest.mark.spec("SCALE-7")
@pytest.mark.spec("SEC-12")
def test_without_the_switch_nothing_is_imported_or_sent(tmp_path: Path) -> None:
    project = tmp_path / ".agentcli"
    project.mkdir()
    (project / "config.toml").write_text("telemetry = true\ntelemetry_content = true\n")
    with ModelServer(["hello"]) as server, Collector() as collector:
        env = agent_env(server, **{**collector.env(), "AGENTCLI_ENABLE_TELEMETRY": None})
        found = modules(tmp_path, "end", "run", "hi", env=env)
        assert len(server.requests) == 1 and not collector.reached.is_set()
    assert not {name for name in found if name.startswith(("opentelemetry", "agentcli.telemetry"))}


@pytest.mark.slow
@pytest.mark.spec("SCALE-7")
def test_switched_on_it_is_imported_when_the_request_has_left(tmp_path: Path) -> None:
    with ModelServer(["hello"]) as server, Collector() as collector:
        env = agent_env(server, **collector.env())
        found = modules(tmp_path, "connect", "run", "hi", env=env)
        assert collector.spans()[0].name == "invoke_agent agentcli"
    assert "agentcli.telemetry.observer" in found
    assert not {name for name in found if name.startswith("opentelemetry.sdk")}


@pytest.mark.spec("SCALE-7")
def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shadow" / "opentelemetry").mkdir(parents=True)
    (tmp_path / "shadow" / "opentelemetry" / "__init__.py").touch()
    with ModelServer(["the answer"]) as server:
        env = agent_env(server, AGENTCLI_ENABLE_TELEMETRY="1", PYTHONPATH=str(tmp_path / "shadow"))
        cwd = tmp_path / "work"
        cwd.mkdir()
        done = run_agent("run", "hi", env=env, cwd=cwd)
    assert (done.code, done.stdout.strip()) == (0, "the answer")
    assert done.stderr.count("\n") == 1 and "pip install 'agentcli[otel]'" in done.stderr
