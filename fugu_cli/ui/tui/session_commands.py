"""Commands about sessions and what they changed: open, fork, rename, export; diff, blame, undo,
redo.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from fugu_cli.app import patches
from fugu_cli.engine import blame, harness, undo
from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.formatting import flatten, plural
from fugu_cli.messages import Prompt
from fugu_cli.safety.redaction import LogRedactor
from fugu_cli.session import log, store
from fugu_cli.session.events import FileEffects, Member
from fugu_cli.session.state import SessionState
from fugu_cli.system import temp_dirs
from fugu_cli.tools.diff import change_diffs
from fugu_cli.ui import blame_text as plain
from fugu_cli.ui import diff_drawing
from fugu_cli.ui.block_drawing import transcript_fragments
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import render_rich
from fugu_cli.ui.session_export import FORMATS, export_format, write_new_file
from fugu_cli.ui.trace_rows import TurnRow
from fugu_cli.ui.transcript import transcript_blocks
from fugu_cli.ui.tui import folder_trust, project_folder
from fugu_cli.ui.tui.screen_protocol import Choice, KeyAnswer, PickedChoice
from fugu_cli.ui.turn_page import Section, TurnPages, TurnSources

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionProtocol
    from fugu_cli.engine.environment import AskPermission
    from fugu_cli.extensions.memory import Memory, Scope
    from fugu_cli.session.store import SessionSummary
    from fugu_cli.ui.tui.session_controller import SessionController


async def undo_request(controller: SessionController, argument: str) -> None:
    """Put the working tree back to before the newest request, after showing what would change."""
    del argument
    await require_idle(controller)
    await confirm_and_undo(controller, "Undo the newest request?")


async def confirm_and_undo(controller: SessionController, question: str) -> bool:
    """Show what undo would change, let the user untick files that may be theirs, and undo; whether
    it was done."""
    undoing = controller.session.log, controller.session.environment.workspace
    patch = await undo.undo_preview(*undoing)
    if not await controller.view.dialogs.confirm(f"{question} {patch_summary(patch)}", patch):
        return False
    keep = await _untick(controller, await undo.unclaimed_paths(*undoing))
    if keep is None:
        return False
    await undo.undo_request(*undoing, keep)
    return True


async def _untick(controller: SessionController, unclaimed: dict[str, str]) -> set[str] | None:
    """Let the user untick files that changed while a command ran; those that stay as they are. None
    where nothing is to be undone."""
    keep: set[str] = set()
    while unclaimed:
        choices = [Choice("", "put back the ticked files")]
        choices += [
            Choice(path, f"[{' ' if path in keep else 'x'}] {path}", f"changed while {command} ran")
            for path, command in unclaimed.items()
        ]
        picked = await controller.view.dialogs.pick("Untick what is yours", choices)
        if picked is None:
            return None
        if not picked[1]:
            break
        keep ^= {picked[1]}
    return keep


async def redo_undo(controller: SessionController, argument: str) -> None:
    """Take the newest undo back, after showing what would change."""
    del argument
    await require_idle(controller)
    undoing = controller.session.log, controller.session.environment.workspace
    patch = await undo.redo_preview(*undoing)
    if await controller.view.dialogs.confirm(
        f"Redo what was undone? {patch_summary(patch)}", patch
    ):
        await undo.redo_request(*undoing)


async def rewind_session(controller: SessionController, argument: str) -> None:
    """Go back to before a request or a turn: the files, the conversation (in a copy of the
    session), or both.
    """
    await require_idle(controller)
    _require_empty_queue(controller)
    name, _, part = argument.partition(" ")
    if part not in ("", "files", "conversation"):
        raise UsageError(
            f"what is to be rewound is files or conversation, not {part!r}",
            hint="left out, it is both",
        )
    if not name:
        picked = await _pick_point(controller)
        if picked is None:
            return
        part, name = {"ctrl+f": "files", "ctrl+e": "conversation"}.get(picked[0], ""), picked[1]
    session, id = controller.session, _session_id(controller)
    point = undo.find_point(session.log.events, name)
    if part == "files" and point.turn:
        raise UsageError(
            "files alone go back to the beginning of a request",
            hint=f"/rewind {name} takes both back",
        )
    if part != "files" and not id:
        raise UsageError(
            "this session is in no file, so there is nothing to copy", hint=f"/rewind {name} files"
        )
    if part != "conversation":
        patch = await undo.rewind_preview(session.log, session.environment.workspace, point)
        if patch and not await controller.view.dialogs.confirm(
            f"Rewind to before {point.label}? {patch_summary(patch)}", patch
        ):
            return
        await undo.rewind_files(session.log, session.environment.workspace, point)
    if part == "files":
        controller.say(
            f"the files are as before {point.label}" if patch else "no file had to be put back"
        )
    elif await _open(controller, lambda ask: controller.opener.fork(id, ask, point.line)):
        kept = "the original stays as it was"
        if part != "conversation" and patch:
            kept = f"/resume {id}, then /redo brings the files back"
        controller.say(f"this is a copy of {id} that ends before {point.label}; {kept}")
        if not point.turn and point.asked.plan is None:  # an open plan is asked about anew
            controller.view.type(point.asked.said)


async def _pick_point(controller: SessionController) -> PickedChoice | None:
    points = undo.rewind_points(controller.session.log.events)
    if not points:
        controller.say("nothing was asked yet")
        return None
    choices = []
    for point in sorted(points, key=lambda point: (-point.request, point.turn)):
        about = f"· {point.agent_and_role}" if point.turn else flatten(point.asked.said, 200)
        choices.append(Choice(point.name, f"{point.name:<4} {about}"))
    keys = {"ctrl+f": "files only", "ctrl+e": "conversation only"}
    return await controller.view.dialogs.pick("Rewind to before", choices, None, keys)


def point_names(controller: SessionController) -> Sequence[str]:
    """Return the names of points that the session can go back to."""
    points = undo.rewind_points(controller.session.log.events) if controller.work.session else ()
    return tuple(point.name for point in points)


async def show_diff(controller: SessionController, argument: str) -> None:
    """Show the changes since the newest request began; with `all`, since the session began; with a
    number, those that this request made.
    """
    if argument and argument != "all":
        patch = await _diff_of_earlier_request(controller, argument)
        unchanged = f"request {argument} changed no file"
    else:
        patch = await diff_of_request(controller, all=argument == "all")
        unchanged = "nothing changed since the newest request began"
    if not patch.strip():
        controller.say(unchanged)
        return
    controller.view.dialogs.read(
        patch_summary(patch),
        [Section("", (Fragment(lambda w, p: diff_drawing.patch_lines(patch, w, p), patch),))],
    )


async def diff_of_request(controller: SessionController, *, all: bool = False) -> str:
    """Return the changes since the newest request began, or the first one, as a diff.

    Outside git only files that fugu's own tools changed are included, and only changes that still
    exist.
    """
    workspace = controller.session.environment.workspace
    requests = controller.session.log.state.requests
    shown = requests if all else requests[-1:]
    began = next((request.start_snapshot for request in shown if request.start_snapshot), "")
    snapshot = await workspace.history.snapshot() if began else None
    patch = (await workspace.patch(began, snapshot)).decode("utf-8", "replace") if snapshot else ""
    unsnapshotted = tuple(
        change for request in shown for change in request.unsnapshotted_changes.values()
    )
    more = workspace.history.standing(FileEffects(unsnapshotted)).effects.changes
    return patch + "".join((await change_diffs(workspace, more)).values())


async def _diff_of_earlier_request(controller: SessionController, number: str) -> str:
    """Return what a request changed, as a diff. Raises UsageError for another text than the number
    of a request.
    """
    requests = controller.session.log.state.requests
    if not number.isdecimal() or not 1 <= int(number) <= len(requests):
        raise UsageError(
            f"there is no request {number!r} in this session", hint="/diff, /diff all or /diff 1"
        )
    workspace = controller.session.environment.workspace
    changes = tuple(requests[int(number) - 1].changes.values())
    return "".join((await change_diffs(workspace, changes)).values())


async def show_trace(controller: SessionController, argument: str) -> None:
    """Show or hide the trace; with a number, open the newest turn of that number, or as `2.3` turn 3
    of request 2. `last` instead of a turn's number is the turn that the request's result comes from.
    """
    if not argument:
        controller.view.show_trace()
        return
    rows = [row for row in controller.feed.folded.rows.rows if isinstance(row, TurnRow)]
    number, _, turn = argument.rpartition(".")
    if number:
        rows = [row for row in rows if str(row.request.number) == number]
    elif turn == LAST_TURN:
        rows = [row for row in rows if row.request is rows[-1].request]
    turns = [row for row in rows if str(row.assigned.turn) == turn]
    if turn == LAST_TURN and rows:
        turns = [deciding_turn(rows)]
    if turns:
        open_turn(controller, turns[-1])
    elif turn == LAST_TURN:
        controller.say("there is no turn yet", "warn")
    else:
        controller.say(f"there is no turn {argument}", "warn")


LAST_TURN = "last"


def deciding_turn(turns: Sequence[TurnRow]) -> TurnRow:
    """Return the newest Worker's turn that changed files, else the newest Worker's, else the newest
    turn.
    """
    workers = [
        turn for turn in turns if turn.assigned.role == "worker" and turn.assigned.subtask is None
    ]
    changed = [turn for turn in workers if turn.changed_files]
    return (changed or workers or turns)[-1]


def open_turn(controller: SessionController, row: TurnRow) -> None:
    """Show a turn in full. Left and right turn to its neighbours."""
    session, rows = controller.session, controller.feed.folded.rows.rows

    def prompt_of(state: SessionState, member: Member) -> Prompt:
        return harness.build_prompt(state, member, (), session.environment.instructions)

    sources = TurnSources(prompt_of, controller.patches.of)
    controller.view.dialogs.turn_pages(TurnPages(rows, row, session.log.records, sources))


def patch_summary(patch: str) -> str:
    """Return a text like `2 files, +3 -1`."""
    files = sum(line.startswith("+++ ") for line in patch.splitlines())
    added, removed = patches.patch_size(patch)
    return f"{plural(files, 'file')}, +{added} -{removed}"


async def require_idle(controller: SessionController) -> None:
    """Raise UsageError while a request is being worked on."""
    await controller.work.wait_for_ending()
    if controller.work.running:
        raise UsageError(
            "a request is being worked on", hint="wait for its end, or stop it with Esc"
        )


BLAME_FRAGMENT_LINES = 40
"""Lines of one piece."""


def changed_paths(controller: SessionController) -> Sequence[str]:
    """Return the files that the newest request changed."""
    return tuple(controller.session.log.state.request.changes) if controller.work.session else ()


async def show_blame(controller: SessionController, argument: str) -> None:
    """Show the authors of this session's changes, or of a file. Raises UsageError for a missing
    file.
    """
    workspace = controller.session.environment.workspace
    path = controller.session.log.path
    own = (path.stem if path else "this session", list(controller.session.log.records))
    mask = workspace.mask
    from fugu_cli.engine.commit_blame import add_noted_authors

    if not argument:
        _show_lines(
            controller,
            "Who wrote what this session changed",
            plain.session_blame_lines(await blame.blame_session(workspace, own), mask),
        )
        return
    listed = await asyncio.to_thread(controller.opener.listed)
    others = [summary for summary in listed if summary.id != own[0]]
    mask = LogRedactor([summary.path for summary in others], mask).text
    sessions = [*await asyncio.to_thread(_other_sessions, others), own]
    sessions.sort(key=lambda session: session[0])
    file = project_folder.typed_path(workspace.root, argument)
    file_blame = await add_noted_authors(
        workspace, await blame.blame_path(workspace, file, sessions)
    )
    lines = plain.file_blame_lines(file_blame, mask)
    _show_lines(controller, f"Who wrote {file_blame.path}", lines)


MOST_NAMED = 3
"""Files that the heading of a commit names."""


async def commit_changes(controller: SessionController, argument: str) -> None:
    """Commit as `fugu commit` does. Without a message, put one that an agent wrote into the prompt,
    to be sent or edited first. `-a` takes all changes of tracked files, `-r` the files of the newest
    request, new ones too.
    """
    flag = argument.partition(" ")[0]
    if flag not in ("-a", "-r"):
        flag = ""
    message = argument.removeprefix(flag).strip()
    words = ["commit", *(["-m", message] if message else ["--dry-run"])]
    committed = "what is staged"
    if flag == "-a":
        words.append("-a")
        committed = "all changes of tracked files"
    if flag == "-r":
        paths = _paths_to_commit(controller.session)
        if not paths:
            controller.say("the newest request changed no file that is still there")
            return
        words += ["--", *paths]
        committed = ", ".join(map(flatten, paths[:MOST_NAMED]))
        if len(paths) > MOST_NAMED:
            committed += f" and {plural(len(paths) - MOST_NAMED, 'more file')}"
    # -I: the folder may hold a `fugu_cli`
    command = shlex.join([sys.executable, "-I", "-m", "fugu_cli", *words])
    if message:
        await controller.shell.run(command, tell=False, heading=f"committing {committed}")
        return
    with temp_dirs.temp_dir("message") as folder:
        written = folder / "message"
        heading = f"writing a commit message for {committed}"
        into_file = f"{command} > {shlex.quote(str(written))}"
        code = await controller.shell.run(into_file, tell=False, heading=heading)
        if code == UsageError.exit_code and not flag and _paths_to_commit(controller.session):
            controller.say("/commit -r commits the files of the newest request")
        if code:
            return
        written_message = written.read_text(encoding="utf-8", errors="replace").strip()
        text = " ".join(["/commit", *([flag] if flag else []), written_message])
    if not controller.view.type(text):
        controller.history.add(text)
        controller.say("the message is written: Up shows it, Down goes back to what you typed")


def _paths_to_commit(session: SessionProtocol) -> list[str]:
    """Return the files that the newest request changed, without new ones that are gone again."""
    root = session.environment.workspace.root
    return [
        path
        for path, change in session.log.state.request.changes.items()
        if change.before is not None or (root / path).exists()
    ]


def _other_sessions(summaries: Sequence[SessionSummary]) -> list[blame.NamedSession]:
    read: list[blame.NamedSession] = []
    for summary in summaries:
        try:
            read.append((summary.id, log.examine(summary.path).records))
        except StorageError:
            continue  # it was read for the list a moment ago
    return read


def _show_lines(controller: SessionController, title: str, lines: Sequence[Text]) -> None:
    pieces = [
        _blame_fragment(lines[start : start + BLAME_FRAGMENT_LINES])
        for start in range(0, len(lines), BLAME_FRAGMENT_LINES)
    ]
    controller.view.dialogs.read(title, [Section("", tuple(pieces))])


def _blame_fragment(lines: Sequence[Text]) -> Fragment:
    text = Text("\n").join(lines)
    return Fragment(lambda width, palette: render_rich(text, width, palette), text.plain)


PREVIEWED_RECORDS = 400
"""Lines of a session that its preview draws from."""


async def new_session(controller: SessionController, argument: str) -> None:
    """Leave this session and begin another."""
    del argument
    await _open(controller, controller.opener.begin)


async def pick_session(controller: SessionController, argument: str) -> None:
    """Choose among earlier sessions: resume one, or fork it."""
    summaries = await _list_sessions(controller)
    if not summaries:
        controller.say("this folder has no session yet")
        return
    chosen = await asyncio.to_thread(_matching_sessions, summaries, argument)
    if not chosen:
        controller.say(f"nobody said {argument!r} in a session of this folder; here are all")
    paths = {summary.id: summary.path for summary in summaries}
    picked = await controller.view.dialogs.pick(
        "Sessions of this folder",
        [_session_choice(summary) for summary in (chosen or summaries)],
        lambda id: _preview(paths[id]),
        {"ctrl+f": "forks", "ctrl+e": "renames"},
    )
    if picked is None:
        return
    key, id = picked
    if key == "ctrl+e":
        controller.view.type(f"/rename {id} ")
    elif key == "ctrl+f":
        await _open(controller, lambda ask: controller.opener.fork(id, ask))
    else:
        await _resume(controller, id)


def _matching_sessions(
    summaries: list[store.SessionSummary], text: str
) -> list[store.SessionSummary]:
    """Return the sessions that mention the text, those with it in their title first."""
    saying = [summary for summary in summaries if not text or store.mentions(summary, text)]
    return sorted(saying, key=lambda summary: text.casefold() not in summary.title.casefold())


async def _list_sessions(controller: SessionController) -> list[store.SessionSummary]:
    """Return the folder's sessions."""
    return list(await asyncio.to_thread(controller.opener.listed))


async def resume_session(controller: SessionController, argument: str) -> None:
    """Resume the session with this id, or without one the newest other session of the folder."""
    if argument:
        await _resume(controller, argument)
        return
    current = _session_id(controller)
    others = [summary for summary in await _list_sessions(controller) if summary.id != current]
    if others:
        await _resume(controller, others[0].id)
    else:
        controller.say("this folder has no other session")


async def _resume(controller: SessionController, id: str) -> None:
    if id == _session_id(controller):
        controller.say("this session is open already")
        return
    await _open(controller, lambda ask: controller.opener.resume(id, ask))


async def _open(
    controller: SessionController, opening: Callable[[AskPermission], Awaitable[SessionProtocol]]
) -> bool:
    """Open another session. Raises UsageError while this one works or has requests in its queue,
    which would be lost.
    """
    await require_idle(controller)
    _require_empty_queue(controller)
    return await controller.open(opening)


def _require_empty_queue(controller: SessionController) -> None:
    if controller.work.queue:
        waiting = plural(len(controller.work.queue), "request")
        raise UsageError(
            f"{waiting} in the queue would be dropped", hint="Ctrl+S sends them, Up takes them back"
        )


async def fork_session(controller: SessionController, argument: str) -> None:
    """Fork this session, or the one with this id, and go on with the copy."""
    id = argument or _session_id(controller)
    if not id:
        raise UsageError("this session is in no file, so there is nothing to copy")
    if await _open(controller, lambda ask: controller.opener.fork(id, ask)):
        controller.say(f"this is a copy of {id}; the original stays as it was")


async def rename_session(controller: SessionController, argument: str) -> None:
    """Give this session a title, or the one whose id the argument begins with."""
    ids = {summary.id for summary in await asyncio.to_thread(controller.opener.listed)}
    first, _, rest = argument.partition(" ")
    id, title = _session_id(controller), argument
    if first in ids and rest.strip():
        id, title = first, rest.strip()
    if not id or not title:
        raise UsageError("a title is missing", hint="/rename TITLE, or /rename ID TITLE")
    await asyncio.to_thread(controller.opener.rename, id, title)
    controller.say(f"{id} is called {title!r} now", "good")


async def continue_request(controller: SessionController, argument: str) -> None:
    """Finish a request that was cut off."""
    del argument
    await require_idle(controller)
    if not await controller.work.go_on():
        controller.say("the newest request has come to its end; ask something")


async def compact_session(controller: SessionController, argument: str) -> None:
    """Shorten what agents read of earlier requests."""
    del argument
    await controller.session.compact()


async def remember(controller: SessionController, argument: str) -> None:
    """Show a line as it would be kept in the memory, and keep it in the file that the user picks."""
    memory = _memory(controller)
    line = await asyncio.to_thread(memory.line, argument)
    scope = await _choose_memory(controller, memory, f"Keep `- {line}` for later sessions?")
    if scope is None:
        controller.say("the line was not kept")
        return
    await asyncio.to_thread(memory.add, line, scope)
    controller.say(f"kept in {memory.shown_path(scope)}", "good", f"- {line}")
    _, notes = await asyncio.to_thread(memory.read)
    controller.notes.warn(notes)


async def open_memory(controller: SessionController, argument: str) -> None:
    """Open a memory file in the editor. A trusted repository stays trusted: the user edits it."""
    memory = _memory(controller)
    if argument and argument not in memory.scopes:
        raise UsageError(f"there is no memory {argument!r}", hint=f"/memory {memory.scopes[0]}")
    scope = next((scope for scope in memory.scopes if scope == argument), memory.scopes[-1])
    if not argument and len(memory.scopes) > 1:
        chosen_scope = await _choose_memory(controller, memory, "Open which memory?")
        if chosen_scope is None:
            return
        scope = chosen_scope
    from fugu_cli.ui.hyperlinks import FilePlace

    with memory.editing(scope) as path:
        await controller.view.dialogs.edit_file(FilePlace(path))
    _, notes = await asyncio.to_thread(memory.read)
    controller.notes.warn(notes)


async def _choose_memory(
    controller: SessionController, memory: Memory, question: str
) -> Scope | None:
    """Ask for one of the memory files. Return its scope, None for not now."""
    labels = {"repository": "for this repository", "user": "for every repository"}
    scopes = dict(zip("ye", memory.scopes, strict=False))
    files = [f"{labels[scope]}: {memory.shown_path(scope)}" for scope in memory.scopes]
    answers = [KeyAnswer(key, labels[scope]) for key, scope in scopes.items()]
    key = await controller.view.dialogs.choose(question, "; ".join(files), answers)
    return scopes.get(key)


def _memory(controller: SessionController) -> Memory:
    if controller.session.memory is None:
        raise UsageError("this session has no memory", hint="start fugu without --bare")
    return controller.session.memory


async def trust_folder(controller: SessionController, argument: str) -> None:
    """Ask for trust, and open the session again where it is given: all that counts is read then."""
    del argument
    await require_idle(controller)
    _require_empty_queue(controller)
    opener = controller.opener
    await asyncio.to_thread(opener.reload)  # files may have come since the session began
    answer = await folder_trust.ask_for_trust(opener, controller.view.dialogs)
    if answer is None:
        controller.say("this folder brings nothing that needs your trust, or you trust it already")
    elif not answer:
        controller.say(folder_trust.ignored_note(opener), "warn")
    else:
        id = _session_id(controller)
        if controller.session.log.state.request.asked is None:
            await controller.open(opener.begin)
        else:
            await controller.open(lambda ask: opener.resume(id, ask), close_first=True)
        controller.say("this folder is trusted: what it brings counts", "good")


async def export_session(controller: SessionController, argument: str) -> None:
    """Write the conversation as Markdown, HTML or JSON, by the file's ending."""
    id = _session_id(controller) or time.strftime("%Y%m%d-%H%M%S")
    if argument:
        path, name = project_folder.typed_path(controller.opener.root, argument), argument
    else:
        # not in the folder, where agents would find it
        exports = controller.options.state / "exports"
        path = exports / f"fugu-{id}-{time.strftime('%H%M%S')}.md"
        name = project_folder.short_path(path)
    text = FORMATS[export_format(path)](tuple(controller.session.log.records), id)
    try:
        if not argument:
            path.parent.mkdir(parents=True, exist_ok=True)
        note_export = controller.session.environment.workspace.history.note_export
        await asyncio.to_thread(write_new_file, path, text, note_export)
    except FileExistsError as error:
        raise UsageError(
            f"{name} exists already", hint="name another file: /export FILE"
        ) from error
    except (OSError, ValueError) as error:  # a ValueError: no file can be called that
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise FuguError(
            f"cannot write {name}: {why}", hint="name another file: /export FILE"
        ) from error
    controller.say(f"written to {name}", "good")


async def leave_fugu(controller: SessionController, argument: str) -> None:
    """Leave fugu."""
    del argument
    await controller.view.leave()


def _session_choice(summary: store.SessionSummary) -> Choice:
    day = time.strftime("%d %b %H:%M", time.localtime(summary.newest))
    about = f"{day} · {summary.ended} · {plural(summary.requests, 'request')}"
    return Choice(summary.id, flatten(summary.title, 200) or "(nothing asked)", about)


def _preview(path: Path) -> list[Fragment]:
    """Draw the end of a session like the conversation."""
    try:
        result = log.examine(path)
    except FuguError as error:
        return [_sentence(str(error))]
    pieces = transcript_fragments(
        transcript_blocks(result.records[-PREVIEWED_RECORDS:]), unfolded=False
    )
    return (
        [*pieces, _sentence(str(result.fault.error(path)))] if result.fault is not None else pieces
    )


def _sentence(text: str) -> Fragment:
    return Fragment(lambda width, palette: diff_drawing.patch_lines(text, width, palette), text)


def _session_id(controller: SessionController) -> str:
    path = controller.work.session.log.path if controller.work.session else None
    return path.stem if path else ""
