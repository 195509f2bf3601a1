"""One call of ``edit`` and, where a form can, two calls, as each family of models writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Writer = Callable[..., str]


def _elements(start: str, name: str, stop: str, key: str, end: str) -> Writer:
    def write(*calls: tuple[str, dict[str, Any]]) -> str:
        out = []
        for tool, arguments in calls:
            values = (
                key.format(k) + (v if isinstance(v, str) else json.dumps(v)) + end
                for k, v in arguments.items()
            )
            out.append(name.format(tool) + "".join(values) + stop)
        return start.format("".join(out)) if "{}" in start else start + "".join(out)

    return write


def _each(pattern: str, joint: str = "\n", around: str = "%s") -> Writer:
    def write(*calls: tuple[str, dict[str, Any]]) -> str:
        each = (
            pattern.replace("NAME", name)
            .replace("NUMBER", str(number))
            .replace("ARGS", json.dumps(arguments))
            for number, (name, arguments) in enumerate(calls)
        )
        return around % joint.join(each)

    return write


def _named(pattern: str) -> Writer:
    def write(*calls: tuple[str, dict[str, Any]]) -> str:
        return "".join(pattern.format(name) + json.dumps(args) for name, args in calls)

    return write


_OBJECT = '{"name": "NAME", "arguments": ARGS}'
_LLAMA = '{"name": "NAME", "parameters": ARGS}'

MARKED: dict[str, Writer] = {
    "hermes": _each(f"<tool_call>\n{_OBJECT}\n</tool_call>"),
    "qwen-coder": _elements(
        "", "<tool_call>\n<function={}>\n", "</function>\n</tool_call>\n",
        "<parameter={}>\n", "\n</parameter>\n",
    ),
    "qwen-coder-bare": _elements(
        "", "<function={}>\n", "</function>\n", "<parameter={}>\n", "\n</parameter>\n"
    ),
    "llama-tag": _each(_LLAMA, "; ", "<|python_tag|>%s"),
    "mistral-list": _each(_OBJECT, ", ", "[TOOL_CALLS] [%s]"),
    "mistral-named": _named("[TOOL_CALLS]{}"),
    "mistral-ids": _named("[TOOL_CALLS]{}[CALL_ID]abcdefghi[ARGS]"),
    "deepseek-v3": _each(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGS\n```<｜tool▁call▁end｜>",
        "\n", "<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    "deepseek-v31": _each(
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS<｜tool▁call▁end｜>", "",
        "<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜>",
    ),
    "deepseek-dsml": _elements(
        "<｜DSML｜function_calls>\n{}</｜DSML｜function_calls>",
        '<｜DSML｜invoke name="{}">\n', "</｜DSML｜invoke>\n",
        '<｜DSML｜parameter name="{}" string="true">', "</｜DSML｜parameter>\n",
    ),
    "kimi": _each(
        "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>ARGS<|tool_call_end|>",
        "", "<|tool_calls_section_begin|>%s<|tool_calls_section_end|>",
    ),
    "glm": _elements(
        "", "<tool_call>{}\n", "</tool_call>\n", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n"
    ),
    "minimax-m1": _each(_OBJECT, "\n", "<tool_calls>\n%s\n</tool_calls>"),
    "minimax-m2": _elements(
        "<minimax:tool_call>\n{}</minimax:tool_call>",
        '<invoke name="{}">\n', "</invoke>\n", '<parameter name="{}">', "</parameter>\n",
    ),
    "granite": _each(_OBJECT, ", ", "<|tool_call|>[%s]"),
    "phi": _each(_OBJECT, ", ", "<|tool_call|>[%s]<|/tool_call|>"),
    "harmony": _each(
        "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGS<|call|>", ""
    ),
}  # fmt: skip

BARE: dict[str, Writer] = {"llama-bare": _each(_LLAMA, "; ")}
ASKED: dict[str, Writer] = {
    "fenced": _each(f"```json\n{_OBJECT}\n```"),
    "react": _each("Thought: this is next\nAction: NAME\nAction Input: ARGS"),
}
