"""The caller's side of midband: what a training script needs to draw prompts and report what came of them.

client       one method for each call of the service        options     the keyword arguments of those methods
reports      outcomes as the groups of a report             bodies      imports on the way out, JSON lines on the way in
connection   one HTTP call: retries, refusals, parsing      retry       how long and how often to try again
calls/       what the calls are, by subject              async_client the same calls, to be awaited
transport    the service inside this process                errors      everything that can go wrong, drawn as a tree
rollout/     engines that turn tickets into groups          replay/     policies compared on a record of outcomes
training/    around the reference GRPO loop                 learner/    the small model that it trains, its puzzles
demo/        that model trained under two policies          charts      what all pictures share
selection/   drawn batches as data sets and samplers        adapters/   other people's trainers, a file for each
finished/    which rollouts an update should see            past_groups earlier groups, to learn from again

It sees the wire contract, `api.schemas`, and nothing else of the service.
"""
