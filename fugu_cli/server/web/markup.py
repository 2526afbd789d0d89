"""Builds HTML from elements. Text becomes HTML here alone, so all of it is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID_TAGS = frozenset({"br", "input", "link", "meta"})
"""Elements without an end tag."""


class Markup(str):
    """HTML, as opposed to text. Made by `element` and `joined` only."""

    __slots__ = ()


Attribute = str | int | bool | None


def joined(children: Iterable[str]) -> Markup:
    """Return the children one after the other, with all text escaped."""
    texts = []
    for child in children:
        texts.append(child if isinstance(child, Markup) else escape(child, quote=True))
    return Markup("".join(texts))


def element(tag: str, *children: str, **attributes: Attribute) -> Markup:
    """Return an HTML element. Plain text among the children is escaped.

    In names of attributes `_` stands for `-`, and a last `_` is removed. The value True makes an
    attribute without a value; False and None leave it out.
    """
    written = [tag]
    for name, value in attributes.items():
        attribute = name.rstrip("_").replace("_", "-")
        if value is True:
            written.append(attribute)
        elif value is not None and value is not False:
            written.append(f'{attribute}="{escape(str(value), quote=True)}"')
    start = f"<{' '.join(written)}>"
    if tag in VOID_TAGS:
        return Markup(start)
    return Markup(f"{start}{joined(children)}</{tag}>")
