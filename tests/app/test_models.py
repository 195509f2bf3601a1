"""Which model answers: local windows, fallback models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from agentcli.app.models import fallbacks, model_info
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.events import AgentEvent, Failed, ModelFellBack, Notice, Outcome, Prompt
from agentcli.domain.messages import user_text
from tests.support.cli import agent_env
from tests.support.databases import opened
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer, Recorded
from tests.support.replies import Reply, fails
from tests.support.sessions import in_session

QWEN = {"model_info": {"qwen3.context_length": 40960}, "parameters": ""}


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not look like a server that says nothing."""
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", 5.0)
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", 1.0)


def settings_for(**env: str) -> Settings:
    merged = {**agent_env(), **env}
    return load_settings(Paths.from_env(merged), merged)


async def look(session: Session) -> tuple[int, list[str]]:
    return session.model.context_tokens, list(session.notices)


@pytest.mark.spec("CTX-3")
def test_a_small_window_of_ollama_is_used_and_warned_about(tmp_path: Path) -> None:
    with ModelServer() as server:
        server.routes["POST", "/api/show"] = (200, {**QWEN, "parameters": "num_ctx 4096"})
        settings = settings_for(OLLAMA_HOST=server.url)
        options = SessionOptions(tmp_path, model="ollama/qwen3")
        window, notices = in_session(settings, options, look)
    assert window == 4096
    assert len([line for line in notices if "4,096 tokens" in line and "num_ctx" in line]) == 1


@pytest.mark.spec("CTX-3")
def test_the_persons_own_figure_wins_and_nobody_is_asked(tmp_path: Path) -> None:
    paths = Paths.from_env(agent_env())
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text('[models."ollama/qwen3"]\ncontext_tokens = 5000\n')
    with ModelServer() as server:
        settings = settings_for(OLLAMA_HOST=server.url)
        window, notices = in_session(settings, SessionOptions(tmp_path, model="ollama/qwen3"), look)
        assert not server.others
    assert (window, notices) == (5000, [])


@pytest.mark.spec("CTX-3", "CLI-10")
def test_a_server_that_was_found_is_asked_as_well(tmp_path: Path) -> None:
    with ModelServer(models=["m"]) as server:
        props = {"default_generation_settings": {"n_ctx": 8192}}
        server.routes["GET", "/props"] = (200, props)
        settings = settings_for(LLAMACPP_BASE_URL=server.openai_url)
        window, notices = in_session(settings, SessionOptions(tmp_path), look)
    assert window == 8192
    assert any("llamacpp/m" in line and "answers" in line for line in notices)
    assert any("8,192 tokens" in line for line in notices)


@pytest.mark.spec("CTX-3")
def test_a_window_is_asked_for_once_a_day_for_each_model_and_address(tmp_path: Path) -> None:
    paths = Paths.from_env(agent_env())

    def window(server: ModelServer, name: str = "a") -> tuple[int, int]:
        before = len(server.others)
        settings = settings_for(VLLM_BASE_URL=server.openai_url)
        found, _ = in_session(settings, SessionOptions(tmp_path, model=f"vllm/{name}"), look)
        return found, len(server.others) - before

    def serve(server: ModelServer, tokens: int) -> None:
        rows = [{"id": name, "max_model_len": tokens} for name in "ab"]
        server.routes["GET", "/v1/models"] = (200, {"data": rows})

    with ModelServer() as server, ModelServer() as other:
        serve(server, 50_000)
        serve(other, 60_000)
        assert [window(server) for _ in range(3)] == [(50_000, 1), (50_000, 0), (50_000, 0)]
        assert [window(server, "b") for _ in range(2)] == [(50_000, 1), (50_000, 0)]
        assert [window(other) for _ in range(2)] == [(60_000, 1), (60_000, 0)]
        serve(server, 70_000)
        assert window(server) == (50_000, 0)
        kept = paths.windows_file.read_text()
        assert "127.0.0.1" not in kept and paths.windows_file.stat().st_mode & 0o777 == 0o600
        rows = json.loads(kept)
        yesterday = {key: [row[0] - 24 * 3600, *row[1:]] for key, row in rows.items()}
        tomorrow = {key: [row[0] + 24 * 3600, *row[1:]] for key, row in rows.items()}
        odd = [{key: row for key in rows} for row in (3, [], [0.0, 50_000, 99], [None] * 3, {})]
        small = {key: [row[0], 4, 0] for key, row in rows.items()}
        huge = {key: [row[0], 10**30, 0] for key, row in rows.items()}
        for value in (yesterday, tomorrow, small, huge, *odd, [], 7, "[" * 9_000, "x" * 30_000):
            text = value if isinstance(value, str) else json.dumps(value)
            paths.windows_file.write_text(text)
            assert window(server) == (70_000, 1)
        serve(server, 8_000)  # too small: somebody is about to change it
        paths.windows_file.unlink()
        paths.windows_file.mkdir()
        assert [window(server) for _ in range(2)] == [(8_000, 1)] * 2
        serve(server, 80_000)
        assert [window(server) for _ in range(2)] == [(80_000, 1)] * 2  # it cannot be kept
        paths.windows_file.rmdir()
        assert [window(server) for _ in range(2)] == [(80_000, 1), (80_000, 0)]


@pytest.mark.spec("CTX-3")
def test_a_window_that_the_server_does_not_keep_to_is_asked_for_again(tmp_path: Path) -> None:
    with ModelServer() as server:
        row = {"id": "m", "max_model_len": 50_000}
        server.routes["GET", "/v1/models"] = (200, {"data": [row]})
        server.add(fails(413))

        async def talk(session: Session) -> None:
            await session.run(Prompt(user_text("a")))

        settings = settings_for(VLLM_BASE_URL=server.openai_url)
        options = SessionOptions(tmp_path, model="vllm/m")
        assert in_session(settings, options, look)[0] == 50_000
        row["max_model_len"] = 20_000
        in_session(settings, options, talk)
        assert in_session(settings, options, look)[0] == 20_000


@pytest.mark.spec("CTX-3")
def test_a_model_that_is_loaded_by_the_first_reply_shows_its_window_then(tmp_path: Path) -> None:
    heard: list[AgentEvent] = []

    with ModelServer() as server:
        server.routes["POST", "/api/show"] = (200, QWEN)
        server.routes["GET", "/api/ps"] = (200, {"models": []})

        def load(_: Recorded) -> str:
            running = {"name": "qwen3:latest", "context_length": 4096}
            server.routes["GET", "/api/ps"] = (200, {"models": [running]})
            return "hello"

        server.add(load, "again")

        async def talk(session: Session) -> tuple[int, int]:
            before = session.model.context_tokens
            session.add_listener(heard.append)
            first = await session.run(Prompt(user_text("hi")))
            assert (first.outcome, first.text) == (Outcome.DONE, "hello")
            asked = len(server.others)
            await session.run(Prompt(user_text("more")))
            assert len(server.others) == asked  # it is known now
            return before, session.model.context_tokens

        settings = settings_for(OLLAMA_HOST=server.url)
        options = SessionOptions(tmp_path, model="ollama/qwen3")
        assert in_session(settings, options, talk) == (32_768, 4096)
        assert not server.violations
    notices = [event.text for event in heard if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "4,096 tokens" in notices[0]
    assert heard[-1].type == "done"


@pytest.mark.spec("CTX-3")
def test_a_server_that_tells_nothing_is_asked_once_more_and_then_left_alone(tmp_path: Path) -> None:
    with ModelServer(["one", "two", "three"]) as server:

        async def talk(session: Session) -> tuple[int, int]:
            for text in ("a", "b", "c"):
                await session.run(Prompt(user_text(text)))
            return session.model.context_tokens, len(server.others)

        settings = settings_for(VLLM_BASE_URL=server.openai_url)
        options = SessionOptions(tmp_path, model="vllm/unlisted")
        assert in_session(settings, options, talk) == (32_768, 2)


@pytest.mark.spec("STR-9", "CTX-3")
def test_a_local_server_that_says_nothing_is_named_with_its_address(tmp_path: Path) -> None:
    heard: list[AgentEvent] = []
    with ModelServer(default=Reply(status=200, body=b"")) as server:
        server.routes["POST", "/api/show"] = (200, QWEN)

        async def talk(session: Session) -> None:
            session.add_listener(heard.append)
            await session.run(Prompt(user_text("hi")))

        in_session(
            settings_for(OLLAMA_HOST=server.url),
            SessionOptions(tmp_path, model="ollama/qwen3"),
            talk,
        )
        address = f"ollama at 127.0.0.1:{server.port} "
    failed = heard[-1]
    assert isinstance(failed, Failed)
    assert failed.error.message.startswith(address)


@pytest.mark.spec("CTX-3")
def test_a_model_that_is_switched_to_learns_its_window_too(tmp_path: Path) -> None:
    with ModelServer(["hi"]) as server:
        server.routes["GET", "/v1/models"] = (200, {"data": [{"id": "m", "max_model_len": 9000}]})

        async def talk(session: Session) -> int:
            await session.switch_model("vllm/m")
            await session.run(Prompt(user_text("a")))
            return session.model.context_tokens

        settings = settings_for(VLLM_BASE_URL=server.openai_url)
        assert in_session(settings, SessionOptions(tmp_path, model="offline"), talk) == 9000


@pytest.mark.spec("CTX-3", "SEC-12")
def test_a_service_elsewhere_is_not_asked_about_windows(tmp_path: Path) -> None:
    with ModelServer(["hi"]) as server:
        settings = load_settings(Paths.from_env(agent_env()), agent_env(server, OPENAI))

        async def talk(session: Session) -> None:
            await session.run(Prompt(user_text("a")))

        in_session(settings, SessionOptions(tmp_path), talk)
        assert not server.others


@pytest.mark.spec("CTX-3")
def test_a_configured_output_limit_counts_for_a_model_that_nobody_knows() -> None:
    merged = agent_env()
    settings = load_settings(Paths.from_env(merged), merged, {"max_output_tokens": 50_000})
    assert model_info(settings, "openai", "not-yet-known").max_output_tokens == 50_000
    assert model_info(settings, "openai", "gpt-4.1").max_output_tokens == 32_768


# --- fallback models -----------------------------------------------------------------------


def with_fallbacks(*names: str, **env: str) -> Settings:
    merged = {**agent_env(), **env}
    return load_settings(Paths.from_env(merged), merged, {"fallback_models": list(names)})


def test_fallback_models_are_resolved_once_each_and_without_the_present_one() -> None:
    settings = with_fallbacks(
        "gpt-4.1", "openai/gpt-4.1", "claude-sonnet-4-5", "ollama/q", OPENAI_API_KEY="k"
    )
    present = model_info(settings, "anthropic", "claude-sonnet-4-5")
    assert fallbacks(settings, present) == (("openai/gpt-4.1", "ollama/q"), ())


def test_a_fallback_model_that_means_nothing_is_one_line() -> None:
    settings = with_fallbacks("nonsense/x")
    with pytest.raises(ConfigError) as caught:
        fallbacks(settings, model_info(settings, "offline", "assistant"))
    assert str(caught.value).startswith("--fallback-model: there is no provider 'nonsense'")


def test_a_fallback_model_without_a_key_is_a_warning() -> None:
    settings = with_fallbacks("mistral/mistral-large-latest")
    ids, warnings = fallbacks(settings, model_info(settings, "offline", "assistant"))
    assert ids == ("mistral/mistral-large-latest",)
    (warning,) = warnings
    assert warning.startswith("warning: the fallback model mistral/mistral-large-latest cannot be")
    assert warning.endswith("MISTRAL_API_KEY is not set")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcli.app import compose
    from agentcli.engine.parts import SessionParts
    from agentcli.engine.sample import RetryPolicy

    without_waits = partial(SessionParts, retry=RetryPolicy(max_retries=0))
    monkeypatch.setattr(compose, "SessionParts", without_waits)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_the_fallback_model_answers_when_the_first_stays_overloaded(tmp_path: Path) -> None:
    heard: list[AgentEvent] = []
    with (
        ModelServer(default=fails(529)) as first,
        ModelServer(["from the other"]) as second,
    ):
        settings = with_fallbacks(
            "openai/gpt-4.1",
            ANTHROPIC_API_KEY="k",
            ANTHROPIC_BASE_URL=first.url,
            OPENAI_API_KEY="k",
            OPENAI_BASE_URL=second.openai_url,
            AGENTCLI_MODEL="anthropic/claude-sonnet-4-5",
        )

        async def talk(session: Session) -> str:
            session.add_listener(heard.append)
            return (await session.run(Prompt(user_text("hi")))).text

        assert in_session(settings, SessionOptions(tmp_path), talk) == "from the other"
    fell = [event for event in heard if isinstance(event, ModelFellBack)]
    assert [(event.old, event.new) for event in fell] == [
        ("anthropic/claude-sonnet-4-5", "openai/gpt-4.1")
    ]


@pytest.mark.spec("STR-3")
def test_a_server_of_ones_own_is_waited_for_longer_and_settings_win(tmp_path: Path) -> None:
    text = """
    [providers.mine]
    kind = "openai"
    base_url = "http://192.168.0.9:8000/v1"
    idle_timeout_s = 40
    [providers.far]
    kind = "openai"
    base_url = "https://far.example/v1"
    max_attempts = 2
    [models."mine/slow"]
    first_token_timeout_s = 1800
    max_attempts = 1
    """
    paths = Paths.from_env({"HOME": str(tmp_path)})
    paths.config_dir.mkdir(parents=True)
    paths.config_file.write_text(text)
    settings = load_settings(paths, {"ANTHROPIC_BASE_URL": "http://localhost:4000"})

    def waits(provider: str, name: str) -> tuple[float | None, float | None, int | None]:
        info = model_info(settings, provider, name)
        return info.first_token_timeout_s, info.idle_timeout_s, info.max_attempts

    assert waits("mine", "slow") == (1800, 40, 1)
    assert waits("mine", "other") == (600, 40, None)
    assert waits("far", "x") == (None, None, 2)
    assert waits("anthropic", "claude-sonnet-4-5") == (600, None, None)
    assert waits("openai", "gpt-4.1") == (None, None, None)
    assert waits("ollama", "qwen3") == (600, None, None)


@pytest.mark.spec("EXT-7", "COST-1", "CMP-4")
@pytest.mark.parametrize("works", [True, False])
def test_the_small_model_writes_summaries_and_the_main_one_where_it_fails(
    tmp_path: Path, works: bool
) -> None:
    heard: list[AgentEvent] = []
    long = "word " * 2_000
    with ModelServer([long, long, long]) as server, ModelServer() as small:
        small.add("SMALL SUMMARY") if works else small.add(fails(403))
        server.add("MAIN SUMMARY", "after")

        async def talk(session: Session) -> str:
            session.add_listener(heard.append)
            for text in ("one", "two", "three"):
                await session.run(Prompt(user_text(text)))
            assert await session.compact() is not None
            if not works:
                server.add("SECOND SUMMARY")
            await session.run(Prompt(user_text("go on")))
            return "".join(
                getattr(part, "text", "") for m in session.history.messages for part in m.parts
            )

        env = agent_env(server, ANTHROPIC, OPENAI_BASE_URL=small.openai_url)
        paths = Paths.from_env(env)
        paths.config_file.parent.mkdir(parents=True, exist_ok=True)
        paths.config_file.write_text('small_model = "openai/gpt-4.1-mini"\n')
        text = in_session(load_settings(paths, env), SessionOptions(tmp_path), talk)
        assert not server.violations
        assert not small.violations
    notices = [event.text for event in heard if isinstance(event, Notice)]
    (file,) = paths.sessions_dir.glob("*.db")
    with opened(file) as db:
        rows = db.execute("SELECT model, kind FROM usage WHERE kind = 'compaction'").fetchall()
    if works:
        assert "SMALL SUMMARY" in text
        assert rows == [("openai/gpt-4.1-mini", "compaction")]
        assert notices == []
    else:
        assert "MAIN SUMMARY" in text
        assert [model.partition("/")[0] for model, _ in rows] == ["anthropic"]
        assert len([line for line in notices if "small model" in line]) == 1
