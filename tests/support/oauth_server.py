"""A server behind a login, and the one that grants it, on one loopback address.

It checks what a strict one checks: PKCE, the state of each code, the resource, the client; refresh
tokens are good once, and to use one twice ends the whole login, as RFC 9700 (4.14.2) asks for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import urlopen

from tests.support.json_server import HttpServer


class OAuthServer(HttpServer):
    """``metadata`` and ``resource`` are laid over what it says of itself; ``None`` takes out.

    ``answer`` changes the query that the browser is sent back with. ``lasts_s``: of tokens.
    """

    version = "HTTP/1.1"

    def __init__(self) -> None:
        super().__init__()
        self.metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.answer: dict[str, str | None] = {}
        self.lasts_s: float | None = 3600
        self.refreshes = True
        self.scope = ""
        self.asked: list[str] = []
        self.authorized: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.granted: list[dict[str, str]] = []
        self.tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.spent: set[str] = set()
        self.reused = 0
        self._codes: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()
        self.url = f"{self.origin}/mcp"

    async def browse(self, url: str) -> str:
        """What a browser does with a user who says yes."""
        import asyncio

        await asyncio.to_thread(lambda: urlopen(url, timeout=5).read())
        return ""

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(request.path)
        self.asked.append(f"{request.command} {parts.path}")
        with self._lock:
            status, headers, answer = self._answer(
                request, parts.path, dict(parse_qsl(parts.query)), body
            )
        data = json.dumps(answer).encode() if answer is not None else b""
        request.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _answer(
        self, request: BaseHTTPRequestHandler, path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], Any]:
        if path == "/.well-known/oauth-protected-resource/mcp":
            said = {"resource": self.url, "authorization_servers": [self.origin]}
            return 200, {}, _laid(said, self.resource)
        if path == "/.well-known/oauth-authorization-server":
            said = {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "registration_endpoint": f"{self.origin}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
            return 200, {}, _laid(said, self.metadata)
        if path == "/register":
            self.registered.append(json.loads(body))
            return 201, {}, {"client_id": f"client-{len(self.registered)}"}
        if path == "/authorize":
            return self._authorize(query)
        if path == "/token":
            return self._grant(dict(parse_qsl(body.decode())))
        if path == "/mcp":
            return self._mcp(request, body)
        return 404, {}, None

    def _authorize(self, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        self.authorized.append(query)
        code = secrets.token_hex(8)
        self._codes[code] = query
        said = {"code": code, "state": query["state"], "iss": self.origin}
        back = {k: v for k, v in {**said, **self.answer}.items() if v is not None}
        return 302, {"location": f"{query['redirect_uri']}?{urlencode(back)}"}, None

    def _grant(self, form: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        self.granted.append(form)
        bad = (400, {}, {"error": "invalid_grant", "error_description": "no"})
        if form.get("resource") != self.url:
            return 400, {}, {"error": "invalid_target"}
        if form["grant_type"] == "refresh_token":
            given = form["refresh_token"]
            if given in self.spent:
                self.reused += 1
                self.tokens.clear()
                self.refresh_tokens.clear()
            if given not in self.refresh_tokens:
                return bad
            self.refresh_tokens.discard(given)
            self.spent.add(given)
        else:
            asked = self._codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked is None or asked["code_challenge"] != challenge:
                return bad
            if (asked["redirect_uri"], asked["client_id"]) != (
                form["redirect_uri"],
                form["client_id"],
            ):
                return bad
        return 200, {"cache-control": "no-store"}, self.new_tokens()

    def new_tokens(self) -> dict[str, Any]:
        """An answer of the token's address, good from now on."""
        token, refresh = f"at-{secrets.token_hex(16)}", f"rt-{secrets.token_hex(16)}"
        self.tokens.add(token)
        said: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        if self.refreshes:
            self.refresh_tokens.add(refresh)
            said["refresh_token"] = refresh
        if self.lasts_s is not None:
            said["expires_in"] = self.lasts_s
        return said

    def _mcp(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], Any]:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            scope = f', scope="{self.scope}"' if self.scope else ""
            where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            return 401, {"www-authenticate": f'Bearer resource_metadata="{where}"{scope}'}, {}
        if not body:
            return 405, {}, None
        message = json.loads(body)
        number, method = message.get("id"), message.get("method")
        if number is None:
            return 202, {}, None
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "hi", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "behind the login"}]},
        }
        if method not in results:
            error = {"code": -32601, "message": "unknown"}
            return 200, {}, {"jsonrpc": "2.0", "id": number, "error": error}
        return 200, {}, {"jsonrpc": "2.0", "id": number, "result": results[method]}


def _laid(said: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**said, **over}.items() if value is not None}
