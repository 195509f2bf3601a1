"""Secrets taken out of text."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.config.redaction import Redactor, address_secrets, environment_secrets


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
        "xoxb-SECRETSECRET-1",
        "github_pat_SECRETSECRETSECRETSECRET",
        "glpat-SECRETSECRETSECRET",
        "sk_live_SECRETSECRET1",
        "AWS AKIASECRETSECRETSECR",
        "cookie eyJhbGciOiJIUzI1NiJ9.eyJzdWIiSECRETSECRETfQ.SflKxwRJSMeKKF2QT4",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nSECRETSECRET\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nSECRETSECRET and then it was cut",
        "https://:SECRETSECRET@host/",
        "GET /v1/models?key=SECRETSECRET&alt=sse",
        "client_secret=SECRETSECRET",
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


SECRET = 'hunter2/+?"\\ ünter2-\xff\xfe>>>'


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("form", [
    SECRET, json.dumps(SECRET), json.dumps(SECRET, ensure_ascii=False), quote(SECRET),
    quote(SECRET, safe=""), quote_plus(SECRET), SECRET.encode().decode("latin-1"),
])  # fmt: skip
def test_a_known_value_is_taken_out_in_the_forms_in_which_it_travels(form: str) -> None:
    text = Redactor([SECRET]).redact_known(f"before {form} after")
    assert text.replace('"', "") == "before [redacted] after"


@pytest.mark.spec("SEC-9")
@given(before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_a_known_value_is_taken_out_of_base64_whatever_stands_around_it(
    before: bytes, after: bytes
) -> None:
    secret = "canary?>~-value-1"
    for encode in (b64encode, urlsafe_b64encode):
        text = encode(before + secret.encode() + after).decode()
        assert "[redacted]" in Redactor([secret]).redact_known(text)


@pytest.mark.spec("SEC-9")
def test_json_data_keeps_its_shape_and_loses_its_secrets() -> None:
    data = {
        "password": "short",
        "n": 3,
        "is": None,
        "list": ["Bearer abcdefgh1234", {"api_key": ["x"]}],
        "signature": "sk-0123456789abcdef",
        "hunter2-hunter2": True,
    }
    assert Redactor(["hunter2-hunter2"]).redact_value(data) == {
        "password": "[redacted]",
        "n": 3,
        "is": None,
        "list": ["Bearer [redacted]", {"api_key": ["[redacted]"]}],
        "signature": "sk-0123456789abcdef",
        "[redacted]": True,
    }


@pytest.mark.spec("SEC-9")
def test_secrets_of_the_environment_are_known_by_their_names_and_addresses() -> None:
    env = {
        "OPENAI_API_KEY": " abcdefgh ",
        "MY_TOKEN": "t0ken-1",
        "DB_PASSWORD": "postgres",
        "HTTPS_PROXY": "http://me:p%40ss-word@proxy:8080",
        "NAMED": "anything",
        "HOME": "/home/me",
    }
    found = environment_secrets(env, ["NAMED"])
    assert set(found) == {"abcdefgh", "t0ken-1", "p%40ss-word", "p@ss-word", "anything"}


def test_an_address_without_a_password_has_no_secret() -> None:
    assert address_secrets("https://host:8080/path?x=1") == ()
    assert address_secrets("https://me@host/") == ()


def test_secrets_of_a_source_are_asked_for_once_and_late() -> None:
    asked = []

    def source() -> list[str]:
        asked.append(1)
        return ["hunter2-hunter2"]

    redactor = Redactor(source=source)
    assert not asked
    assert redactor.redact("hunter2-hunter2") == redactor.redact_known("hunter2-hunter2")
    assert asked == [1]
