"""The picture of a profile: how often prompts are solved, and what groups of each size would teach."""

from pathlib import Path

from trainer.charts import COLOURS, GREY, frame, new_figure, save
from trainer.probing.profile import Profile

MOST_NAMED = 16  # bins with a name each


def profile_picture(found: Profile, path: Path) -> Path:
    """Draw it and give the file's path. Raises MissingExtra without matplotlib."""
    title = f"Pool {found.pool}: {found.scored:,} prompts, {found.group_size} rollouts each"
    figure = new_figure((10.0, 4.0), title)
    left, right = figure.subplots(1, 2)
    last = len(found.histogram_B) - 1
    share_B = [count / found.scored for count in found.histogram_B]
    left.bar([place / last for place in range(last + 1)], share_B, width=0.9 / last, color=COLOURS[0], label="mixed")
    left.bar([0.0, 1.0], [found.all_wrong, found.all_right], width=0.9 / last, color=GREY, label="all alike")
    left.legend(frameon=False)
    if last == found.group_size and last <= MOST_NAMED:  # a bin for each number of right answers
        left.set_xticks([place / last for place in range(last + 1)], [f"{place}" for place in range(last + 1)])
        frame(left, "Prompts by right answers", x=f"right answers of {last}", y="share of prompts")
    else:
        frame(left, "Prompts by share of right answers", x="share right", y="share of prompts")
    yields = found.yields or {found.group_size: found.informative}
    names = [str(size) for size in yields]
    right.bar(names, list(yields.values()), color=COLOURS[2], width=0.6)
    for place, share in enumerate(yields.values()):
        right.annotate(f"{share:.0%}", (place, share), ha="center", va="bottom", fontsize=9)
    right.set_ylim(0.0, 1.0)
    frame(right, "Groups that would teach something", x="rollouts in a group", y="share informative")
    return save(figure, path)
