"""Secrets taken out of text."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
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
        "no tool is called no_sk-ant-api03-SECRETSECRET",
        "Authorization: Bearer SECRETSECRET.x",
        '{"x-api-key": "SECRETSECRET"}',
        "api_key=SECRETSECRET&x=1",
        "https://me:SECRETSECRET@host/path",
        "token ghp_SECRETSECRETSECRETSECRET",
        "AIzaSECRETSECRETSECRETSECRETSECRETSECRE",
        "xoxb-SECRETSECRET-1",
        "xapp-1-SECRETSECRET-1",
        "pplx-SECRETSECRETSECRETSECRET",
        "csk-SECRETSECRETSECRETSECRET",
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
    redactor = Redactor(["hUnter2-9hX7nter2"])
    assert redactor.redact("a:hUnter2-9hX7nter2b") == "a:[redacted]b"
    assert (
        redactor.redact_known("sk-abcdefgh12345 hUnter2-9hX7nter2") == "sk-abcdefgh12345 [redacted]"
    )


@pytest.mark.spec("SEC-9")
def test_a_known_value_is_taken_out_of_json_text_too() -> None:
    secret = 'pa"sSw0rd\\1-x9Q'
    text = Redactor([secret]).redact_known(json.dumps({"a": [f"it is {secret}."]}))
    assert json.loads(text) == {"a": ["it is [redacted]."]}


def test_plain_text_stays_as_it_is() -> None:
    text = "the password field is empty; see https://host/path and sk-short"
    assert Redactor(["", "abc"]).redact(text) == text


SECRET = 'hUnter2/+?"\\ üntEr2-\xff\xfe>>>'


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("form", [
    SECRET, json.dumps(SECRET), json.dumps(SECRET, ensure_ascii=False), quote(SECRET),
    quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b")
    .replace("%3F", "%3f").replace("%5C", "%5c").replace("%C3%BC", "%c3%bc").replace("%C3%BF", "%c3%bf")
    .replace("%C3%BE", "%c3%be").replace("%3E", "%3e"), json.dumps(SECRET).replace("/", r"\/"),
    json.dumps(SECRET, ensure_ascii=False).replace(">", r"\u003e"),
    json.dumps(SECRET).replace(">", r"\u003E").replace("+", r"\u002B").replace(r"\"", r"\u0022"), SECRET.encode().decode("latin-1"),
])  # fmt: skip
def test_a_known_value_is_taken_out_in_the_forms_in_which_it_travels(form: str) -> None:
    text = Redactor([SECRET]).redact_known(f"before {form} after")
    assert text.replace('"', "") == "before [redacted] after"


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    "encode", [str, quote_plus, lambda text: b64encode(text.encode()).decode()]
)
def test_what_a_bound_leaves_of_a_known_value_is_not_most_of_it(
    encode: Callable[[str], str],
) -> None:
    secret = "bQ4nX2mVt7Lw+4nd8Rt1bp/3Nn6"
    redactor, whole = Redactor([secret]), encode(secret)
    for size in range(len(whole) + 1):
        for text in (f"a {whole[:size]}", f"{whole[size:]} b", f"a {whole[:size]}… {whole[-9:]} b"):
            told = redactor.redact_known(text)
            for piece in re.split(r"\[redacted\]|[ …]", told):
                assert len(piece) <= len(whole) // 2 + 2, (text, told)
        for before in ("\n", "\t", "\x1b", "\\", '"', "ü", "n", "b") if size != 1 else ():
            cut = json.dumps([f"{before}{whole[size:]}", f"{before}{whole[:size]}{before}"])
            assert len(json.loads(redactor.redact_known(cut))) == 2, cut
    assert redactor.redact_known(f"{whole}, {whole}{whole[:3]}") == (
        f"[redacted], [redacted]{whole[:3]}"
    )


@pytest.mark.spec("SEC-9")
def test_a_piece_of_a_value_with_signs_of_json_leaves_json() -> None:
    secret = 'bbQnnbnrt7tfn+4bu8"t1\\pü"c6bnbfb'
    redactor = Redactor([secret])
    for size in range(len(secret) + 1):
        for is_ascii in (False, True):
            text = json.dumps([secret[size:], secret[:size], "x"], ensure_ascii=is_ascii)
            assert len(json.loads(redactor.redact_known(text))) == 3, text


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
        "hUnter2-9hX7nter2": True,
    }
    assert Redactor(["hUnter2-9hX7nter2"]).redact_value(data) == {
        "password": "[redacted]",
        "n": 3,
        "is": None,
        "list": ["Bearer [redacted]", {"api_key": ["[redacted]"]}],
        "signature": "sk-0123456789abcdef",
        "[redacted]": True,
    }


@pytest.mark.spec("SEC-9")
def test_secrets_of_the_environment_are_known_by_their_names_and_addresses() -> None:
    key = "4f8a2c9d1e7b3f6a5c8d0e2b"
    env = {
        "OPENAI_API_KEY": f" {key}0 ",
        "MY_TOKEN": f"{key}1",
        "DB_PASSWORD": "postgres",
        "HTTPS_PROXY": f"http://me:{key}%402@proxy:8080",
        "NAMED": f"{key}3",
        "HOME": f"/home/{key}",
        "OLLAMA_API_KEY": f"{key}4",
        "VLLM_API_KEY": f"{key}5",
        "VLLM_BASE_URL": "https://vllm.example.com/v1",
        "MISTRAL_API_KEY": f"{key}6",
        "MISTRAL_BASE_URL": "http://localhost:4000",
        "MINE": f"{key}7",
        "XAI_API_KEY": "lm-studio",
        "GPG_KEY": "7169605F62C751356D054A26A821E680E5FA6305",
    }
    found = environment_secrets(env, {"NAMED": "https://here.example", "MINE": "http://10.0.0.1"})
    names = ("0", "1", "%402", "@2", "3", "5")
    assert set(found) == {f"{key}{end}" for end in names}


@pytest.mark.spec("SEC-9")
def test_data_loses_keys_only_and_by_their_form() -> None:
    key = "sk-ant-api03-9fQzX2mVb7Lw4Kd8Rt1Yp"
    plain = {
        "password": "hunter2",
        "text": "password = 'hunter2'; Authorization: Bearer token; sk-learn-contrib http://a:b@c/",
    }
    redactor = Redactor(["ollama", "sk-local", "dummy-key"])
    assert redactor.redact_data(plain) == plain
    assert redactor.redact_data("ollama runs sk-local with a dummy-key") == (
        "ollama runs sk-local with a dummy-key"
    )
    assert redactor.redact_data({"text": [f"it is {key}."]}) == {"text": ["it is [redacted]."]}
    cut, marked = "bash echo ghp_9fQzX2mVb7Lw4Kd8…", "_AKIAQ7ZTXW4KPL2MNB5R_"
    assert redactor.redact_data([cut, marked]) == ["bash echo [redacted]…", "_[redacted]_"]
    plain["text"] = "the function hf_load_dataset… and npm_install…"
    assert redactor.redact_data(plain) == plain


def test_an_address_without_a_password_has_no_secret() -> None:
    assert address_secrets("https://host:8080/path?x=1") == ()
    assert address_secrets("https://me@host/") == ()


def test_secrets_of_a_source_are_asked_for_once_and_late() -> None:
    asked = []

    def source() -> list[str]:
        asked.append(1)
        return ["hUnter2-9hX7nter2"]

    redactor = Redactor(source=source)
    assert not asked
    assert redactor.redact("hUnter2-9hX7nter2") == redactor.redact_known("hUnter2-9hX7nter2")
    assert asked == [1]


@pytest.mark.spec("SEC-9")
def test_what_is_no_secret_goes_from_texts_of_ours_alone() -> None:
    data, ours = Redactor(), Redactor(weak=tuple)
    for redactor in (data, ours):
        redactor.add(["lm-studio", "dummy-key"])
    said = "dummy-key of lm-studio"
    assert data.redact_value({"text": said}) == {"text": said}
    assert ours.redact(said) == "[redacted] of [redacted]"
    assert ours.redact_data(said) == said


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
@pytest.mark.parametrize(
    "secret", ["sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3", "Grüße-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"]
)
def test_a_known_value_is_found_in_bytes_whatever_it_is_spelt_with(
    secret: str, encoding: str
) -> None:
    redactor = Redactor([secret])
    assert redactor.holds_known(f"a\nkey: {secret}\n".encode(encoding))
    assert not redactor.holds_known(f"a\nkey: {secret[:-2]}\n".encode(encoding))
