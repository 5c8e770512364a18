"""A tokenizer with one token a character, in the format that transformers and the engines read.

`model` wraps it and the warm start saves it. What is not in the alphabet becomes `<unk>`.
"""

import string

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
ALPHABET = string.digits + string.ascii_letters + " =+-*/.,:?"
VOCABULARY = {token: place for place, token in enumerate([PAD, END, UNKNOWN, *ALPHABET])}


def character_tokenizer() -> Tokenizer:
    """Splits into characters; decoding joins them again without anything in between."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
