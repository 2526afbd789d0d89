"""Routers that choose a model by the request's text alone, trained on recorded outcomes.

Each returns, for every request, the pool's models from the one it would ask first to the last. The
routers of RouteLLM and LLMRouter are those packages' own models and training loops with their own
settings. They embed requests by a service and by a large model; here every router gets the same
embedding, of word counts.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 256
"""Of an embedding; fewer where there are fewer texts."""
FEWEST_TEXTS = 2
"""In which a word must stand to count."""
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 1e9)
"""Strengths of the ridge; the last leaves the models' means."""
MF_SETTINGS = {"dim": 128, "batch_size": 64, "epochs": 100, "alpha": 0.1, "lr": 3e-4}
"""Of RouteLLM's matrix factorisation, as in its training program."""
MF_WEIGHT_DECAY = 1e-5
MF_HELD_OUT = 0.05
LLMROUTER_MF = {"latent_dim": 128, "lr": 1e-3, "epochs": 5}
LLMROUTER_MLP = {"hidden_layer_sizes": [128, 64], "lr": 1e-3, "epochs": 100, "batch_size": 32}
"""Of LLMRouter's mfrouter and mlprouter, as in its example configurations."""
LLMROUTER_SERVICES = (
    "save_model",
    "load_model",
    "get_longformer_embedding",
    "call_api",
    "generate_task_query",
    "calculate_task_performance",
)
"""Functions that its routers import, and that training on given embeddings needs not."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Lesson:
    """What a router learns from: one row a training request, one column a model of the pool."""

    embeddings: Matrix
    values: Matrix
    """Share of the runs that solved the task, less the price of their cost."""


Router = Callable[[Lesson, Matrix], Matrix]
"""Train on a lesson, and return a score of every model for every new request (by its embedding)."""


def embed(texts: Sequence[str]) -> Matrix:
    """Return a latent semantic embedding of each text, of length one: the leading singular vectors
    of the texts' weighted word counts.
    """
    counted = [Counter(re.findall(r"[a-z_]{2,}", text.lower())) for text in texts]
    documents = Counter(word for words in counted for word in words)
    vocabulary = [word for word, count in documents.items() if count >= FEWEST_TEXTS]
    column = {word: index for index, word in enumerate(vocabulary)}
    weighted = np.zeros((len(texts), len(vocabulary)))
    for row, words in enumerate(counted):
        for word, count in words.items():
            if word in column:
                rarity = np.log(len(texts) / documents[word])
                weighted[row, column[word]] = (1 + np.log(count)) * rarity
    weighted /= np.linalg.norm(weighted, axis=1, keepdims=True) + 1e-9
    left, strengths, _ = np.linalg.svd(weighted, full_matrices=False)
    latent: Matrix = (left * strengths)[:, :WIDTH]
    return latent / (np.linalg.norm(latent, axis=1, keepdims=True) + 1e-9)


def ridge(lesson: Lesson, requests: Matrix) -> Matrix:
    """Score models by ridge regression. Its strength has the least leave-one-out error."""
    kernel = lesson.embeddings @ lesson.embeddings.T
    means = lesson.values.mean(axis=0)
    residuals = lesson.values - means
    best_error, best_weights = np.inf, np.zeros_like(residuals)
    for strength in RIDGES:
        inverse = np.linalg.inv(kernel + strength * np.eye(len(kernel)))
        weights = inverse @ residuals
        left_out = weights / np.diag(inverse)[:, None]
        error = float((left_out**2).mean())
        if error < best_error:
            best_error, best_weights = error, weights
    scores: Matrix = means + requests @ lesson.embeddings.T @ best_weights
    return scores


def routellm_mf(packages: Path) -> Router:
    """Return RouteLLM's matrix factorisation, trained by its own program on pairs of models."""
    client = ModuleType("routellm.routers.similarity_weighted.utils")
    client.__dict__["OPENAI_CLIENT"] = None
    module = _imported(
        packages, "routellm.routers.matrix_factorization.train_matrix_factorization", [client]
    )

    def route(lesson: Lesson, requests: Matrix) -> Matrix:
        import torch

        torch.manual_seed(42)
        models = lesson.values.shape[1]
        module.MODEL_IDS.clear()
        module.MODEL_IDS.update({str(model): model for model in range(models)})
        pairs = [
            {"model_a": str(first), "model_b": str(second), "idx": row, "winner": winner}
            for row, values in enumerate(lesson.values)
            for first in range(models)
            for second in range(first)
            if values[first] != values[second]
            for winner in ["model_a" if values[first] > values[second] else "model_b"]
        ]
        np.random.default_rng(42).shuffle(pairs)
        held_out = max(int(len(pairs) * MF_HELD_OUT), 1)
        batch = int(MF_SETTINGS["batch_size"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "embeddings.npy"
            np.save(file, lesson.embeddings)
            net = module.MFModel_Train(
                dim=MF_SETTINGS["dim"],
                num_models=models,
                num_prompts=len(lesson.embeddings),
                text_dim=requests.shape[1],
                npy_path=file,
            )
        with contextlib.redirect_stderr(io.StringIO()):
            module.train_loops(
                net,
                module.PairwiseDataset(pairs[held_out:]).get_dataloaders(batch),
                module.PairwiseDataset(pairs[:held_out]).get_dataloaders(1024, shuffle=False),
                lr=MF_SETTINGS["lr"],
                weight_decay=MF_WEIGHT_DECAY,
                alpha=MF_SETTINGS["alpha"],
                num_epochs=MF_SETTINGS["epochs"],
                device="cpu",
            )
        with torch.no_grad():
            prompts = net.text_proj(torch.tensor(requests, dtype=torch.float32))
            agents = torch.nn.functional.normalize(net.P.weight, p=2, dim=1)
            scores = net.classifier(agents[None] * prompts[:, None]).squeeze(-1)
        return np.asarray(scores, dtype=np.float64)

    return route


def llmrouter_mf(packages: Path) -> Router:
    """Return LLMRouter's mfrouter: the best model of a request beside each of the others."""
    module = _llmrouter(packages, "mfrouter")

    def route(lesson: Lesson, requests: Matrix) -> Matrix:
        import torch

        torch.manual_seed(42)
        models = lesson.values.shape[1]
        best = lesson.values.argmax(axis=1)
        pairs = [
            {"embedding_id": row, "winner": int(winner), "loser": loser}
            for row, winner in enumerate(best)
            for loser in range(models)
            if loser != winner
        ]
        router = SimpleNamespace(
            pairs=pairs,
            dim=LLMROUTER_MF["latent_dim"],
            text_dim=requests.shape[1],
            model_to_idx={str(model): model for model in range(models)},
            query_embedding_data=lesson.embeddings,
            cfg={"hparam": LLMROUTER_MF, "model_path": {"save_model_path": "unused"}},
        )
        trainer = _trained(module.MFRouterTrainer, router)
        with torch.no_grad():
            projected = trainer.model.project_text(torch.tensor(requests, dtype=torch.float32))
            rows = [trainer.model.score_all(row) for row in torch.atleast_2d(projected)]
        return np.array([np.asarray(row) for row in rows], dtype=np.float64)

    return route


def llmrouter_mlp(packages: Path) -> Router:
    """Return LLMRouter's mlprouter: a classifier of which model is best for a request."""
    module = _llmrouter(packages, "mlprouter")

    def route(lesson: Lesson, requests: Matrix) -> Matrix:
        import torch

        torch.manual_seed(42)
        best = lesson.values.argmax(axis=1)
        classes = sorted(set(best.tolist()))
        with tempfile.TemporaryDirectory() as folder:
            router = SimpleNamespace(
                query_embedding_list=torch.tensor(lesson.embeddings, dtype=torch.float32),
                label_indices=torch.tensor([classes.index(model) for model in best]),
                input_dim=requests.shape[1],
                num_classes=len(classes),
                hparam=LLMROUTER_MLP,
                cfg={"model_path": {"ini_model_path": "", "save_model_path": f"{folder}/unused"}},
            )
            trainer = _trained(module.MLPTrainer, router)
        trainer.model.eval()
        # a model that was never the best comes after the others, by its mean
        scores = np.tile(lesson.values.mean(axis=0) - 1e6, (len(requests), 1))
        with torch.no_grad():
            logits = trainer.model(torch.tensor(requests, dtype=torch.float32))
        scores[:, classes] = np.asarray(logits)
        return scores

    return route


def _trained(trainer_class: Any, router: SimpleNamespace) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = trainer_class(router)
        trainer.device = "cpu"
        trainer.train()
    return trainer


def _llmrouter(packages: Path, name: str) -> Any:
    """Return a router's training module, without the packages that its services need."""
    bare = []
    for package in ("llmrouter", "llmrouter.models", f"llmrouter.models.{name}"):
        module = ModuleType(package)
        module.__path__ = [str(packages / package.replace(".", "/"))]
        bare.append(module)
    meta = ModuleType("llmrouter.models.meta_router")
    meta.__dict__["MetaRouter"] = object
    utils = ModuleType("llmrouter.utils")
    for function in LLMROUTER_SERVICES:
        utils.__dict__[function] = lambda *_arguments: None
    return _imported(packages, f"llmrouter.models.{name}.trainer", [*bare, meta, utils])


def _imported(packages: Path, name: str, replaced: Sequence[ModuleType]) -> Any:
    """Import a module of an unpacked package, with other modules in the place of those named."""
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    sys.modules.update({module.__name__: module for module in replaced})
    return importlib.import_module(name)
