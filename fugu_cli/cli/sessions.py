"""`fugu sessions`, `fugu export` and `fugu cost`: the sessions of a folder, and what they cost.
Light: no wiring.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from fugu_cli.app.session_standing import session_standings
from fugu_cli.cli.command_flags import SessionsFlags
from fugu_cli.cli.current_folder import current_config, print_clean, read_records, say
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.formatting import aligned_rows, compact_number, first_line, known_cost, money, shorten
from fugu_cli.messages import Usage
from fugu_cli.session import store as kept
from fugu_cli.session.spending import Ledger, Payment, all_payments
from fugu_cli.session.store import SessionSummary, recorded_root


def list_or_change_sessions(flags: SessionsFlags) -> int:
    """List the sessions, or change one of them as the flags say."""
    if flags.repaired:
        return _repair(flags.search, flags.repaired)
    if flags.fork is not None:
        loaded = current_config()
        data, root = loaded.config.data, loaded.root
        copy = kept.fork_session(data, root, kept.find_session(data, root, flags.fork))
        print_clean(copy.stem)
        return 0
    if flags.rename is not None:
        return _rename(*flags.rename)
    if flags.delete is not None:
        return _delete(flags.delete, flags.yes)
    if (key := flags.archive or flags.restore) is not None:
        return _archive(key, archived=flags.archive is not None)
    return _show(flags)


def _show(flags: SessionsFlags) -> int:
    """Print a line for each session, or only its path. Raises UsageError if no session matches the
    flags; a folder that simply has none is no error.
    """
    loaded = current_config()
    data, root = loaded.config.data, loaded.root
    if flags.latest and flags.paths and not flags.search and not flags.everywhere:
        # scripts ask this; the others need not be read
        print_clean(str(kept.find_session(data, root, "latest")))
        return 0
    paths = kept.session_paths(data, None if flags.everywhere else root)
    summaries = kept.session_summaries(paths, archived=flags.archived)
    if flags.search:
        listed = [summary for summary in summaries if kept.mentions(summary, flags.search)]
    else:
        listed = list(summaries)
    if flags.latest:
        listed = listed[:1]
    if not listed:
        if flags.latest or flags.search or flags.archived:
            raise UsageError(
                "no session matches",
                hint="`fugu sessions --all` lists the sessions of every folder",
            )
        subject = "there is" if flags.everywhere else "this folder has"
        print_clean(f'{subject} no session yet; start one with `fugu run "..."`')
        return 0
    if flags.paths:
        lines = [str(summary.path) for summary in listed]
    elif flags.everywhere:
        lines = standing_lines(listed)
    else:
        lines = [_session_line(summary) for summary in listed]
    for line in lines:
        print_clean(line)
    if any(summary.state == kept.DAMAGED for summary in listed) and not flags.paths:
        say("`fugu sessions repair ID` copies a damaged session up to its fault")
    return 0


def _session_line(summary: SessionSummary) -> str:
    columns = [_id_and_time(summary), f"{summary.ended:<13}", f"{_request_count(summary):<11}"]
    columns.append(first_line(summary.title, 60))
    return "  ".join(columns).rstrip()


def standing_lines(summaries: Sequence[SessionSummary]) -> list[str]:
    """Return a line for each session: its state, cost, requests, folder, title, and what it waits for."""
    lines = []
    for summary, standing in zip(summaries, session_standings(summaries), strict=True):
        cost = known_cost(
            summary.cost, unpriced=summary.is_unpriced, estimated=summary.is_estimated
        )
        columns = [_id_and_time(summary), f"{standing.state:<13}", f"{cost:>9}"]
        columns += [f"{_request_count(summary):<11}", shorten(summary.repo, 40)]
        columns.append(first_line(summary.title, 60))
        if standing.waits_for:
            columns.append(f"({standing.waits_for})")
        lines.append("  ".join(columns).rstrip())
    return lines


def _id_and_time(summary: SessionSummary) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.newest))
    return f"{summary.id}  {when}"


def _request_count(summary: SessionSummary) -> str:
    return f"{summary.requests} request{'' if summary.requests == 1 else 's'}"


def _repair(word: str, key: str) -> int:
    """Copy a damaged session up to its fault; prints the new one's id."""
    if word != "repair":
        raise UsageError(
            f"one text is searched for, not {word!r} and {key!r}", hint='fugu sessions "two words"'
        )
    loaded = current_config()
    data, root = loaded.config.data, loaded.root
    path = kept.find_session(data, root, key)
    copy, fault = kept.repair_session(data, root, path)
    say(f"the copy ends before line {fault.line} of {path.stem}, which stays as it is")
    print_clean(copy.stem)
    return 0


def _rename(key: str, title: str) -> int:
    """Give a session another title."""
    loaded = current_config()
    path = kept.find_session(loaded.config.data, loaded.root, key)
    title = first_line(title, 200)
    if not title:
        raise UsageError("the title is empty", hint='fugu sessions --rename ID "what it was about"')
    kept.rename_session(path, title)
    print_clean(f"{path.stem}: {title}")
    return 0


def _archive(key: str, *, archived: bool) -> int:
    """Leave a session out of lists, or have it in them again."""
    loaded = current_config()
    path = kept.find_session(loaded.config.data, loaded.root, key)
    kept.archive_session(path, archived=archived)
    where = "`fugu sessions --archived` lists it" if archived else "it is in the list again"
    print_clean(f"{path.stem}: {where}")
    return 0


def _delete(key: str, yes: bool) -> int:
    """Remove a session, after asking unless `yes`. Raises UsageError if it cannot ask."""
    loaded = current_config()
    path = kept.find_session(loaded.config.data, loaded.root, key)
    summaries = kept.session_summaries([path]) + kept.session_summaries([path], archived=True)
    about = f"{path.stem}: {first_line(summaries[0].title, 60)}" if summaries else path.stem
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(
                "a deletion is asked about, and there is no terminal", hint="add --yes"
            )
        say(
            f"{about}\ndelete it for good? Its undo and its costs go with it; --archive only "
            f"hides it [y/N]"
        )
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return 4
    kept.delete_session(loaded.config.data, path)
    print_clean(f"{about}: deleted")
    return 0


def export(key: str, shape: str | None, file: Path | None) -> int:
    """Print a session as a document, or write it into a new file."""
    from fugu_cli import wiring
    from fugu_cli.ui.session_export import FORMATS, export_format, write_new_file

    if shape is not None and shape not in FORMATS:
        raise UsageError(f"there is no format {shape!r}", hint=f"one of {', '.join(FORMATS)}")
    format_name = shape or ("md" if file is None else export_format(file))
    loaded = current_config()
    path = kept.find_session(loaded.config.data, loaded.root, key)
    text = FORMATS[format_name](read_records(path), path.stem)
    if file is None:
        print(text, end="")
        return 0
    try:
        history = wiring.build_workspace(loaded.config, loaded.root).history
        write_new_file(file, text, history.note_export)
    except FileExistsError as error:
        raise UsageError(f"{file} exists already", hint="name another file") from error
    except OSError as error:
        raise StorageError(
            f"cannot write {file}: {error.strerror}", hint="name another file"
        ) from error
    print_clean(str(file))
    return 0


GROUPINGS: dict[str, Callable[[Payment], str]] = {
    "day": lambda payment: payment.day.isoformat(),
    "agent": lambda payment: payment.agent,
    "session": lambda payment: payment.session,
    "project": lambda payment: payment.repo or "(no folder)",
}


@dataclass(frozen=True)
class CostRow:
    """A row of the cost table. `unpriced` counts calls whose price is unknown."""

    name: str
    calls: int
    usage: Usage
    dollars: float
    unpriced: int
    estimated_dollars: float
    is_estimated: bool


def show_cost(by: str, days: int | None, everywhere: bool, as_json: bool) -> int:
    """Print the table. `days` limits it to so many days, today included. Raises UsageError for an
    unknown heading.
    """
    if by not in GROUPINGS:
        raise UsageError(f"--by {by!r} does not exist", hint=f"one of {', '.join(GROUPINGS)}")
    loaded = current_config()
    paid = all_payments(loaded.config.data)
    root, today = recorded_root(loaded.root), date.today()
    shown = [payment for payment in paid if everywhere or payment.repo == root]
    shown = [payment for payment in shown if days is None or (today - payment.day).days < days]
    rows = cost_table(shown, GROUPINGS[by])
    limits, ledger = loaded.config.money, Ledger(loaded.config.data, loaded.root)
    left = {}
    if limits.day is not None:
        left["day"] = (ledger.spent_today(), limits.day)
    if limits.project is not None:
        left["project"] = (ledger.spent_in_project(), limits.project)
    if as_json:
        print(
            json.dumps(
                {"by": by, "rows": [_row_object(row) for row in rows], "budgets": left}, indent=2
            )
        )
        return 0
    for text in _table_lines(rows, by, "every folder" if everywhere else str(loaded.root)):
        print_clean(text)
    for name, (used, limit) in left.items():
        print_clean(f"{name}'s budget: {money(used)} of {money(limit)} spent")
    return 0


def cost_table(paid: Sequence[Payment], key: Callable[[Payment], str]) -> list[CostRow]:
    """Sum payments by `key` in sorted order. The last row is the total."""
    groups: dict[str, list[Payment]] = {}
    for payment in paid:
        groups.setdefault(key(payment), []).append(payment)
    return [
        *(_cost_row(name, group) for name, group in sorted(groups.items())),
        _cost_row("all", paid),
    ]


def _cost_row(name: str, group: Sequence[Payment]) -> CostRow:
    usage = Usage()
    for payment in group:
        usage += payment.usage
    return CostRow(
        name,
        len(group),
        usage,
        sum(payment.dollars for payment in group),
        sum(not payment.priced for payment in group),
        sum(payment.estimated_dollars for payment in group),
        any(payment.is_estimated for payment in group),
    )


def _table_lines(rows: Sequence[CostRow], by: str, where: str) -> list[str]:
    header = [by, "calls", "in", "cached", "out", "cost"]
    body = [
        [
            row.name,
            *map(compact_number, (row.calls, row.usage.input, row.usage.cached, row.usage.output)),
            known_cost(row.dollars, unpriced=bool(row.unpriced), estimated=row.is_estimated),
        ]
        for row in rows
    ]
    return [f"spent in {where}", "", *aligned_rows([header, *body], range(1, len(header)))]


def _row_object(row: CostRow) -> dict[str, object]:
    cost = {"cost_usd": round(row.dollars, 8), "unpriced_calls": row.unpriced}
    if row.is_estimated:
        cost["estimated_cost_usd"] = round(row.estimated_dollars, 8)
    return {"name": row.name, "calls": row.calls, **row.usage.model_dump(), **cost}
