import json
from pathlib import Path

import pytest

from trainer.demo.plan import POLICIES, UNIFORM, Sizes, arm_config, open_folder, train_keys
from trainer.errors import InvalidRequest

SMALL = Sizes(num_train=60, num_heldout=20, tokens=1_000)


def test_the_pool_is_a_file_with_both_splits_and_their_strata(tmp_path: Path) -> None:
    file = open_folder(tmp_path / "new", SMALL, seed=0)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [sum(row["split"] == split for row in rows) for split in ("train", "heldout")] == [60, 20]
    assert train_keys(file) == {row["key"] for row in rows if row["split"] == "train"}
    assert all(row["meta"]["stratum"] for row in rows)


def test_the_same_demo_opens_its_folder_again_and_changes_nothing(tmp_path: Path) -> None:
    first = open_folder(tmp_path, SMALL, seed=1).read_bytes()
    assert open_folder(tmp_path, SMALL, seed=1).read_bytes() == first


@pytest.mark.parametrize(
    ("sizes", "seed", "words"),
    [
        (SMALL, 2, "seed was 1, is 2"),
        (Sizes(num_train=60, num_heldout=20, tokens=2_000), 1, "tokens was 1000, is 2000"),
        (Sizes(num_train=61, num_heldout=20, tokens=1_000), 1, "num_train was 60, is 61; prompts was"),
    ],
)
def test_another_demo_is_refused_by_what_differs_and_leaves_the_folder_as_it_is(
    tmp_path: Path, sizes: Sizes, seed: int, words: str
) -> None:
    open_folder(tmp_path, SMALL, seed=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidRequest, match=f"holds another demo \\({words}") as refused:
        open_folder(tmp_path, sizes, seed=seed)
    assert "--out-dir" in str(refused.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_weights_at_the_start_are_another_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_folder(tmp_path / "demo", SMALL, seed=0)
    (tmp_path / "weights").write_bytes(b"others")
    monkeypatch.setattr("trainer.demo.plan.START", tmp_path / "weights")
    with pytest.raises(InvalidRequest, match="weights was"):
        open_folder(tmp_path / "demo", SMALL, seed=0)


def test_arms_differ_in_their_policy_their_run_and_their_folder_only(tmp_path: Path) -> None:
    one, other = (arm_config(name, tmp_path, SMALL, server="http://any", seed=3) for name in POLICIES)
    assert (one.run.policy.preset, other.run.policy.preset) == tuple(POLICIES)
    assert one.run.name == UNIFORM
    changed = {"output": other.output, "run": one.run.model_copy(update={"name": "x", "policy": other.run.policy})}
    alike = one.model_copy(update=changed)
    assert alike.model_copy(update={"run": other.run}) == other
    assert alike.run.model_copy(update={"name": other.run.name}) == other.run
