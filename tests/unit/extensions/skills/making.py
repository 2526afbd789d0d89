"""Skills and commands on the disk, for tests."""

from pathlib import Path

BODY = "# How\n\nBegin with a plan."


def skill(
    place: Path, name: str, description: str = "What it is for.", body: str = BODY, **more: str
) -> Path:
    """`place`/skills/`name`/SKILL.md with its folder; further fields of the front matter as
    given.
    """
    fields = {"name": name, "description": description, **more}
    return text(
        place / "skills" / name / "SKILL.md",
        "".join(
            ["---\n", *(f"{key}: {value}\n" for key, value in fields.items()), f"---\n{body}\n"]
        ),
    )


def text(path: Path, content: str | bytes) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
