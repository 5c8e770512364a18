from pathlib import Path

from tests.trainer.demo.factories import make_beliefs, make_look, make_result
from trainer.demo.pictures import MOMENTS, belief_picture, moments, quality_picture
from trainer.demo.result import Marks

PNG = b"\x89PNG"


def test_both_pictures_are_drawn(tmp_path: Path) -> None:
    results = [make_result("uniform"), make_result(rates=(0.1, 0.4, 0.5, 0.6))]
    marks = Marks.of(results[0], results)
    assert quality_picture(results, marks, tmp_path / "q.png", title="any").read_bytes().startswith(PNG)
    assert belief_picture(results, tmp_path / "b.png", title="any").read_bytes().startswith(PNG)


def test_quality_says_where_each_arm_has_what_uniform_ends_with(tmp_path: Path) -> None:
    results = [make_result("uniform", rates=(0.1, 0.2, 0.3)), make_result(rates=(0.1, 0.3, 0.5))]
    text = quality_picture(results, Marks.of(results[0], results), tmp_path / "q.svg", title="any").read_text()
    for words in ("where uniform ends", "20 k", "10 k", "hard (5)", "easy (5)", "at the start"):
        assert f"<!-- {words} -->" in text


def test_what_is_not_there_is_not_drawn(tmp_path: Path) -> None:
    nothing = make_result("uniform", rates=())
    for results in ([nothing], [nothing, make_result()]):
        assert quality_picture(results, None, tmp_path / "q.png", title="any").stat().st_size > 0
        assert belief_picture(results, tmp_path / "b.png", title="any").stat().st_size > 0
    unscored = make_result("uniform", looks=[make_look(0, None, hard=None)])
    assert quality_picture([unscored], None, tmp_path / "q.png", title="any").stat().st_size > 0


def test_a_bar_that_is_cut_says_how_tall_it_is(tmp_path: Path) -> None:
    result = make_result(beliefs=[make_beliefs(0, tried={0: 60}, untried={0: 20, 3: 20})])
    text = belief_picture([result], tmp_path / "b.svg", title="any").read_text()
    assert "<!-- 80 % -->" in text
    assert "<!-- 20 % -->" not in text


def test_neighbours_that_are_cut_are_named_together(tmp_path: Path) -> None:
    result = make_result(beliefs=[make_beliefs(0, tried={0: 30, 1: 32, 19: 26}, untried={4: 12})])
    text = belief_picture([result], tmp_path / "b.svg", title="any").read_text()
    assert "<!-- 30 %, 32 % -->" in text
    assert "<!-- 26 % -->" in text


def test_moments_are_spread_over_the_looks_with_the_first_and_the_last() -> None:
    beliefs = [make_beliefs(step, tried={}, untried={}) for step in range(9)]
    assert [one.step for one in moments(beliefs)] == [0, 2, 4, 6, 8]
    assert len(moments(beliefs[:MOMENTS])) == MOMENTS
    assert [one.step for one in moments(beliefs[:2])] == [0, 1]
    assert moments([]) == []
