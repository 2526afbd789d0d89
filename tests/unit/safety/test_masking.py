"""Secrets: found in every form they come in, masked in what is recorded, told and shown, never in
what runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli.messages import Call
from fugu_cli.safety.redaction import (
    MARK,
    LogRedactor,
    Redactor,
    SecretScanner,
    has_secret,
    mark_for,
    restore_marks,
)
from fugu_cli.safety.secret_values import is_word
from fugu_cli.session import log as logs
from fugu_cli.session.events import (
    Asked,
    Failed,
    Interrupted,
    Permitted,
    Planned,
    Recorded,
    Replied,
    ToolRan,
    WorkflowStep,
)
from fugu_cli.session.live_events import OutputStreamed, TextStreamed
from fugu_cli.session.log import Log

KEY = "v3ry-s3cret-value"
LINE = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU"
BLOCK = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{LINE}\n-----END OPENSSH PRIVATE KEY-----"

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
]

PLAIN = [
    "Authorization: Basic authentication and Authorization: token config.authorizationToken",
    "sk-learn is a library; task-sk-1; risk-free",
    "https://example.org/a:b@c git@github.com:a/b.git http://localhost:8080/x@y http://:8080/a@b",
    "def test_token(): assert token == 'abc'",
    "commit 1234567890abcdef1234567890abcdef12345678",
    "AKIA is a prefix, eyJ too; -----BEGIN PUBLIC KEY-----",
    "[secret 12",
]


SECRETS = st.lists(st.text('ab1[]secrt "\\:=é', min_size=6, max_size=12), max_size=4)
"""Letters of marks among them, which could tear one, or be taken for a part of one."""
PIECES = st.lists(
    st.one_of(
        st.text('ab1[]secrt "\\:=é\n', max_size=6),
        st.sampled_from(
            [
                *FORMS,
                BLOCK,
                "://",
                "a:hunter2@h",
                "earer ",
                "sk-",
                "eyJ",
                "-----BEGIN ",
                "[secret 12ab]",
            ]
        ),
    ),
    max_size=8,
)


def streamed(mask: Redactor, pieces: list[str]) -> list[str]:
    live = [
        item for piece in pieces for item in mask.live(TextStreamed(turn=1, agent="a", text=piece))
    ]
    live += mask.rest(Replied(turn=1, agent="a"))
    return [item.text for item in live if isinstance(item, TextStreamed)]


@pytest.mark.parametrize("secret", FORMS)
def test_what_has_the_form_of_a_key_is_masked(secret: str) -> None:
    told = Redactor({}).text(f'before {secret}\nkey = "{secret}" after')
    assert told == f'before {mark_for(secret)}\nkey = "{mark_for(secret)}" after'


def test_of_a_private_key_each_line_is_a_secret_so_that_numbered_lines_and_diffs_keep_their_shape() -> (
    None
):
    mask = Redactor({})
    assert mask.text(BLOCK) == BLOCK.replace(LINE, mark_for(LINE))
    numbered = "\n".join(
        f"{number}\t{line}" for number, line in enumerate(BLOCK.split("\n"), start=12)
    )
    assert mask.text(numbered) == numbered.replace(LINE, mark_for(LINE))
    changed = f"-{LINE}"
    assert mask.text(BLOCK.replace(LINE, f"{changed}\n+{LINE}")) == BLOCK.replace(
        LINE, f"-{mark_for(LINE)}\n+{mark_for(LINE)}"
    )
    assert Redactor({"SSH_KEY": BLOCK}).text(f"x {LINE} y") == f"x {mark_for(LINE)} y"


@given(SECRETS, PIECES)
@example(["[secre", "ret 12"], ["[secret 12ab]"])
@example(["xa[secret 12"], ["xa[secret 12ab]"])
@example(["sk-abcdefgh"], ["sk-abcdefghijklmnopqrstuvwxyz"])
def test_no_secret_stands_outside_the_marks_and_what_was_masked_can_be_put_back(
    known: list[str], pieces: list[str]
) -> None:
    text = "".join(pieces)
    values: dict[str, set[str]] = {}

    def noted(value: str) -> str:
        values.setdefault(mark_for(value), set()).add(value)
        return mark_for(value)

    told = SecretScanner(known).masked(text, noted)
    for part in MARK.split(told):
        assert not [value for value in known if value in part]
    assert not any("\n" in value for found in values.values() for value in found)
    back = MARK.sub(lambda found: next(iter(values.get(found.group(), {found.group()}))), told)
    if not MARK.search(text) and all(len(found) == 1 for found in values.values()):
        assert back == text
    if not any(set(value) & set("[]") for value in known):
        assert SecretScanner(known).masked(told, mark_for, forms=False) == told


@given(SECRETS, PIECES, st.lists(st.integers(0, 400)))
@example(["abcdef", "ef11ab"], ["abcdef"], [4])
@example([], ["https://user:hunter2", "@host "], [20])
def test_a_text_that_comes_in_pieces_is_told_as_it_would_be_whole(
    known: list[str], pieces: list[str], cuts: list[int]
) -> None:
    text = "".join(pieces)
    places = [0, *sorted({cut for cut in cuts if cut < len(text)}), len(text)]
    split = [text[a:b] for a, b in pairwise(places)]
    values = {f"{number}_KEY": value for number, value in enumerate(known)}
    assert "".join(streamed(Redactor(values), split)) == Redactor(values).text(text)


def test_of_a_piece_only_what_may_become_a_secret_waits() -> None:
    mask = Redactor({"OUR_KEY": KEY})
    assert streamed(mask, ["The value is v3ry-s3", "cr", "et-value, the vow", "els are v"]) == [
        "The value is ",
        f"{mark_for(KEY)}, the vo",
        "wels are ",
        "v",
    ]


def test_what_waits_is_told_before_the_fact_that_ends_it() -> None:
    async def told() -> list[object]:
        log = Log.memory()
        log.mask = Redactor({"OUR_KEY": KEY})
        follow = log.follow()
        call = Call.make("1", "bash", command="x")
        ran = ToolRan(turn=1, call=call, output="", ok=True)
        waiting = asyncio.ensure_future(anext(follow))
        await asyncio.sleep(0)
        log.tell(OutputStreamed(turn=1, call="1", text=f"{KEY[:4]}"))
        log.tell(OutputStreamed(turn=1, call="2", text="other\n"))
        log.append(ran)
        return [await waiting, await anext(follow), (await anext(follow))]

    first, second, third = asyncio.run(told())
    assert first == OutputStreamed(turn=1, call="2", text="other\n")
    assert second == OutputStreamed(turn=1, call="1", text=KEY[:4])
    assert isinstance(third, Recorded)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "postgres",
            "Postgres",
            "SECRET",
            "secret",
            "password",
            "true",
            "localhost",
            "admin",
            "12345",
            "12345678",
        ),
        *(
            "127.0.0.1:5432",
            "2026-01-31",
            "****************"[:15],
            "пароль",
            "パスワード",
            "पासवर्ड",
            "données",
        ),
        *("db-password", "DB_PASSWORD", "x1y2"),
    ],
)
def test_a_word_a_number_and_what_its_name_says_are_no_secrets(value: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"DB_PASSWORD={value}\n", encoding="utf-8")
    mask, text = (
        Redactor({"DB_PASSWORD": value}, tmp_path),
        f"image: {value}:16 at postgres://u:{value}@h/x",
    )
    assert is_word(value, "DB_PASSWORD")
    assert mask.text(f"image: {value}:16") == f"image: {value}:16"
    assert mask.masked(Asked(text=f"{value}")) == Asked(text=value), text


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "abc123x",
        "aBcDeFgHi",
        "correct-horse",
        "4111-1111-1111-1111",
        "abcdefghijklmnop",
        "пароль-2",
    ],
)
def test_what_mixes_letters_with_other_characters_or_is_long_is_a_secret(value: str) -> None:
    assert not is_word(value, "DB_PASSWORD")
    assert Redactor({"DB_PASSWORD": value}).text(f"<{value}>") == f"<{mark_for(value)}>"


def test_a_long_text_without_secrets_is_passed_without_trying_every_form_at_every_character() -> (
    None
):
    text = "a path/to/file.py of https://example.org = skimmed, " * 200_000
    assert Redactor({"A_KEY": KEY}).text(text) == text


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_sounds_like_one_is_left_alone(text: str) -> None:
    assert (
        Redactor({"PATH": "/usr/bin", "EDITOR": "libraries", "API_KEY": "short"}).text(text) == text
    )


@pytest.mark.parametrize(
    "line",
    [
        "http.https://github.com/.extraheader=AUTHORIZATION: basic {}",
        "\textraheader = AUTHORIZATION: basic {}",
        "curl -H 'Authorization: Bearer {}'",
        'headers = {{"Authorization": "token {}"}}',
        "authorization:Basic {}",
    ],
)
@pytest.mark.parametrize(
    "value", ["eC1hY2Nlc3MtdG9rZW46Z2hzXzEyMzQ1Njc4OTBhYmNk", "9f8e7d6c5b4a39281706ffee"]
)
def test_the_credentials_of_an_authorization_header_are_masked(line: str, value: str) -> None:
    assert Redactor({}).text(line.format(value)) == line.format(mark_for(value))


def test_passwords_in_addresses_and_headers_are_masked() -> None:
    told = Redactor({}).text(
        "postgres://app:hunter22@db.example.org/x and Authorization: Bearer abcdefghijklmnopqrst"
    )
    assert "hunter22" not in told and "abcdefghijklmnopqrst" not in told
    assert "@db.example.org/x" in told
    assert re.fullmatch(
        r"redis://\[secret \w{4}\]@cache:6379/0",
        Redactor({}).text("redis://:hunter22@cache:6379/0"),
    )


def test_a_word_as_the_password_of_an_address_is_shown_but_commands_do_not_get_it_in_a_variable() -> (
    None
):
    assert (
        Redactor({}).text("postgres://postgres:postgres@db/x")
        == "postgres://postgres:postgres@db/x"
    )
    assert has_secret("postgres://postgres:postgres@db/x")
    assert not has_secret(f"the mark {mark_for('x')} of a secret")


def test_values_of_variables_and_env_files_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    mask = Redactor({"OUR_API_KEY": KEY, "EDITOR": "plain-value"}, tmp_path)
    assert mask.text(f"x{KEY}y plain-value").startswith("x[secret ")
    more = Redactor(
        {
            "PGPASSWORD": "hunter2-x",
            "MYSQL_PWD": "hunter3-x",
            "X_SECRET": "/aB3dE5gH7jK9",
            "A_KEY": str(tmp_path),
        }
    )
    assert "hunter" not in more.text("hunter2-x hunter3-x") and "/aB3" not in more.text(
        "/aB3dE5gH7jK9"
    )
    assert more.text(str(tmp_path)) == str(tmp_path)
    (tmp_path / ".env").write_text(
        "export DB_PASSWORD='pa ss\"word'\nPORT=8080123\nDEBUG=true\nAPP_TOKEN=abc123x # mine\n"
    )
    told = mask.text(
        'the password is pa ss"word, escaped "pa ss\\"word", port 8080123, token abc123x'
    )
    assert "pa ss" not in told and "abc123x" not in told
    assert "port 8080123" in told
    (tmp_path / ".env").write_text("APP_TOKEN=another-one\n")
    assert "another-one" not in mask.text("another-one")
    (tmp_path / ".env.example").write_text("APP_TOKEN=put-yours-here\n")
    assert mask.text("put-yours-here") == "put-yours-here"


def test_an_env_file_with_a_byte_order_mark_hides_its_first_value_too(tmp_path: Path) -> None:
    text = "\ufeffDB_PASSWORD=hunter2-x\r\nAPP_TOKEN=abc123x\r\n"
    (tmp_path / ".env").write_bytes(text.encode())
    told = Redactor({}, tmp_path).text("hunter2-x abc123x")
    assert told == f"{mark_for('hunter2-x')} {mark_for('abc123x')}"


def test_no_fact_is_recorded_or_told_with_a_secret_in_it(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    log.mask = Redactor({"OUR_API_KEY": KEY})
    call = Call.make("1", "bash", command=f"echo {KEY}")
    facts = [
        Asked(text=f"use {KEY} and {BLOCK}"),
        Replied(turn=1, agent="a", text=KEY, calls=(call,)),
        Permitted(turn=1, call=call, allowed=True, by="policy", reason=f"{KEY}"),
        ToolRan(turn=1, call=call, output=f"{KEY}\n{FORMS[0]}", ok=True),
        Failed(turn=1, what="a", kind="refused", message=f"Incorrect API key provided: {FORMS[1]}"),
        Interrupted(turn=1, partial=KEY),
        Planned(steps=(WorkflowStep(agent="a", instruction=KEY),), text=KEY),
    ]

    async def told() -> str:
        follow = log.follow()
        for fact in facts:
            log.append(fact)
        texts = [(await anext(follow)).model_dump_json() for _ in facts]
        log.tell(OutputStreamed(turn=1, call="1", text=f"{KEY}\n"))
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
    assert Redactor({"OUR_API_KEY": KEY}).masked(fact) is fact


def test_a_key_in_words_for_people_or_agents_is_masked_and_the_call_runs_as_it_was_made() -> None:
    redactor = Redactor({})
    for tool in ("remember", "ask_user", "todo", "advise"):
        call = Call.make("1", tool, text=f"The key is {FORMS[0]}.")
        recorded = redactor.masked(Replied(turn=1, agent="a", text="", calls=(call,))).calls[0]
        assert FORMS[0] not in recorded.arguments
        assert redactor.original(recorded) == call


VALUES = st.recursive(
    st.one_of(
        st.integers(),
        st.booleans(),
        st.none(),
        st.text(),
        st.sampled_from([KEY, f'é{KEY}\n"', FORMS[0]]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.booleans(), st.booleans())
def test_a_recorded_call_is_run_as_its_agent_made_it(
    arguments: dict[str, object], plain: bool, remembers: bool
) -> None:
    mask = Redactor({"OUR_API_KEY": KEY, "OTHER_KEY": 'quo"te\\d1'})
    call = Call(id="1", tool="write", arguments=json.dumps(arguments, ensure_ascii=plain))
    recorded = mask.masked(Replied(turn=1, agent="a", calls=(call,))).calls[0]
    assert KEY not in recorded.arguments
    assert mask.original(recorded) == call
    back = restore_marks(recorded.arguments, lambda found: next(iter(mask.values(found, ()))))
    assert json.loads(back) == arguments


def test_arguments_that_are_no_json_are_masked_as_they_stand() -> None:
    call = Call(id="1", tool="bash", arguments=f'{{"command": "echo {KEY}')
    assert KEY not in Redactor({"A_KEY": KEY}).masked(call).arguments


def test_a_mark_stands_only_for_what_was_masked_or_stands_in_the_files(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("APP_TOKEN=abc123x\n")
    mask = Redactor({"OUR_KEY": KEY}, tmp_path)
    assert mask.values(mark_for(KEY), ()) == set()
    mask.text(f"it is {KEY}")
    assert mask.values(mark_for(KEY), ()) == {KEY}
    assert mask.values(mark_for("abc123x"), ()) == {"abc123x"}
    assert mask.values(mark_for("abc123x"), (), others=False) == set()
    assert mask.values(mark_for("abc123x"), ["APP_TOKEN=abc123x"], others=False) == {"abc123x"}
    assert mask.values(mark_for("abc123x"), [f"APP_TOKEN={mark_for('abc123x')}"]) == {
        "abc123x",
        mark_for("abc123x"),
    }


def test_what_a_log_masked_is_masked_where_the_variable_is_not_set(tmp_path: Path) -> None:
    word, long = "tok-veryverysecret-9931", "pa55/w+rd="
    told, path = Redactor({"MY_TOKEN": word, "MY_SECRET": long}).text, tmp_path / "s.jsonl"
    path.write_text(told(f"read: token = {word}\nseen: plainword {long}\n"))
    shown = LogRedactor([path, tmp_path / "gone.jsonl"], str).text
    for text in (
        f"-token = {word}\n+token = '{word}'\n {{'a':'{long}'}}",
        f"+{word}\n-{long}",
        f"https://host/?k={word}&n={word}x curl -H X:{word};",
        f"export A={long} plainword",
    ):
        assert shown(text) == told(text)
    assert shown("x" * 100_000 + "=" * 100_000 + word).endswith(f"={mark_for(word)}")


def test_a_word_that_stands_in_the_log_is_not_taken_for_the_secret_of_a_mark(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(f"{mark_for('os.system')} is what I wrote: os.system")
    assert LogRedactor([path], str).text("os.system(x)") == "os.system(x)"


def test_env_files_are_found_whenever_they_come_and_a_pipe_of_that_name_is_not_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "api").mkdir()
    os.mkfifo(tmp_path / ".env")
    mask = Redactor({}, tmp_path)
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
    mask = Redactor({}, tmp_path)
    assert mask.text("hidden-value") == "hidden-value"
    (tmp_path / "api" / ".env.local").write_text("API_TOKEN=hidden-value\n")
    (tmp_path / "api" / "secrets.json").write_text("API_TOKEN=other-value\n")
    assert mask.text("hidden-value").startswith("[secret ")
    assert mask.text("other-value") == "other-value"


def test_env_files_are_found_however_deep_and_behind_a_link_but_not_among_dependencies(
    tmp_path: Path,
) -> None:
    root, beside = tmp_path / "root", tmp_path / "beside"
    for folder in (root / "a" / "b" / "c", root / "node_modules" / "x", beside):
        folder.mkdir(parents=True)
    mask = Redactor({}, root)
    assert mask.text("deep-v4lue") == "deep-v4lue"
    (root / "a" / "b" / "c" / ".env").write_text("APP_TOKEN=deep-v4lue\n")
    (root / "node_modules" / "x" / ".env").write_text("APP_TOKEN=their-v4lue\n")
    (beside / ".env").write_text("APP_TOKEN=linked-v4lue\n")
    (root / "linked").symlink_to(beside)
    (root / "turning").symlink_to(root / "turning")
    assert (
        mask.text("deep-v4lue their-v4lue linked-v4lue")
        == f"{mark_for('deep-v4lue')} their-v4lue {mark_for('linked-v4lue')}"
    )


def test_a_secret_that_comes_later_is_masked_from_then_on() -> None:
    redactor = Redactor({}, None)
    said = "the token is renewed-token-0123456789"
    assert redactor.text(said) == said
    redactor.add({"MCP_ACCESS_TOKEN": "renewed-token-0123456789"})
    assert redactor.text(said) == f"the token is {mark_for('renewed-token-0123456789')}"
