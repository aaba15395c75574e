"""Requests in other words, said in those of the demonstrations: synonyms and word forms."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.errors import InputError, ModelError
from dtdr.retrievers.factored.query_text import QUOTED

_TOKENS = re.compile(r"\w+|[^\w\s]")
_KEPT = re.compile(
    rf"{QUOTED.pattern}|`[^`]{{0,500}}`"
    r"|(?<!\S)[^\s@/\\_]*+[@/\\_]\S*|(?<!\w)\w++(?:\.\w++)+"
)
"""Quotations, addresses, paths and names of files stay as they are. Each part begins where a word
does and gives nothing back, so that a long text is read once."""
_ENDS = frozenset(".?!;")
_BEFORE_COMMANDS = (
    ". ? ! : ; , - ( & and then also please kindly to or but i you we should must would will can "
    "could may might just finally lastly next afterwards subsequently additionally"
)
_CLAUSE = frozenset(_BEFORE_COMMANDS.split())
"""A command stands first, or behind one of these."""
_WORDS_BEHIND_GAPS = ". ? ! : ; , ) and then to as for by with at on under in into if so"
_BEHIND_GAP = frozenset(_WORDS_BEHIND_GAPS.split())
"""What may follow the part behind a gap."""
_GAP = "~"
_MOST_BETWEEN = 12
"""Words that may stand in a gap."""
_LONGEST = 40
"""Letters of a word whose other forms are looked for; those of shorter ones are remembered."""
ENGLISH = "english"
"""The table that comes with dtdr."""
_RATIO = 30
"""A phrase is replaced by one that stands in so many times as many places of the demonstrations."""
_LEAST = 2
"""A phrase in fewer places replaces none."""

_ARRAY = "synonyms"

Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Words and phrases that mean about the same.

    Attributes:
        phrases: each as its words; ``~`` stands for some words between them.
        is_command: whether single words count where a clause begins only.
    """

    phrases: tuple[Phrase, ...]
    is_command: bool


def parse_groups(text: str) -> list[Group]:
    """The groups of a table, one a line; see ``synonyms_english.txt``."""
    lines = (line.strip() for line in text.splitlines())
    return [
        Group(
            tuple(tuple(_words_of(phrase)) for phrase in line.lstrip("> ").split("|")),
            line.startswith(">"),
        )
        for line in lines
        if line and not line.startswith("#")
    ]


def _words_of(phrase: str) -> list[str]:
    return [spell_american(word) for word in _TOKENS.findall(phrase.lower())]


def read_groups(table: str) -> list[Group]:
    """The groups of a table.

    Args:
        table: ``"english"``, which comes with dtdr, or the path of a file like it.

    Raises:
        InputError: the file cannot be read.
    """
    if table == ENGLISH:
        text = resources.files(__package__).joinpath("synonyms_english.txt").read_text("utf-8")
    else:
        try:
            text = Path(table).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read the synonyms {table!r} ({error}); name a text file of groups, "
                f"{ENGLISH!r} or None"
            ) from error
    return parse_groups(text)


_BRITISH = (
    (re.compile(r"is(?=(?:e|ed|es|ing|ations?|ers?)$)"), "iz"),
    (re.compile(r"ys(?=(?:e|ed|es|ing|ers?)$)"), "yz"),
    (re.compile(r"our(?=s?$|ed$|ing$|ite|hood)"), "or"),
    (re.compile(r"(?<=[nt])re(?=s?$)"), "er"),
    (re.compile(r"mme(?=s?$)"), "m"),
)


@lru_cache(maxsize=1 << 14)
def spell_american(word: str) -> str:
    """A word as American English spells it; other words may change too, all in the same way."""
    if len(word) > 5:
        for pattern, other in _BRITISH:
            word = pattern.sub(other, word)
    return word


@lru_cache(maxsize=1 << 14)
def bases_of(word: str) -> tuple[str, ...]:
    """The word, and those that it may be a form of, the most likely first."""
    word = spell_american(word)
    found = []
    if word.endswith("s") and not word.endswith("ss"):
        found.append(word[:-1])
        if word.endswith("ies"):
            found.append(word[:-3] + "y")
        elif word.endswith("es"):
            found.append(word[:-2])
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            stem = word[: -len(ending)]
            found += [stem + "e", stem]
            if stem[-1:] == stem[-2:-1]:
                found.append(stem[:-1])
    return (word, *(base for base in found if len(base) > 3))


class _Matcher:
    """Finds phrases in the words of a text."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        by_first: dict[str, list[Phrase]] = defaultdict(list)
        for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase)):
            by_first[phrase[0]].append(phrase)
        self._by_first = dict(by_first)
        self._lexicon = frozenset(
            word for found in by_first.values() for phrase in found for word in phrase
        )

    def normalise(self, words: Sequence[str]) -> list[str]:
        """Each word as the phrases have it, where it may be a form of such a one."""
        lexicon = self._lexicon
        return [
            word
            if word in lexicon or len(word) > _LONGEST
            else next((base for base in bases_of(word) if base in lexicon), word)
            for word in words
        ]

    def at(self, words: Sequence[str], place: int) -> Iterator[tuple[Phrase, int, int]]:
        """The phrases that begin at a place, the longest first, and where their last part stands.

        Yields:
            The phrase; and the place where the part behind its gap begins, or that behind the
            whole, and the place behind the whole.
        """
        for phrase in self._by_first.get(words[place], ()):
            if _GAP in phrase:
                gap = phrase.index(_GAP)
                tail = phrase[gap + 1 :]
                if tuple(words[place : place + gap]) == phrase[:gap]:
                    start = _find_tail(words, place + gap, tail)
                    if start:
                        yield phrase, start, start + len(tail)
            elif len(phrase) == 1 or tuple(words[place : place + len(phrase)]) == phrase:
                end = place + len(phrase)
                yield phrase, end, end


def _find_tail(words: Sequence[str], begin: int, tail: Phrase) -> int:
    """Where the words behind a gap stand, 0 where they do not."""
    for start in range(begin + 1, min(begin + _MOST_BETWEEN, len(words) - len(tail)) + 1):
        if words[start - 1] in _ENDS:
            return 0
        end = start + len(tail)
        if tuple(words[start:end]) == tail and (end == len(words) or words[end] in _BEHIND_GAP):
            return start
    return 0


class Synonyms:
    """What stands in demonstrations for phrases that do not, or hardly.

    Of the phrases of a group, the one that demonstrations hold most often stands for those that
    they hold a thirtieth as often or less; so what is replaced is unusual wherever the model was
    learned, and a group that no demonstration speaks of changes nothing. Words that are in no group
    are replaced by another form that is known ("emailing" by "email").

    Args:
        commands: what stands for a phrase; single words where a clause begins.
        others: the same anywhere.
    """

    def __init__(self, commands: Mapping[Phrase, str], others: Mapping[Phrase, str]) -> None:
        self.commands, self.others = dict(commands), dict(others)
        self._matcher = _Matcher({**self.commands, **self.others})

    @classmethod
    def fit(cls, groups: Sequence[Group], texts: Iterable[str], ratio: float = _RATIO) -> Self:
        """Count the phrases of the groups in texts."""
        matcher = _Matcher({phrase for group in groups for phrase in group.phrases})
        anywhere, as_commands = Counter[Phrase](), Counter[Phrase]()
        surfaces: dict[Phrase, Counter[str]] = defaultdict(Counter)
        for text in texts:
            text = text[:MAX_CHARACTERS].lower()
            spans = [match.span() for match in _TOKENS.finditer(text)]
            words = [text[start:end] for start, end in spans]
            normal = matcher.normalise(words)
            for place in range(len(words)):
                is_start = not place or words[place - 1] in _CLAUSE
                for phrase, middle, end in matcher.at(normal, place):
                    anywhere[phrase] += 1
                    as_commands[phrase] += is_start
                    if middle == end:
                        surfaces[phrase][text[spans[place][0] : spans[end - 1][1]]] += 1
        best: dict[bool, dict[Phrase, tuple[int, str]]] = {True: {}, False: {}}
        for group in groups:
            counts = [
                (as_commands if group.is_command and len(phrase) == 1 else anywhere)[phrase]
                for phrase in group.phrases
            ]
            whole = [
                (count, -place)
                for place, (count, phrase) in enumerate(zip(counts, group.phrases, strict=True))
                if _GAP not in phrase
            ]
            most, place = max(whole)
            target = group.phrases[-place]
            if most < _LEAST:
                continue
            ((said, _),) = surfaces[target].most_common(1)
            known = best[group.is_command]
            for phrase, count in zip(group.phrases, counts, strict=True):
                if phrase != target and count * ratio <= most:
                    known[phrase] = max(known.get(phrase, (0, "")), (most, said))
        return cls(
            {phrase: said for phrase, (_, said) in best[True].items()},
            {phrase: said for phrase, (_, said) in best[False].items()},
        )

    def rewrite(self, text: str, forms: WordForms) -> str:
        """A text with what is unusual replaced; quotations, names and paths stay."""
        head, rest = text[:MAX_CHARACTERS], text[MAX_CHARACTERS:]
        spans = [match.span() for match in _TOKENS.finditer(head)]
        tokens = [head[start:end] for start, end in spans]
        lower = [token.lower() for token in tokens]
        kept = _kept_tokens(head, spans)
        normal = self._matcher.normalise(lower)
        for place in kept:
            normal[place] = ""
        parts: list[str] = []
        done, place, dropped = 0, 0, -1
        while place < len(tokens):
            start, end = spans[place]
            if place == dropped:
                parts.append(head[done:start].rstrip())
                done = end
            if place in kept or place == dropped:
                place += 1
                continue
            is_first = not place or tokens[place - 1] in ".?!:;"
            is_start = not place or lower[place - 1] in _CLAUSE
            is_name = tokens[place][0].isupper() and not is_first
            said, after = "", place + 1
            for phrase, middle, last in self._matcher.at(normal, place):
                is_single = len(phrase) == 1
                if is_single and is_name:
                    continue
                found = self.others.get(phrase, "")
                if is_start or not is_single:
                    found = self.commands.get(phrase, found)
                if found:
                    said = found
                    if middle == last:
                        after = last
                    else:
                        after = place + phrase.index(_GAP)
                        dropped = middle
                    break
            if not said and not is_name:
                said = forms.known_form(lower[place])
            if said:
                if tokens[place][0].isupper():
                    said = said[0].upper() + said[1:]
                parts += (head[done:start], said)
                done = spans[after - 1][1]
            place = after
        return "".join((*parts, head[done:], rest))

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The array to save: UTF-8 bytes of one replacement a line."""
        lines = [
            f"{sign}{' '.join(phrase)}\t{said}"
            for sign, found in ((">", self.commands), ("", self.others))
            for phrase, said in found.items()
        ]
        return {_ARRAY: np.frombuffer("\n".join(lines).encode("utf-8"), np.uint8)}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self | None:
        """What ``arrays`` gave; None where the model has none.

        Raises:
            ModelError: the array is damaged.
        """
        if _ARRAY not in arrays:
            return None
        commands: dict[Phrase, str] = {}
        others: dict[Phrase, str] = {}
        try:
            for line in arrays[_ARRAY].tobytes().decode("utf-8").splitlines():
                phrase, said = line.split("\t")
                found = commands if line.startswith(">") else others
                found[tuple(phrase.removeprefix(">").split(" "))] = said
        except ValueError as error:
            raise ModelError("the synonyms of the model are damaged; fit it again") from error
        return cls(commands, others)


class WordForms:
    """Other forms of the words of a vocabulary."""

    def __init__(self, words: LexicalEncoder) -> None:
        self._known = words.vocabulary_
        weights = words.idf_
        terms = [term for term in self._known if term.isalpha()]
        if weights is not None:
            terms.sort(key=lambda term: float(weights[self._known[term]]))
        self._forms: dict[str, str] = {}
        for term in terms:
            for base in bases_of(term):
                self._forms.setdefault(base, term)

    def known_form(self, word: str) -> str:
        """Another form of a word that is not known, which is; empty where there is none."""
        if word in self._known or not word.isalpha() or not 4 <= len(word) <= _LONGEST:
            return ""
        return next((self._forms[base] for base in bases_of(word) if base in self._forms), "")


def _kept_tokens(text: str, spans: Sequence[tuple[int, int]]) -> set[int]:
    kept: set[int] = set()
    place = 0
    for match in _KEPT.finditer(text):
        start, end = match.span()
        while place < len(spans) and spans[place][0] < start:
            place += 1
        while place < len(spans) and spans[place][0] < end:
            kept.add(place)
            place += 1
    return kept
