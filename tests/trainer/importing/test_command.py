"""`midband import` and `midband export` as a person runs them, and public pools with all their duplicates."""

import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import midband
from api.schemas import ImportReport
from tests.api.harness import listening
from tests.trainer.importing.test_files import parquet, saved
from trainer.client import Client
from trainer.errors import InvalidRequest
from trainer.importing.command import import_command
from trainer.importing.layouts import Layout

# Public prompts with answers, which are not part of the repository: licences of their texts are not ours to pass on.
POOLS = Path(os.environ.get("MIDBAND_PROMPT_POOLS", Path(__file__).parents[4] / "shared" / "data" / "pools"))
PUBLIC = {  # rows, those merged with an earlier one, questions with several answers, rows without an answer
    "gsm8k_train": (7_473, 0, 0, 0),
    "math_train": (7_474, 0, 0, 2),
    "dapo_math_17k_greso": (17_917, 659, 11, 0),
    "deepscaler_10240_dots": (10_240, 104, 35, 0),
}


@pytest.fixture
def client(sqlite_url: str) -> Iterator[Client]:
    with midband.in_process(sqlite_url) as client:
        yield client


def imported(client: Client, path: Path, pool: str = "p", **options: object) -> tuple[ImportReport, str]:
    console = Console(file=io.StringIO(), width=400)
    report = import_command(client, pool, path, console=console, **options)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return report, console.file.getvalue()


def gsm8k(question: str, answer: object) -> dict[str, object]:
    return {"question": question, "answer": f"Because.\n#### {answer}"}


def test_a_saved_data_set_becomes_a_pool_with_both_splits(client: Client, tmp_path: Path) -> None:
    saved(tmp_path / "train", [gsm8k("a", "1,000"), gsm8k("b", 2), gsm8k("b  ", 2), gsm8k("c", 3), gsm8k("c", 4)])
    saved(tmp_path / "test", [gsm8k("d", 5), gsm8k("a", "1,000"), {"question": "e", "answer": "none"}])
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))

    report, said = imported(client, tmp_path)

    # `a` stands in both splits: it is held out, and the row that would train on it is refused.
    assert (report.received, report.created, report.merged, report.rejected) == (8, 5, 1, 2)
    info = client.pool("p")
    assert info.splits == {"train": 3, "heldout": 2}
    lines = said.splitlines()
    assert lines[0] == "test/data-00000-of-00001.arrow: 3 rows, layout gsm8k (2 heldout)"
    assert lines[1] == "train/data-00000-of-00001.arrow: 5 rows, layout gsm8k (5 train)"
    assert lines[2] == "pool p: 5 created · 0 updated · 0 unchanged · 1 merged · 2 rejected"
    assert any(line.startswith("note: Questions with different answers") and ": 1, for" in line for line in lines)
    assert "rejected test/data-00000-of-00001.arrow, row 2: no_answer: answer has nothing behind `####`" in said
    assert "rejected train/data-00000-of-00001.arrow, row 0: split_conflict" in said
    answers = {item["content"]: item["answer"] for item in client.prompts("p", split="heldout")["items"]}
    assert answers == {"a": "1000", "d": "5"}


def test_the_same_again_changes_nothing_and_replace_says_what_is_gone(client: Client, tmp_path: Path) -> None:
    parquet(tmp_path / "rows.parquet", [gsm8k(letter, 1) for letter in "abc"])
    parquet(tmp_path / "fewer.parquet", [gsm8k("b", 1), gsm8k("a", 2)])
    imported(client, tmp_path / "rows.parquet")
    again, _ = imported(client, tmp_path / "rows.parquet")
    assert (again.created, again.unchanged) == (0, 3)
    replaced, said = imported(client, tmp_path / "fewer.parquet", replace=True)
    assert (replaced.matched, replaced.linked, replaced.absent) == (1, 1, 2)
    assert "1 matched · 1 linked · 2 now absent" in said


def test_a_stated_split_and_layout_outweigh_what_names_say(client: Client, tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", [{"question": "a", "answer": "7", "hint": "b"}])
    nothing, said = imported(client, tmp_path / "train.parquet")
    assert (nothing.received, nothing.rejected) == (1, 1)
    assert "--layout question takes it as it is" in said
    done, said = imported(client, tmp_path / "train.parquet", layout=Layout.QUESTION, split="heldout")
    assert (done.created, client.pool("p").splits["heldout"]) == (1, 1)
    assert "columns left out: hint" in said


def test_a_file_of_the_contract_goes_up_as_it_is(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,content,features.level\nk1,a,2\nk2,b,x\n")
    done, said = imported(client, path)
    assert (done.created, done.rejected) == (1, 1)
    assert "rejected row 1: wrong_type: features.level" in said
    with pytest.raises(InvalidRequest, match="say their split themselves"):
        imported(client, path, split="train")
    (tmp_path / "more.csv").write_text("key\nk3\n")
    with pytest.raises(InvalidRequest, match="one at a time"):
        imported(client, tmp_path)


def test_nothing_is_sent_and_no_pool_made_when_a_file_is_not_known(client: Client, tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", [gsm8k("a", 1)])
    parquet(tmp_path / "b.parquet", [{"text": "b"}])
    with pytest.raises(
        InvalidRequest, match=r"b\.parquet has the columns text, and no layout .*gsm8k: answer, question"
    ):
        imported(client, tmp_path)
    with pytest.raises(InvalidRequest, match="needs problem, solution; there are question, answer"):
        imported(client, tmp_path / "a.parquet", layout=Layout.MATH)
    (tmp_path / "c.json").write_text('[{"question": "a", "answer": "#### 1"}')
    with pytest.raises(InvalidRequest, match=r"c\.json cannot be read"):
        imported(client, tmp_path / "c.json")
    assert client.pools() == []


def test_a_cell_that_json_does_not_have_is_refused_with_its_row(client: Client, tmp_path: Path) -> None:
    prompt = [[{"role": "user", "content": "a", "image": b"\xff"}], [{"role": "user", "content": "b", "image": None}]]
    table = pa.table({"prompt": prompt, "answer": ["1", "2"]})
    pq.write_table(table, tmp_path / "a.parquet")
    done, said = imported(client, tmp_path / "a.parquet")
    assert (done.received, done.created, done.rejected) == (2, 1, 1)
    assert "rejected a.parquet, row 0: wrong_type: bytes is no JSON value" in said


def test_many_refusals_are_counted_and_the_first_are_shown(client: Client, tmp_path: Path) -> None:
    rows = [{"question": str(i), "answer": "none"} for i in range(30)] + [gsm8k("a" * 2**20, i) for i in range(30)]
    parquet(tmp_path / "a.parquet", rows)
    done, said = imported(client, tmp_path / "a.parquet")
    assert (done.received, done.rejected) == (60, 60)
    assert said.count("rejected a.parquet, row") == 40
    assert "and 20 more that were rejected" in said


def command(*arguments: str) -> Result:
    return CliRunner().invoke(midband.app, arguments, catch_exceptions=False)


def test_the_commands_talk_to_a_service_and_say_what_they_did(sqlite_url: str, tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", [gsm8k(letter, 1) for letter in "abc"])
    parquet(tmp_path / "bad.parquet", [{"question": "a", "answer": "b"}])
    out = tmp_path / "out.jsonl"
    with listening(sqlite_url) as url:
        done = command("import", "p", str(tmp_path / "train.parquet"), "--server", url)
        assert (done.exit_code, "3 created" in done.stdout) == (0, True)
        done = command("export", "p", str(out), "--server", url)
        assert (done.exit_code, done.stdout) == (0, f"export  {out}\n")
        done = command("import", "p", str(out), "--server", url)
        assert "3 unchanged" in done.stdout
        done = command("import", "p", str(tmp_path / "bad.parquet"), "--server", url)
        assert (done.exit_code, done.stderr) == (1, "midband: every row was rejected\n")
        done = command("import", "p", str(tmp_path / "none.parquet"), "--server", url)
        assert (done.exit_code, "no such file or folder" in done.stderr) == (1, True)
        done = command("import", "p", str(tmp_path / "train.parquet"), "--layout", "nonsense", "--server", url)
        assert (done.exit_code, "known are midband, verl, gsm8k" in done.stderr) == (1, True)
        assert command("export", "none", str(out), "--server", url).exit_code == 1
    assert len(out.read_text().splitlines()) == 3


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_pool_is_imported_with_its_duplicates_merged_and_its_conflicts_linked(
    client: Client, name: str
) -> None:
    path = POOLS / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"needs {path.name}: set MIDBAND_PROMPT_POOLS to the folder that holds it")
    rows, merged, conflicts, empty = PUBLIC[name]
    answers = defaultdict[str, set[str]](set)
    for row in pq.read_table(path).to_pylist():
        if row["answer"].strip():
            answers[without_ends(row["prompt"])].add(without_ends(row["answer"]))
    prompts = sum(map(len, answers.values()))
    assert (rows - empty - prompts, sum(len(found) > 1 for found in answers.values())) == (merged, conflicts)

    report, said = imported(client, path)

    counts = report.received, report.created, report.merged, report.rejected
    assert counts == (rows, prompts, merged, empty)
    linked = [line for line in report.warnings if line.startswith("Questions with different answers")]
    assert [f": {conflicts}, for example" in line for line in linked] == [True] * bool(conflicts)
    assert f"{rows:,} rows, layout prompt" in said
    assert said.count(": no_answer: ") == empty


def without_ends(text: str) -> str:
    """Line by line without white space at the end, told apart from our own way to do it."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def test_the_held_out_split_of_a_public_pool_stays_held_out(sqlite_url: str) -> None:
    if not (POOLS / "gsm8k_test.parquet").is_file():
        pytest.skip("needs gsm8k_test.parquet: set MIDBAND_PROMPT_POOLS to the folder that holds it")
    with midband.in_process(sqlite_url) as client:
        imported(client, POOLS / "gsm8k_test.parquet")
        assert client.pool("p").splits["heldout"] == 1_319
