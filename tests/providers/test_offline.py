"""The built-in assistant understands a few requests and never claims to be more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.stream import TextDelta
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.providers._registry import create, provider_config
from agentcli.providers.offline import understand
from tests.providers.streams import fold, request

NAMES = ("read_file", "list_directory", "grep_files", "bash", "edit_file", "write_file")
TOOLS = tuple(ToolDefinition(n, n, n, {"type": "object"}, Asks.NOTHING, "files") for n in NAMES)


def reply_to(messages: Any, tools: tuple[ToolDefinition, ...] = TOOLS) -> AssistantMessage:
    provider = create(provider_config("offline", {}, {}))

    async def run() -> AssistantMessage | None:
        stream = provider.stream(request(messages, tools=tools), CancelToken())
        return fold([event async for event in stream])

    message = asyncio.run(run())
    assert message is not None
    return message


def edit(path: str, old: str, new: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "edit_file", {"path": path, "old_string": old, "new_string": new, **more}


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read README.md", ("read_file", {"path": "README.md"})),
        ("Please read the file src/app.py.", ("read_file", {"path": "src/app.py"})),
        ("can you show me pyproject.toml?", ("read_file", {"path": "pyproject.toml"})),
        ("cat 'my file.txt'", ("read_file", {"path": "my file.txt"})),
        ("list files", ("list_directory", {})),
        ("ls", ("list_directory", {})),
        ("List all the files in src please", ("list_directory", {"path": "src"})),
        ("list files in the src directory", ("list_directory", {"path": "src"})),
        ("list directory src", ("list_directory", {"path": "src"})),
        ("what's in src?", ("list_directory", {"path": "src"})),
        ("search for TODO", ("grep_files", {"pattern": "TODO"})),
        ("search for f(x) in lib/", ("grep_files", {"pattern": r"f\(x\)", "path": "lib/"})),
        ('grep "in the end" in a.txt', ("grep_files", {"pattern": "in the end", "path": "a.txt"})),
        ("run ls -la | head", ("bash", {"command": "ls -la | head"})),
        ("run: `ls -q`", ("bash", {"command": "ls -q"})),
        ("Run the command echo please", ("bash", {"command": "echo please"})),
        ("edit a.py: replace foo with bar", edit("a.py", "foo", "bar")),
        ("edit the file a.py: replace all foo with bar", edit("a.py", "foo", "bar",
                                                               replace_all=True)),
        ("Edit a.py: replace `x with y` with 'z'.", edit("a.py", "x with y", "z")),
        ("replace x with y in a.txt", edit("a.txt", "x", "y")),
        ("in a.txt replace x with y", edit("a.txt", "x", "y")),
        ("write notes.txt: Hello, world", write("notes.txt", "Hello, world")),
        ("create notes.txt: one\ntwo", write("notes.txt", "one\ntwo")),
        ("create a file named x.txt with hello", write("x.txt", "hello")),
        ("Write the file x.md with content # Title", write("x.md", "# Title")),
        ("create a file notes.txt with hello in it", write("notes.txt", "hello")),
        ("write notes.txt with 'hello there' inside.", write("notes.txt", "hello there")),
        ("create a file with hello in it", write("file", "hello")),
        ("write notes.txt: what is in it", write("notes.txt", "what is in it")),
        ("run A=1 ls", ("bash", {"command": "A=1 ls"})),
        ("run ./there/is/none", ("bash", {"command": "./there/is/none"})),
        ("run the tests", None),
        ("please run nosuchprogram-x --all", None),
        ("hello", None),
        ("help", None),
        ("write a poem about rivers", None),
        ("show me the weather", None),
        ("", None),
    ],
)  # fmt: skip
def test_requests_are_understood(text: str, expected: Any) -> None:
    assert understand(text) == expected


def test_a_request_becomes_a_call_of_the_real_tool() -> None:
    [call] = reply_to("read README.md").tool_calls
    assert (call.name, call.arguments) == ("read_file", {"path": "README.md"})


def test_anything_else_says_what_it_is_and_how_to_get_a_model() -> None:
    message = reply_to("What is the meaning of life?")
    assert "not a language model" in message.text
    for needed in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ollama", "read FILE", "edit FILE"):
        assert needed in message.text
    assert message.usage == Usage(0, 0, 0, 0, 0)


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("run the tests", "run COMMAND"),
        ("Could you explain src/app.py to me?", "read src/app.py"),
        ("refactor a.py", "edit a.py: replace OLD with NEW"),
        ("where is main defined", "search for TEXT [in DIR]"),
        ("tell me a joke", "read FILE"),
    ],
)
def test_what_is_not_understood_is_named_with_the_nearest_form(asked: str, nearest: str) -> None:
    first = reply_to(asked)
    assert f'I did not understand "{asked}"' in first.text
    assert f"nearest form: `{nearest}`" in first.text
    again = reply_to([user_text(asked), first, user_text(f"{asked} now")])
    assert f'I did not understand "{asked} now"' in again.text
    assert f"nearest form: `{nearest}`" in again.text
    assert "\n" not in again.text  # what it is was said, and how to get a model
    helped = reply_to([user_text(asked), first, user_text("help")])
    assert "- edit FILE: replace OLD with NEW" in helped.text


def test_a_word_that_is_no_program_is_not_run() -> None:
    message = reply_to("run the tests")
    assert not message.tool_calls
    assert 'There is no program "the"' in message.text


def test_the_text_comes_in_small_pieces() -> None:
    provider = create(provider_config("offline", {}, {}))

    async def run() -> list[Any]:
        return [event async for event in provider.stream(request("hi"), CancelToken())]

    pieces = [event for event in asyncio.run(run()) if isinstance(event, TextDelta)]
    assert len(pieces) > 20


@pytest.mark.parametrize(
    ("status", "word"), [(ResultStatus.OK, "done"), (ResultStatus.REFUSED, "failed")]
)
def test_a_result_is_summed_up_briefly(status: ResultStatus, word: str) -> None:
    call = ToolCall("c1", "bash", {"command": "seq 100"})
    text = "\n".join(map(str, range(100)))
    history = [
        user_text("run seq 100"),
        AssistantMessage((call,), "offline", "assistant"),
        ToolResult("c1", "bash", (TextPart(text),), status),
    ]
    message = reply_to(history)
    assert not message.tool_calls
    assert "seq 100" in message.text
    assert word in message.text
    assert "80 more lines" in message.text


def test_a_tool_that_is_switched_off_is_not_called() -> None:
    message = reply_to("run ls", tools=())
    assert not message.tool_calls
    assert "not available" in message.text


def test_a_set_token_stops_it() -> None:
    provider = create(provider_config("offline", {}, {}))
    token = CancelToken()
    token.cancel()

    async def run() -> list[Any]:
        return [event async for event in provider.stream(request("hi"), token)]

    assert asyncio.run(run()) == []


@pytest.mark.spec("CTRL-7")
def test_what_the_program_remarks_is_not_taken_for_a_request() -> None:
    note = user_text("(Plan mode: read and search; change nothing.)")
    asked = user_text("read README.md")
    [call] = reply_to([asked, note]).tool_calls
    assert call.name == "read_file"
    shell = UserMessage((*asked.parts, TextPart("(The user ran this command: ls\nIt printed:\nx)")))
    assert reply_to([shell]).tool_calls
    history = [
        asked,
        AssistantMessage((call,), "offline", "assistant"),
        ToolResult(call.id, "read_file", (TextPart("1 # agentcli"),)),
    ]
    assert reply_to([*history, note]).text == reply_to(history).text
    assert "not a language model" in reply_to([note]).text


@pytest.mark.spec("UI-13")
def test_what_a_refusal_tells_a_model_is_not_told_to_the_user() -> None:
    call = ToolCall("c1", "write_file", {"path": "x.txt"})
    text = TextPart("write_file was not run: refused (it changes files). Do not try again.")
    history = [
        user_text("write x.txt: hello"),
        AssistantMessage((call,), "offline", "assistant"),
        ToolResult("c1", "write_file", (text,), ResultStatus.REFUSED),
    ]
    assert reply_to(history).text == "write_file (x.txt) was refused: nothing was done."
