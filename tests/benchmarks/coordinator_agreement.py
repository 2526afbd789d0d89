"""Do warm decisions agree with cold ones? Random transcripts, read in pieces and at once, with the shipped checkpoint.

    python tests/benchmarks/coordinator_agreement.py [--count 500] [--seconds 450]

Goes on where an earlier call stopped (results/coordinator-agreement.jsonl), for at most so many seconds. Each
transcript is read cold, and warm in one to six pieces of random lengths, as earlier turns do. Every
tenth is read by the same weights in fp32, too: how far bf16 itself is off is the noise that a difference has to be
compared with. Writes results/coordinator-agreement.md.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fugu_cli.config import Config
from fugu_cli.coordinators import trinity
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint

RESULTS = Path(__file__).parent / "results" / "coordinator-agreement.md"
LINES = RESULTS.with_suffix(".jsonl")
SHORTEST, LONGEST = 16, 512
EXACT = 20
"""Every so many transcripts are read in fp32 as well."""
SPEECH = """the parser returns None when a line ends with comment so caller in config.py fails at index 0 test_empty
KeyError instead of default value move check before loop def class return import self x y != == += [0] {} () -> None:"""
WORDS = SPEECH.split()
ROLES = ("worker", "thinker", "verifier")


def transcript(draw: random.Random) -> str:
    """A request and turns of random words, of a length spread evenly on a logarithmic scale."""
    length = SHORTEST * (LONGEST / SHORTEST) ** draw.random()
    lines = ["user: " + " ".join(draw.choices(WORDS, k=draw.randint(3, 40)))]
    if draw.random() < 0.6:
        lines.append(f"system: tests failed {draw.randint(1, 9)}")
    while len(" ".join(lines).split()) * 1.3 < length:
        said = " ".join(draw.choices(WORDS, k=draw.randint(2, 120)))
        lines.append(
            f"assistant: {draw.choice(ROLES).capitalize()} ({draw.choice(('cheap', 'middle', 'strong'))}): {said}"
        )
        if draw.random() < 0.7:
            state = draw.choice(("tests failed 2", "tests passed 5"))
            lines.append(f"[edit {draw.choice(WORDS)} {draw.choice(('ok', 'failed'))}; {state}]")
    return "\n".join(lines)


@functools.cache
def widened(backbone: Backbone) -> Backbone:
    """The same weights in fp32."""
    return Backbone(copy.deepcopy(backbone.model).float(), backbone.tokenizer, backbone.shape, backbone.identity)


def exact(backbone: Backbone, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The state by the same weights in fp32."""
    return widened(backbone).read(tokens, fresh=True).hidden


def compared(checkpoint: Checkpoint, backbone: Backbone, number: int) -> dict[str, object]:
    draw = random.Random(number)
    tokens = backbone.tokens(transcript(draw))
    backbone.forget()
    cold = checkpoint.head @ backbone.read(tokens).hidden
    backbone.forget()
    for cut in sorted(draw.sample(range(2, len(tokens)), k=min(draw.randint(1, 6), len(tokens) - 2))):
        backbone.read(tokens[:cut])
    warm = checkpoint.head @ backbone.read(tokens).hidden
    found: dict[str, object] = {
        "number": number,
        "tokens": len(tokens),
        "cold": [round(float(one), 4) for one in cold],
        "warm": [round(float(one), 4) for one in warm],
    }
    if number % EXACT == 0:
        found["exact"] = [round(float(one), 4) for one in checkpoint.head @ exact(backbone, tokens)]
    return found


def chosen(logits: Sequence[float]) -> tuple[int, int]:
    """Row and role, the first of equals, nothing masked."""
    return max(range(3), key=lambda i: logits[i]), max(range(3, 6), key=lambda i: logits[i])


def lead(logits: Sequence[float]) -> float:
    rows, roles = sorted(logits[:3]), sorted(logits[3:])
    return min(rows[-1] - rows[-2], roles[-1] - roles[-2])


def report(found: list[dict[str, Any]], digest: str) -> str:
    off = [max(abs(a - b) for a, b in zip(one["cold"], one["warm"], strict=True)) for one in found]
    noise = [max(abs(a - b) for a, b in zip(one["cold"], one["exact"], strict=True)) for one in found if "exact" in one]
    beside = [o for o, one in zip(off, found, strict=True) if "exact" in one]
    flips = [one for one in found if chosen(one["cold"]) != chosen(one["warm"])]
    wrong = [one for one in found if "exact" in one and chosen(one["cold"]) != chosen(one["exact"])]
    sizes, same = [one["tokens"] for one in found], len(found) - len(flips)
    near = [one for one in found if lead(one["warm"]) < trinity.LOGIT_NOISE]
    decided = len(found) - len([one for one in flips if one not in near])
    span = statistics.median(max(one["cold"]) - min(one["cold"]) for one in found)
    lines = [
        "# Warm decisions and cold ones",
        "",
        f"Written by `python tests/benchmarks/coordinator_agreement.py`: {len(found)} random transcripts of "
        f"{min(sizes)} to {max(sizes)} tokens, the checkpoint {digest[:12]}, "
        "bf16 on the CPU. Cold: read at once. Warm: read in one to six pieces.",
        "",
        "| largest difference of a transcript's six logits | median | 95 % | largest |",
        "|---|---|---|---|",
        _row("warm against cold", off),
        _row(f"warm against cold, the {len(noise)} also read in fp32", beside),
        _row(f"cold against the same weights in fp32, those {len(noise)}: the noise of bf16", noise),
        "",
        f"Logits of one transcript span {span:.2f} (median). Same decision: {decided} of {len(found)}. Where the "
        f"first is less than {trinity.LOGIT_NOISE} ahead of the second ({len(near)} of them) a warm decision "
        f"reads the text "
        f"again at once, which costs what a cold one does. Without that, same row and role: {same} of {len(found)}.",
        *[_flip(one) for one in flips],
        "",
        f"Of the {len(noise)} read in fp32, bf16 read cold chooses otherwise than fp32 in {len(wrong)}.",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, values: list[float]) -> str:
    ordered = sorted(values) or [0.0]
    high = ordered[int(0.95 * (len(ordered) - 1))]
    return f"| {name} | {statistics.median(ordered):.3f} | {high:.3f} | {ordered[-1]:.3f} |"


def _flip(one: dict[str, Any]) -> str:
    ahead = f"cold the first was {lead(one['cold']):.3f} ahead of the second, warm {lead(one['warm']):.3f}"
    return f"- transcript {one['number']} ({one['tokens']} tokens) differs: {ahead}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=450)
    given = parser.parse_args()
    cache = Config.model_validate({"cache_dir": os.environ.get("FUGU_CACHE_DIR")}).cache
    folder = trinity.backbone_folder(trinity.TrinityFiles(None, None, cache))
    checkpoint, backbone = trinity.load_parts(trinity.SHIPPED, folder, cache)
    about = {"checkpoint": checkpoint.digest}
    known = [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.is_file() else []
    if known[:1] != [about]:
        LINES.write_text(json.dumps(about) + "\n")
        known = [about]
    found, end = known[1:], time.monotonic() + given.seconds
    with LINES.open("a", encoding="utf-8") as file:
        for number in range(len(found), given.count):
            if time.monotonic() > end:
                break
            found.append(compared(checkpoint, backbone, number))
            file.write(json.dumps(found[-1]) + "\n")
            file.flush()
    RESULTS.write_text(report(found, checkpoint.digest), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
