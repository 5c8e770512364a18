from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the learner needs the trainer extra")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from trainer.learner.model import MAX_TOKENS, WEIGHTS, load_learner, new_learner, save_learner  # noqa: E402
from trainer.learner.tasks import MAX_ANSWER_TOKENS  # noqa: E402
from trainer.learner.tokenizer import END, PAD, VOCABULARY  # noqa: E402
from trainer.learner.warm_start import MAX_PROMPT_TOKENS  # noqa: E402


def test_it_is_small_and_its_embeddings_are_untied() -> None:
    model, _ = new_learner(seed=0)
    assert 0.3e6 < sum(weight.numel() for weight in model.parameters()) < 1e6
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()
    assert model.dtype == torch.float32
    assert not model.training


def test_the_seed_fixes_its_weights_and_the_process_s_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (new_learner(seed=seed)[0].lm_head.weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_learner_is_read_back_to_the_bit_by_transformers(tmp_path: Path) -> None:
    model, tokenizer = new_learner(seed=1)
    save_learner(model, tokenizer, tmp_path / "new")
    ids = torch.tensor([tokenizer("a 123=").input_ids])
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path / "new")(ids).logits, model(ids).logits)
    for read in (tokenizer, AutoTokenizer.from_pretrained(tmp_path / "new")):
        assert read("a 123=").input_ids == ids[0].tolist()
        assert (read.pad_token_id, read.eos_token_id) == (VOCABULARY[PAD], VOCABULARY[END])
        assert read.padding_side == "left"
        assert read.decode(read("a 123=").input_ids) == "a 123="
    assert len({file.stat().st_mode for file in (tmp_path / "new").iterdir()}) == 1  # whoever reads one reads all


def test_the_shipped_learner_is_what_transformers_reads() -> None:
    (model, tokenizer), theirs = load_learner(), AutoModelForCausalLM.from_pretrained(WEIGHTS)
    ids = torch.tensor([tokenizer("a 123=").input_ids])
    assert torch.equal(model(ids).logits, theirs(ids).logits)
    assert not model.training


def test_the_longest_prompt_and_answer_fit() -> None:
    assert MAX_PROMPT_TOKENS + MAX_ANSWER_TOKENS <= MAX_TOKENS


def test_the_shipped_weights_are_small_enough_to_ship() -> None:
    sizes = [file.stat().st_size for file in WEIGHTS.iterdir()]
    assert 1e6 < sum(sizes) < 2e6
