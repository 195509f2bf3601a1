# ruff: noqa: E402 - httpx has to be told to leave its command line out before it is imported
"""The floor: the least a program must do that answers one prompt and loses nothing.

asyncio, sqlite3 (WAL, synchronous=FULL) and httpx without its command line: commit the prompt,
send the request, parse the events, print the text, commit the answer. Usage: bare.py URL DB
"""

import sys

sys.modules["httpx._main"] = None  # type: ignore[assignment]

import asyncio
import json
import os
import sqlite3
import ssl

import httpx


async def main(url: str, path: str) -> None:
    authorities = os.environ.get("SSL_CERT_FILE")
    trusted = ssl.create_default_context(cafile=authorities) if authorities else False
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, role TEXT, body TEXT)")
    db.execute("INSERT INTO message (role, body) VALUES ('user', 'hi')")
    db.commit()
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
    parts: list[str] = []
    async with (
        httpx.AsyncClient(verify=trusted, trust_env=False, timeout=60) as client,
        client.stream("POST", url + "/v1/messages", json=body) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                event = json.loads(line[5:])
                if event["type"] == "content_block_delta":
                    text = event["delta"].get("text", "")
                    parts.append(text)
                    sys.stdout.write(text)
                    sys.stdout.flush()
    db.execute("INSERT INTO message (role, body) VALUES ('assistant', ?)", ("".join(parts),))
    db.commit()
    db.close()


asyncio.run(main(sys.argv[1], sys.argv[2]))
