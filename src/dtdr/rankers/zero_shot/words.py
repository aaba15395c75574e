"""Words as the scorer reads them: stems as hashes, clauses of a query, words of like meaning."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.text import (
    AFTER_JOINT,
    BEGINS_SENTENCE,
    IS_LETTERS,
    MAX_WORDS,
    Hashes,
    QueryText,
    hash_stem,
)

_MOST_CLAUSES = 40

_STOP_WORDS = """
a an the of to in for and or on with is are be by from this that it as at you i me my your can
please could would need want about any all their them they will if so we us our have has had do
does did then also what which how there here am was were been its into these those not no but
should may might who whom whose let like just using use used via when where after before once
first next finally
"""

READING, WRITING = (
    """
get list search find fetch read check query lookup look show view retrieve describe browse count
load open inspect discover recommend compare analyze calculate track
""",
    """
create add send delete remove update set edit book cancel post write save pay modify make insert
change append submit reply forward buy purchase order move rename schedule transfer upload merge
close enable disable replace play start stop
""",
)
"""Verbs in names of tools that only read, and that change something."""

_SYNONYMS = """
send mail email message text sms notify forward; write compose draft reply; find search lookup
locate discover look query; get fetch retrieve obtain read show display view see check tell give;
list browse enumerate; create make add new insert generate build set; delete remove erase clear
drop cancel; update edit change modify adjust correct alter rename; buy purchase order acquire
shop; book reserve reservation booking schedule; cancel refund return; pay payment transfer
charge; picture photo image photograph screenshot draw paint; movie film video; song music track
audio; trip travel journey itinerary vacation holiday; flight plane airline airport; hotel
accommodation lodging stay room; house home property apartment; car vehicle; train rail railway;
store merchant market; product item goods article merchandise; price cost quote fee rate; stock
share equity ticker; company business firm organization; news headline article; weather forecast
temperature climate; map location place address position directions route navigate navigation;
restaurant food meal dining cuisine recipe; doctor medical health hospital clinic; medicine drug
prescription; meeting event appointment calendar schedule; reminder remind alarm alert
notification; task todo; note memo; file document pdf; folder directory; person contact people
user customer client guest; phone telephone call number; job position career vacancy; translate
translation language; summarize summary summarise; calculate compute calculation; analyze analysis
analyse examine; compare comparison difference; recommend suggest recommendation suggestion;
review rating feedback; team club; match game fixture; player athlete; score result standings;
country nation; city town; code script program; repository repo; bug issue ticket; run execute
perform; open launch start play; close stop end; download save export store; upload attach import;
money currency exchange; loan mortgage credit; post publish tweet; date day time; status state
progress; history record log; detail information info; question answer; quiz test exam; course
lesson class; student pupil; paper article research publication; website web page url internet
site link; animal pet; plant garden; light lamp; turn switch
"""
"""Sets of words that say the same of tools; forms that stems do not join are given."""


def hash_words(text: str) -> Hashes:
    """Distinct hashes of the stems of some words, sorted."""
    return np.unique(np.array(list(map(hash_stem, text.split())), np.uint32))


STOP_STEMS = hash_words(_STOP_WORDS)


def _pair_synonyms() -> npt.NDArray[np.uint32]:
    sets = map(hash_words, _SYNONYMS.split(";"))
    pairs = {pair for words in sets for pair in permutations(words.tolist(), 2)}
    return np.array(sorted(pairs), np.uint32).T


SYNONYMS = _pair_synonyms()
"""Shape (2, pairs): a stem, sorted, and one that means about the same."""


def clauses_of(text: QueryText) -> list[Hashes]:
    """The stems of each clause of a query, without stop words; at least one clause.

    A clause begins after a full stop, a comma, "and" or "then". One of a single word belongs to
    the clause before it: "buy apples, pears and milk" asks for one thing.
    """
    stems, flags = text.stems[:MAX_WORDS], text.flags[:MAX_WORDS]
    begins = (flags & (BEGINS_SENTENCE | AFTER_JOINT)) > 0
    kept = ((flags & IS_LETTERS) > 0) & ~np.isin(stems, STOP_STEMS)
    number = np.cumsum(begins)[kept]
    clauses: list[Hashes] = []
    for clause in np.split(stems[kept], np.flatnonzero(np.diff(number)) + 1):
        if clauses and (len(clause) < 2 or len(clauses[-1]) < 2):
            clauses[-1] = np.concatenate([clauses[-1], clause])
        else:
            clauses.append(clause)
    return clauses[:_MOST_CLAUSES]
