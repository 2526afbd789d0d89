"""The digest: what it says, word for word, and that it never gets too long."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators.digest import DIGEST_TOKENS, digest, tokens_at_most
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    Member,
    Opened,
    Permitted,
    Price,
    Replied,
    TestReport,
    ToolRan,
    Undone,
)
from tests.facts import POOL, asked, assigned, checked, opened, ran, replied, rolled_back, write
from tests.unit.coordinators.test_stopping import BROKEN, verified, worked

MINI = Member(
    name="mini",
    provider="openai",
    model="m",
    slot="cheap",
    price=Price(input=1, output=1),
    vendor="openai",
)
OPUS = Member(
    name="opus",
    provider="anthropic",
    model="o",
    slot="strong",
    price=Price(input=8, output=8),
    vendor="anthropic",
)
SLOTS = {member.name: member.slot for member in (*POOL, MINI, OPUS)}


def read(*events: Event) -> list[str]:
    return digest(events, SLOTS).splitlines()


def work(turn: int, agent: str, calls: int, tokens: int, *after: Event) -> list[Event]:
    """A turn of so many calls, the last of which writes ten lines."""
    made = [Call.make(f"c{turn}-{n}", "bash", command="make") for n in range(calls - 1)]
    made.append(Call.make(f"c{turn}-w", "write", path="a.py", content="line\n" * 9))
    usage = Usage(input=21_000, output=tokens)
    facts: list[Event] = [
        assigned(turn, agent),
        Replied(turn=turn, agent=agent, calls=tuple(made), usage=usage),
    ]
    for call in made:
        facts += ran(turn, call, path="a.py" if call is made[-1] else "")
    return [*facts, replied(turn, agent, "Done."), *after]


def suite(turn: int, *failing: str) -> list[Event]:
    call = Call(id=f"e{turn}", tool="run_tests")
    report = TestReport(passed=5, failed=len(failing), failing=failing, by_id=True)
    return [
        Permitted(turn=turn, call=call, allowed=True, by="evidence"),
        ToolRan(turn=turn, call=call, output="", ok=not failing, tests=report),
    ]


def test_a_request_reads_like_this() -> None:
    begun = [
        Opened(version="1", repo="/r", pool=(OPUS, MINI)),
        asked("fix   the\ntests"),
        *suite(0, "one", "two"),
    ]
    revised = [assigned(2, "opus", "verifier"), replied(2, "opus", "REVISE: a case is missing.")]
    assert read(*begun, *work(1, "mini", 3, 2000, *suite(1, "two", "three")), *revised) == [
        "judged by a check of the user",
        "prices: cheap 1, strong 10",
        "before: tests failed 2",
        "Worker cheap openai: files 1, lines 10, tests failed 2, 1 fixed, 1 broken",
        "Verifier strong anthropic: REVISE",
        "against it: the tests must pass and do not",
        "spent $0.02",
        "untried: strong 1",
        "next:",
    ]


def test_how_a_turn_ended_and_what_it_did_in_vain_is_told() -> None:
    tried = [call for n in range(3) for call in ran(1, write(f"w{n}"), "no match", ok=False)]
    cut = [
        assigned(1, "small"),
        replied(1, "small", "", *(write(f"w{n}") for n in range(3))),
        *tried,
    ]
    failed = [assigned(2, "coder"), Failed(turn=2, what="coder", kind="network", message="reset")]
    stopped = [assigned(3, "strong"), Interrupted(turn=3)]
    thought = [
        assigned(4, "strong", "thinker"),
        replied(4, "strong", "<suggested_role>worker</suggested_role>"),
    ]
    undone = [*worked(5, ok=False), rolled_back(5)]
    assert read(*BROKEN, *cut, *failed, *stopped, *thought, *undone)[2:] == [
        "Worker cheap: ended early, calls, nothing changed, write failed 2 times",
        "Worker middle: failed, network",
        "Worker strong: interrupted",
        "Thinker strong: asks for a worker",
        "Worker cheap: 1 tries rolled back",
        "against it: the tests must pass and do not",
        "untried: nobody",
        "next:",
    ]


def earlier(number: int, tokens: int = 100) -> list[Event]:
    change = FileChange(path="a", before=None, after=f"b{number}")
    call = Call(id=f"b{number}", tool="write")
    usage = Usage(output=tokens)
    return [
        asked(), assigned(1, "mini"), Replied(turn=1, agent="mini", calls=(call,), usage=usage),
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output="", ok=True, changes=(change,)), Finished(reason="accepted"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("accepted", "undone", "said"),
    [
        (4, 2, ""),
        (5, 0, "; accepted work was hardly ever undone"),
        (20, 2, "; accepted work was seldom undone"),
        (5, 1, "; accepted work was sometimes undone"),
        (6, 6, "; accepted work was often undone"),
    ],
)
def test_how_far_an_acceptance_can_be_trusted_is_known_from_what_the_user_undid(
    accepted: int, undone: int, said: str
) -> None:
    events = [opened()]
    for number in range(accepted):
        events += [*earlier(number), *([Undone(snapshot=None)] if number < undone else [])]
    assert read(*events, asked())[0] == f"judged by a check of the user{said}"
    assert read(*events, asked(judged=False))[0] == f"judged by the tests and a Verifier{said}"
    assert read(*events, asked(judged=False, command=None))[0] == f"judged by a Verifier{said}"


def test_no_word_of_the_request_is_read() -> None:
    assert read(*BROKEN[:1], asked("Please fix the typo")) == read(
        *BROKEN[:1], asked("Bau einen OAuth2-Server. 谢谢")
    )


def test_what_an_agent_took_is_told_beside_what_it_usually_takes() -> None:
    before = [Opened(version="1", repo="/r", pool=(MINI, OPUS)), *earlier(1, 1000)]
    line = read(*before, asked(), *work(1, "mini", 4, 9000))[2]
    assert line == (
        "Worker cheap openai: files 1, lines 10, 5 times its usual calls, 10 times its usual tokens"
    )
    assert (
        read(*before, asked(), *work(1, "mini", 1, 1100))[2]
        == "Worker cheap openai: files 1, lines 10"
    )


def test_of_many_turns_the_newest_are_told() -> None:
    turns = [fact for turn in range(1, 60) for fact in worked(turn, ok=False)]
    found = read(*BROKEN, *turns)
    dropped = next(line for line in found if line.endswith("earlier turns"))
    assert found.index(dropped) == 2
    assert int(dropped.split()[0]) + sum(line.startswith("Worker") for line in found) == 59
    assert tokens_at_most("\n".join(found)) <= DIGEST_TOKENS


TURN = st.tuples(
    st.sampled_from(["work", "pass", "revise", "say", "fail", "cut"]), st.text(max_size=300)
)


def turn_of(number: int, kind: str, text: str) -> Sequence[Event]:
    match kind:
        case "work" | "pass":
            return worked(number, ok=kind == "pass")
        case "revise":
            return verified(number, f"REVISE: {text}")
        case "say":
            return [assigned(number, text or "x"), replied(number, text or "x", text)]
        case "fail":
            return [
                assigned(number, "small"),
                Failed(turn=number, what="small", kind=text, message=text),
            ]
        case _:
            return [assigned(number, "strong", "thinker"), Interrupted(turn=number)]


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=3000), turns=st.lists(TURN, max_size=40), history=st.integers(0, 4))
def test_it_has_256_tokens_at_most_whatever_happened(
    text: str, turns: list[tuple[str, str]], history: int
) -> None:
    events: list[Event] = [
        opened(),
        *(fact for number in range(history) for fact in earlier(number)),
        asked(text),
    ]
    events += checked(0, ok=False)
    for number, (kind, said) in enumerate(turns, start=1):
        events += turn_of(number, kind, said)
    found = digest(events, SLOTS)
    assert tokens_at_most(found) <= DIGEST_TOKENS
    assert found.endswith("\nnext:")
    assert digest(events, SLOTS) == found


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("next:", 2),
        ("a b", 2),
        ("files 12", 4),
        ("tests failed", 4),
        ("修复", 6),
        ("", 0),
        ("x\n\ny", 4),
    ],
)
def test_tokens_are_counted_from_above(text: str, least: int) -> None:
    assert tokens_at_most(text) >= least
