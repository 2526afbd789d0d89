"""A Harbor environment without containers: commands run in a mount namespace whose root is a folder
of the trial.

Everything of this machine is there to be read and run; `/logs`, `/tests`, `/app` and the like are
the trial's own. Linux and root alone. Loaded by Harbor in its own Python, by its path.
"""

import asyncio
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult

OWN = ("logs", "tests", "app", "solution", "installed-agent", "root")
ROOT = """set -e
for entry in /*; do
    name="${entry#/}"
    case " $OWN " in *" $name "*) continue ;; esac
    if [ -L "$entry" ]; then cp -P "$entry" "$FOLDER/$name" 2>/dev/null || true
    elif [ -d "$entry" ]; then mkdir -p "$FOLDER/$name"; mount --rbind "$entry" "$FOLDER/$name"; fi
done
mkdir -p "$FOLDER/root/.pyenv"
if [ -d /root/.pyenv ]; then mount --rbind /root/.pyenv "$FOLDER/root/.pyenv"; fi
exec chroot "$FOLDER" /bin/bash -c "$COMMAND"
"""


class LocalEnvironment(BaseEnvironment):
    """One trial's root."""

    @staticmethod
    def type() -> str:
        return "local"

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fugu-harbor-"))
        for name in OWN:
            (self.folder / name).mkdir()
        for name in ("agent", "verifier", "artifacts"):
            (self.folder / "logs" / name).mkdir()
        shutil.copytree(self.environment_dir, self.folder / "app", dirs_exist_ok=True)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _inside(self, path: object) -> Path:
        return self.folder / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._inside(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._inside(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        known = {
            "PATH": os.environ["PATH"],
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        command = f"cd {shlex.quote(cwd or '/app')}; {command}"
        own = {"FOLDER": str(self.folder), "OWN": " ".join(OWN), "COMMAND": command}
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "bash", "-c", ROOT),
            env={**known, **(self._merge_env(env) or {}), **own},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(
            stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0
        )
