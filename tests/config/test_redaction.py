"""Secrets taken out of text."""

from __future__ import annotations

import json

import pytest

from agentcli.config.redaction import Redactor


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    "text",
    [
        "key sk-ant-api03-SECRETSECRET rejected",
        "Authorization: Bearer SECRETSECRET.x",
        '{"x-api-key": "SECRETSECRET"}',
        "api_key=SECRETSECRET&x=1",
        "https://me:SECRETSECRET@host/path",
        "token ghp_SECRETSECRETSECRETSECRET",
        "AIzaSECRETSECRETSECRETSECRETSECRETSECRE",
    ],
)
def test_what_looks_like_a_key_is_taken_out(text: str) -> None:
    assert "SECRETSECRET" not in Redactor().redact(text)


@pytest.mark.spec("SEC-9")
def test_a_known_value_is_taken_out_wherever_it_stands() -> None:
    redactor = Redactor(["hunter2-hunter2"])
    assert redactor.redact("a:hunter2-hunter2b") == "a:[redacted]b"
    assert (
        redactor.redact_known("sk-abcdefgh12345 hunter2-hunter2") == "sk-abcdefgh12345 [redacted]"
    )


@pytest.mark.spec("SEC-9")
def test_a_known_value_is_taken_out_of_json_text_too() -> None:
    secret = 'pass"word\\1'
    text = Redactor([secret]).redact_known(json.dumps({"a": [f"it is {secret}."]}))
    assert json.loads(text) == {"a": ["it is [redacted]."]}


def test_plain_text_stays_as_it_is() -> None:
    text = "the password field is empty; see https://host/path and sk-short"
    assert Redactor(["", "abc"]).redact(text) == text
