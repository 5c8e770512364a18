"""The same prompt twice: in the pool it is one, in flight it is two groups."""

from tests.api.harness import FLAT_BETA, Http, group, keys_of, letters

SENTENCE = "What is 6 times 7?"


def test_every_row_of_an_upload_with_duplicates_is_accounted_for(http: Http) -> None:
    rows = [{"content": f"other question {i}", "answer": str(i)} for i in range(4)]
    rows += [{"content": SENTENCE, "answer": "42"}, {"content": SENTENCE, "answer": "42"}]
    rows += [{"content": "Name a prime.", "answer": "7"}, {"content": "Name a prime.  \n", "answer": "7 "}]
    rows += [{"content": "Name a colour.", "answer": "red"}, {"content": "Name a colour.", "answer": "blue"}]
    answer = http.pool(rows)
    assert answer["received"] == 10
    assert sum(answer[name] for name in ("created", "updated", "unchanged", "merged", "rejected")) == 10
    assert (answer["created"], answer["merged"], answer["rejected"]) == (8, 2, 0)
    assert any("different answers" in warning for warning in answer["warnings"])
    assert http.get("/v1/pools/p")["prompts"] == 8
    http.run()
    assert len(set(keys_of(http.draw(0, 10)))) == 8


def test_two_groups_of_a_prompt_in_one_batch_are_two_observations(http: Http) -> None:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA)
    batch = http.draw(0, 2, allow_repeat=True)
    assert keys_of(batch) == ["a", "a"]
    first, second = batch["tickets"]
    assert first["ticket"] != second["ticket"]
    http.report(group(first, [1.0] * 8))
    answer = http.report(group(second, [0.0] * 8))
    assert [(g["scored"], g["passes"]) for g in answer["groups"]] == [(8, 0.0)]
    _two_groups_of_eight(http)


def test_two_groups_of_a_prompt_in_two_batches_are_two_observations(http: Http) -> None:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA)
    first = http.draw(0, 1)["tickets"][0]
    assert http.draw(1, 1)["reason"] == "all_in_flight"
    second = http.draw(2, 1, allow_repeat=True)["tickets"][0]
    answer = http.report(group(second, [0.0] * 8), group(first, [1.0] * 8))
    assert [(g["scored"], g["passes"]) for g in answer["groups"]] == [(8, 0.0), (8, 8.0)]
    _two_groups_of_eight(http)


def _two_groups_of_eight(http: Http) -> None:
    info = http.info()
    assert info["informative"] | {"groups": 0, "reported_groups": 2, "rate": 0.0} == info["informative"]
    assert info["rollouts"]["scored"] == 16
    prompt = http.prompt("a")
    assert [(g["scored"], g["informative"]) for g in prompt["groups"]] == [(8, False), (8, False)]
    # (1 + 8) / (2 + 16): had the groups been merged, one of 16 would be informative.
    assert prompt["belief"]["pass_rate"] == 0.5
    assert prompt["belief"]["n_eff"] == 16.0
    assert prompt["in_flight"] == 0
