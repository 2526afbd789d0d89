"""The text of `.fugurc.example`, made from `Config` itself.

`python -m fugu_cli.config.example > .fugurc.example` writes the file again; a test checks that the
two are equal.
"""

from __future__ import annotations

import ast
import inspect
import json
from itertools import pairwise

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fugu_cli.config import Config
from fugu_cli.config.schema import AgentEntry

HEAD = """\
# Every key of .fugurc with its default. Copy what you want to change to ~/.fugurc, or to .fugurc in a repository
# (there most keys count only after `fugu trust`). FUGU_MAX_TURNS=3 in the environment and --max-turns 3 on the command
# line come later and win; lists add up. A key behind `#` has no default: leave it out, or give it a value of your own.
"""

POOL = """
# The pool. Without one: agents for the keys in the environment or kept by `fugu login`, which lists the providers it
# knows (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...), else the embedded models.
# [[agents]]
"""

SAMPLES = {
    "checkpoint": "~/my-coordinator.safetensors",
    "backbone": "Qwen/Qwen3-0.6B",
    "max_budget_usd": 1.0,
    "time_limit": 600.0,
    "temperature": 0.2,
    "effort": "medium",
    "diagnostics": False,
    "test_command": "python -m pytest -q",
    "data_dir": "~/.local/share/fugu",
    "cache_dir": "~/.cache/fugu",
}
AGENT = {
    "name": "strong",
    "provider": "openai",
    "model": "gpt-6.1-sol",
    "base_url": "https://api.openai.com/v1",
    "api": "responses",
    "api_key_env": "OPENAI_API_KEY",
    "protocol": "native",
    "slot": "strong",
    "skill": 0.8,
    "infill": True,
    "vendor": "openai",
    "needs_tests": False,
    "vision": True,
    "temperature": 0.2,
    "max_tokens": 8192,
    "timeout": 120.0,
    "context": 400000,
    "effort": "medium",
    "description": "writes careful code, slow",
    "headers": {"x-title": "fugu"},
    "body": {"service_tier": "flex"},
}
FORMER = {"attempts"}
"""Keys of agents that are read and do nothing."""
PRICE = "{ input = 2.0, cached = 0.1, output = 10.0 }"


def example() -> str:
    """Return the whole file."""
    lines, notes = [HEAD], key_notes(Config)
    for key, spec in Config.model_fields.items():
        if key == "agents":
            continue
        default = spec.default
        comment = "# " if default is None else ""
        sample = (
            default.model_dump(mode="json", exclude_none=True)
            if isinstance(default, BaseModel)
            else SAMPLES.get(key, default)
        )
        value = _inline(sample)
        lines.append(_line(f"{comment}{key} = {value}", notes[key]))
    lines.append(POOL.rstrip("\n"))
    notes = key_notes(AgentEntry)
    for key, spec in AgentEntry.model_fields.items():
        if key in FORMER:
            continue
        value = PRICE if key == "price" else _inline(AGENT[key])
        note = "" if spec.default is PydanticUndefined else "optional: "
        lines.append(_line(f"# {key} = {value}", note + notes[key]))
    return "\n".join(lines) + "\n"


def key_notes(table: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each key of a table, on one line."""
    definition = ast.parse(inspect.getsource(table)).body[0]
    assert isinstance(definition, ast.ClassDef)
    notes = {}
    for pair in pairwise(definition.body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=key)),
                ast.Expr(value=ast.Constant(value=str(note))),
            ):
                notes[key] = " ".join(note.split())
    return notes


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    if not value:
        return "{}"
    items = ", ".join(f"{key} = {_inline(item)}" for key, item in value.items())
    return f"{{ {items} }}"


def _line(setting: str, description: str) -> str:
    return f"{setting:<44} # {description.strip()}"


if __name__ == "__main__":
    print(example(), end="")
