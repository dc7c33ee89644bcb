"""The training stream of mini-recurrent: recall, then recitation, then questions of one and two hops.

1. *Recall*: pairs of random tokens, then the keys again in another order, each to be followed by its value.
2. *Recitation*: a paragraph, then its sentences again in another order; what a sentence says of its subject has labels.
3. *Questions*: a paragraph and a chat about it. A two-hop question also has a label where its inner clause ends ("What
   is the place where Ada Balbek lives| famous for?"): the first token of the bridge, which is not what follows there.

Without the first two, and without that label, a small model goes on guessing among the words of the right kind.
Step *s* trains on a pure function of the seed and *s*, so a run can resume.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from feed import IGNORED, Document
from transformers import PreTrainedTokenizerBase

from routelab.data.mini_world.paragraphs import CHAINS, Chain, fresh_names
from routelab.data.mini_world.splits import seeded, split_of
from routelab.hosts.recurrent import RecurrentForCausalLM

#: How each two-hop question begins, up to the end of its inner clause.
CLAUSES = {
    "city": "What is the place where {a} lives",
    "firm": "What does the firm that {a} works for",
    "friend": "What is the pet of the friend of {a}",
}
#: Tokens of a mean document.
TOKENS = 128


@dataclass(frozen=True)
class Stage:
    """Until step ``until``: the mean depth, the shares of the kinds of document (recall, recitation, questions), how
    many pairs or chains a document has, how many questions at most, and which share of them has two hops."""

    until: int
    depth: int
    shares: tuple[float, float, float]
    pairs: tuple[int, int]
    chains: tuple[int, int]
    questions: int
    two_hops: float


STAGES = (
    Stage(150, 2, (1.0, 0.0, 0.0), (3, 12), (1, 1), 1, 1 / 3),
    Stage(300, 2, (0.5, 0.5, 0.0), (8, 24), (1, 6), 1, 1 / 3),
    Stage(700, 4, (0.1, 0.45, 0.45), (8, 48), (1, 6), 12, 1 / 3),
    Stage(1000, 4, (0.0, 0.3, 0.7), (8, 48), (2, 12), 18, 1 / 3),
    Stage(1250, 6, (0.0, 0.1, 0.9), (8, 48), (2, 6), 12, 0.7),
    Stage(1500, 6, (0.0, 0.1, 0.9), (8, 48), (2, 12), 18, 0.7),
    Stage(10**9, 6, (0.0, 0.1, 0.9), (8, 48), (3, 24), 24, 0.6),
)


@dataclass(frozen=True)
class Link:
    """One chain of a paragraph: ``a → b → c``."""

    chain: Chain
    a: str
    b: str
    c: str

    @property
    def statements(self) -> tuple[tuple[str, str], ...]:
        """Both sentences, each as what comes before its last word and that word."""
        return (
            (self.chain.first.partition(" {b}")[0].format(a=self.a), self.b),
            (self.chain.second.partition(" {c}")[0].format(b=self.b), self.c),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(f"{start} {value}." for start, value in self.statements)

    @property
    def questions(self) -> tuple[tuple[str, str, str, str], ...]:
        """``(inner clause, rest of the question, bridge, answer)``; a one-hop question has no inner clause."""
        both = self.chain.ask_both.format(a=self.a)
        clause = CLAUSES[self.chain.name].format(a=self.a)
        return (
            ("", self.chain.ask_first.format(a=self.a), "", self.b),
            ("", self.chain.ask_second.format(b=self.b), "", self.c),
            (clause, both.removeprefix(clause), self.b, self.c),
        )


def draw_links(rng: random.Random, chains: int) -> list[Link]:
    """Draw chains that share no name."""
    fresh = fresh_names(rng)
    links = []
    for _ in range(chains):
        chain = rng.choice(CHAINS)
        links.append(Link(chain, next(fresh["person"]), next(fresh[chain.bridge]), rng.choice(chain.ends)))
    return links


def set_depth(model: RecurrentForCausalLM, step: int) -> None:
    """Let the model recur as deep, on average, as the stage of ``step`` says."""
    model.config.mean_recurrence = stage_of(step).depth


def stage_of(step: int) -> Stage:
    return next(stage for stage in STAGES if step < stage.until)


class HopFeed:
    """``documents(step)`` gives about ``documents`` times :data:`TOKENS` tokens, in documents of like length."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, seed: int, documents: int) -> None:
        self.tokenizer, self.seed, self.tokens = tokenizer, seed, documents * TOKENS
        special = set(tokenizer.all_special_ids)
        self.words = [index for index in range(len(tokenizer)) if index not in special]

    def documents(self, step: int) -> list[tuple[Document, float]]:
        stage, rng = stage_of(step), seeded("hops", self.seed, step)
        (kind,) = rng.choices(("recall", "recitation", "questions"), stage.shares)
        count = rng.randint(*(stage.pairs if kind == "recall" else stage.chains))
        documents: list[Document] = []
        while not documents or sum(len(ids) for ids, _ in documents) < self.tokens:
            if kind == "recall":
                documents.append(self.recall(rng, count))
            elif kind == "recitation":
                documents.append(self.recitation(rng, count))
            else:
                documents.append(self.questions(rng, count, stage.questions, stage.two_hops))
        return [(document, 1.0) for document in documents]

    def recall(self, rng: random.Random, pairs: int) -> Document:
        """``x y`` for every pair, then every pair again in another order; the values have labels there."""
        used = rng.sample(self.words, 2 * pairs)
        first = [(used[i], used[i + 1]) for i in range(0, len(used), 2)]
        again = rng.sample(first, pairs)
        ids = [token for pair in (*first, *again) for token in pair]
        labels = [IGNORED] * len(used) + [token for _, value in again for token in (IGNORED, value)]
        return ids, labels

    def recitation(self, rng: random.Random, chains: int) -> Document:
        """A paragraph and its sentences again in another order; the last words of the latter have labels."""
        told = [statement for link in draw_links(rng, chains) for statement in link.statements]
        rng.shuffle(told)
        pieces = [(" ".join(f"{start} {value}." for start, value in told) + "\n", False)]
        for start, value in rng.sample(told, len(told)):
            pieces += [(f" {start}", False), (f" {value}", True), (".", False)]
        return self._join(pieces, {})

    def questions(self, rng: random.Random, chains: int, most: int, two_hops: float) -> Document:
        """A paragraph and a chat about it. Answers begin with a space: a name then has the tokens of the paragraph."""
        links = draw_links(rng, chains)
        sentences = [sentence for link in links for sentence in link.sentences]
        rng.shuffle(sentences)
        context = " ".join(sentences)
        asked = [question for link in links for question in link.questions]
        asked = [one for one in asked if split_of(context + one[0] + one[1]) == "train"]
        both = [one for one in asked if one[0]]
        single = [one for one in asked if not one[0]]
        wanted = min(most, round(len(both) / two_hops))
        both = rng.sample(both, min(len(both), round(wanted * two_hops)))
        asked = both + rng.sample(single, min(len(single), wanted - len(both)))
        rng.shuffle(asked)
        pieces: list[tuple[str, bool]] = [(f"<|im_start|>user\n{context}\n", False)]
        bridges: dict[int, str] = {}
        for turn, (clause, rest, bridge, answer) in enumerate(asked):
            pieces.append((("<|im_start|>user\n" if turn else "") + clause, False))
            if clause:
                bridges[len(pieces)] = bridge
            pieces.append((f"{rest}<|im_end|>\n<|im_start|>assistant\n", False))
            pieces += [(f" {answer}<|im_end|>", True), ("\n", False)]
        return self._join(pieces, bridges)

    def _join(self, pieces: list[tuple[str, bool]], bridges: dict[int, str]) -> Document:
        """Token ids of all pieces, labels on those marked; and, on the first token of piece ``n``, the first token of
        ``bridges[n]``: a label stands one place after what predicts it."""
        encoded = self.tokenizer([text for text, _ in pieces])["input_ids"]
        firsts = self.tokenizer([f" {bridge}" for bridge in bridges.values()])["input_ids"] if bridges else []
        hints = dict(zip(bridges, (tokens[0] for tokens in firsts), strict=True))
        ids: list[int] = []
        labels: list[int] = []
        for number, (tokens, (_, labelled)) in enumerate(zip(encoded, pieces, strict=True)):
            ids += tokens
            labels += tokens if labelled else [IGNORED] * len(tokens)
            if number in hints:
                labels[-len(tokens)] = hints[number]
        return ids, labels
