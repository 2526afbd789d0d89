import asyncio
from collections.abc import Callable, Coroutine, Sequence

import pytest

from fugu_cli.app.request_queue import QueuedRequest, RequestQueue, is_unfinished
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.safety import policy
from fugu_cli.session.events import Asked, Finished, Interrupted, Permitted, Recorded, Replied
from fugu_cli.session.live_events import Live
from tests.unit.ui.tui.demo import DemoSessionOpener

ANSWER = '[[step]]\ntext = "Done."\n'
SLOW = '[[step]]\ntext = "Slow."\ndelay = 30\n'
ASKS = (
    '[[step]]\ncalls = [{ tool = "write", arguments = { path = "new.txt", content = "x" } }]\n'
    + ANSWER
)


class Heard:
    """Remembers what the session at work tells."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self.errors: list[str] = []

    def replayed(self, records: Sequence[Recorded]) -> None:
        self.records = list(records)

    def handle_item(self, item: Recorded | Live) -> None:
        if isinstance(item, Recorded):
            self.records.append(item)

    def changed(self) -> None:
        pass

    def failed(self, error: FuguError) -> None:
        self.errors.append(str(error))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


def run(
    opener: DemoSessionOpener,
    scripts: dict[str, str],
    play: Callable[[RequestQueue, Heard], Coroutine[None, None, None]],
) -> Heard:
    opener.scripts = scripts
    heard = Heard()

    async def whole() -> None:
        work = RequestQueue(heard)
        assert await work.open(opener.begin)
        try:
            await play(work, heard)
        finally:
            await work.close()

    asyncio.run(whole())
    return heard


def kinds(heard: Heard) -> list[str]:
    return [record.event.type for record in heard.records]


def test_what_is_typed_while_something_runs_is_sent_after_it(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        first = asyncio.create_task(work.submit(QueuedRequest("one")))
        await asyncio.sleep(0)
        assert work.running
        await work.submit(QueuedRequest("two"))
        assert [typed.text for typed in work.queue] == ["two"]
        await first
        await until(lambda: kinds(heard).count("finished") == 2)

    heard = run(opener, {"small": ANSWER + ANSWER}, play)
    assert [r.event.text for r in heard.records if isinstance(r.event, Asked)] == ["one", "two"]
    assert [r.event.reason for r in heard.records if isinstance(r.event, Finished)] == [
        "answered",
        "answered",
    ]


def unfinished(work: RequestQueue) -> bool:
    assert work.session is not None
    return is_unfinished(work.session)


def test_an_interrupted_request_is_cut_recorded_and_can_be_finished(
    opener: DemoSessionOpener,
) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        running = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: "assigned" in kinds(heard))
        assert work.interrupt()
        await running
        assert (work.running, unfinished(work), work.interrupt()) == (False, True, False)
        await work.go_on()
        assert not unfinished(work)
        await until(lambda: kinds(heard)[-1] == "finished")

    heard = run(opener, {"small": SLOW + ANSWER}, play)
    assert [type(r.event) for r in heard.records].count(Interrupted) == 1


def test_steering_cuts_what_runs_and_sends_what_waits(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        running = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: "assigned" in kinds(heard))
        assert not work.interrupt(steering=True)
        await work.submit(QueuedRequest("two"))
        assert work.interrupt(steering=True)
        await running
        await until(lambda: kinds(heard)[-1] == "finished")

    heard = run(opener, {"small": SLOW + ANSWER}, play)
    assert kinds(heard) == [
        "opened",
        "asked",
        "assigned",
        "interrupted",
        "asked",
        "assigned",
        "replied",
        "finished",
    ]


def test_what_was_cut_and_still_ends_what_it_started_is_stopping(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        request = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: "assigned" in kinds(heard))
        assert not work.stopping
        assert work.interrupt()
        assert work.stopping
        await request
        assert not work.stopping

    run(opener, {"small": SLOW}, play)


def test_an_interruption_leaves_the_queue_alone(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        running = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: "assigned" in kinds(heard))
        await work.submit(QueuedRequest("two"))
        work.interrupt()
        await running
        assert [typed.text for typed in work.queue] == ["two"]

    run(opener, {"small": SLOW}, play)


def test_what_breaks_while_the_log_is_shown_is_not_silent(opener: DemoSessionOpener) -> None:
    """A screen that stands still for good would look like an agent that thinks."""

    class Breaking(Heard):
        def handle_item(self, item: Recorded | Live) -> None:
            if isinstance(item, Recorded) and isinstance(item.event, Replied):
                raise LookupError("a bug")

    async def whole() -> None:
        work = RequestQueue(Breaking())
        assert await work.open(opener.begin)
        with pytest.raises(LookupError, match="a bug"):
            await work.submit(QueuedRequest("one"))
        assert not work.running
        await work.close()

    opener.scripts = {"small": ASKS}
    asyncio.run(whole())


def test_a_question_waits_for_its_answer(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        running = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: bool(work.approvals.questions))
        assert (
            work.approvals.questions[0].judgement.reason
            == "in ask mode every change is asked about"
        )
        assert not (opener.root / "new.txt").exists()
        work.answer(work.approvals.questions[0], "once")
        await running
        assert (opener.root / "new.txt").read_text() == "x"
        assert not work.approvals.questions
        await until(lambda: kinds(heard)[-1] == "finished")

    heard = run(opener, {"small": ASKS, "large": '[[step]]\ntext = "ACCEPT"\n'}, play)
    permitted = [
        r.event
        for r in heard.records
        if isinstance(r.event, Permitted) and r.event.by != "evidence"
    ]
    assert [(fact.allowed, fact.by) for fact in permitted] == [(True, "user")]


def test_several_questions_queue_and_an_interruption_drops_them(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        session = work.session
        assert session is not None
        judged = policy.Judgement(verdict="ask", reason="because")
        call = (await asyncio.to_thread(opener.listed), None)[1]
        del call
        from fugu_cli.messages import Call

        asks = [
            asyncio.create_task(work.ask(Call.make(str(n), "bash", command="x"), judged))
            for n in range(3)
        ]
        await asyncio.sleep(0)
        assert [question.call.id for question in work.approvals.questions] == ["0", "1", "2"]
        work.answer(work.approvals.questions[0], "no")
        await asyncio.sleep(0)
        assert [question.call.id for question in work.approvals.questions] == ["1", "2"]
        for task in asks[1:]:
            task.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
        assert not work.approvals.questions
        assert asks[0].result() == "no"

    run(opener, {"small": ANSWER}, play)


def test_a_session_that_cannot_be_opened_leaves_the_one_there_is(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        before = work.session
        assert not await work.open(lambda ask: opener.resume("nothing", ask))
        assert work.session is before

    heard = run(opener, {"small": ANSWER}, play)
    assert heard.errors == ["there is no session 'nothing'"]


def test_a_request_pinned_to_one_agent_gives_the_decision_back(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        await work.submit(QueuedRequest("one", pin="large"))
        await until(lambda: kinds(heard)[-1] == "finished")
        await work.submit(QueuedRequest("two"))
        await until(lambda: kinds(heard).count("finished") == 2)

    heard = run(opener, {"small": ANSWER, "large": ANSWER}, play)
    assert [(r.event.agent, r.event.by) for r in heard.records if r.event.type == "assigned"] == [
        ("large", "single"), ("small", "cascade"),
    ]  # fmt: skip


def test_a_failure_of_the_world_is_told_and_ends_the_request(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        session = work.session
        assert session is not None

        async def broken() -> Finished:
            raise UsageError("the disk is full")

        session.run = broken  # type: ignore[method-assign]
        await work.submit(QueuedRequest("one"))
        assert not work.running

    assert run(opener, {"small": ANSWER}, play).errors == ["the disk is full"]
