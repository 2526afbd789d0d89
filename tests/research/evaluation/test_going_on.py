"""An evaluation that was stopped: what its report and its rows say afterwards."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu_cli.cli import eval as command
from fugu_cli.cli.training_flags import EvalFlags
from fugu_cli.coordinators import checkpoint
from fugu_cli.errors import ConfigError, FuguError, SessionBusy
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.results_folder import locked_folder
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from tests.acceptance.loopback import KEY, Loopback, Refuses, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task
from tests.unit.coordinators import tiny


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with running() as loopback:
        yield loopback


@pytest.fixture
def here(server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one task, and a pool of two: `idler` does nothing, `worker` solves
    everything.
    """
    configured(Path(os.environ["HOME"]), server, ("idler", "cheap"), ("worker", "strong"))
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    server.react("idler", idles)
    server.react("worker", fixes)
    suite(tmp_path, task("one"))
    return tmp_path


def evaluate(*arms: str, **more: object) -> int:
    return command.evaluate(
        EvalFlags(suites=["own.jsonl"], arms=list(arms), out=Path("out"), **more)
    )  # type: ignore[arg-type]


def put_back(own: Path, seconds: float) -> None:
    """Let everything that is written there have happened so much earlier."""
    for file in (own / "repository").rglob("*"):
        about = file.stat()
        os.utime(file, (about.st_atime, about.st_mtime - seconds))
    for file in own.rglob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            for name in ("at", "until"):
                if name in line:
                    line[name] -= seconds
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_the_time_between_a_stop_and_going_on_is_not_counted(here: Path) -> None:
    own = here / "out" / "rollouts" / "single-worker" / "one-0"
    for requests in (1, 2):
        with pytest.raises(FuguError, match=f"{requests} of {requests} requests are made"):
            evaluate("single:worker", max_requests=requests)
        put_back(own, 1000.0)
    assert evaluate("single:worker") == 0
    (row,) = results_folder.read_rows(here / "out" / "rows.jsonl", RolloutOutcome)
    assert (row.ok, row.calls, row.turns) == (True, 4, 2)
    assert 0 < row.seconds < 1000


def test_one_killed_while_its_working_tree_was_removed_begins_anew_and_pays_nothing(
    here: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def killed(folder: Path, **more: object) -> None:
        repositories = [*Path(folder).glob("repository")]
        if not repositories or not Path(folder).is_relative_to(here):
            return remove(folder, **more)  # type: ignore[arg-type]
        for inside in (
            inside
            for repository in repositories
            for inside in (*repository.iterdir(), repository / ".git" / "objects")
        ):
            if inside.name != ".git":
                remove(inside) if inside.is_dir() else inside.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        assert evaluate("single:worker") == 4
    assert not (here / "out" / "rows.jsonl").exists()
    paid = len(server.asked("worker"))
    assert evaluate("single:worker") == 0
    (row,) = results_folder.read_rows(here / "out" / "rows.jsonl", RolloutOutcome)
    assert (row.ok, len(server.asked("worker")) - paid) == (True, 0)
    assert not [
        path
        for path in (here / "out" / "rollouts").rglob("*")
        if path.is_dir() and "one-0" in path.name
    ]


def test_a_folder_that_does_not_go_on_keeps_its_report(here: Path, server: Loopback) -> None:
    evaluate("single:worker")
    before = (here / "out" / "report.md").read_bytes()
    with locked_folder(here / "out"), pytest.raises(SessionBusy):
        evaluate("single")
    configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
    with pytest.raises(ConfigError, match="was begun with another pool"):
        evaluate("single")
    assert (here / "out" / "report.md").read_bytes() == before


def test_an_agent_whose_settings_have_changed_is_another_and_nothing_is_rewritten(
    here: Path,
) -> None:
    evaluate("single:worker")
    setup, config = here / "out" / "setup.json", Path(os.environ["HOME"]) / ".fugurc"
    kept, inode = config.read_text(), setup.stat().st_ino
    config.write_text(kept.replace("name =", "temperature = 0.9\nname ="))
    with pytest.raises(ConfigError, match=r"was begun with another (idler|worker)"):
        evaluate("single:worker")
    config.write_text(kept)
    assert evaluate("single:worker") == 0
    assert setup.stat().st_ino == inode


def test_a_checkpoint_that_is_trained_anew_is_another_coordinator_and_is_no_matter_to_arms_without_one(
    here: Path,
) -> None:
    meta, made = (
        tiny.meta(tiny.folder(here / "backbone"), rows=("idler", "worker")),
        here / "made.safetensors",
    )
    config = Path(os.environ["HOME"]) / ".fugurc"
    config.write_text(
        f'backbone = "{here / "backbone"}"\ncheckpoint = "{made}"\n{config.read_text()}'
    )
    checkpoint.save(tiny.checkpoint(meta), made)
    assert evaluate("single:worker") == 0
    assert json.loads((here / "out" / "setup.json").read_text())["checkpoint"] == ""
    assert evaluate("trinity") == 0
    begun = json.loads((here / "out" / "setup.json").read_text())["checkpoint"]
    assert begun == checkpoint.load(made).digest
    checkpoint.save(tiny.checkpoint(meta, seed=1), made)
    with pytest.raises(ConfigError, match=f"was begun with another checkpoint .{begun[:12]}; now "):
        evaluate("trinity")
    assert evaluate("single:worker") == 0
    assert json.loads((here / "out" / "setup.json").read_text())["checkpoint"] == begun


def test_a_checkpoint_that_moved_is_the_same(here: Path) -> None:
    meta, config = (
        tiny.meta(tiny.folder(here / "backbone"), rows=("idler", "worker")),
        Path(os.environ["HOME"]) / ".fugurc",
    )
    pool = config.read_text()
    for made in (here / "made.safetensors", here / "moved.safetensors"):
        config.write_text(f'backbone = "{here / "backbone"}"\ncheckpoint = "{made}"\n{pool}')
        checkpoint.save(tiny.checkpoint(meta), made)
        assert evaluate("trinity") == 0


def test_a_report_of_what_there_is_has_all_arms_and_the_pool_they_were_measured_with(
    here: Path, server: Loopback
) -> None:
    evaluate("retry-same:worker", "one-pass:worker")
    configured(Path(os.environ["HOME"]), server, ("other", "strong"))
    assert evaluate(report=True) == 0
    page = (here / "out" / "report.md").read_text()
    assert "- pool: idler (idler, cheap), worker (worker, strong)\n" in page
    assert page.index("| one-pass:worker | 1 / 1 |") < page.index("| retry-same:worker | 1 / 1 |")


def test_one_report_of_several_folders_counts_each_rollout_once(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate("single:worker")
    shutil.copytree(here / "out", here / "other")
    evaluate("one-pass:worker")
    (here / ".fugurc").write_text("broken = [")  # a report needs no configuration
    (here / "stopped").mkdir()  # an evaluation that was stopped before its first row
    shutil.copy(here / "out" / "setup.json", here / "stopped")
    report = EvalFlags(suites=["other", "out", "stopped"], report=True, out=Path("both"))
    assert command.evaluate(report) == 0
    page = (here / "both" / "report.md").read_text()
    assert page.index("| one-pass:worker | 1 / 1 |") < page.index("| single:worker | 1 / 1 |")
    assert "- tasks: 1 of own; 1 seed(s)" in page
    assert "in several folders and counted once: 1 rollout" in capsys.readouterr().err
    setup = here / "other" / "setup.json"
    setup.write_text(setup.read_text().replace('"time_limit": "', '"time_limit": "9'))
    with pytest.raises(ConfigError, match="rows of both cannot be compared"):
        command.evaluate(report)


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (Refuses(402, "insufficient credit", "insufficient_quota"), "add credit to the account"),
        (Refuses(401, "no such key"), "give the agent a key that is accepted"),
    ],
)
def test_what_stops_an_evaluation_says_what_helps_and_leaves_the_pool_as_it_is(
    here: Path, server: Loopback, refusal: Refuses, hint: str
) -> None:
    server.play("worker", refusal)
    with pytest.raises(FuguError, match="worker does not answer") as caught:
        evaluate("single:worker")
    assert caught.value.hint == f"{hint}; the same command goes on"


def test_a_disk_without_room_for_the_report_does_not_hide_what_stopped_the_evaluation(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "out" / "report.md").mkdir(parents=True)
    with pytest.raises(
        FuguError, match="1 of 1 requests are made; 1 rollout is left; everything measured"
    ) as caught:
        evaluate("single:worker", max_requests=1)
    assert caught.value.exit_code == 3
    assert "the report cannot be written" in capsys.readouterr().err
    with pytest.raises(
        FuguError, match=r"the report cannot be written: .*; 0 rollouts are left"
    ) as caught:
        evaluate("single:worker")
    assert (caught.value.exit_code, caught.value.hint) == (
        2,
        "make room on the disk; the same command goes on",
    )
