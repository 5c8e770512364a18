"""A language model that knows nothing, small enough for a CPU: `tests/gpu/run.sh` is tried out with it.

    python -m tests.gpu.tiny_model FOLDER

Writes it in transformers' format, with a chat template.
"""

import sys
from pathlib import Path

from tests.trainer.tiny import make_model, make_tokenizer

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def main() -> None:
    folder = Path(sys.argv[1])
    # Tied, as most small language models are: the output layer must arrive with every update all the same.
    model = make_model(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=32, max_position_embeddings=256,
        tie_word_embeddings=True,
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
