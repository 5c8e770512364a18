"""Policies compared on a record of outcomes, through the service as a trainer meets it.

arms       a policy and how it is named on the command line     figures    the table and the JSON lines
loop       the replay itself                                    drawing    the picture; needs matplotlib
result     what one policy did, round by round                  command    all of it, as a person runs it
"""

from trainer.replay.arms import PolicyArm
from trainer.replay.command import run_command
from trainer.replay.drawing import picture
from trainer.replay.figures import json_lines, table
from trainer.replay.loop import replay
from trainer.replay.result import ReplayResult

__all__ = ["PolicyArm", "ReplayResult", "json_lines", "picture", "replay", "run_command", "table"]
