"""A program that talks to ``agent run --input-format stream-json``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cli import Finished, Running, agent_env
from tests.support.model_server import ModelServer

ARGS = ("run", "-o", "stream-json", "--input-format", "stream-json")


class Client(Running):
    """A run with a pipe to its stdin."""

    def __init__(
        self, server: ModelServer | None, work: Path, *args: str, **env: str | None
    ) -> None:
        super().__init__(
            *ARGS, *args, env=agent_env(server, **env), cwd=work, stdin=subprocess.PIPE
        )

    def send(self, *values: dict[str, Any] | str) -> None:
        """Objects, or lines as they are."""
        assert self.process.stdin is not None
        for value in values:
            line = value if isinstance(value, str) else json.dumps(value)
            self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def say(self, *texts: str) -> None:
        """Messages of the user."""
        self.send(*(message(text) for text in texts))

    def ask(self, subtype: str, **request: Any) -> dict[str, Any]:
        """A control request; its answer."""
        request_id = f"req_{subtype}_{len(self.events())}"
        self.send(control(request_id, subtype, **request))
        found = self.wait_for(
            lambda line: (
                line["type"] == "control_response" and line["response"]["request_id"] == request_id
            )
        )
        answer: dict[str, Any] = found["response"]
        return answer

    def results(self, count: int) -> list[dict[str, Any]]:
        """The first ``count`` results, as soon as they are there."""
        self.wait_for(lambda _: len([e for e in self.events() if e["type"] == "result"]) >= count)
        return [event for event in self.events() if event["type"] == "result"]

    def finish(self) -> Finished:
        """No more input; the end of the run."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()


def message(content: Any, **more: Any) -> dict[str, Any]:
    """A user message."""
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def control(request_id: str, subtype: str, **request: Any) -> dict[str, Any]:
    """A control request."""
    return {
        "type": "control_request",
        "request_id": request_id,
        "request": {"subtype": subtype, **request},
    }
