"""The mini-world: one seed, three kinds of question, three disjoint splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from routelab.data.mini_world.arithmetic import draw_problem, tell, work
from routelab.data.mini_world.facts import SUBJECTS, fact_book
from routelab.data.mini_world.paragraphs import draw_story
from routelab.data.mini_world.splits import check_split, seeded, split_of
from routelab.errors import DataError

MAX_STEPS = 10
_PATIENCE = 5000  # draws in a row without a new problem after which the problems count as used up


class MiniWorld:
    """A small deterministic world to train and test small models in.

    ``seed`` fixes the facts and every draw. Rows are plain dictionaries; the same call gives the same rows, and a call
    for more rows starts with the rows of a call for fewer. ``draw`` selects a further, independent draw of a kind.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def arithmetic(
        self,
        split: str,
        n: int,
        *,
        steps: int | tuple[int, int] = (2, 5),
        limit: int = 30,
        distractors: int = 0,
        draw: int | str = 0,
    ) -> list[dict[str, Any]]:
        """The rows of :meth:`arithmetic_stream`, all at once."""
        stream = self.arithmetic_stream(split, n, steps=steps, limit=limit, distractors=distractors, draw=draw)
        return list(stream)

    def arithmetic_stream(
        self,
        split: str,
        n: int,
        *,
        steps: int | tuple[int, int] = (2, 5),
        limit: int = 30,
        distractors: int = 0,
        draw: int | str = 0,
    ) -> Iterator[dict[str, Any]]:
        """Yield ``n`` word problems of ``steps`` steps (a number, or a range drawn from uniformly), no two of equal
        content.

        Difficulty is ``steps``, ``limit`` (the largest number that occurs) and ``distractors`` (idle sentences).
        Row: ``id, question, answer`` (worked, ends in ``#### N``), ``gold`` (``"N"``), ``steps, key``. A problem
        belongs to the split that owns its ``key`` (numbers and operations), whatever the seed: splits share none.

        Raises:
            DataError: for an unknown split, a parameter out of range, or more problems than there are.
        """
        check_split(split)
        low, high = (steps, steps) if isinstance(steps, int) else steps
        if not 1 <= low <= high <= MAX_STEPS:
            raise DataError(f"arithmetic steps must lie in 1 to {MAX_STEPS}, low before high; got {steps}")
        if limit < 10:
            raise DataError(f"arithmetic needs a limit of at least 10, got {limit}")
        if not 0 <= distractors <= 10:
            raise DataError(f"arithmetic takes 0 to 10 distractors, got {distractors}")
        rng = seeded("arithmetic", self.seed, split, low, high, limit, distractors, draw)
        seen: set[str] = set()
        misses = 0
        while len(seen) < n and misses < _PATIENCE:
            problem = draw_problem(rng, rng.randint(low, high), limit)
            if problem.key in seen or split_of(problem.key) != split:
                misses += 1
                continue
            misses = 0
            yield {
                "id": f"arithmetic-{split}-{self.seed}-{draw}-{low}-{high}-{len(seen)}",
                "question": tell(problem, rng, distractors),
                "answer": work(problem),
                "gold": str(problem.result),
                "steps": len(problem.steps),
                "key": problem.key,
            }
            seen.add(problem.key)
        if len(seen) < n:
            raise DataError(
                f"found only {len(seen)} of {n} different arithmetic problems for split {split!r}, "
                f"steps {steps}, limit {limit}; ask for fewer, or raise steps or limit"
            )

    def facts(self, split: str, n: int | None = None, *, subjects: int = SUBJECTS) -> list[dict[str, Any]]:
        """Closed-book questions with four choices; ``n`` limits the number of rows (default: all).

        Every split asks for the same facts, in surface forms that no other split uses: ``train`` has five forms a
        fact, ``validation`` and ``test`` one each. Row: ``id, question, choices`` (4), ``gold`` (index of the right
        one), ``answer`` (its text), ``subject, relation``. The question does not list the choices. Facts come in a
        random order, the same in each split, so that a prefix is a sample.
        """
        check_split(split)
        book = fact_book(self.seed, subjects)
        seeded("order", self.seed).shuffle(book)
        rows = []
        for fact in book:
            choices = fact.choices(self.seed)
            for number, form in enumerate(fact.relation.forms(split)):
                rows.append(
                    {
                        "id": f"facts-{split}-{self.seed}-{fact.subject}-{fact.relation.name}-{number}",
                        "question": fact.ask(form),
                        "choices": choices,
                        "gold": choices.index(fact.value),
                        "answer": fact.value,
                        "subject": fact.subject,
                        "relation": fact.relation.name,
                    }
                )
        return rows if n is None else rows[:n]

    def paragraphs(
        self,
        split: str,
        n: int,
        *,
        sentences: int | tuple[int, int] = (4, 8),
        hops: int | tuple[int, ...] = (1, 2),
        draw: int | str = 0,
    ) -> list[dict[str, Any]]:
        """``n`` questions over paragraphs of ``sentences`` sentences (a number or a range), ``hops`` 1 or 2.

        Row: ``id, context, question, answer`` (one word or name), ``gold`` (the same), ``hops, sentences, chain``,
        ``support`` (indices of the sentences that the answer needs, in the order of reasoning). Splits are disjoint
        by content.
        """
        check_split(split)
        low, high = (sentences, sentences) if isinstance(sentences, int) else sentences
        allowed = (hops,) if isinstance(hops, int) else tuple(hops)
        if low > high or not allowed:
            raise DataError(f"paragraphs need sentences low to high and some hops; got {sentences}, {hops}")
        rng = seeded("paragraphs", self.seed, split, low, high, allowed, draw)
        rows: list[dict[str, Any]] = []
        while len(rows) < n:
            story = draw_story(rng, rng.randint(low, high), rng.choice(allowed))
            context = " ".join(story.sentences)
            if split_of(context + story.question) != split:
                continue
            rows.append(
                {
                    "id": f"paragraphs-{split}-{self.seed}-{draw}-{low}-{high}-{len(rows)}",
                    "context": context,
                    "question": story.question,
                    "answer": story.answer,
                    "gold": story.answer,
                    "hops": len(story.support),
                    "sentences": len(story.sentences),
                    "chain": story.chain,
                    "support": list(story.support),
                }
            )
        return rows
