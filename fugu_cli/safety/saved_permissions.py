"""The permissions that the user saved for a project: rules in a file that the user can read and
change.

`DATA/permissions/PROJECT.toml` holds `allow = [...]` in the rule language of
policy/rule_matching.py. It lies with the user's data, never in the repository: nothing in a
repository can widen its own rights.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from fugu_cli.errors import ConfigError, StorageError
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.safety.policy import rule_matching
from fugu_cli.session import log, store
from fugu_cli.system import atomic_files

HEAD = "# Calls in {root} that need no question. Remove a line to be asked again.\n"


def permissions_file(data: Path, root: Path) -> Path:
    """Return the project's file, which need not exist."""
    return data / "permissions" / f"{store.session_folder(data, root).name}.toml"


def rule_for(call: Call, judgement: policy.Judgement) -> str:
    """Return the narrowest rule for this call: its tool and exact target, as policy judged it.

    A path outside UTF-8 cannot be written down: the rule then names another and allows nothing.
    """
    if not judgement.target.startswith(f"{call.tool}("):
        return call.tool
    return log.as_written(
        f"{call.tool}({rule_matching.escape_argument(call.tool, judgement.target[len(call.tool) + 1 : -1])})"
    )


def load_rules(data: Path, root: Path) -> tuple[str, ...]:
    """Return the rules of a project. Raises ConfigError for an invalid file."""
    path = permissions_file(data, root)
    try:
        rules = tomllib.loads(path.read_text(encoding="utf-8")).get("allow", [])
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"cannot read the permissions in {path}: {error}", hint="mend the file or remove it"
        ) from error
    if why := _fault(rules):
        raise ConfigError(
            f"{path}: {why}",
            hint="mend that line or remove it; without the file you are asked again",
        )
    return tuple(rules)


def _fault(rules: object) -> str:
    """Describe what is wrong with the rules of a file, "" if nothing is."""
    if not isinstance(rules, list):
        return "`allow` is no list of rules"
    faults = (
        rule_matching.pattern_fault(rule) if isinstance(rule, str) else f"{rule!r} is not a rule"
        for rule in rules
    )
    return next(filter(None, faults), "")


def add_rule(data: Path, root: Path, new: str) -> None:
    """Remember one more rule. Raises StorageError when the file cannot be written; the old one is
    kept then.
    """
    path = permissions_file(data, root)
    rules = list(dict.fromkeys([*load_rules(data, root), new]))
    lines = "".join(f"    {_quoted(rule)},\n" for rule in rules)
    text = f"{HEAD.format(root=_quoted(str(root))[1:-1])}allow = [\n{lines}]\n"
    try:
        with atomic_files.replacement_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}", hint="check free space and permissions"
        ) from error


def _quoted(text: str) -> str:
    """Return a TOML string on one line. A folder or command may hold any character."""
    return json.dumps(log.as_written(text), ensure_ascii=False).replace("\x7f", "\\u007f")
