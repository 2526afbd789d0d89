"""What a checkpoint over slots does with questions that no tests decide: who answers, and whether somebody judges.

    python tests/benchmarks/question_routing.py --tasks FOLDER [--only gsm8k,mbpp] [--limit 60] [--checkpoint FILE ...]

The questions of the folder's *.jsonl, put as `fugu eval` puts them, then with a made-up answer of a Worker behind them.
No agent is called: the embedded backbone reads (`fugu models pull qwen2.5-coder-0.5b`), every checkpoint's head decides
on the same hidden state, the highest logit of what is not masked. Without --checkpoint it is the one that ships. Writes
tests/benchmarks/results/question-routing.md.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fugu_cli.config import Config
from fugu_cli.coordinators import action_space, backbone, checkpoint, trinity
from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.coordinators.checkpoint import Checkpoint
from fugu_cli.session.events import ROLES, Asked, Assigned, Event, Member, Opened, Replied
from fugu_cli.tasks import Question
from fugu_cli.tasks.loading import load_tasks

RESULTS = Path(__file__).parent / "results" / "question-routing.md"
POOL = tuple(Member(name=slot, provider="local", model=slot, protocol="text", slot=slot) for slot in SLOTS)
HEAD = """# What the head does with questions

Written by `tests/benchmarks/question_routing.py`: the first {limit} questions of {sources}, each put as `fugu eval`
puts it, and once more with an answer behind it that was made up for it. No agent was called. Decisions by slot and by
role; what is masked is left out. The checkpoint has not seen these questions.

"""


def answer(question: Question) -> str:
    """Words as a Worker's might be; whether they are right is of no interest here."""
    if question.kind == "number":
        return f"We go through it step by step.\n\nAnswer: {question.answer}"
    name = next(iter(re.findall(r"(\w+)\(", "\n".join(question.tests))), "solve")
    return f"```python\ndef {name}(*given):\n    found = list(given)\n    return found[0]\n```"


def stories(question: Question) -> dict[str, tuple[Event, ...]]:
    """The session before anybody has acted, and after an answer."""
    start = (Opened(version="1", repo="/repo", pool=POOL), Asked(text=question.prompt, snapshot="tree"))
    worked = Assigned(turn=1, agent=SLOTS[1], role="worker", by="story", snapshot="tree")
    return {
        "first": start,
        "after an answer": (*start, worked, Replied(turn=1, agent=SLOTS[1], text=answer(question))),
    }


def decided(head: np.ndarray, hidden: np.ndarray, events: Sequence[Event]) -> tuple[str, str]:
    """(slot, role) of the highest logits."""
    logits = head @ hidden
    roles = logits[len(SLOTS) :].copy()
    roles[[ROLES.index(role) for role in action_space.roles_out(events)]] = -np.inf
    return SLOTS[int(np.argmax(logits[: len(SLOTS)]))], ROLES[int(np.argmax(roles))]


def table(counts: Counter[tuple[str, str, str, str]], sources: Sequence[str]) -> str:
    """A row for each source and point."""
    lines = [
        "| questions | decision | cheap | middle | strong | Worker | Thinker | Verifier |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for source in sources:
        for point in ("first", "after an answer"):
            found = {key[2:]: number for key, number in counts.items() if key[:2] == (source, point)}
            slots = [sum(number for (slot, _), number in found.items() if slot == one) for one in SLOTS]
            by_role = {role: sum(n for (_, one), n in found.items() if one == role) for role in ROLES}
            cells = [*slots, by_role["worker"], by_role["thinker"], by_role["verifier"]]
            lines.append(f"| {source} | {point} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--only", default="gsm8k,mbpp")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--checkpoint", type=Path, action="append", default=[])
    given = parser.parse_args()
    cache = Config.model_validate({"cache_dir": os.environ.get("FUGU_CACHE_DIR")}).cache
    files = given.checkpoint or [trinity.SHIPPED]
    loaded: dict[Path, Checkpoint] = {file: checkpoint.load(file) for file in files}
    reader = backbone.load_backbone(trinity.backbone_folder(trinity.TrinityFiles(None, None, cache)), device="cpu")
    counts: dict[Path, Counter[tuple[str, str, str, str]]] = {file: Counter() for file in files}
    sources = given.only.split(",")
    for source in sources:
        for question in load_tasks(given.tasks, only=(source,)).questions[: given.limit]:
            for point, events in stories(question).items():
                reader.forget()
                hidden = trinity.encode_transcript(reader, loaded[files[0]].meta, events, POOL).reading.hidden
                for file, made in loaded.items():
                    counts[file][source, point, *decided(made.head, hidden, events)] += 1
    parts = [HEAD.format(limit=given.limit, sources=" and ".join(sources))]
    for file, made in loaded.items():
        shipped = file.read_bytes() == trinity.SHIPPED.read_bytes()
        name = "The checkpoint that ships" if shipped else "Another checkpoint"
        parts.append(f"## {name} ({made.digest[:12]})\n\n{table(counts[file], sources)}\n")
    RESULTS.write_text("\n".join(parts), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
