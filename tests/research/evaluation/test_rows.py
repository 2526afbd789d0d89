from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError, StorageError
from fugu_cli.messages import Value
from fugu_cli.training.evaluation import results_folder


class Count(Value):
    of: str
    n: int


def test_rows_come_back_as_they_were_added(tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.jsonl"
    added = [Count(of="ü\n", n=1), Count(of="b", n=2)]
    assert results_folder.read_rows(file, Count) == []
    for row in added:
        results_folder.append_row(file, row)
    assert results_folder.read_rows(file, Count) == added


def test_a_line_cut_by_a_crash_is_left_out_and_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    results_folder.append_row(file, Count(of="a", n=1))
    with file.open("ab") as end:
        end.write(b'{"of":"b","n"')
    assert results_folder.read_rows(file, Count) == [Count(of="a", n=1)]
    results_folder.append_row(file, Count(of="c", n=3))
    assert results_folder.read_rows(file, Count) == [Count(of="a", n=1), Count(of="c", n=3)]


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"of":"a","n":1}\n{"of":"a"}\n')
    with pytest.raises(
        ConfigError, match=r"rows\.jsonl:2: not a row of this measurement: Field required"
    ):
        results_folder.read_rows(file, Count)


def test_a_place_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        results_folder.read_rows(tmp_path, Count)
    with pytest.raises(StorageError, match="cannot be written"):
        results_folder.append_row(tmp_path, Count(of="a", n=1))
