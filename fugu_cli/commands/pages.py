"""`fugu help TOPIC`: the pages of fugu_cli/help, as they are."""

from __future__ import annotations

import difflib
from importlib.resources import files

from fugu_cli.errors import UsageError


def topics() -> dict[str, str]:
    """Every page by its topic."""
    folder = files("fugu_cli").joinpath("help")
    found = (page for page in folder.iterdir() if page.name.endswith(".md"))
    return {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in sorted(found, key=lambda p: p.name)
    }


def show(topic: str) -> int:
    """Print a page; without a topic, what there is. The beginning of one page's name, such as a command's, is enough.

    Raises UsageError for a topic that does not exist.
    """
    pages = topics()
    if not topic:
        width = max(len(name) for name in pages)
        print("`fugu help TOPIC` shows one of these pages; `fugu COMMAND --help` the flags of a command.\n")
        for name, text in pages.items():
            print(f"  {name:<{width}}  {text.splitlines()[0].partition(': ')[2]}")
        return 0
    begun = [name for name in pages if name.startswith(topic)]
    if topic not in pages and len(begun) == 1:
        topic = begun[0]
    if topic not in pages:
        near = begun or difflib.get_close_matches(topic, pages, n=1)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(pages)}"
        raise UsageError(f"there is no page on {topic!r}", hint=hint)
    print(pages[topic], end="")
    return 0
