"""Commands about who works: the pool, pinning, excluding, asking again, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.errors import UsageError
from fugu_cli.ui.clean import count, money, spent
from fugu_cli.ui.tui.commands.changes import summed
from fugu_cli.ui.tui.front import Choice

if TYPE_CHECKING:
    from fugu_cli.ui.tui.room import Room

AUTO = "auto"


def names(room: Room) -> Sequence[str]:
    """The agents of the session."""
    return tuple(room.work.session.crew.members) if room.work.session else ()


def names_or_auto(room: Room) -> Sequence[str]:
    """The agents, and the word that gives the decision back."""
    return (AUTO, *names(room))


async def pool(room: Room, argument: str) -> None:
    """Who is there; choosing one pins it."""
    if argument:
        await pin(room, argument)
        return
    choices = [Choice(AUTO, AUTO, "the coordinator decides")]
    breaker = room.session.crew.breaker
    out = breaker.unavailable() if breaker is not None else {}
    for name, member in room.session.crew.members.items():
        price = f"{money(member.price.input)}/{money(member.price.output)}" if member.price else "price unknown"
        marks = [member.slot, member.model, price]
        marks += ["pinned"] if room.work.pinned == name else []
        marks += ["excluded"] if name in room.work.excluded else []
        marks += [f"unavailable ({out[name]})"] if name in out else []
        choices.append(Choice(name, name, " · ".join(marks)))
    picked = await room.front.pick("The pool: choose an agent to pin it", choices, None, {"ctrl+e": "excludes"})
    if picked is None:
        return
    key, name = picked
    await (exclude if key == "ctrl+e" and name != AUTO else pin)(room, name)


async def pin(room: Room, argument: str) -> None:
    """One agent takes every turn; `auto` gives the decision back."""
    if argument in ("", AUTO):
        room.work.pin(None)
        room.say("the coordinator decides")
        return
    _known(room, argument)
    room.work.pin(argument)
    room.say(f"{argument} takes every turn until /pin auto")


async def exclude(room: Room, argument: str) -> None:
    """Leave an agent out, or let it in again."""
    _known(room, argument)
    out = room.work.excluded ^ {argument}
    if not set(room.session.crew.members) - out:
        raise UsageError("this would leave nobody to work", hint="let another agent in first")
    room.work.exclude(out)
    room.say(f"{argument} is {'left out until /exclude ' + argument if argument in out else 'in again'}")


async def retry(room: Room, argument: str) -> None:
    """Take the newest request's changes back and ask it again, of one agent where it is named."""
    if room.work.running:
        raise UsageError("a request is being worked on", hint="Esc stops it; then ask again")
    asked = views.asked(room.session.log.events)
    if asked is None:
        raise UsageError("nothing was asked yet")
    if argument:
        _known(room, argument)
    if views.changes(room.session.log.events):
        patch = await room.session.undo_preview()
        question = f"Take back what was done, and ask again? {summed(patch)}"
        if not await room.front.confirm(question, patch):
            return
        await room.session.undo()
    room.session.wake(argument or None)
    await room.send(asked.said, argument or None)


async def tier(room: Room, argument: str) -> None:
    """`fugu` decides turn by turn, `ultra` plans a workflow first."""
    if not argument:
        room.say(f"the tier is {room.tier}; /tier fugu or /tier ultra changes it")
        return
    room.session.set_tier(argument)
    room.tier = argument
    room.show()


async def cost(room: Room, argument: str) -> None:
    """Tokens and money, by agent."""
    del argument
    tally = room.feed.tally
    lines, unpriced = [], tally.unpriced
    for name, (usage, dollars) in sorted(tally.by_agent.items(), key=lambda item: -item[1][1]):
        cached = f", {count(usage.cached)} of them cached" if usage.cached else ""
        lines.append(
            f"{name}: {spent(dollars, unpriced=name in unpriced)} · {count(usage.input)} tokens read{cached}"
            f" · {count(usage.output)} written"
        )
    whole = spent(tally.cost, unpriced=bool(unpriced))
    room.say(f"{whole} in this session", "plain", "\n".join(lines) or "no agent was called yet")


def _known(room: Room, name: str) -> None:
    known = names(room)
    if name not in known:
        raise UsageError(
            f"there is no agent {name!r}" if name else "which agent?", hint="there are " + ", ".join(known)
        )
