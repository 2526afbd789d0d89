"""The pages as HTML: sign-in, the list of sessions, a session, the endpoint's requests, the agents."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.app.session_standing import SessionStanding
from fugu_cli.formatting import flatten, known_cost, plural, sanitize_for_screen, with_tilde
from fugu_cli.server.web.followed import CONVERSATION, FollowedSession, version_of
from fugu_cli.server.web.markup import Markup, element, joined
from fugu_cli.server.web.session_parts import block_markup, cost_text, decisions_table, table
from fugu_cli.session.events import Recorded
from fugu_cli.session.state import SessionState
from fugu_cli.session.store import SessionSummary
from fugu_cli.session.verdicts import END_WORDS
from fugu_cli.ui.session_totals import FoldedSession

LIST_PART = "list"
"""The id of the part of a list that is kept up to date."""


@dataclass(frozen=True)
class AgentTable:
    """A table about the agents of the pool, its first row the heading."""

    caption: str
    rows: Sequence[Sequence[str]]
    note: str = ""


def page(title: str, base: str, *content: str, stream: str = "", version: str = "") -> Markup:
    """Return a whole page. `base` is the address of the pages, "" for a browser that has not signed
    in. `stream` is the address of the changes after `version`.
    """
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} · fugu"),
    ]
    navigation = Markup()
    if base:
        head.append(element("link", rel="stylesheet", href=f"{base}/page.css"))
        head.append(element("script", src=f"{base}/page.js", defer=True))
        links = [
            element("a", text, href=f"{base}{path}")
            for text, path in (("Sessions", "/"), ("Requests", "/requests"), ("Agents", "/agents"))
        ]
        sign_out = element(
            "form", element("button", "Sign out"), method="post", action=f"{base}/logout"
        )
        navigation = element("nav", *links, sign_out, aria_label="Pages")
    body = [
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", navigation),
        element("p", id="message", role="alert"),
        element(
            "main",
            element("h1", title),
            *content,
            id="content",
            tabindex=-1,
            data_stream=stream or None,
            data_version=version or None,
        ),
    ]
    html = element("html", element("head", *head), element("body", *body), lang="en")
    return Markup(f"<!doctype html>{html}")


def message_page(title: str, message: str, back: str = "") -> Markup:
    """Return a page with a message, and a link to the page before it."""
    link = [element("p", element("a", "Go back", href=back))] if back else []
    return page(title, "", element("p", message), *link)


def signed_in_page(base: str) -> Markup:
    """Return the page that leads from the one-time link to the sessions. Not a redirect: browsers
    send a SameSite cookie only from page to page of the same server.
    """
    refresh = element("meta", http_equiv="refresh", content=f"0;url={base}/")
    content = joined((refresh, element("p", element("a", "Go on", href=f"{base}/"))))
    return page("You are signed in", "", content)


def sessions_part(
    summaries: Sequence[SessionSummary], standings: Sequence[SessionStanding], base: str
) -> Markup:
    """Return the list of sessions, those that wait for an answer first."""
    pairs = list(zip(summaries, standings, strict=True))
    pairs.sort(key=lambda pair: pair[1].state != "waiting")
    items = []
    for summary, standing in pairs:
        cost = known_cost(
            summary.cost, unpriced=summary.is_unpriced, estimated=summary.is_estimated
        )
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.newest))
        facts = [when, cost, plural(summary.requests, "request"), with_tilde(summary.repo)]
        title = flatten(summary.title, 100) or summary.id
        link = element("a", title, href=f"{base}/sessions/{summary.id}")
        state = element("strong", standing.state, class_=standing.state.replace(" ", "-"))
        details = [element("p", sanitize_for_screen(" · ".join(facts)), class_="dim")]
        if standing.waits_for:
            details.append(element("p", standing.waits_for))
        items.append(element("li", element("p", state, " ", link), *details))
    if not items:
        return element("p", "There is no session yet.", id=LIST_PART)
    return element("ul", *items, id=LIST_PART, class_="list")


def requests_part(traces: Mapping[str, Sequence[Recorded]], base: str) -> Markup:
    """Return the list of the requests that the endpoint answered."""
    items = []
    for id, records in traces.items():
        request = SessionState.of_records(records).request
        title = flatten(request.asked.said, 100) if request.asked is not None else id
        state = "being answered"
        if request.finished is not None:
            state = END_WORDS.get(request.finished.reason, request.finished.reason)
        totals = FoldedSession(records).totals
        agents = ", ".join(map(flatten, totals.by_agent)) or "no agent"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(records[0].at))
        facts = f"{when} · {agents} · {cost_text(totals)}"
        link = element("a", title or id, href=f"{base}/requests/{id}")
        first = element("p", element("strong", state), " ", link)
        items.append(element("li", first, element("p", facts, class_="dim")))
    if not items:
        return element("p", "The endpoint has answered no request yet.", id=LIST_PART)
    return element("ul", *items, id=LIST_PART, class_="list")


def list_page(title: str, base: str, part: Markup, stream: str) -> Markup:
    """Return a page with a list that is kept up to date."""
    return page(title, base, part, stream=stream, version=version_of({LIST_PART: part}))


def session_page(session: FollowedSession, base: str) -> Markup:
    """Return the page of a session."""
    parts = dict(session.parts)
    address = f"{base}/sessions/{session.path.stem}"
    version = version_of(parts)
    conversation = {id: part for id, part in parts.items() if id.startswith(CONVERSATION)}
    sections = [
        parts["heading"],
        parts["questions"],
        element(
            "section",
            element("h2", "Conversation"),
            parts.get("earlier", Markup()),
            element("div", *conversation.values(), id="conversation"),
            aria_label="Conversation",
        ),
        element(
            "section",
            element("h2", "Send"),
            parts["send"],
            parts["actions"],
            aria_label="Send",
        ),
        element(
            "section",
            element("h2", "Trace"),
            parts["decisions"],
            parts["agents"],
            aria_label="Trace",
        ),
    ]
    stream = f"{address}/stream"
    return page(session.title, base, *sections, stream=stream, version=version)


def request_page(id: str, records: Sequence[Recorded], base: str) -> Markup:
    """Return the trace of a request that the endpoint answered."""
    folded = FoldedSession(records)
    blocks = [
        element("div", part, class_="block")
        for part in map(block_markup, folded.transcript.blocks)
        if part
    ]
    decisions = decisions_table(folded.rows.rows)
    return page(f"Request {id}", base, decisions, element("section", *blocks))


def agents_page(tables: Sequence[AgentTable], base: str) -> Markup:
    """Return the page with the skills of the agents."""
    content = []
    for skills in tables:
        heading, *rows = skills.rows
        content.append(table(skills.caption, heading, rows))
        if skills.note:
            content.append(element("p", skills.note, class_="dim"))
    return page("Agents", base, *content)
