"""Train the one tokenizer of all minis on text of the mini-world and write it where the package ships it.

python scripts/minis/make_tokenizer.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from routelab.data.mini_world import MiniWorld
from routelab.data.mini_world.names import CITIES, FOODS, JOBS, OBJECTS, PEOPLE, PETS

VOCABULARY = 1280
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TARGET = Path(__file__).parents[2] / "src/routelab/hosts/minis/tokenizer"

# ChatML without a default system message. The generation block is what assistant-only losses read.
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def corpus() -> Iterator[str]:
    """Text of every kind a mini reads. Words of the world come alone too, so that each becomes few tokens."""
    world = MiniWorld(seed=0)
    for row in world.arithmetic("train", 4000, steps=(1, 5), distractors=1):
        yield row["question"] + "\n" + row["answer"]
    for row in world.facts("train"):
        yield row["question"] + "\n" + row["answer"]
    for row in world.paragraphs("train", 1500):
        yield row["context"] + "\n" + row["question"] + "\n" + row["answer"]
    for word in (*PEOPLE, *OBJECTS, *CITIES, *JOBS, *PETS, *FOODS):
        yield from [f"{word} {word}\n{word}"] * 40
    for _ in range(200):  # the marks of chats and of hybrid thinking; ordinary text, not special tokens
        yield "user\nsystem\nassistant\n<think>\n</think>\n /think /no_think"


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        padding_side="left",
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(TARGET)
    print(f"{len(wrapped)} tokens in {TARGET}")


if __name__ == "__main__":
    main()
