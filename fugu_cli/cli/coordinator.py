"""`fugu coordinator` (show, bench, import, export), and `fugu route`, which makes one decision. A
faulty file ends with exit code 1.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fugu_cli import __version__, wiring
from fugu_cli.cli.current_folder import current_config, print_clean, read_records
from fugu_cli.cli.flags import settings_of
from fugu_cli.cli.run import read_stdin
from fugu_cli.cli.training_flags import ImportFlags, RouteFlags
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators import Coordinator, Decision, backbone_files, trinity
from fugu_cli.errors import ConfigError, CoordinatorUnavailable, UsageError
from fugu_cli.formatting import aligned_rows
from fugu_cli.local.store import Store
from fugu_cli.session import store
from fugu_cli.session.events import Asked, Assigned, Event, Finished, Member, Opened, Recorded
from fugu_cli.session.state import SessionState
from fugu_cli.ui import trace
from fugu_cli.ui.json_output import routing_object

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone_files import ModelShape
    from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Turn faults of the learned coordinator into usage errors."""
    try:
        with backbone_files.required_libraries():
            yield
    except CoordinatorUnavailable as error:
        raise UsageError(str(error), hint=error.hint) from error


def show_checkpoint(file: Path | None, as_json: bool) -> int:
    """Describe a checkpoint or a flat vector as a table with units. Without FILE this is the
    configured checkpoint, or the default coordinator if none is configured.
    """
    config = current_config().config
    with as_usage_errors():
        path = file or config.checkpoint
        if path is None:
            about = _describe_default(config)
        elif path.suffix == ".npy":
            about = _describe_vector(path)
        else:
            about = _describe_checkpoint(path, config)
    if as_json:
        print(json.dumps(about, indent=2))
        return 0
    rows = [
        (name.replace("_", " "), f"{_value_text(value)} {UNITS.get(name, '')}".rstrip())
        for name, value in about.items()
        if name not in {"offsets", "report"}
    ]
    rows += [(name, f"{value:.4g}") for name, value in about.get("report", {}).items()]
    for line in aligned_rows(rows):
        print_clean(line)
    offsets = about.get("offsets")
    if offsets:
        print()
        offset_rows = [("matrix", "largest offset, % of a singular value")]
        offset_rows += [(name, f"{100 * value:.2f}") for name, value in offsets.items()]
        for line in aligned_rows(offset_rows, right={1}):
            print_clean(line)
    return 0


UNITS = {
    "token_budget": "tokens of the transcript",
    "head": "(rows x width of a hidden state)",
    "numbers": "of four bytes, the offsets' and the head's",
    "examples": "training examples",
    "kinds": "kinds of request",
}
"""Units of the values of `fugu coordinator show`."""


def _describe_default(config: Config) -> dict[str, Any]:
    """Describe the coordinator that decides if no checkpoint is configured."""
    from fugu_cli.coordinators import kinds

    head_path, shape = kinds.SHIPPED, None
    backbone = configured_backbone(config)
    if backbone is not None:
        identity, shape = backbone
        own_head = kinds.head_file(config.data / "coordinators", identity)
        if own_head.is_file():
            head_path = own_head
    head = kinds.load(head_path)
    if shape is not None:
        state = "on this machine"
    elif (config.cache / "models" / f"{trinity.EMBEDDED}.gguf").is_file():
        state = "on this machine, made ready at its first use"
    else:
        state = f"not on this machine: fugu models pull {trinity.EMBEDDED}"
    return {
        "decides": "success rates, costs and the kind of a request; no checkpoint is configured",
        "success_rates": "`fugu pool --skills` shows them",
        "backbone": f"{config.backbone or trinity.EMBEDDED}, {state}",
        "kind_head": str(head_path),
        "kinds": len(head.meta.kinds),
        "head": f"{len(head.weights)} x {head.weights.shape[1]}",
        "trained_on": head.meta.training,
    }


def checkpoint_path(file: Path | None, config: Config) -> Path:
    """Return the file named, else the configured checkpoint. Raise UsageError without either."""
    path = file or config.checkpoint
    if path is None:
        raise UsageError(
            "no checkpoint is configured: success rates, costs and the kind of a request decide",
            hint="name a file; `fugu pool --skills` shows the rates",
        )
    return path


def _describe_checkpoint(path: Path, config: Config) -> dict[str, Any]:
    from fugu_cli.coordinators import checkpoint

    saved = checkpoint.load(path)
    meta = saved.meta
    return {
        "file": str(path),
        "digest": saved.digest,
        "backbone": f"{meta.backbone_name or 'unnamed'} {meta.backbone}",
        "fits": _fits_here(saved, config),
        "rows": list(meta.rows),
        "rows_are": "agents",
        "roles": meta.roles,
        "format": meta.format,
        "reads": "Workers' replies" if meta.workers_only else "every reply",
        "token_budget": meta.budget,
        "tied_embeddings": meta.tied,
        "head": f"{meta.head_rows} x {meta.width}",
        "numbers": saved.vector.size,
        "offsets": _largest_offsets(saved),
        "trained": meta.training.stage or "unknown",
        "trained_on": meta.training.data or "unknown",
        "examples": meta.training.examples,
        "report": dict(meta.training.report),
    }


def _largest_offsets(checkpoint: Checkpoint) -> dict[str, float]:
    """Return the largest offset of every block; 0 leaves a matrix unchanged."""
    from fugu_cli.coordinators import svf

    return {
        name: round(float(abs(block).max()), 4)
        for name, block in zip(svf.BLOCKS, checkpoint.offsets, strict=True)
    }


def _fits_here(checkpoint: Checkpoint, config: Config) -> str:
    """Describe whether the checkpoint fits the configured backbone and pool, without loading them."""
    try:
        backbone = configured_backbone(config)
        if backbone is None:
            return "unknown: the backbone is not on this machine"
        identity, shape = backbone
        if shape is not None:
            checkpoint.check(identity, shape)
        elif checkpoint.meta.backbone != identity:
            return "no: it was made for another backbone than the configured one"
        checkpoint.meta.check_pool([entry.name for entry in usable_pool(config, os.environ)])
    except (CoordinatorUnavailable, ConfigError) as error:
        return f"no: {error}"
    return "yes"


def configured_backbone(config: Config) -> tuple[str, ModelShape | None] | None:
    """Return the configured backbone's identity and shape, without fetching or converting it."""
    from fugu_cli.coordinators import backbone_files

    cache = config.cache / "backbones"
    if config.backbone is None:
        folder = cache / f"{trinity.EMBEDDED}-{backbone_files.CONVERSION_FORMAT}"
        is_converted = backbone_files.read_note(folder) is not None
        shape = backbone_files.shape_of(folder) if is_converted else None
        return Store(config.cache).model(trinity.EMBEDDED).sha256, shape
    folder = Path(config.backbone).expanduser()
    if not folder.is_dir():
        return None
    identity = backbone_files.backbone_identity(folder, cache)
    return identity, backbone_files.shape_of(folder)


def _describe_vector(path: Path) -> dict[str, Any]:
    import numpy as np

    from fugu_cli.coordinators import checkpoint

    vector = checkpoint.read_npy(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "file": str(path),
        "numbers": int(vector.size),
        "shape": list(vector.shape),
        "type": str(vector.dtype),
        "sha256": sha256,
        "published": sha256 == checkpoint.PUBLISHED_SHA256,
        "finite": bool(np.isfinite(vector).all()),
        "largest": float(np.abs(vector).max()) if vector.size else 0.0,
    }


def _value_text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return (
                ", ".join(f"{name} {_value_text(item)}" for name, item in value.items()) or "none"
            )
        case list():
            return ", ".join(str(item) for item in value)
        case float():
            return f"{value:g}"
    return str(value)


def import_checkpoint(flags: ImportFlags) -> int:
    """Make a checkpoint from the published vector, a flat vector, or another checkpoint. Print its
    path.
    """
    settings = {"backbone": flags.backbone} if flags.backbone else {}
    config = current_config(settings).config
    mapping = {}
    for word in flags.mapping or ():
        row, _, name = word.partition("=")
        if not row or not name:
            raise UsageError(f"--map {word} is not ROW=AGENT", hint="--map gpt-5=strong")
        mapping[row] = name
    with as_usage_errors():
        imported = _import_vector(flags, mapping, config)
        from fugu_cli.coordinators import checkpoint

        path = flags.out or config.data / "coordinators" / f"{flags.file.stem}.safetensors"
        _write_file(path, lambda: checkpoint.save(imported, path))
    print(path)
    for note in _import_notes(imported, path, config):
        print(f"fugu: {note}", file=sys.stderr)
    return 0


def _import_vector(flags: ImportFlags, mapping: Mapping[str, str], config: Config) -> Checkpoint:
    from fugu_cli.coordinators import checkpoint

    flat = flags.file.suffix == ".npy"
    reading = _reading_flags(flags)
    if flags.rows is None and (not flags.roles or (reading and not flat)):
        raise UsageError(
            f"{flags.file} says itself how it was trained: --roles, --format, --tied, "
            f"--workers-only and --budget "
            "are for vectors that do not",
            hint="name its rows with --rows, or leave these out",
        )
    if not flat:
        saved = checkpoint.load(flags.file)
        unknown = [row for row in mapping if row not in saved.meta.rows]
        if unknown:
            rows = ", ".join(saved.meta.rows)
            raise UsageError(
                f"--map {unknown[0]}=...: the checkpoint's rows are {rows}", hint="name one of them"
            )
        backbone = configured_backbone(config)
        if backbone is not None and backbone[1] is not None:
            saved.check(backbone[0], backbone[1])
        return checkpoint.Checkpoint(_rename_rows(saved.meta, mapping), saved.head, saved.offsets)
    checkpoint.read_npy(flags.file)  # a broken file is named before a backbone is looked for
    folder = trinity.backbone_folder(config.backbone, config.cache)
    identity = backbone_files.backbone_identity(folder, config.cache / "backbones")
    shape = backbone_files.shape_of(folder)
    if flags.rows is None:
        saved = checkpoint.import_published(flags.file, mapping, identity, shape)
        meta = type(saved.meta).model_validate({**saved.meta.model_dump(), **reading})
        return checkpoint.Checkpoint(meta, saved.head, saved.offsets)
    return checkpoint.load_vector(flags.file, _read_meta(flags, mapping, identity, shape, config))


def _reading_flags(flags: ImportFlags) -> dict[str, object]:
    """Return the fields of a checkpoint's description that say how it reads. Flags that were not
    given keep the source's values.
    """
    fields = {
        "format": flags.format,
        "tied": flags.tied,
        "workers_only": flags.workers_only,
        "budget": flags.budget,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _rename_rows(meta: CheckpointMeta, mapping: Mapping[str, str]) -> CheckpointMeta:
    from fugu_cli.coordinators import checkpoint

    return checkpoint.renamed_rows(meta, mapping)


def _read_meta(
    flags: ImportFlags,
    mapping: Mapping[str, str],
    identity: str,
    shape: ModelShape,
    config: Config,
) -> CheckpointMeta:
    from fugu_cli.coordinators import svf
    from fugu_cli.coordinators.checkpoint import CheckpointMeta

    rows = tuple(name.strip() for name in (flags.rows or "").split(",") if name.strip())
    unknown = [row for row in mapping if row not in rows]
    if not rows or unknown:
        lacking = unknown[0] if unknown else "anything"
        raise UsageError(
            f"--rows {flags.rows} does not name {lacking}", hint="--rows claude,gpt,gemini"
        )
    named = tuple(mapping.get(row, row) for row in rows)
    return CheckpointMeta.model_validate(
        {
            "backbone": identity,
            "backbone_name": config.backbone or trinity.EMBEDDED,
            "width": shape.width,
            "ranks": svf.ranks(shape),
            "rows": named,
            "roles": flags.roles,
            "training": {"stage": f"imported from {flags.file.name}"},
            **_reading_flags(flags),
        }
    )


def _import_notes(checkpoint: Checkpoint, path: Path, config: Config) -> Iterator[str]:
    yield f"to decide with it, put into .fugurc: checkpoint = {json.dumps(str(path))}"
    if config.backbone is not None:
        yield f"and its backbone: backbone = {json.dumps(config.backbone)}"
    try:
        names = {entry.name for entry in usable_pool(config, os.environ)}
    except ConfigError as error:
        yield f"the pool cannot be used now: {error}"
        return
    missing = [row for row in dict.fromkeys(checkpoint.meta.rows) if row not in names]
    if missing:
        yield (
            f"rows that no agent of the pool takes, excluded from every decision: {', '.join(missing)}"
        )


def export_checkpoint(target: Path, file: Path | None, npy: bool) -> int:
    """Write a checkpoint's numbers elsewhere: in fugu's own form, or as the flat vector alone."""
    config = current_config().config
    with as_usage_errors():
        from fugu_cli.coordinators import checkpoint

        saved = checkpoint.load(checkpoint_path(file, config))
        flat = npy or target.suffix == ".npy"
        _write_file(
            target,
            lambda: (
                checkpoint.save_vector(saved, target) if flat else checkpoint.save(saved, target)
            ),
        )
    print(target)
    return 0


def _write_file(path: Path, write: Callable[[], None]) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="name another file"
        ) from error


SESSION_ID = re.compile(r"latest|\d{8}-\d{6}(-[0-9a-f]{1,4})?")
"""Matches the id of a session. Other sessions can be named with --session."""


@dataclass(frozen=True)
class DecisionPoint:
    """The events and agents of a decision. `name` is the session's, "" for a request."""

    events: tuple[Event, ...]
    members: tuple[Member, ...]
    name: str = ""


def decide(flags: RouteFlags) -> int:
    """Print the decision."""
    loaded = current_config(settings_of(flags))
    point = _decision_point(flags, loaded)
    coordinator = coordinator_of(flags, loaded, point.members)
    with as_usage_errors():
        decision = asyncio.run(coordinator.decide(SessionState(point.events)))
    if isinstance(decision, Assigned) and (
        decision.fallback or decision.by != loaded.config.coordinator.partition(":")[0]
    ):
        print(f"fugu: {decision.why}", file=sys.stderr)
    if flags.as_json:
        print(json.dumps(_decision_json(decision, point), indent=2))
    elif flags.explain:
        print(_explain(decision, point))
    else:
        print_clean(_decision_line(decision))
    return 0


def _decision_point(flags: RouteFlags, loaded: LoadedConfig) -> DecisionPoint:
    if flags.session is not None and flags.what is not None:
        raise UsageError(
            "a text and --session exclude each other", hint="a session holds its own requests"
        )
    text, key = flags.what, flags.session
    if text and not key:
        is_log = text.endswith(store.SUFFIX) and "\n" not in text
        if is_log or SESSION_ID.fullmatch(text):
            key = text
    if not key:
        if flags.turn is not None or flags.request is not None:
            raise UsageError(
                "--turn and --request need a session", hint="fugu route latest --turn 2"
            )
        if text == "-" or (text is None and sys.stdin is not None and not sys.stdin.isatty()):
            text = read_stdin(sys.stdin) if sys.stdin is not None else ""
        if text is None or not text.strip():
            raise UsageError(
                "there is nothing to decide about",
                hint='give a request or a session: fugu route "..."',
            )
        as_logged = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return _point_of_new_request(as_logged.strip("\n"), loaded)
    path = store.find_session(loaded.config.data, loaded.root, key)
    records = read_records(path)
    events: Sequence[Event] = [record.event for record in records]
    if flags.turn is not None:
        from fugu_cli.ui.session_totals import FoldedSession
        from fugu_cli.ui.trace_rows import find_turn

        events = events[
            : find_turn(FoldedSession(records).rows.rows, flags.turn, flags.request).first
        ]
    elif flags.request is not None:
        raise UsageError("--request needs --turn", hint="fugu route latest --request 1 --turn 2")
    state = SessionState(events)
    opened = state.opened
    if opened is None or state.request.asked is None:
        raise UsageError(
            f"nothing was asked in the session {path.stem} yet",
            hint='fugu route "..." decides a request',
        )
    return DecisionPoint(tuple(events), opened.pool, path.stem)


def _point_of_new_request(text: str, loaded: LoadedConfig) -> DecisionPoint:
    """Return the decision point of a new session with this request. Its tests are not run: the
    coordinator reads its words and the outcomes so far.
    """
    members = tuple(entry.member() for entry in usable_pool(loaded.config, os.environ))
    opened = Opened(
        version=__version__,
        repo=str(loaded.root),
        pool=members,
        coordinator=loaded.config.coordinator,
    )
    events: tuple[Event, ...] = (opened, Asked(text=text))
    if loaded.config.coordinator == "trinity":
        events += (wiring.build_outcomes(loaded).known(members, ()),)
    return DecisionPoint(events, members)


def coordinator_of(
    flags: RouteFlags, loaded: LoadedConfig, members: tuple[Member, ...]
) -> Coordinator:
    """Build the coordinator that the flags and the configuration name. Raises UsageError if that is
    impossible.
    """
    config = loaded.config
    checkpoint_flags = (flags.checkpoint, flags.backbone, flags.format, flags.roles)
    if config.coordinator != "trinity":
        if any(value is not None for value in checkpoint_flags):
            raise UsageError(
                f"--checkpoint, --backbone, --format and --roles say nothing to the rule "
                f"{config.coordinator}",
                hint="leave them out, or say --coordinator trinity",
            )
        return wiring.build_coordinator(config, members)[0]
    if (
        flags.temperature is None
        and flags.coordinator is None
        and all(value is None for value in checkpoint_flags)
    ):
        return wiring.build_coordinator(config, members)[0]
    roles = config.roles if flags.roles is None else flags.roles
    if flags.temperature is not None and not 0 <= flags.temperature <= 1000:
        raise UsageError(
            f"--temperature {flags.temperature}: should be from 0 to 1000",
            hint="0 is next to taking the likeliest",
        )
    temperature = 1.0 if flags.temperature is None else flags.temperature
    settings = replace(config.deciding, temperature=temperature, roles=roles)
    if config.checkpoint is None:
        if flags.format is not None:
            raise UsageError(
                "--format is a checkpoint's, and none is named",
                hint="name one with --checkpoint, or leave --format out",
            )
        return wiring.build_composed(config, members, settings)
    trinity_files = trinity.TrinityFiles(config.checkpoint, config.backbone, config.cache)
    with as_usage_errors():
        _check_checkpoint(flags, checkpoint_path(None, config))
        return trinity.Trinity(trinity.reader_of(trinity_files), members, settings)


def _check_checkpoint(flags: RouteFlags, path: Any) -> None:
    """Check that the checkpoint was trained for the flags."""
    from fugu_cli.coordinators import checkpoint

    meta = checkpoint.load(path).meta
    if flags.format is not None and flags.format != meta.format:
        raise UsageError(
            f"the checkpoint {path} was trained on the {meta.format} format and refuses "
            f"{flags.format}",
            hint=f"say --format {meta.format}, or name another checkpoint",
        )
    if flags.roles and not meta.roles:
        raise UsageError(
            f"the checkpoint {path} was trained without roles", hint="leave --roles out"
        )


def _decision_line(decision: Decision) -> str:
    match decision:
        case Assigned():
            return f"{decision.agent} {decision.role}"
        case Finished():
            return f"finished {decision.reason}"
    return type(decision).__name__.lower()


def _decision_json(decision: Decision, point: DecisionPoint) -> dict[str, object]:
    about: dict[str, object] = {"session_id": point.name or None}
    if not isinstance(decision, Assigned):
        end = decision if isinstance(decision, Finished) else None
        return {
            **about,
            "agent": None,
            "role": None,
            "next": _decision_line(decision),
            "reason": end.reason if end else None,
            "message": end.message if end else None,
        }
    scores = decision.scores
    logits: dict[str, float] = {}
    if scores is not None:
        names = (*scores.rows, *(("worker", "thinker", "verifier") if scores.role_logits else ()))
        logits = dict(zip(names, (*scores.row_logits, *scores.role_logits), strict=True))
    slot = next((member.slot for member in point.members if member.name == decision.agent), "")
    explanation = trace.decision_explanation(decision, slot)
    return {**about, **routing_object(decision), "logits": logits, **explanation}


EXPLAINED_WIDTH = 100


def _explain(decision: Decision, point: DecisionPoint) -> str:
    if not isinstance(decision, Assigned):
        return _decision_line(decision)
    from fugu_cli.ui.session_totals import FoldedSession
    from fugu_cli.ui.trace_rows import find_turn
    from fugu_cli.ui.turn_page import decision_sections, sections_text

    events = [*point.events, decision]
    records = [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(events)]
    row = find_turn(FoldedSession(records).rows.rows, decision.turn)
    return sections_text(_decision_line(decision), decision_sections(records, row), EXPLAINED_WIDTH)
