"""Products in fp32 where the processor has no kernels for bf16: what a decision's reading costs with and without them.

    python tests/benchmarks/coordinator_widening.py [--lengths 64 512 1500] [--repeats 3]

Both ways in one process, one after the other, on the embedded backbone: a cold pass over so many tokens, 64 more, and
one more. On a processor that has such kernels the page says so, and that fugu does not use this way there. Writes
results/coordinator-widening.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

from fugu_cli.coordinators import backbone, torch_runtime, trinity
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.models.store import default_cache

RESULTS = Path(__file__).parent / "results" / "coordinator-widening.md"
STEPS = ("cold", "warm +64", "warm +1")
LACKS = torch_runtime._lacks_bf16_kernels()


def measured(loaded: Backbone, tokens: list[int], length: int, *, widened: bool) -> list[float]:
    """CPU seconds of the steps, after nothing is known."""
    torch_runtime._lacks_bf16_kernels = lambda: widened  # type: ignore[assignment]
    loaded.forget()
    spent = []
    for end in (length, length + 64, length + 65):
        before = time.process_time()
        loaded.read(tokens[:end])
        spent.append(time.process_time() - before)
    return spent


def page(rows: list[str], agreement: float) -> str:
    kind = "has none" if LACKS else "has some, so fugu does not use this way here"
    return f"""# Reading in fp32 where the processor has no kernels for bf16

Written by `python tests/benchmarks/coordinator_widening.py` on {platform.machine()}, {os.cpu_count()} cores,
torch {torch.__version__}. The embedded backbone, stored in bf16; of kernels for bf16 this processor
{kind}. Seconds are CPU seconds, medians; both ways in one process. Other work ran beside it.

| tokens | pass | products in bf16, s | in fp32, each weight widened for it, s | times cheaper |
|---|---|---|---|---|
{chr(10).join(rows)}

Cosine of the two hidden states of the longest text: {agreement:.5f}. Products of fewer than
{torch_runtime.FP32_FROM_TOKENS} tokens stay
in bf16. No memory is kept for it: a weight is widened for one product and let go.
"""


def main() -> int:
    """Exit code 0, or 1 where the backbone is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 512, 1500])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    folder = trinity.backbone_folder(trinity.TrinityFiles(None, None, default_cache()))
    loaded = backbone.load_backbone(folder, device="cpu")
    tokens = loaded.tokens(Path(trinity.__file__).read_text(encoding="utf-8") * 4)
    if len(tokens) < max(asked.lengths) + 65:
        print("the text is too short for these lengths", file=sys.stderr)
        return 1
    measured(loaded, tokens, 16, widened=False)
    rows, states = [], []
    for length in asked.lengths:
        spent: dict[bool, list[list[float]]] = {False: [], True: []}
        for _ in range(asked.repeats):
            for widened in spent:
                spent[widened].append(measured(loaded, tokens, length, widened=widened))
        for place, step in enumerate(STEPS):
            plain, wide = (statistics.median(one[place] for one in spent[way]) for way in (False, True))
            rows.append(f"| {length} | {step} | {plain:.2f} | {wide:.2f} | {plain / wide:.1f} |")
            print(rows[-1], flush=True)
    for widened in (False, True):
        torch_runtime._lacks_bf16_kernels = lambda widened=widened: widened  # type: ignore[assignment]
        loaded.forget()
        states.append(torch.from_numpy(loaded.read(tokens[: max(asked.lengths)]).hidden).float())
    RESULTS.write_text(page(rows, float(torch.cosine_similarity(*states, dim=0))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
