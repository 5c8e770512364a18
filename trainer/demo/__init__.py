"""The demo: one small model trained twice, on prompts drawn uniformly and on prompts that midband draws.

plan       every size of it, and the arms' configurations     table       all figures, as one table
arms       the two trainings, a process each                  pictures    quality against tokens, beliefs over steps
beliefs    what the service believes, kept at each look       recording   the uniform arm's outcomes, for the replay
result     what the service and the trainer say of an arm     command     all of it, as a person runs it
"""
