"""A small model that really learns, for machines without an accelerator.

`tasks` are the prompts and pools, `tokenizer` and `model` a character Llama in transformers' format, `warm_start` the
script that made the weights shipped in `weights/`.
"""
