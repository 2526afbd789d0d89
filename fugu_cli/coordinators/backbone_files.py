"""A backbone's folder on disk: its config, weights, tokenizer and identity; found by path or hub
name, or converted once from the embedded model's GGUF file. Everything that is wrong with it
becomes an error that says what to do.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fugu_cli.errors import CoordinatorUnavailable, ModelFileError, StorageError, installing

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import PreTrainedModel

SIDECAR = "fugu.json"
_WANTED = [
    "config.json",
    "*.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]
REPLACE_HINT = "`fugu models pull` fetches the embedded one; or name another backbone in .fugurc"


@contextmanager
def required_libraries() -> Iterator[None]:
    """Turn the error of a missing library into CoordinatorUnavailable, which says how to install
    it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise CoordinatorUnavailable(
            f"{error.name} is not installed, so the learned coordinator cannot run",
            hint=installing(error.name or ""),
        ) from error


def locate_backbone(source: str, *, download: bool = True) -> Path:
    """Return the folder of a backbone given by path or by its name on the Hugging Face hub, whose
    client downloads it once, unless `download` is off.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise CoordinatorUnavailable(f"there is no backbone at {source}", hint=REPLACE_HINT)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=_WANTED, local_files_only=True))
    except LocalEntryNotFoundError as error:
        if not download:
            raise CoordinatorUnavailable(
                f"the backbone {source} is not on this machine",
                hint=f"fetch it with `hf download {source}`",
            ) from error
    except HFValidationError as error:
        raise CoordinatorUnavailable(
            f"there is no backbone at {source}, and no model on the hub has such a name",
            hint=REPLACE_HINT,
        ) from error
    try:
        return Path(snapshot_download(source, allow_patterns=_WANTED))
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise CoordinatorUnavailable(
            f"the backbone {source} is not on this machine and the hub cannot be reached",
            hint=REPLACE_HINT,
        ) from error


FAMILY = ("qwen2", "qwen3", "llama", "mistral")
"""`model_type`s whose matrices have the names that SVF looks for."""


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a config.json that matter here."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    tied: bool


def shape_of(folder: Path) -> ModelShape:
    """Return the numbers of `folder`'s config.json."""
    config = _json(folder / "config.json")
    model_type = config.get("model_type")
    if model_type not in FAMILY:
        raise CoordinatorUnavailable(
            f"the backbone in {folder} is of the kind {model_type!r}; known kinds are "
            f"{', '.join(FAMILY)}",
            hint=REPLACE_HINT,
        )
    try:
        heads = int(config["num_attention_heads"])
        shape = ModelShape(
            width=int(config["hidden_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            inner=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CoordinatorUnavailable(
            f"{folder / 'config.json'} lacks or garbles {error}", hint=REPLACE_HINT
        ) from error
    if min(shape.width, shape.kv_heads, shape.head_dim // 2, shape.inner, shape.layers - 1) < 1:
        raise CoordinatorUnavailable(
            f"{folder / 'config.json'} has sizes that no backbone has; it needs two layers or more",
            hint=REPLACE_HINT,
        )
    return shape


def model_of(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Return the model in `folder` without its LM head, which a router never reads. transformers'
    own loading would set torch's default type for all threads while it loads.
    """
    import torch
    from safetensors import SafetensorError, safe_open
    from transformers import MODEL_MAPPING, AutoConfig

    weights: dict[str, Tensor] = {}
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt", device="cpu") as opened:
                names = [name for name in opened.keys() if not name.startswith("lm_head.")]  # noqa: SIM118 - no dict
                weights |= {
                    name.removeprefix("model."): opened.get_tensor(name).to(dtype) for name in names
                }
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model: PreTrainedModel = MODEL_MAPPING[type(config)](config)
        missing = model.load_state_dict(weights, strict=False, assign=True).missing_keys
        model.rotary_emb = type(model.rotary_emb)(config=config)
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        why = " ".join(str(error).split())
        raise CoordinatorUnavailable(
            f"the model in {folder} cannot be read: {why[:300]}", hint=REPLACE_HINT
        ) from error
    if missing:
        raise CoordinatorUnavailable(
            f"the weights in {folder} lack {missing[0]}", hint=REPLACE_HINT
        )
    return model.requires_grad_(False).eval()


class _Unreadable:
    """The tokenizers library raises a bare Exception for a file it cannot read: that very class
    becomes ours.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error_type is Exception:
            raise CoordinatorUnavailable(
                f"{self._path} is not a tokenizer: {error}", hint=REPLACE_HINT
            ) from error


def tokenizer_of(folder: Path) -> Tokenizer:
    """Return the folder's tokenizer."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CoordinatorUnavailable(
            f"the backbone in {folder} has no tokenizer.json", hint=REPLACE_HINT
        )
    with _Unreadable(path):
        return Tokenizer.from_str(path.read_text(encoding="utf-8", errors="replace"))


def chat_template_of(folder: Path) -> str:
    """Return the chat template as text, "" if the folder has none."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    config = folder / "tokenizer_config.json"
    template = _json(config).get("chat_template") if config.is_file() else None
    return template if isinstance(template, str) else ""


def backbone_identity(folder: Path, cache: Path | None = None) -> str:
    """Return the name of a backbone in checkpoints: the sha256 of the file its weights came from,
    else of the weights.

    Hashing takes a second per gigabyte. With `cache`, a folder for small files, it is done once.
    """
    sidecar = folder / SIDECAR
    if sidecar.is_file():
        source_hash = _json(sidecar).get("source_sha256")
        if isinstance(source_hash, str) and source_hash:
            return source_hash
    files = sorted(folder.glob("*.safetensors"))
    stamp = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    note = None
    if cache is not None:
        digest = hashlib.sha256(json.dumps(stamp).encode()).hexdigest()
        note = cache / f"{digest[:32]}.txt"
    if note is not None and note.is_file():
        return note.read_text(encoding="ascii").strip()
    if not files:
        raise CoordinatorUnavailable(
            f"there are no weights (*.safetensors) in {folder}", hint=REPLACE_HINT
        )
    sums = [_sha256(file) for file in files]
    identity = sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(identity, encoding="ascii")
    return identity


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CoordinatorUnavailable(f"{path} is missing", hint=REPLACE_HINT) from error
    except (OSError, ValueError) as error:
        raise CoordinatorUnavailable(
            f"{path} cannot be read: {error}", hint=REPLACE_HINT
        ) from error
    if not isinstance(parsed, dict):
        raise CoordinatorUnavailable(f"{path} is not a JSON object", hint=REPLACE_HINT)
    return parsed


CONVERSION_FORMAT = 1
"""Raised when the same source gives another folder: older ones are converted again."""
NOTE_FILE = "fugu.json"
NEEDED_BYTES = 1_200_000_000
"""Bytes a 0.5B backbone takes, with some to spare."""
BLOCK = 16 << 20

ReportConversion = Callable[[float, str], None]
"""Report the progress of the conversion (0 to 1) and its present step."""

_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class BackboneNote:
    """The description of a converted folder. The source's `size` and `mtime_ns` save hashing it at
    every start.
    """

    source_sha256: str
    format: int
    size: int
    mtime_ns: int


def backbone_folder(
    gguf: Path, cache: Path, tell: ReportConversion = lambda done, what: None
) -> Path:
    """Return the converted backbone of a qwen2 GGUF file: bf16 safetensors, config.json, tokenizer
    and fugu.json.

    Converts at the first call (a second process waits for the first), afterwards costs a few file
    look-ups. Raises ModelFileError (not a model that can be a backbone), StorageError (no room) and
    CoordinatorUnavailable (no torch).
    """
    target = cache / "backbones" / f"{gguf.stem}-{CONVERSION_FORMAT}"
    if not gguf.is_file():
        raise ModelFileError(
            f"The backbone's model file {gguf} is not there.",
            hint=f"Fetch it with: fugu models pull {gguf.stem}",
        )
    if _is_current(target, gguf):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{target}.lock")
        try:
            acquired = lock.acquire(timeout=0)
        except Timeout:
            tell(0.0, "waiting for another fugu that converts the backbone")
            acquired = lock.acquire()
        with acquired:
            if not _is_current(target, gguf) and not _same_bytes(target, gguf):
                _converted(gguf, target, tell)
    except OSError as error:
        raise StorageError(
            f"The backbone cannot be written to {target.parent}: {error.strerror or error}.",
            hint=(
                "Free about 1.2 GB, or set FUGU_CACHE_DIR to a folder on another disk, and run "
                "it again."
            ),
        ) from error
    return target


def read_note(folder: Path) -> BackboneNote | None:
    """Return the description of a backbone's folder, None if it is not one."""
    try:
        return BackboneNote(**json.loads((folder / NOTE_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _is_current(target: Path, gguf: Path) -> bool:
    note, present = read_note(target), gguf.stat()
    return note is not None and (note.format, note.size, note.mtime_ns) == (
        CONVERSION_FORMAT,
        present.st_size,
        present.st_mtime_ns,
    )


def _same_bytes(target: Path, gguf: Path) -> bool:
    """Return whether the source was only touched or fetched again, so that its backbone can be
    kept.
    """
    note = read_note(target)
    if (
        note is None
        or note.format != CONVERSION_FORMAT
        or note.source_sha256 != _sha256_of_model(gguf)
    ):
        return False
    _write_note(target, gguf, note.source_sha256)
    return True


def _converted(gguf: Path, target: Path, tell: ReportConversion) -> None:
    if (free := shutil.disk_usage(target.parent).free) < NEEDED_BYTES:
        raise StorageError(
            f"Not enough room for the backbone: it needs 1.2 GB in {target.parent}, and "
            f"{free / 1e9:.1f} GB are free.",
            hint="Free some space, or set FUGU_CACHE_DIR to a folder on another disk.",
        )
    fresh = target.with_name(f"{target.name}.new")
    for rest in (fresh, target):
        shutil.rmtree(rest, ignore_errors=True)
    fresh.mkdir()
    try:
        _write_model(gguf, fresh, tell)
        tell(0.65, "converting the tokenizer")
        from transformers import AutoTokenizer

        AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(fresh)
    except ImportError as error:
        raise CoordinatorUnavailable(
            f"The backbone cannot be converted: {error}.",
            hint="Install torch, transformers, safetensors and gguf.",
        ) from error
    _write_note(fresh, gguf, _sha256_of_model(gguf))
    fresh.replace(target)
    tell(1.0, "the backbone is ready")


def _write_model(gguf: Path, folder: Path, tell: ReportConversion) -> None:
    from gguf import GGUFReader
    from safetensors.torch import save_file

    tell(0.0, "reading the model file")
    try:
        reader = GGUFReader(gguf)
    except (ValueError, IndexError, KeyError) as error:
        raise ModelFileError(
            f"{gguf} cannot be read as a GGUF file: {error}.",
            hint=(
                f"Fetch it again: fugu models remove {gguf.stem}, then fugu models pull {gguf.stem}"
            ),
        ) from error
    config = _config_of(reader, gguf)
    weights: dict[str, Tensor] = {}
    for done, tensor in enumerate(reader.tensors):
        tell(0.3 + 0.3 * done / len(reader.tensors), "unpacking the weights")
        if name := _tensor_name(tensor.name):
            weights[name] = _bf16(reader, done)
    tell(0.6, "writing the weights")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _config_of(reader: GGUFReader, gguf: Path) -> dict[str, object]:
    """Return the config.json that transformers expects for this architecture, in the words of the
    published Qwen2.5 ones.
    """

    def value_of(key: str) -> object:
        field = reader.fields.get(key)
        if field is None:
            raise ModelFileError(f"{gguf} does not say its {key}, so it cannot be a backbone.")
        value: object = field.contents()
        return value

    if (architecture := value_of("general.architecture")) != "qwen2":
        raise ModelFileError(
            f"{gguf} is a '{architecture}' model; only 'qwen2' GGUF files can become a backbone.",
            hint="Use qwen2.5-coder-0.5b, or name a folder with safetensors.",
        )
    shapes = {tensor.name: tensor.shape for tensor in reader.tensors}
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "vocab_size": int(shapes["token_embd.weight"][1]),
        "hidden_size": value_of("qwen2.embedding_length"),
        "intermediate_size": value_of("qwen2.feed_forward_length"),
        "num_hidden_layers": value_of("qwen2.block_count"),
        "num_attention_heads": value_of("qwen2.attention.head_count"),
        "num_key_value_heads": value_of("qwen2.attention.head_count_kv"),
        "max_position_embeddings": value_of("qwen2.context_length"),
        "rms_norm_eps": value_of("qwen2.attention.layer_norm_rms_epsilon"),
        "rope_theta": value_of("qwen2.rope.freq_base"),
        "bos_token_id": value_of("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value_of("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
    }


def _tensor_name(gguf_name: str) -> str | None:
    """Return the name of a tensor in transformers, None for what the backbone leaves out (the
    head).
    """
    if gguf_name in _TOP:
        return _TOP[gguf_name]
    match gguf_name.split("."):
        case ["blk", layer, part, kind] if part in _LAYER:
            return f"model.layers.{layer}.{_LAYER[part]}.{kind}"
    return None


def _bf16(reader: GGUFReader, index: int) -> Tensor:
    import numpy
    import torch
    from gguf.quants import dequantize

    tensor = reader.tensors[index]
    return torch.from_numpy(numpy.array(dequantize(tensor.data, tensor.tensor_type))).to(
        torch.bfloat16
    )


def _write_note(folder: Path, gguf: Path, sha256: str) -> None:
    present, new_file = gguf.stat(), folder / f"{NOTE_FILE}.new"
    note = BackboneNote(
        source_sha256=sha256,
        format=CONVERSION_FORMAT,
        size=present.st_size,
        mtime_ns=present.st_mtime_ns,
    )
    new_file.write_text(json.dumps(asdict(note)), encoding="utf-8")
    new_file.replace(folder / NOTE_FILE)


def _sha256_of_model(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
