"""Secrets: found in every form they come in, masked in every fact, and put back where an agent rewrites their file."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli import log as logs
from fugu_cli import masking
from fugu_cli.events import Asked, Failed, Interrupted, Permitted, Planned, Replied, Step, ToolRan, ToolSaid
from fugu_cli.log import Log
from fugu_cli.marks import Remembered
from fugu_cli.masking import Mask, mark, restored
from fugu_cli.messages import Call

KEY = "v3ry-s3cret-value"
BLOCK = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----"

FORMS = [
    "sk-abcdefghijklmnopqrstuvwx",
    "sk-proj-abcdefghij_klmnopqrst-uvwx",
    "sk-ant-api03-abcdefghijklmnopqrstuvwx",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop",
    "glpat-abcdefghij0123456789",
    "xoxb-1234567890-abcdefghij",
    "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEF",
    "sk_live_abcdefghijklmnop",
    "gsk_abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.abcdefghijklmno",
    BLOCK,
]

PLAIN = [
    "sk-learn is a library; task-sk-1; risk-free",
    "https://example.org/a:b@c git@github.com:a/b.git http://localhost:8080/x@y http://:8080/a@b",
    "def test_token(): assert token == 'abc'",
    "commit 1234567890abcdef1234567890abcdef12345678",
    "AKIA is a prefix, eyJ too; -----BEGIN PUBLIC KEY-----",
    "[secret 12",
]


@pytest.mark.parametrize("secret", FORMS)
def test_what_has_the_form_of_a_key_is_masked(secret: str) -> None:
    told = Mask({}).text(f'before {secret}\nkey = "{secret}" after')
    mark = told.split("\n")[0].removeprefix("before ")
    assert re.fullmatch(r"\[secret [0-9a-f]{4}\]", mark)
    assert told == f'before {mark}\nkey = "{mark}" after'


@given(st.lists(st.sampled_from([*FORMS, "://", "a:hunter2@h", "earer ", "sk-", "eyJ", "-----BEGIN ", " ", "é", "-"])))
def test_what_is_found_from_its_beginnings_is_what_all_forms_as_one_pattern_find(pieces: list[str]) -> None:
    whole = re.compile("|".join(form.pattern.pattern for form in masking._FORMS), re.DOTALL)
    text = "".join(pieces)
    assert Mask({}).text(text) == whole.sub(lambda found: Mask({"A_KEY": found[0]}).text(found[0]), text)


def test_a_long_text_without_secrets_is_passed_in_no_time() -> None:
    text = "a path/to/file.py of https://example.org = skimmed, " * 200_000
    began = time.process_time()
    assert Mask({"A_KEY": KEY}).text(text) == text
    assert time.process_time() - began < 2.0, "every form was tried at every character: four seconds and more"


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_sounds_like_one_is_left_alone(text: str) -> None:
    assert Mask({"PATH": "/usr/bin", "EDITOR": "libraries", "API_KEY": "short"}).text(text) == text


def test_passwords_in_addresses_and_headers_are_masked() -> None:
    told = Mask({}).text("postgres://app:hunter22@db.example.org/x and Authorization: Bearer abcdefghijklmnopqrst")
    assert "hunter22" not in told and "abcdefghijklmnopqrst" not in told
    assert "@db.example.org/x" in told
    assert re.fullmatch(r"redis://\[secret \w{4}\]@cache:6379/0", Mask({}).text("redis://:hunter22@cache:6379/0"))


def test_values_of_variables_and_env_files_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    mask = Mask({"OUR_API_KEY": KEY, "EDITOR": "plain-value"}, tmp_path)
    assert mask.text(f"x{KEY}y plain-value").startswith("x[secret ")
    more = Mask(
        {"PGPASSWORD": "hunter2-x", "MYSQL_PWD": "hunter3-x", "X_SECRET": "/aB3dE5gH7jK9", "A_KEY": str(tmp_path)}
    )
    assert "hunter" not in more.text("hunter2-x hunter3-x") and "/aB3" not in more.text("/aB3dE5gH7jK9")
    assert more.text(str(tmp_path)) == str(tmp_path)
    (tmp_path / ".env").write_text(
        "export DB_PASSWORD='pa ss\"word'\nPORT=8080123\nDEBUG=true\nAPP_TOKEN=abc123x # mine\n"
    )
    told = mask.text('the password is pa ss"word, escaped "pa ss\\"word", port 8080123, token abc123x')
    assert "pa ss" not in told and "abc123x" not in told
    assert "port 8080123" in told
    (tmp_path / ".env").write_text("APP_TOKEN=another-one\n")
    assert "another-one" not in mask.text("another-one")
    (tmp_path / ".env.example").write_text("APP_TOKEN=put-yours-here\n")
    assert mask.text("put-yours-here") == "put-yours-here"


def test_an_env_file_with_a_byte_order_mark_hides_its_first_value_too(tmp_path: Path) -> None:
    text = "\ufeffDB_PASSWORD=hunter2-x\r\nAPP_TOKEN=abc123x\r\n"
    (tmp_path / ".env").write_bytes(text.encode())
    told = Mask({}, tmp_path).text("hunter2-x abc123x")
    assert told == f"{mark('hunter2-x')} {mark('abc123x')}"
    assert restored(told, text) == "hunter2-x abc123x"


def test_no_fact_is_recorded_or_told_with_a_secret_in_it(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    log.mask = Mask({"OUR_API_KEY": KEY}).fact
    call = Call.make("1", "bash", command=f"echo {KEY}")
    facts = [
        Asked(text=f"use {KEY} and {BLOCK}"),
        Replied(turn=1, agent="a", text=KEY, calls=(call,)),
        Permitted(turn=1, call=call, allowed=True, by="policy", reason=f"{KEY}"),
        ToolRan(turn=1, call=call, output=f"{KEY}\n{FORMS[0]}", ok=True),
        Failed(turn=1, what="a", kind="refused", message=f"Incorrect API key provided: {FORMS[1]}"),
        Interrupted(turn=1, partial=KEY),
        Planned(steps=(Step(agent="a", instruction=KEY),), text=KEY),
    ]

    async def told() -> str:
        follow = log.follow()
        for fact in facts:
            log.append(fact)
        texts = [(await anext(follow)).model_dump_json() for _ in facts]
        log.tell(ToolSaid(turn=1, call="1", text=KEY))
        texts.append((await anext(follow)).model_dump_json())
        await follow.aclose()
        return "\n".join(texts)

    said = asyncio.run(told())
    log.close()
    for secret in (KEY, *FORMS[:2], "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU"):
        assert secret not in said
        assert secret not in (tmp_path / "s.jsonl").read_text()
    assert len(logs.read(tmp_path / "s.jsonl")) == len(facts)


def test_a_key_an_agent_makes_up_for_a_test_is_written_as_it_is() -> None:
    call = Call.make("1", "write", path="test_x.py", content=f'KEY = "{FORMS[0]}"')
    fact = Replied(turn=1, agent="a", text="", calls=(call,))
    assert Mask({"OUR_API_KEY": KEY}).fact(fact) is fact


@given(st.text(max_size=80), st.sampled_from(FORMS), st.text(max_size=80))
def test_what_was_masked_can_be_put_back_from_its_file(before: str, secret: str, after: str) -> None:
    text = f"{before} {secret} {after}"
    assert restored(Mask({}).text(text), text) == text


def test_what_a_log_masked_is_masked_where_the_variable_is_not_set(tmp_path: Path) -> None:
    word, long = "tok-veryverysecret-9931", "pa55/w+rd="
    told, path = Mask({"MY_TOKEN": word, "MY_SECRET": long}).text, tmp_path / "s.jsonl"
    path.write_text(told(f"read: token = {word}\nseen: plainword {long}\n"))
    shown = Remembered([path, tmp_path / "gone.jsonl"], str).text
    for text in (
        f"-token = {word}\n+token = '{word}'\n {{'a':'{long}'}}",
        f"+{word}\n-{long}",
        f"https://host/?k={word}&n={word}x curl -H X:{word};",
        f"export A={long} plainword",
    ):
        assert shown(text) == told(text)
    assert shown("x" * 100_000 + "=" * 100_000 + word).endswith(f"={mark(word)}")


def test_a_word_that_stands_in_the_log_is_not_taken_for_the_secret_of_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(f"{mark('os.system')} is what I wrote: os.system")
    assert Remembered([path], str).text("os.system(x)") == "os.system(x)"


def test_env_files_are_found_whenever_they_come_and_a_pipe_of_that_name_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    os.mkfifo(tmp_path / ".env")
    mask = Mask({}, tmp_path)
    assert mask.text("hidden-value") == "hidden-value"
    (tmp_path / "api" / ".env").write_text("API_TOKEN=hidden-value\n")
    assert mask.text("hidden-value").startswith("[secret ")
    (tmp_path / "api" / ".env").rename(tmp_path / "plain.txt")
    assert mask.text("hidden-value").startswith("[secret ")


def test_env_files_are_found_in_folders_that_were_listed_long_ago_and_no_other_secret_files_are_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "api").mkdir()
    for folder in (tmp_path, tmp_path / "api"):
        os.utime(folder, (1_000_000_000, 1_000_000_000))
    mask = Mask({}, tmp_path)
    assert mask.text("hidden-value") == "hidden-value"
    (tmp_path / "api" / ".env.local").write_text("API_TOKEN=hidden-value\n")
    (tmp_path / "api" / "secrets.json").write_text("API_TOKEN=other-value\n")
    assert mask.text("hidden-value").startswith("[secret ")
    assert mask.text("other-value") == "other-value"
