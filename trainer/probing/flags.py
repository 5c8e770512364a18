"""How `midband probe` and `midband profile` are told of their engine on the command line: the options that both take.

They become an `EngineSettings`; the engines themselves, which are heavy, are not imported for them.
"""

from typing import Annotated

import typer

EngineName = Annotated[str, typer.Option(help="torch in this process, or openai: any server of that interface.")]
ModelName = Annotated[
    str | None, typer.Option(help="Folder of a model or of checkpoints, or a server's name for it; the small learner.")
]
EngineUrl = Annotated[str | None, typer.Option(help="Of the engine's server, as http://127.0.0.1:8000/v1.")]
GraderName = Annotated[
    str, typer.Option(help="exact, numeric, choice, math, reasoning-gym, module:function or trl:module:function.")
]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Longest answer.")]
Temperature = Annotated[float, typer.Option(min=0.01, help="Of sampling.")]
