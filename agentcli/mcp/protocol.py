"""The two eras of the protocol as data: what is said to a server, what its answers mean (MCP-1).

https://modelcontextprotocol.io/specification/2025-11-25 begins with ``initialize``;
https://modelcontextprotocol.io/specification/2026-07-28 has no handshake: each request carries what
the client is in its ``_meta``. Laws: pure; lenient with what comes, as servers are; every text is
cleaned and bounded here, and nothing that a server says is longer or deeper afterwards (MCP-6).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from agentcli.domain.clean import as_object, clean_text, digest, one_line
from agentcli.domain.extensions.mcp import ServerPrompt, ServerResource, ServerTool
from agentcli.domain.images import judge
from agentcli.domain.messages import ImagePart, ResultPart, TextPart
from agentcli.domain.tools import PREFIX, OutputKind, ToolOutput
from agentcli.domain.values import frozen
from agentcli.mcp.servers import called

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY)
UNSUPPORTED_VERSION = -32022
MAX_TOOLS = 2_000
MAX_LISTED = 2_000
MAX_INSTRUCTIONS = 512
MAX_DESCRIPTION = 2_000
MAX_SCHEMA_CHARS = 30_000
MAX_IMAGES = 20
_MAX_NAME = 64
_MAX_TITLE = 120
_MAX_URI = 2_000
_MAX_ARGUMENTS = 20
_META = "io.modelcontextprotocol/"
_NOT_SHOWN = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[\\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
# RFC 9110 5.6.2: what the name of a header may be made of
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_PLAIN_HEADER = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_LOOKS_ENCODED = re.compile(r"=\?base64\?.*\?=")


@frozen
class Agreement:
    """What client and server have settled on. ``capabilities`` are the server's."""

    version: str
    capabilities: Mapping[str, Any]
    instructions: str = ""
    server: str = ""

    @property
    def is_modern(self) -> bool:
        """Whether it is of the era without a handshake."""
        return self.version not in LEGACY_VERSIONS

    def offers(self, what: str) -> bool:
        """Whether the server has ``tools``, ``resources`` or ``prompts``."""
        return isinstance(self.capabilities.get(what), dict)

    def tells_of(self, what: str) -> bool:
        """Whether it says so when the list of these changes."""
        return self.offers(what) and self.capabilities[what].get("listChanged") is True


@frozen
class ClientFacts:
    """What we say of ourselves. ``can_ask``: there is a user who can be asked."""

    version: str
    can_ask: bool = False

    @property
    def info(self) -> dict[str, Any]:
        """Name and version."""
        return {"name": "agentcli", "title": "agentcli", "version": self.version}

    @property
    def capabilities(self) -> dict[str, Any]:
        """Roots always; questions to the user where there is one; no sampling."""
        asks: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}} if self.can_ask else {}
        return {"roots": {}, **asks}

    def meta(self, version: str) -> dict[str, Any]:
        """What each request of the modern era carries."""
        return {
            f"{_META}protocolVersion": version,
            f"{_META}clientInfo": self.info,
            f"{_META}clientCapabilities": self.capabilities,
        }

    def hello(self) -> dict[str, Any]:
        """The parameters of ``initialize``."""
        return {
            "protocolVersion": LEGACY,
            "capabilities": self.capabilities,
            "clientInfo": self.info,
        }


def agreed_modern(answer: object) -> Agreement | None:
    """What ``server/discover`` has settled; ``None`` where that is nothing."""
    found = as_object(answer)
    versions = found.get("supportedVersions")
    if not isinstance(versions, list) or MODERN not in versions:
        return None
    meta = as_object(found.get("_meta"))
    return _agreement(MODERN, found, meta.get(f"{_META}serverInfo") or found.get("serverInfo"))


def agreed_legacy(answer: object) -> Agreement | None:
    """What ``initialize`` has settled; ``None`` for a version that is not known here."""
    found = as_object(answer)
    version = found.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        return None
    return _agreement(str(version), found, found.get("serverInfo"))


def _agreement(version: str, found: Mapping[str, Any], info: object) -> Agreement:
    told = as_object(info)
    name = f"{told.get('title') or told.get('name') or ''} {told.get('version') or ''}"
    return Agreement(
        version,
        as_object(found.get("capabilities")),
        clean(found.get("instructions"), MAX_INSTRUCTIONS),
        clean(name, _MAX_TITLE),
    )


def supported_by(data: object) -> tuple[str, ...]:
    """The versions that an error about the version names."""
    versions = as_object(data).get("supported")
    return tuple(map(str, versions)) if isinstance(versions, list) else ()


# --- texts -----------------------------------------------------------------------------------


def clean(text: object, limit: int) -> str:
    """One line of what a server said."""
    return one_line(plain(text, 4 * limit), limit)


def plain(text: object, limit: int | None = None) -> str:
    """A text of a server without escape sequences and characters that cannot be seen."""
    found = text if isinstance(text, str) else ""
    found = found if limit is None else found[:limit]
    # one after the other: each may be a copy of 64 MB
    found = clean_text(found)
    found = _NOT_SHOWN.sub("", found)
    found = found.replace("\r\n", "\n")
    return found.replace("\r", "\n")


def full_name(server: str, tool: str) -> str:
    """What a tool is called here, as every provider takes it."""
    name = f"{PREFIX}{called(server)}__{called(tool)}"
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME - 9]}_{digest(name, 8)}"


def _items(answer: object, key: str) -> Iterator[Mapping[str, Any]]:
    found = as_object(answer).get(key)
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


# --- what a server has -------------------------------------------------------------------------


def tools_in(
    server: str, pages: Sequence[object]
) -> tuple[tuple[ServerTool, ...], dict[str, HeaderRules]]:
    """The tools of a listing, and of those that want headers which (``header_rules``)."""
    found: dict[str, ServerTool] = {}
    rules: dict[str, HeaderRules] = {}
    names: set[str] = set()
    for item in (each for page in pages for each in _items(page, "tools")):
        name = item.get("name")
        if not isinstance(name, str) or not name or len(name) > 2 * _MAX_NAME:
            continue
        if plain(name) != name or not name.isprintable() or name in names:
            continue
        names.add(name)
        schema = item.get("inputSchema")
        wanted = header_rules(schema)
        if wanted is None:  # such a tool must not be offered: the server would refuse each call
            continue
        known = full_name(server, name)
        if known in found:
            known = f"{known[: _MAX_NAME - 9]}_{digest(name, 8)}"
        hints = as_object(item.get("annotations"))
        found[known] = ServerTool(
            server=server,
            name=name,
            full_name=known,
            description=clean(item.get("description"), MAX_DESCRIPTION),
            parameters=parameters(schema),
            title=clean(item.get("title") or hints.get("title"), _MAX_TITLE),
            reads=hints.get("readOnlyHint") is True,
            destroys=hints.get("destructiveHint") is True,
            idempotent=hints.get("idempotentHint") is True,
            open_world=hints.get("openWorldHint") is not False,
        )
        if wanted:
            rules[name] = wanted
        if len(found) >= MAX_TOOLS:
            break
    return tuple(found.values()), rules


ANY = {"type": "object"}


def parameters(schema: object) -> Mapping[str, Any]:
    """A schema as every provider takes it: an object at the root, bounded; else any object."""
    if not isinstance(schema, dict):
        return ANY
    root = dict(schema)
    for _ in range(_MAX_REFERENCES):
        if not isinstance(reference := root.get("$ref"), str):
            break
        target = _at(schema, reference)
        rest = {key: value for key, value in root.items() if key != "$ref"}
        root = {**as_object(target), **rest}
    if root.setdefault("type", "object") != "object" or "$ref" in root:
        return ANY
    if _NOT_AT_THE_ROOT & root.keys():
        root = {key: value for key, value in root.items() if key not in _NOT_AT_THE_ROOT}
    if not isinstance(root.get("required", []), list):
        del root["required"]
    try:
        text = json.dumps(root, ensure_ascii=False)
        fits = len(text) <= MAX_SCHEMA_CHARS and isinstance(root.get("properties", {}), dict)
        return as_object(json.loads(plain(text))) if fits else ANY
    except (ValueError, RecursionError):
        return ANY


_MAX_REFERENCES = 8
_NOT_AT_THE_ROOT = frozenset({"anyOf", "oneOf", "allOf", "enum", "not", "const", "$schema", "$id"})


def _at(schema: Mapping[str, Any], reference: str) -> object:
    """What a local ``$ref`` points to."""
    if not reference.startswith("#/") or len(reference) > _MAX_URI:
        return None
    node: object = schema
    for step in reference[2:].split("/"):
        node = as_object(node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def resources_in(server: str, pages: Sequence[object]) -> tuple[ServerResource, ...]:
    """The resources, and templates of such, of a listing."""
    found = []
    for key, where, is_template in (
        ("resources", "uri", False),
        ("resourceTemplates", "uriTemplate", True),
    ):
        for item in (each for page in pages for each in _items(page, key)):
            uri = item.get(where)
            if not isinstance(uri, str) or not uri or len(uri) > _MAX_URI or plain(uri) != uri:
                continue
            found.append(
                ServerResource(
                    server,
                    uri,
                    clean(item.get("title") or item.get("name"), _MAX_TITLE),
                    clean(item.get("description"), MAX_DESCRIPTION),
                    clean(item.get("mimeType"), _MAX_TITLE),
                    is_template,
                )
            )
    return tuple(found[:MAX_LISTED])


def prompts_in(server: str, pages: Sequence[object]) -> tuple[ServerPrompt, ...]:
    """The prompts of a listing."""
    found: dict[str, ServerPrompt] = {}
    for item in (each for page in pages for each in _items(page, "prompts")):
        name = item.get("name")
        if not isinstance(name, str) or not name or len(name) > 2 * _MAX_NAME:
            continue
        arguments = tuple(
            (
                clean(each.get("name"), _MAX_TITLE),
                clean(each.get("description"), MAX_DESCRIPTION),
                each.get("required") is True,
            )
            for each in islice(_items(item, "arguments"), _MAX_ARGUMENTS)
        )
        known = full_name(server, name)
        found.setdefault(
            known,
            ServerPrompt(
                server, name, known, clean(item.get("description"), MAX_DESCRIPTION), arguments
            ),
        )
        if len(found) >= MAX_LISTED:
            break
    return tuple(found.values())


# --- what a server answers ---------------------------------------------------------------------


def output_of(answer: object) -> ToolOutput:
    """The result of ``tools/call``: texts in one, images, the rest named (TOOL-2)."""
    found = as_object(answer)
    content = found.get("content")
    blocks = (
        [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    )
    structured = found.get("structuredContent")
    if structured is not None and not any(block.get("type") == "text" for block in blocks):
        blocks.append({"type": "text", "text": json.dumps(structured, ensure_ascii=False)})
    parts = parts_of(blocks)
    if found.get("isError") is True:
        text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
        return ToolOutput.error(text.strip() or "The tool failed and did not say why.")
    images = [part for part in parts if isinstance(part, ImagePart)]
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    if not images:
        return ToolOutput.text(text)
    shown = text if text.strip() else f"{len(images)} image{'s' if len(images) > 1 else ''}:"
    return ToolOutput(OutputKind.SUCCESS, (TextPart(shown), *images))


def parts_of(blocks: Sequence[Mapping[str, Any]]) -> list[ResultPart]:
    """Content blocks as parts of a message."""
    parts: list[ResultPart] = []
    images = 0
    for block in blocks[:MAX_LISTED]:
        part = _part_of(block)
        if isinstance(part, ImagePart):
            images += 1
            if images > MAX_IMAGES:
                continue
        parts.append(part)
    if images > MAX_IMAGES:
        parts.append(TextPart(f"[{images - MAX_IMAGES} more images were left out]"))
    if len(blocks) > MAX_LISTED:
        parts.append(TextPart(f"[{len(blocks) - MAX_LISTED:,} more parts were left out]"))
    return parts


def _part_of(block: Mapping[str, Any]) -> ResultPart:
    match block.get("type"):
        case "text":
            return TextPart(plain(block.get("text")))
        case "image":
            return _image(block.get("data"), block.get("mimeType"))
        case "audio":
            return TextPart(f"[audio ({clean(block.get('mimeType'), 60)}) was left out]")
        case "resource_link":
            uri, name = clean(block.get("uri"), _MAX_URI), clean(block.get("name"), _MAX_TITLE)
            about = clean(block.get("description"), MAX_DESCRIPTION)
            return TextPart(
                f"[resource {uri}{f' - {name}' if name else ''}{f': {about}' if about else ''}]"
            )
        case "resource":
            return contents_of(as_object(block.get("resource")))
        case other:
            return TextPart(f"[content of the unknown type {clean(str(other), 60)!r} was left out]")


def contents_of(resource: Mapping[str, Any]) -> ResultPart:
    """What a resource holds; of bytes that are no image what they are."""
    if isinstance(text := resource.get("text"), str):
        return TextPart(plain(text))
    kind = clean(resource.get("mimeType"), 60)
    if isinstance(blob := resource.get("blob"), str) and kind.startswith("image/"):
        return _image(blob, kind)
    size = len(blob) * 3 // 4 if isinstance(blob, str) else 0
    uri = clean(resource.get("uri"), _MAX_URI)
    return TextPart(f"[{uri}: {size:,} bytes of {kind or 'an unknown type'}, not shown]")


def _image(data: object, media_type: object) -> ResultPart:
    try:
        raw = base64.b64decode(data if isinstance(data, str) else "", validate=False)
    except (binascii.Error, ValueError):
        raw = b""
    judged = judge(ImagePart(clean(media_type, 60), raw))
    if judged.image is not None:
        return judged.image
    if judged.repairable:
        return ImagePart(clean(media_type, 60), raw)
    return TextPart(f"[an image was left out: {judged.why}]")


# --- headers of the modern era -----------------------------------------------------------------

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_HEADER_TYPES = frozenset({"string", "integer", "boolean"})
_SUBSCHEMAS = ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then",
               "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema")  # fmt: skip
_SUBSCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SUBSCHEMA_TABLES = ("patternProperties", "dependentSchemas", "$defs", "definitions")
_MAX_POSITIONS = 10_000
_MAX_HEADERS = 50

HeaderRules = dict[tuple[str, ...], str]


def request_headers(
    message: Mapping[str, Any], version: str, rules: Mapping[str, HeaderRules]
) -> dict[str, str]:
    """What an HTTP request says beside its body (``Mcp-*``).

    https://modelcontextprotocol.io/specification/2026-07-28/basic/transports
    """
    method, params = str(message.get("method")), as_object(message.get("params"))
    headers = {"mcp-protocol-version": version, "mcp-method": method}
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
        if method == "tools/call":
            for path, header in rules.get(name, {}).items():
                value: object = params.get("arguments")
                for step in path:
                    value = as_object(value).get(step)
                if isinstance(value, bool):
                    value = "true" if value else "false"
                if isinstance(value, str | int | float):
                    headers[f"mcp-param-{header.lower()}"] = header_value(str(value))
    return headers


def header_value(text: str) -> str:
    """``text`` as the value of a header; what is not plain ASCII is written in base64."""
    if _PLAIN_HEADER.fullmatch(text) and not _LOOKS_ENCODED.fullmatch(text):
        return text
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return f"=?base64?{encoded}?="


def header_rules(schema: object) -> HeaderRules | None:
    """Which arguments a schema wants as headers (``x-mcp-header``); ``None``: it is not valid."""
    rules: HeaderRules = {}
    positions: list[tuple[tuple[str, ...] | None, object]] = [((), schema)]
    seen = 0
    while positions:
        path, node = positions.pop()
        if not isinstance(node, dict):
            continue
        seen += 1
        if seen > _MAX_POSITIONS:
            break
        if "x-mcp-header" in node:
            header = node["x-mcp-header"]
            taken = {each.lower() for each in rules.values()}
            if not path or not isinstance(header, str) or not _TOKEN.fullmatch(header):
                return None
            if node.get("type") not in _HEADER_TYPES or header.lower() in taken:
                return None
            if len(rules) == _MAX_HEADERS:
                return None
            rules[path] = header
        positions += _below(path, node)
    return rules


def _below(
    path: tuple[str, ...] | None, node: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...] | None, object]]:
    for name, each in as_object(node.get("properties")).items():
        yield (None if path is None else (*path, name)), each
    yield from ((None, node.get(key)) for key in _SUBSCHEMAS)
    for key in _SUBSCHEMA_LISTS:
        if isinstance(several := node.get(key), list):
            yield from ((None, each) for each in several)
    for key in _SUBSCHEMA_TABLES:
        yield from ((None, each) for each in as_object(node.get(key)).values())
