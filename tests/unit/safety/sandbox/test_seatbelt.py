"""The profile for macOS, as text: Linux cannot run it, and the trial decides on each machine."""

from __future__ import annotations

from fugu_cli.safety.sandbox.access_rules import FileAccess
from fugu_cli.safety.sandbox.seatbelt import seatbelt_profile

ACCESS = FileAccess(
    writable=("/Users/a/repo", "/Users/a/data/cache"),
    sealed=("/Users/a/repo/.git", "/Users/a/repo/deep/.envrc"),
    readable=("/Users/a/.cargo",),
    hidden=("/Users/a/.ssh", "/Users/a/.cargo/credentials"),
    covered=(),
    loose=('/Users/a/repo/.git/odd "name"',),
)


def _last_rule(profile: str, path: str, operation: str) -> str:
    """Return allow or deny as Seatbelt would: by the last rule that holds for the path."""
    verdict = "deny"
    for line in profile.splitlines():
        action, _, rest = line.lstrip("(").partition(" ")
        operations, _, filters = rest.partition("(")
        if action not in {"allow", "deny"} or operation not in operations.split():
            continue
        places = [part.split('"')[1] for part in filters.split("subpath ")[1:]]
        if not filters or any(path == place or path.startswith(f"{place}/") for place in places):
            verdict = action
    return verdict


def test_writes_go_to_the_repository_and_private_files_alone() -> None:
    profile = seatbelt_profile(ACCESS, "/private/tmp/box", network=False)
    written = ["/Users/a/repo/a.py", "/private/tmp/box/x", "/Users/a/data/cache/x"]
    kept = ["/Users/a/x", "/etc/hosts", "/Users/a/repo/.git/HEAD", "/Users/a/repo/deep/.envrc"]
    assert {_last_rule(profile, path, "file-write*") for path in written} == {"allow"}
    assert {_last_rule(profile, path, "file-write*") for path in kept} == {"deny"}
    assert '(deny file-write-unlink (literal "/Users/a/repo/deep"))' in profile
    own_terminal = '(regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty"))'
    assert profile.count("/dev/ttys") == profile.count(f"(require-all {own_terminal}") == 1


def test_what_is_hidden_is_not_read_and_the_rest_is() -> None:
    profile = seatbelt_profile(ACCESS, "/private/tmp/box", network=False)
    for path in ("/Users/a/.ssh/id_rsa", "/Users/a/.cargo/credentials"):
        assert _last_rule(profile, path, "file-read*") == "deny"
    for path in ("/Users/a/.cargo/registry", "/usr/lib/x", "/Users/a/repo/.git/HEAD"):
        assert _last_rule(profile, path, "file-read*") == "allow"


def test_the_network_is_there_only_where_the_user_wants_it() -> None:
    offline = seatbelt_profile(ACCESS, "/private/tmp/box", network=False)
    assert "(allow network*" not in offline.replace("(allow network* (local unix-socket", "")
    assert "(allow network* system-socket)" in seatbelt_profile(ACCESS, "/p", network=True)


def test_nothing_is_allowed_at_first_and_names_are_quoted() -> None:
    profile = seatbelt_profile(ACCESS, "/private/tmp/box", network=False)
    assert profile.startswith("(version 1)\n(deny default)\n")
    assert '/.git/odd \\"name\\""' in profile
    assert profile.count("(") == profile.count(")")
