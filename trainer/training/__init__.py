"""Around the loop of `trainer.grpo`: what a training run is asked to do, keeps, measures and prints.

config       the TOML file as checked values            checkpoints  what is kept, and how a run goes on from it
evaluate     held-out pass rates with intervals         progress     how far a run is, and what a step of it took
metrics      one JSON line a step and an evaluation     command      `midband train`: builds all of it from a file
meters       energy and peaks of memory                      trackers     the same lines for TensorBoard, trackio, W&B
"""
