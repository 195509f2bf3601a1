"""What is a secret, and whose server it is."""

from __future__ import annotations

import pytest

from agentcli.config.redaction import Redactor
from agentcli.domain.secrecy import (
    WholeWords,
    is_credential,
    is_private_server,
    is_secret,
    keys_within,
    secrets_in,
)

DUMMIES = (
    "", "x", "ollama", "lm-studio", "LM Studio", "dummy", "dummy-key", "dummy-key-0123456789abcdef",
    "sk-local", "sk-1234", "sk-no-key-required", "no-key-required", "not-needed", "none", "EMPTY",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxx", "test-key-123", "changeme",
    "your-api-key-here", "YOUR_API_KEY_HERE", "sk-your-api-key", "a very long local key of words",
    "my-local-server-key-2026", "00000000-0000-0000-0000-000000000000", "hunter2", "postgres",
    "password1234", "t0ken-1", "sk-placeholder-0123456789abcdef",
)  # fmt: skip
KEYS = (
    "sk-ant-api03-9fQzX2mVb7Lw4Kd8Rt1Yp6Hs3Nc5Jg0UeAoIiTkBvZxWqMnPlOjDhGfRyEuC-Xw9aQAA",
    "sk-proj-Zk3vN8qLw2Rt7Yx1Bm5Hc9Jd4Gf6Sp0a", "sk-4f8a2c9d1e7b3f6a5c8d0e2b4a6f8c1d",
    "AIzaSyD4k2Lm9Qx7Rt1Vb5Nc8Wp3Zj6Hf0Gs2Ay", "gsk_9fQzX2mVb7Lw4Kd8Rt1Yp6Hs3Nc5Jg0UeAoI",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "4f8a2c9d1e7b3f6a5c8d0e2b4a6f8c1d",
    "AKIAIOSFODNN7Q2ZXTRW", "sk-ant-Canary/env+0123456789=abcdef", "sk-test-0123456789abcdef",
    "Canary-address-0123456789", "Xk9#mQ2$vLp8!Rz", "qwmzpxrtvbnkdhgyslfjcuaeoi",
    "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "sk-or-v1-0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b",
)  # fmt: skip


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("text", DUMMIES)
def test_what_is_short_a_word_or_a_dummy_is_no_secret(text: str) -> None:
    assert not is_secret(text)
    assert not is_secret(f" {text}\n")


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("text", KEYS)
def test_what_nobody_would_write_by_chance_is_one(text: str) -> None:
    assert is_secret(text)
    assert is_secret(f" {text}\n")


@pytest.mark.spec("SEC-9")
def test_the_key_of_a_local_server_is_one_if_it_has_the_form_of_a_services() -> None:
    assert not is_secret("4f8a2c9d1e7b3f6a5c8d0e2b4a6f8c1d", is_local=True)
    assert not is_secret("Canary-address-0123456789", is_local=True)
    assert is_secret("sk-ant-Canary/env+0123456789=abcdef", is_local=True)


@pytest.mark.spec("SEC-9", "STR-3")
@pytest.mark.parametrize(("url", "expected"), [
    ("http://localhost:11434/v1", True), ("http://127.0.0.1:1", True), ("http://[::1]:8080", True),
    ("https://10.1.2.3", True), ("http://192.168.0.7:8000/v1", True), ("http://172.31.0.1", True),
    ("http://gpu-box:8000", True), ("http://gpu.local", True), ("http://host.docker.internal", True),
    ("http://[fd12::1]", True), ("http://100.64.0.9", True), ("localhost:11434", True),
    ("http://me:secret@LOCALHOST/v1", True), ("http://0.0.0.0:1", True),
    ("https://api.openai.com/v1", False), ("http://172.32.0.1", False), ("http://8.8.8.8", False),
    ("http://127.0.0.1.example.com", False), ("http://10.evil.com", False), ("", False),
    ("http://[::ffff:8.8.8.8]", False), ("http://[2001:db8::1]", False), ("http://[broken", False),
])  # fmt: skip
def test_a_private_server_is_known_by_its_address(url: str, expected: bool) -> None:
    assert is_private_server(url) is expected


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN", "AWS_ACCESS_KEY_ID", "aws_secret_access_key", "NPM_CONFIG__AUTH", "PGPASSWORD",
        "npm_config__authtoken", "MYSQL_PWD", "SSHPASS", "DB_PASS", "AZURE_DEVOPS_EXT_PAT", "TS_AUTHKEY",
        "SLACK_WEBHOOK_URL", "SECRET_KEY_BASE", "APIKEY", "MY_PRIVATE_KEY", "JWT_SECRET", "RESTIC_PASSWORD",
        "AZURE_STORAGE_CONNECTION_STRING", "OTEL_EXPORTER_OTLP_HEADERS", "SESSION_COOKIE", "VAULT_TOKEN_2",
        "TOKEN1", "APIKEY2", "KEY1", "DJANGO_SECRETKEY", "VAULT_SECRETID", "DBPASS", "SMTP_PW", "LDAP_BINDPW",
        "USERPWD", "OAUTH", "HEADER", "BLOB_SAS", "BW_SESSION", "OP_SESSION_my",
    ],
)  # fmt: skip
def test_a_variable_that_is_called_a_credential_is_one(name: str) -> None:
    assert is_credential(name, "hunter2")
    for nothing in ("", " ", "true", "0", "4096", "/etc/passwd", "~/.."):
        assert not is_credential(name, nothing)


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"), ("PWD", "/work/some-secret-place"), ("OLDPWD", "/tmp/x"),
        ("GIT_AUTHOR_NAME", "A. Key"), ("KEYBOARD", "de"), ("TOKENIZERS_PARALLELISM", "false"),
        ("MONKEY", "business"), ("COMPASS", "north"), ("BYPASS", "ring"), ("LANG", "de_DE.UTF-8"),
        ("DATABASE_URL", "postgres://postgres:postgres@localhost:5432/app"),
        ("REDIS_URL", "redis://:s3cr3t@redis:6379"), ("AMQP", "amqp://guest:development@mq.local"),
        ("HOMEPAGE", "https://me@github.com/a"), ("PATHS", "x"), ("SSH_AUTHOR", "x"), ("AUTHORS", "x"),
        ("DESKTOP_SESSION", "gnome"), ("XDG_SESSION_ID", "c2"), ("LS_COLORS", "rs=0:di=01;34:ln=01"),
        ("PROXY", "http://proxy.local:3128"), ("KEYMAP", "us"), ("CI_COMMIT_SHA", "4f8a2c9d1e7b3f6a5c8d"),
        ("SASS_PATH", "x"), ("KEYWORDS1", "x"), ("OLDPWD2", "/x"), ("AUTHORITY", "x"), ("SESSION", "gnome"),
        ("JDBC_URL", "jdbc:postgresql://localhost:5432/app?user=app&password=postgres"),
        ("JAVA_OPTS", "-Dtoken=none -Dpassword=changeme"), ("SHOP", "https://shop.com/?page=2&design=x"),
        ("GPG_KEY", "7169605F62C751356D054A26A821E680E5FA6305"),
    ],
)  # fmt: skip
def test_what_commands_need_is_no_credential(name: str, value: str) -> None:
    assert not is_credential(name, value)


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    "value",
    [
        *(f"x={key}" for key in KEYS if key.startswith(("ghp_", "AKIA", "AIza", "sk-ant-api"))),
        "postgres://app:hunter2@db.shop.com/app", "https://Xk9mQ2vLp8Rz77@github.com/a.git",
        "amqp://a:b@one.local https://me:pw@two.com", "Authorization: Bearer 9fQzX2mVb7Lw4Kd8Rt1Y",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "Server=db;User Id=a;Password=g7TsQp02xLmZ;",
        "jdbc:postgresql://db.shop.com/app?user=app&password=hunter2",
        "https://a.blob.core.windows.net/c?sv=1&sig=g7TsQp02xLmZ%3D",
        "postgres://app:Xk9fQ2mZp7@10.1.2.3/app", "redis://:Xk9f-Q2mZ@cache:6379/0",
    ],
)  # fmt: skip
def test_what_holds_a_key_is_a_credential_whatever_it_is_called(value: str) -> None:
    assert is_credential("NOTE", value)


KEY = "tv7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("text", [
    f"--api-key={KEY}", f"API_KEY={KEY} serve", f"--header=X-Api-Key: {KEY}",
    f"Authorization: Bearer {KEY}", f"https://x.example.com/mcp?tavilyApiKey={KEY}&a=b",
    f"postgres://me:{KEY}@db.example.com/x",
])  # fmt: skip
def test_a_key_within_an_argument_is_known(text: str) -> None:
    assert set(keys_within(text)) == {KEY}


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("name", ["Cookie", "HDR"])
@pytest.mark.parametrize("text", [
    f"a=b; sid={KEY}; c=d", f'Token token="{KEY}"', f'{{"Authorization": "Bearer {KEY}"}}',
])  # fmt: skip
def test_a_key_within_a_header_is_known_alone(name: str, text: str) -> None:
    found = set(secrets_in(name, text))
    assert KEY in found
    assert all(KEY in each for each in found)


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(("name", "text"), [
    ("anthropic-beta", "context-1m-2025-08-07,output-128k-2025-02-19"),
    ("HTTP-Referer", "https://github.com/me/tool"), ("AUTH_URL", "http://localhost:3000"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"), ("X-Title", "My App v2.1-beta3"),
])  # fmt: skip
def test_an_address_and_words_are_no_secret_of_a_header(name: str, text: str) -> None:
    assert not [*secrets_in(name, text)]


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("text", [
    "@modelcontextprotocol/server-github@2025.4.8", "/usr/lib/a1b2c3d4e5f6g7h8.py", "--db-password",
    "--auth-url=https://login.corp.example.com/oauth2", "https://mcp.example.com/v1/s?profile=a-1",
])  # fmt: skip
def test_what_servers_are_started_with_is_no_secret(text: str) -> None:
    assert not [*keys_within(text)]


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("piece", [1, 4, 20, 3_000])
@pytest.mark.parametrize("key", [KEYS[0], KEYS[5]])
def test_a_key_that_comes_in_pieces_is_taken_out_whole(key: str, piece: int) -> None:
    redact = Redactor([key]).redact_known
    long = f"{'x' * 9_000}{key}{'y' * 5_000}{key * 200}"
    for text in (f"It is {key}, said once.", key, f"a {key}{key} b", long, f"{long} {long}"):
        words = WholeWords(redact)
        told = [words.add(text[at : at + piece]) for at in range(0, len(text), piece)]
        assert "".join(told) + words.rest() == redact(text)
        assert len(text) < 9_000 or any(told[: 9_000 // piece])  # nothing waits for ever


@pytest.mark.spec("SEC-9", "SEC-13")
def test_words_without_blanks_are_told_as_they_come() -> None:
    words = WholeWords(Redactor([KEYS[0]]).redact_known)
    assert [words.add(char) for char in "漢字a b"] == ["漢", "字", "", "a ", ""]
    assert words.rest() == "b"
