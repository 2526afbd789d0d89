"""`fugu train sft`, `replay` and `sessions`: learning that calls no agent, on the backbone alone."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import log, sessions
from fugu_cli.commands.coordinator import usable
from fugu_cli.commands.evalflags import ReplayFlags, SessionFlags, SftFlags
from fugu_cli.commands.here import here
from fugu_cli.config import Config
from fugu_cli.coordinators import loading, readings, trinity
from fugu_cli.coordinators.slots import SLOTS
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.evaluation.setup import alone

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint
    from fugu_cli.training.replay import Check
    from fugu_cli.training.search_vector import HiddenStates
    from fugu_cli.training.session_outcomes import Decided


def say(text: str) -> None:
    """Progress, on standard error."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def backbone_of(config: Config) -> Backbone:
    """The backbone that a configuration names. Raises CoordinatorUnavailable."""
    from fugu_cli.coordinators import backbone, convert

    if config.backbone is not None:
        folder = loading.locate(config.backbone)
    else:
        folder = convert.backbone_folder(config.cache / "models" / f"{trinity.EMBEDDED}.gguf", config.cache)
    return backbone.load(folder, cache=config.cache / "backbones")


def reading(
    config: Config, start: Checkpoint | None = None, *, searched: bool = False
) -> tuple[Backbone, HiddenStates]:
    """The backbone as sessions with `start` read with it, and the states it then has. `searched`: the offsets of the
    second-to-last layer are left to the search. Raises CoordinatorUnavailable where `start` is of another backbone."""
    from fugu_cli.training import states
    from fugu_cli.training.search_vector import HiddenStates

    backbone, named = backbone_of(config), ""
    if start is not None:
        start.check(backbone.identity, backbone.decoder.shape)
        searches = [searched and 1 <= index <= 7 for index in range(len(start.offsets))]
        blocks = [block * (not out) for block, out in zip(start.offsets, searches, strict=True)]
        named = states.put_on(backbone, blocks, start.meta.tied, spectra_of(config, backbone))
    return backbone, HiddenStates(backbone, store_of(config), say, named)


def spectra_of(config: Config, backbone: Backbone) -> Path:
    """Where its singular values are kept between runs."""
    return config.cache / "svf" / backbone.identity[:16]


def store_of(config: Config) -> Path:
    """Where hidden states are kept between runs; everything in it can be computed again."""
    return config.cache / "training"


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint. Raises StorageError where it cannot be written."""
    from fugu_cli.coordinators import checkpoint as checkpoints

    try:
        checkpoints.save(checkpoint, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def sft(flags: SftFlags) -> int:
    """The warm start of sft.py, with the configured backbone."""
    from fugu_cli.training import matrix
    from fugu_cli.training.offsets import Descent
    from fugu_cli.training.sft import Recipe, WarmStart, seats
    from fugu_cli.training.values import Terms

    cells = matrix.read(flags.matrix)
    agents = dict.fromkeys(cell.agent for cell in cells)
    rows = seats(flags.rows or [f"{agent}={agent}" for agent in agents])
    tasks = matrix.rates(cells, rows)
    config = here().config
    out = flags.out or config.data / "coordinators" / "warm-start.safetensors"
    descent = Descent(seed=flags.seed) if flags.offsets else None
    recipe = Recipe(rows, Terms(cost=flags.cost, tau=flags.tau), seed=flags.seed, descent=descent)
    with usable(), alone(out.parent, "training"):
        result = WarmStart(recipe, backbone_of(config), store_of(config)).run(tasks, flags.matrix.name, say)
        save(result.checkpoint, out)
    print(result.report)
    print(out)
    return 0


def replay(flags: ReplayFlags) -> int:
    """A study of recorded outcomes: the report is printed and kept."""
    from fugu_cli.training import outcomes, study, study_report
    from fugu_cli.training.matrix import Seat
    from fugu_cli.training.replay_sessions import Reading, ReplaySessionWriter
    from fugu_cli.training.search_vector import HiddenStates

    models = flags.models or []
    if len(models) != len(SLOTS):
        raise UsageError("name a model for each slot, cheap ones first", hint="--model NAME, three times")
    issues = outcomes.read(flags.outcomes)
    random.Random(flags.seed).shuffle(issues)
    pool = outcomes.pool(issues, models, prices(flags.prices or ()))
    cases = outcomes.cases(issues[: flags.cases], pool)
    if len({case.group for case in cases}) < 2:
        raise UsageError(
            f"{len(cases)} issues have outcomes of {', '.join(models)}, and not of two repositories",
            hint="one repository is decided by what was learned on the others: give issues of two, or other models",
        )
    question = study.Question(
        numbers(flags.prices_of_cost, "--lambda"), checks(flags.checks), flags.folds, flags.sample, seed=flags.seed
    )
    config, out = here().config, (flags.out or Path("fugu-replay")).resolve()
    with usable(), alone(out, "training"):
        backbone = backbone_of(config)
        seats = [Seat(slot, model) for slot, model in zip(SLOTS, models, strict=True)]
        writer = ReplaySessionWriter(seats, backbone, Reading(request=flags.request), flags.seed)
        recorded = study.Recorded(cases, models, issues)
        found = study.Study(recorded, writer, HiddenStates(backbone, store_of(config), say)).run(
            question, pool.unit, out / "answers.jsonl", say
        )
        text = f"{len(cases)} issues; rows: {', '.join(models)}.\n\n{study_report.report(found)}"
        _write(out / "report.md", text)
    print(text)
    return 0


def own(flags: SessionFlags) -> int:
    """From the user's own sessions; nothing is saved that does worse on requests held out."""
    from fugu_cli.coordinators import checkpoint as checkpoints
    from fugu_cli.training import personal

    loaded = here()
    config = loaded.config
    out = flags.out or config.data / "coordinators" / "own-sessions.safetensors"
    with usable(), alone(out.parent, "training"):
        checkpoint = checkpoints.load(config.checkpoint or trinity.SHIPPED)
        decided, labels = _decisions(sessions.paths(config.data, None if flags.everywhere else loaded.root), checkpoint)
        say(f"{len(decided)} decisions turned out one way or the other")
        if len({one.group for one in decided}) < personal.LEAST:
            raise personal.too_few(len({one.group for one in decided}))
        told = personal.examples(decided, checkpoint, labels, reading(config, checkpoint))
        found = personal.learn(told, checkpoint)
        print(f"{found.decisions} decisions of {found.requests} requests; distance to what turned out well, held out: "
              f"{found.before.kl:.3f} before, {found.after.kl:.3f} after")  # fmt: skip
        if not found.better:
            print("not better on requests held out: the checkpoint in use stays, nothing was written")
            return 0
        save(found.checkpoint, out)
    print(out)
    print(f'use it with `checkpoint = "{out}"` in .fugurc', file=sys.stderr)
    return 0


def _decisions(paths: Sequence[Path], checkpoint: Checkpoint) -> tuple[list[Decided], dict[str, str]]:
    """Of all sessions that can be read, the newest first, and what each agent's row is called."""
    from fugu_cli import views
    from fugu_cli.training import session_outcomes

    decided: list[Decided] = []
    labels: dict[str, str] = {}
    for path in paths:
        try:
            events = [record.event for record in log.read(path)]
        except StorageError as error:
            say(f"{path.name}: left out: {error}")
            continue
        labels = {**readings.labels(checkpoint.meta, list(views.pool(events).values())), **labels}
        decided += session_outcomes.decisions(events, path.stem)
    return decided, labels


def prices(given: Sequence[str]) -> dict[str, float]:
    """NAME=USD."""
    found = {}
    for text in given:
        name, _, price = text.rpartition("=")
        try:
            found[name] = float(price)
        except ValueError as error:
            raise UsageError(f"--price {text}: write NAME=USD") from error
    return found


def numbers(text: str, flag: str) -> tuple[float, ...]:
    """A list of numbers, with commas."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"{flag} {text}: write numbers with commas between them") from error


def checks(text: str) -> tuple[Check, ...]:
    """`95/10,90/20`: per cent of right and of wrong work that pass."""
    from fugu_cli.training.replay import Check

    found = []
    for part in text.split(","):
        right, _, wrong = part.partition("/")
        try:
            found.append(Check(float(right) / 100, float(wrong) / 100))
        except ValueError as error:
            raise UsageError(f"--check {part}: write RIGHT/WRONG in per cent, as in 95/10") from error
        if not 0 <= found[-1].wrong <= found[-1].right <= 1:
            raise UsageError(f"--check {part}: a check passes right work at least as often as wrong work")
    return tuple(found)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
