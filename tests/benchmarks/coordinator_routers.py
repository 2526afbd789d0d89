"""Other kinds of routers on the same transcripts: what a decision takes, cold and warm, and the memory it holds.

    python tests/benchmarks/coordinator_routers.py [--minilm FOLDER] [--repeats 5]

- ours: the learned head on one hidden state (shipped checkpoint, embedded backbone);
- writes the name: the same backbone with its LM head is asked who is next and writes the agent's name, token by token;
- sentence embedding: all-MiniLM-L6-v2 (FOLDER holds it in the Hugging Face layout) and a linear head;
- matrix factorisation: RouteLLM's sizes with random values; its text embedding comes from a hosted service, whose call
  is neither made nor counted.

Each runs in a process of its own. `warm`: 64 tokens were added to a transcript that was decided on before. Writes
tests/benchmarks/results/coordinator-routers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fugu_cli.config import Config
from fugu_cli.coordinators import backbone_files, trinity
from fugu_cli.evaluation import decision_latency

RESULTS = Path(__file__).parent / "results" / "coordinator-routers.md"
NAMES = ("small", "coder", "strong")
QUESTION = "\nsystem: Who acts next: small, coder or strong? Answer with the name alone.\nassistant: "
LONGEST_NAME = 4
"""Tokens of an answer; a name ends with a newline or there."""

Decide = Callable[[str], object]
Pair = tuple[str, str]
"""A transcript, and the same one 64 tokens longer."""


def ours(where: dict[str, str]) -> tuple[Decide, Callable[[], None]]:
    checkpoint, backbone = trinity.load_parts(Path(where["checkpoint"]), Path(where["backbone"]), Path(where["cache"]))
    head = checkpoint.head

    def decide(text: str) -> object:
        return (head @ backbone.read(backbone.tokens(text)).hidden)[:3].argmax()

    return decide, backbone.forget


def writes(where: dict[str, str]) -> tuple[Decide, Callable[[], None]]:
    """The transcript stays in the cache, as a server's prompt cache would keep it; the question comes after it."""
    import torch

    from fugu_cli.coordinators import backbone as backbones

    backbone = backbones.load_backbone(Path(where["backbone"]), device="cpu")
    decoder = backbone.decoder
    state: dict[str, object] = {"cache": decoder.new_cache(), "known": []}

    def decide(text: str) -> object:
        cache, known = state["cache"], state["known"]
        tokens, question = backbone.tokens(text), backbone.tokens(QUESTION)
        same = 0
        while same < min(len(known), len(tokens)) and known[same] == tokens[same]:
            same += 1
        cache.crop(same)
        written: list[int] = []
        with torch.inference_mode():
            for start in range(same, len(tokens), 512):
                decoder.extend(torch.tensor(tokens[start : start + 512]), cache)
            decoder.extend(torch.tensor(question), cache)
            while len(written) < LONGEST_NAME:
                logits = decoder.embedding @ cache.hidden[cache.length - 1]
                written.append(int(logits.argmax()))
                if "\n" in backbone.tokenizer.decode(written[-1:]):
                    break
                decoder.extend(torch.tensor(written[-1:]), cache)
        cache.crop(len(tokens))
        state["known"] = tokens
        return backbone.tokenizer.decode(written)

    def forget() -> None:
        state["cache"], state["known"] = decoder.new_cache(), []

    return decide, forget


def embeds(where: dict[str, str]) -> tuple[Decide, Callable[[], None]]:
    """Mean of the last layer over the 256 tokens the model was made for, from the transcript's end."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(where["minilm"], truncation_side="left")
    model = AutoModel.from_pretrained(where["minilm"]).eval()
    head = torch.randn(len(NAMES), model.config.hidden_size)

    def decide(text: str) -> object:
        with torch.inference_mode():
            given = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
            return int((head @ model(**given).last_hidden_state.mean(1)[0]).argmax())

    return decide, lambda: None


def factorises(where: dict[str, str]) -> tuple[Decide, Callable[[], None]]:
    """64 models by 128 factors, a projection of 1,536 numbers to 128, one output."""
    import torch

    models, project, out = torch.randn(64, 128), torch.randn(128, 1536), torch.randn(1, 128)
    embedding = torch.randn(1536)

    def decide(text: str) -> object:
        with torch.inference_mode():
            scores = (torch.nn.functional.normalize(models[[23, 44]]) * (project @ embedding)) @ out.T
            return float(torch.sigmoid(scores[0] - scores[1]))

    return decide, lambda: None


KINDS = {"ours": ours, "writes": writes, "embeds": embeds, "factorises": factorises}
TITLES = {
    "ours": "ours: head on a hidden state",
    "writes": "same backbone writes the name",
    "embeds": "MiniLM sentence embedding and head",
    "factorises": "matrix factorisation, without its embedding call",
}


def child(kind: str, where: dict[str, str]) -> None:
    """Measure one router in this process; say the seconds as JSON."""
    pairs: dict[str, list[Pair]] = json.loads(Path(where["texts"]).read_text(encoding="utf-8"))
    decide, forget = KINDS[kind](where)
    decide("user: hello")
    found: dict[str, dict[str, list[float]]] = {}
    for length, texts in pairs.items():
        found[length] = {"cold": [], "warm": []}
        for text, longer in texts:
            forget()
            for name, one in (("cold", text), ("warm", longer)):
                started = time.perf_counter()
                decide(one)
                found[length][name].append(time.perf_counter() - started)
    print(json.dumps({"seconds": found, "megabytes": decision_latency.resident_megabytes()}))


def texts(folder: Path, lengths: list[int], repeats: int) -> dict[str, list[Pair]]:
    tokenizer = backbone_files.tokenizer_of(folder)

    class Counting:
        """What `text_of` needs of a backbone."""

        def tokens(self, text: str) -> list[int]:
            return list(tokenizer.encode(text).ids)

    found: dict[str, list[Pair]] = {}
    for length in lengths:
        tokens = [decision_latency.text_of(Counting(), length + decision_latency.NEW, salt) for salt in range(repeats)]  # type: ignore[arg-type]
        found[str(length)] = [(tokenizer.decode(one[:length]), tokenizer.decode(one)) for one in tokens]
    return found


def measured(kind: str, where: dict[str, str]) -> dict[str, object]:
    words = [sys.executable, __file__, "--child", kind, "--where", json.dumps(where)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": "."})
    return dict(json.loads(done.stdout))


def row(kind: str, found: dict[str, object], lengths: list[int]) -> str:
    seconds = found["seconds"]
    assert isinstance(seconds, dict)
    cells = [
        f"{1e3 * statistics.median(seconds[str(length)][name]):,.1f}" for length in lengths for name in ("cold", "warm")
    ]
    return f"| {TITLES[kind]} | {' | '.join(cells)} | {found['megabytes']} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", choices=list(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, json.loads(given.where))
        return
    cache = Config.model_validate({"cache_dir": os.environ.get("FUGU_CACHE_DIR")}).cache
    folder = trinity.backbone_folder(trinity.TrinityFiles(None, None, cache))
    kinds = [kind for kind in KINDS if kind != "embeds" or given.minilm]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "texts.json"
        file.write_text(json.dumps(texts(folder, given.lengths, given.repeats)), encoding="utf-8")
        places = {"checkpoint": trinity.SHIPPED, "backbone": folder, "cache": cache, "texts": file}
        where = {name: str(path) for name, path in (places | {"minilm": given.minilm}).items()}
        rows = [row(kind, measured(kind, where), given.lengths) for kind in kinds]
    columns = [f"{length} tokens, {name} ms" for length in given.lengths for name in ("cold", "warm")]
    report = [
        "# Other kinds of routers on the same transcripts",
        "",
        f"Written by `python tests/benchmarks/coordinator_routers.py` on {platform.machine()}, {os.cpu_count()} cores; "
        f"load average {os.getloadavg()[0]:.1f} when it ended. Medians of {given.repeats} transcripts, each router in "
        "a process of its own; warm: 64 tokens more than the decision before.",
        "",
        f"| router | {' | '.join(columns)} | resident MB |",
        f"|---|{'---|' * (len(columns) + 1)}",
        *rows,
        "",
        "- The same backbone that writes the agent's name reads a question after the transcript and goes through all "
        f"layers and its LM head once per token of the name ({LONGEST_NAME} at most). It was not trained to route.",
        "- MiniLM reads at most 256 tokens, the transcript's end. It keeps no cache: warm costs what cold does.",
        "- The matrix factorisation has the sizes of RouteLLM's (64 models, 128 factors, an embedding of 1,536) "
        "and random values. Its embedding is a call to a hosted service for every decision, which is not in these "
        "figures; its memory is almost all torch's own.",
        "- Latency and memory only: what the routers choose is not compared here.",
        "",
    ]
    RESULTS.write_text("\n".join(report), encoding="utf-8")
    print("\n".join(report))


if __name__ == "__main__":
    main()
