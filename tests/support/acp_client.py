"""An editor that talks to ``agent acp``: lines of JSON, sent and read as they are."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cli import Running, agent_env
from tests.support.model_server import ModelServer

Message = dict[str, Any]


class Editor(Running):
    """A client over pipes. It has initialized the connection, unless ``capabilities`` is ``None``."""

    def __init__(
        self,
        server: ModelServer | None,
        work: Path,
        *args: str,
        capabilities: Message | None = {},
        **env: str | None,
    ) -> None:
        super().__init__(
            "acp", *args, env=agent_env(server, **env), cwd=work, stdin=subprocess.PIPE
        )
        self.work = work
        self._last = 0
        self._answered: set[int] = set()
        if capabilities is not None:
            done = self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
            assert done["protocolVersion"] == 1

    # --- what is sent ----------------------------------------------------------------------------

    def line(self, data: bytes) -> None:
        """A line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def send(self, *messages: Message) -> None:
        """Messages in one write."""
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        self.line(b"\n".join(lines))

    def request(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    def reply(self, request: Message, result: Any) -> None:
        """Answer a request of the agent."""
        self.send({"id": request["id"], "result": result})

    # --- what comes ------------------------------------------------------------------------------

    def response(self, number: int | str) -> Message:
        """The answer to a request, an error or not."""
        return self.wait_for(lambda line: line.get("id") == number and "method" not in line)

    def call(self, method: str, **params: Any) -> Any:
        """Send a request and wait; the result."""
        answer = self.response(self.request(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, **params: Any) -> Message:
        """Send a request that is refused; the error."""
        answer = self.response(self.request(method, **params))
        assert "error" in answer, answer
        error: Message = answer["error"]
        assert error["message"] and "\n" not in error["message"]
        return error

    def asked(self, method: str) -> Message:
        """The next request of the agent that the test has not seen yet."""
        found = self.wait_for(
            lambda line: (
                line.get("method") == method and "id" in line and line["id"] not in self._answered
            )
        )
        self._answered.add(found["id"])
        return found

    def updates(self, kind: str = "", session_id: str = "") -> list[Message]:
        """What sessions have told so far."""
        told = [line["params"] for line in self.events() if line.get("method") == "session/update"]
        return [
            params["update"]
            for params in told
            if kind in {"", params["update"]["sessionUpdate"]}
            and session_id in {"", params["sessionId"]}
        ]

    def said(self, kind: str = "agent_message_chunk") -> str:
        """The text of all chunks."""
        return "".join(each["content"]["text"] for each in self.updates(kind))

    # --- sessions --------------------------------------------------------------------------------

    def new(self, **more: Any) -> str:
        """A new session; its id."""
        params = {"cwd": str(self.work), "mcpServers": [], **more}
        session_id: str = self.call("session/new", **params)["sessionId"]
        return session_id

    def ask(self, session_id: str, *blocks: str | Message) -> int:
        """Send a prompt; the id of its request."""
        prompt = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
        ]
        return self.request("session/prompt", sessionId=session_id, prompt=prompt)

    def prompt(self, session_id: str, *blocks: str | Message) -> str:
        """Send a prompt and wait; why it stopped."""
        answer = self.response(self.ask(session_id, *blocks))
        assert "result" in answer, answer
        reason: str = answer["result"]["stopReason"]
        return reason

    def choose(self, option: str) -> Message:
        """Answer the next permission request with the option of this id; the request."""
        request = self.asked("session/request_permission")
        assert option in [each["optionId"] for each in request["params"]["options"]], request
        self.reply(request, {"outcome": {"outcome": "selected", "optionId": option}})
        return request

    def leave(self) -> int:
        """Close stdin, as an editor that ends does; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait().code
