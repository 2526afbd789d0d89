"""Copies a plugin's files from a folder or a commit of a git address, and hashes them.

Nothing of the plugin runs: git checks nothing out, so no filter, hook or submodule of the
repository counts. Links that lead out of the plugin, special files and too much data are refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import InfrastructureError, UsageError
from fugu_cli.safety.git_process import GitOutput, run_git, users_environment
from fugu_cli.safety.paths import inside, is_folder, real_path
from fugu_cli.system.temp_dirs import temp_dir

MOST_FILES = 2000
LARGEST_FILE = 5_000_000
LARGEST_PLUGIN = 20_000_000
"""Bytes of one file, and of all together."""
FETCH_SECONDS = 300.0
LARGEST_FETCH = 200_000_000
"""Seconds that a fetch may take, and bytes that it may bring: a plugin may lie in a large repository."""
PROTOCOLS = "https:ssh:file"
"""The transports that git may use."""
_ADDRESS = re.compile(r"(?:https|ssh|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_OTHER_ADDRESS = re.compile(r"\w[\w+.-]*:(?://|:)")
_LINK, _SUBMODULE = "120000", "160000"


@dataclass(frozen=True)
class PluginFile:
    """A file of a plugin. `data` of a link is its target."""

    path: str
    data: bytes
    executable: bool = False
    link: bool = False


@dataclass(frozen=True)
class PluginAddress:
    """The place of a plugin: a folder or a git address, and in it the folder `path`. `ref` is a
    branch, tag or commit, "" for the default branch.
    """

    source: str
    path: str = ""
    ref: str = ""

    @property
    def in_git(self) -> bool:
        """True if git fetches it."""
        return _ADDRESS.fullmatch(self.source) is not None

    @property
    def is_remote(self) -> bool:
        """True if it is fetched over a network."""
        return self.in_git and not self.source.startswith("file:")

    def __str__(self) -> str:
        path = f" {self.path}" if self.path else ""
        ref = f" at {self.ref}" if self.ref else ""
        return f"{self.source}{path}{ref}"


def parse_address(source: str, path: str, ref: str) -> PluginAddress:
    """Return the address with a resolved folder. Raises UsageError."""
    # git knows no folder `./x` in a commit
    folder_path = "/".join(part for part in path.split("/") if part not in ("", "."))
    address = PluginAddress(source, folder_path, ref)
    if address.path.startswith("-") or ".." in Path(address.path).parts:
        raise UsageError(f"{path} is no folder in a plugin's repository", hint="name one inside it")
    if address.in_git:
        if ref.startswith("-") or any(letter.isspace() for letter in ref):
            raise UsageError(
                f"{ref!r} is no branch, tag or commit",
                hint="leave out --ref for the default branch",
            )
        if re.match(r"\w+://[^/@]*:[^/@]*@", source):
            raise UsageError(
                "the address holds a password, which would stand in lists and logs",
                hint="leave it out, and let git keep it: `git help credentials`",
            )
        return address
    if _OTHER_ADDRESS.match(source):
        raise UsageError(
            f"{source} is no address that plugins are fetched from",
            hint="use https://, ssh://, file:// or user@host:path",
        )
    folder = Path(source).expanduser().resolve()
    if not is_folder(folder):
        raise UsageError(
            f"there is no folder {folder}", hint="give a folder, or a git address (https://...)"
        )
    if ref:
        raise UsageError(
            "a folder has no versions to choose from",
            hint=f"give its git address to use --ref: {folder.as_uri()}",
        )
    return PluginAddress(str(folder), address.path)


def read_files(address: PluginAddress) -> tuple[list[PluginFile], str]:
    """Return a plugin's files and their commit, "" for a folder. Raises FuguError."""
    if not address.in_git:
        folder = Path(address.source, address.path).resolve()
        if not inside(folder, Path(address.source)):
            raise UsageError(f"{folder} is outside {address.source}", hint="name a folder in it")
        files = list(_files_of_folder(folder))
        commit = ""
    else:
        with temp_dir("plugin") as temporary:
            commit = _fetch(address, temporary)
            files = _files_of_commit(address, temporary, commit)
    if not files:
        raise UsageError(f"there are no files in {address}", hint="--path names a folder in it")
    if sum(len(file.data) for file in files) > LARGEST_PLUGIN:
        raise UsageError(
            f"{address} holds more than {LARGEST_PLUGIN // 1_000_000} MB",
            hint="a plugin is smaller; --path names a folder in it",
        )
    return files, commit


def write_files(files: list[PluginFile], folder: Path) -> None:
    """Write the files into an empty folder, links last. Raises OSError, and UsageError for a file
    or a link that leads out of the folder.
    """
    root = real_path(folder)
    for file in sorted(files, key=lambda file: file.link):
        path = folder / file.path
        # the tree of a hostile repository can hold names such as `..` and `/home/me/.profile`
        if not inside(real_path(path.parent), root):
            raise UsageError(
                f"the file {file.path} would lie outside the plugin",
                hint="such a plugin is not added",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(os.fsdecode(file.data))
        else:
            path.write_bytes(file.data)
            path.chmod(0o700 if file.executable else 0o600)
    for file in files:
        if file.link and not inside(real_path(folder / file.path), root):
            raise UsageError(
                f"{file.path} is a link that leads out of the plugin, to {os.fsdecode(file.data)}",
                hint="such a plugin is not added",
            )


def digest_of(files: list[PluginFile]) -> str:
    """Return a hash of names, contents and modes."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        kind = "program" if file.executable else "file"
        if file.link:
            kind = "link"
        content = hashlib.sha256(file.data).hexdigest()
        digest.update(f"{kind}\0{file.path}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digest_of_folder(folder: Path) -> str:
    """Return the hash of a plugin's kept files, "" if they cannot be read."""
    try:
        return digest_of(list(_files_of_folder(folder)))
    except (OSError, UsageError):
        return ""


def _files_of_folder(folder: Path) -> Iterator[PluginFile]:
    """Yield the files of a folder without `.git`. Raises UsageError."""
    count = 0
    try:
        for parent, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if name != ".git")
            links = [name for name in folders if Path(parent, name).is_symlink()]
            for name in (*sorted(names), *links):
                count += 1
                _check_count(count, str(folder))
                path = Path(parent, name)
                if name != ".git":
                    yield _file_of_folder(path, path.relative_to(folder).as_posix())
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error


def _raise(error: OSError) -> None:
    raise error


def _file_of_folder(path: Path, name: str) -> PluginFile:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return PluginFile(name, os.fsencode(path.readlink()), link=True)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is neither a file nor a folder", hint="remove it")
    _check_size(name, status.st_size)
    return PluginFile(name, path.read_bytes(), executable=bool(status.st_mode & stat.S_IXUSR))


def _check_count(count: int, source: str) -> None:
    if count > MOST_FILES:
        raise UsageError(
            f"{source} holds more than {MOST_FILES:,} files",
            hint="a plugin has fewer; --path names a folder in it",
        )


def _check_size(name: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise UsageError(
            f"{name} is too large for a plugin's file: {size:,} bytes, {LARGEST_FILE:,} at most"
        )


def _fetch(address: PluginAddress, folder: Path) -> str:
    """Fetch the commit into a bare repository in `folder`, and return its id. Raises FuguError."""
    made = _git(folder, "init", "-q", "--bare", "--template=")
    if made.code:
        raise InfrastructureError(f"git cannot make a repository in {folder}: {made.err}")
    options = ("--depth=1", "--no-tags", "--no-recurse-submodules")
    reference = address.ref or "HEAD"
    try:
        fetched = _git(
            folder,
            *("-c", "fetch.unpackLimit=1"),  # what comes is one file
            *("fetch", "-q", *options, "--", address.source, f"{reference}:refs/heads/plugin"),
        )
    except TimeoutError as error:
        raise InfrastructureError(
            f"{address.source} did not send {reference} within {FETCH_SECONDS:g} s",
            hint="check the network; a smaller repository may hold the plugin alone",
        ) from error
    if fetched.code and _largest_file(folder) >= LARGEST_FETCH:
        raise UsageError(
            f"{address.source} holds more than {LARGEST_FETCH // 1_000_000} MB",
            hint="a smaller repository may hold the plugin alone",
        )
    if fetched.code:
        raise InfrastructureError(
            f"git could not fetch {reference} of {address.source}: {fetched.err}",
            hint="check the address, the name after --ref, and that git may read it without asking",
        )
    return _git(folder, "rev-parse", "refs/heads/plugin^{commit}").out.decode().strip()


def _largest_file(folder: Path) -> int:
    """Return the size of the largest file that git has written in its repository."""
    return max((path.lstat().st_size for path in folder.rglob("*")), default=0)


def _files_of_commit(address: PluginAddress, folder: Path, commit: str) -> list[PluginFile]:
    tree = f"{commit}:{address.path}" if address.path else commit
    listed = _git(folder, "ls-tree", "-r", "-z", "-l", tree)
    if listed.code:
        raise UsageError(f"there is no folder {address.path} in {address.source} ({commit[:12]})")
    entries = [entry for entry in listed.out.split(b"\0") if entry]
    _check_count(len(entries), str(address))
    files = []
    object_ids = []
    for entry in entries:
        header, _, raw_name = entry.partition(b"\t")
        mode, _, object_id, size = header.decode().split()
        name = os.fsdecode(raw_name)
        if mode == _SUBMODULE:
            continue
        _check_size(name, int(size))
        object_ids.append(object_id)
        files.append((name, mode))
    contents = _read_objects(folder, object_ids)
    return [
        PluginFile(name, data, executable=mode == "100755", link=mode == _LINK)
        for (name, mode), data in zip(files, contents, strict=True)
    ]


def _read_objects(folder: Path, ids: list[str]) -> Iterator[bytes]:
    """Yield the contents of objects. git writes a line `ID KIND SIZE` before each, and a line end
    after it.
    """
    if not ids:
        return
    output = _git(folder, "cat-file", "--batch", stdin="\n".join(ids).encode() + b"\n").out
    position = 0
    for _ in ids:
        header_end = output.index(b"\n", position)
        size = int(output[position:header_end].split()[-1])
        start = header_end + 1
        yield output[start : start + size]
        position = start + size + 1


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> GitOutput:
    """Run git with the user's configuration (proxies, keys). It asks nothing, and uses the transports
    in PROTOCOLS only.
    """
    environment = {
        **users_environment(),
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        "LC_ALL": "C",
    }
    return run_git(
        folder,
        *arguments,
        environment=environment,
        stdin=stdin,
        seconds=FETCH_SECONDS,
        largest_file=LARGEST_FETCH,
    )
