"""Keys of a field of text, done in the order they were pressed.

Textual writes a letter when the field hears it, and does what another key is bound to when that key has gone over the
screen to the app and come back: of keys that come at once, a letter overtakes the backspace before it.
"""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input


async def bound(field: Widget, key: str) -> bool:
    """Do what this key of the field's own is bound to, now; False where it is not."""
    for binding in field._bindings.key_to_bindings.get(key, ()):
        if not binding.priority and await field.app.run_action(binding.action, field):
            return True
    return False


class Search(Input):
    """One line of text."""

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable or not await bound(self, event.key):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
