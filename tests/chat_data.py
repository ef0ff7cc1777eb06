"""A small tokenizer and chat templates for tests of conversations."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|audio|>", "<|image|>", "<|video|>"]

# The same text twice: with marks around what is trained on, and without them.
MARKED = """{% for m in messages %}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>
{% endgeneration %}{% else %}{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PLAIN = """{% for m in messages %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PARTS = """{% for m in messages %}
<|im_start|>{{ m.role }}
{% for part in m.content %}{{ part.text if part.type == 'text' else '<|' ~ part.type ~ '|>' }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_tokenizer(path: Path, special: list[str] = SPECIAL) -> Path:
    """Byte-level BPE, with tokens of several letters and of parts of one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    tokenizer.train_from_iterator(["hello there user assistant what is said in the audio", "żółw 漢字 😀"] * 4, trainer)
    tokenizer.save(str(path))
    return path
