"""Keys that a person has stored: the list, the file, and the keyring behind a bound."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from agentcli.config import credentials as module
from agentcli.config.credentials import (
    SAME_ACCOUNT,
    CredentialEntry,
    KeyringCall,
    KeyringError,
    KeyringKey,
    lend,
    read_credentials,
    remove_key,
    store_key,
)
from agentcli.config.paths import Paths
from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._registry import BUILT_IN
from tests.support.keyrings import fake_keyring, kept_in, use_keyring

CANARY = "sk-canary-0123456789-abcdef"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    home = tmp_path / "home"
    return Paths(home, home, home)


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_keyring(monkeypatch, fake_keyring(tmp_path))


@pytest.mark.spec("SEC-9")
def test_a_key_goes_to_the_keyring_and_not_to_the_file(paths: Paths, keyring: Path) -> None:
    assert store_key(paths, "openai", CredentialEntry(CANARY)) == ""
    assert CANARY not in paths.credentials_file.read_text()
    assert kept_in(keyring) == {f"agentcli {paths.config_dir}/openai": CANARY}
    stored = read_credentials(paths)
    key = KeyringKey(stored, "openai")
    assert (key.place, key.at_hand) == ("keyring", False)
    told: list[str] = []
    stored.watchers.append(told.extend)
    assert key.get() == CANARY
    assert key.at_hand
    assert told == [CANARY]


@pytest.mark.spec("SEC-9")
def test_logging_out_removes_the_key_from_the_keyring_and_the_list(
    paths: Paths, keyring: Path
) -> None:
    store_key(paths, "openai", CredentialEntry(CANARY))
    assert remove_key(paths, "openai") == ""
    assert kept_in(keyring) == {}
    assert not paths.credentials_file.exists()


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("kind", ["fail", "null", "raises", "forgets", "missing", "chatty"])
def test_where_there_is_no_working_keyring_the_key_goes_to_a_private_file(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    use_keyring(monkeypatch, fake_keyring(tmp_path, kind))
    before = os.umask(0)
    try:
        why = store_key(paths, "openai", CredentialEntry(CANARY))
    finally:
        os.umask(before)
    if kind == "chatty":  # prints to stdout, and works
        assert why == ""
        return
    assert why
    assert CANARY not in why
    assert stat.S_IMODE(paths.credentials_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.config_dir.stat().st_mode) == 0o700
    assert KeyringKey(read_credentials(paths), "openai").get() == CANARY


@pytest.mark.spec("SEC-9", "CAN-1")
def test_a_keyring_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keyring(monkeypatch, fake_keyring(tmp_path, "hangs"))
    call = KeyringCall({"do": "get", "service": "s", "user": "u"}, timeout_s=0.5)
    with pytest.raises(KeyringError, match="did not answer"):
        call.result()


@pytest.mark.spec("CAN-1")
def test_a_question_that_hangs_is_ended_from_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keyring(monkeypatch, fake_keyring(tmp_path, "hangs"))
    call = KeyringCall({"do": "get", "service": "s", "user": "u"}, timeout_s=60)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            call.result()
        except KeyringError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    call.stop()
    thread.join(20)
    assert failed


@pytest.mark.spec("SEC-9")
def test_a_key_that_left_the_keyring_is_an_error_with_advice(paths: Paths, keyring: Path) -> None:
    store_key(paths, "openai", CredentialEntry(CANARY))
    keyring.unlink()
    with pytest.raises(ConfigError, match="no key of openai any more") as caught:
        KeyringKey(read_credentials(paths), "openai").get()
    assert caught.value.advice == "agent auth login openai"


@pytest.mark.spec("SEC-9")
def test_a_file_that_others_can_read_is_tightened(paths: Paths) -> None:
    store_key(paths, "openai", CredentialEntry(CANARY), keyring=False)
    paths.credentials_file.chmod(0o644)
    assert read_credentials(paths).known == {"openai": CANARY}
    assert stat.S_IMODE(paths.credentials_file.stat().st_mode) == 0o600


@pytest.mark.spec("FAIL-2", "SEC-9")
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"providers": 3}', '{"providers": {"a": 3}}', "[" * 100_000, "\xff", "null",
     '{"providers": {"a": {"key": 3}}}'],
)  # fmt: skip
def test_a_damaged_file_is_told_and_never_written_over(paths: Paths, text: str) -> None:
    paths.config_dir.mkdir()
    paths.credentials_file.write_bytes(text.encode("latin-1"))
    assert "is damaged" in read_credentials(paths).problem
    with pytest.raises(ConfigError, match="is damaged"):
        store_key(paths, "openai", CredentialEntry(CANARY), keyring=False)
    assert paths.credentials_file.read_bytes() == text.encode("latin-1")


@pytest.mark.spec("SEC-13")
def test_a_fifo_in_its_place_stops_nothing(paths: Paths) -> None:
    paths.config_dir.mkdir()
    os.mkfifo(paths.credentials_file)
    assert "is damaged" in read_credentials(paths).problem


@pytest.mark.spec("SEC-1")
def test_a_provider_that_was_moved_by_another_gets_no_stored_key(paths: Paths) -> None:
    store_key(paths, "openai", CredentialEntry(CANARY), keyring=False)
    providers = {"openai": ProviderConfig("openai", "", base_url="https://evil.example/v1")}
    lend(paths, providers, {"openai"})
    assert providers["openai"].stored is None
    lend(paths, providers, set())
    assert providers["openai"].stored is not None


def test_one_account_by_two_names_is_told_apart_from_none() -> None:
    by_keys: dict[tuple[str, ...], list[str]] = {}
    for name, row in BUILT_IN.items():
        if row.key_envs:
            by_keys.setdefault(row.key_envs, []).append(name)
    doubles = {other: names[0] for names in by_keys.values() for other in names[1:]}
    assert doubles == dict(SAME_ACCOUNT)


def test_a_key_never_stands_in_a_repr(paths: Paths) -> None:
    store_key(paths, "openai", CredentialEntry(CANARY), keyring=False)
    stored = read_credentials(paths)
    providers: dict[str, ProviderConfig] = {}
    lend(paths, providers, ())
    assert CANARY not in repr((stored, stored.entries, providers))
    assert json.loads(paths.credentials_file.read_text())["version"] == module._VERSION


def test_the_keyring_library_is_never_imported_by_us() -> None:
    assert "keyring" not in sys.modules
