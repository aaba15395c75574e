"""Learning on: further demonstrations, and tools that come, go or change their names."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt
from scipy.sparse import vstack

from dtdr.demonstrations import Tool
from dtdr.retrievers.factored.alignment import corrected, learn_weights
from dtdr.retrievers.factored.examples import (
    NEED_LEVELS,
    Encoders,
    Memory,
    examples_of,
    need_examples,
    read_all,
)
from dtdr.retrievers.factored.history import HistoryWeights, renumber_history
from dtdr.retrievers.factored.kernel import KernelMarkov
from dtdr.retrievers.factored.network import Network
from dtdr.retrievers.factored.parts import MEMORY, Parts, documents_of
from dtdr.retrievers.factored.plans import FORGOTTEN, PlanLog
from dtdr.retrievers.factored.text import StemEncoder

_ENOUGH = 32
"""Demonstrations that the networks wait for. Learning each alone cost .004 (T-Eval) to .001
(TinyAgent) of validation MRR and five times as long."""
_PASSES, _RATE, _BATCH = 4, 5e-4, 32
"""Twice to three times the passes or the rate changed validation MRR by less than .004."""
_AGAIN = 3
"""Earlier demonstrations learned again for each new one. Without any, validation MRR fell by .008
on TinyAgent below what it was before the update."""


def with_tools(parts: Parts, tools: Sequence[Tool], position: Sequence[int]) -> Parts:
    """The same parts for another vocabulary.

    Args:
        parts: fitted; stays as it is.
        tools: the new vocabulary, end of plan last.
        position: for each old tool its index among the new ones, or ``FORGOTTEN``.
    """
    moved = [(position[tool], slot) for slot, tool in enumerate(parts.seen.tolist())]
    kept = sorted(item for item in moved if item[0] != FORGOTTEN)
    words, shapes, stems = parts.encoders
    return _rebuilt(
        parts,
        tools,
        seen=[tool for tool, _ in kept],
        slots=[slot for _, slot in kept],
        encoders=(words, shapes, _with_stems(stems, documents_of(tools))),
        log=parts.log.renumbered(position, len(tools)),
    )


def learned(parts: Parts, texts: Sequence[str], log: PlanLog, decay: float, seed: int) -> Parts:
    """The parts after further plans, without a refit.

    Everything that is counted counts them at once, and the alignment learns from each. The
    networks wait for ``_ENOUGH`` of them, and learn them together with earlier ones. Words that no
    earlier query held stay unknown.

    Args:
        parts: fitted; stays as it is.
        texts: the further queries.
        log: their plans, in the vocabulary of ``parts``.
        decay: how much the earlier plans count from now on.
        seed: order of the examples and what is dropped.
    """
    parts = _with_slots(parts, log)
    seen, words = parts.seen, parts.encoders[0].dimension
    rng = np.random.default_rng(seed)
    fresh = read_all(parts.encoders, parts.encoder, texts)
    queries = fresh.words(words)
    other = copy(parts)
    other.log = parts.log.joined(log, decay)
    other.relations = parts.relations.updated(log, decay)
    if parts.switches.kernel:
        other.queries = vstack([parts.queries, queries], format="csr")
        other.kernel = KernelMarkov(other.log, other.queries)
    numbers = np.arange(len(parts.log), len(other.log))
    other.memory = Memory(
        np.concatenate([parts.memory.plans, numbers]), parts.memory.texts.joined(fresh)
    )
    other.pending = parts.pending + len(texts)
    enough = other.pending >= _ENOUGH
    if enough and len(other.memory.plans) == len(other.log):
        used = _used(other.log, seen).astype(np.float64)
        rows, importance = other.memory.texts.words(words), np.array(other.log.weights)
        other.weights = learn_weights(rows, used, importance, seed)
    else:
        share = other.relations.share[seen]
        other.weights = corrected(parts.weights, queries, _used(log, seen), share)
    if parts.alignment is not None:
        scale = np.asarray(parts.encoders[0].idf_, np.float32)
        other.alignment = parts.alignment.updated(other.weights, scale, other.relations.frequency)
    if enough:
        _train(other, rng, seed)
        other.memory = other.memory.chosen(rng, MEMORY)
    return other


def _train(parts: Parts, rng: np.random.Generator, seed: int) -> None:
    """Let the networks learn what is pending, and some of what they know."""
    memory, log = parts.memory, parts.log
    new = memory.plans >= len(log) - parts.pending
    again = np.flatnonzero(~new)
    if len(again) > _AGAIN * parts.pending:
        again = rng.choice(again, _AGAIN * parts.pending, replace=False)
    chosen = np.sort(np.concatenate([again, np.flatnonzero(new)]))
    texts, plans = memory.texts.subset(chosen), log.subset(memory.plans[chosen])
    examples = examples_of(texts, parts.seen, plans)
    parts.next_tool = _copied(parts.next_tool).train(
        examples, "softmax", _PASSES, _BATCH, seed, _RATE
    )
    parts.history = HistoryWeights(parts.next_tool.parameters["history"], len(parts.seen))
    if parts.switches.need:
        words = texts.words(parts.encoders[0].dimension)
        examples = need_examples(examples, words, parts.seen, plans)
        parts.need = _copied(parts.need).train(examples, "sigmoid", _PASSES, _BATCH, seed, _RATE)
    parts.pending = 0


def _used(log: PlanLog, seen: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Shape (plans, seen tools): 1 where the plan calls the tool."""
    slots = {tool: slot for slot, tool in enumerate(seen.tolist())}
    found = np.zeros((len(log), len(seen)), np.float32)
    for row, calls in zip(found, log.calls, strict=True):
        row[[slots[tool] for tool in calls if tool != FORGOTTEN]] = 1
    return found


def _with_slots(parts: Parts, log: PlanLog) -> Parts:
    """With outputs for tools that are called for the first time."""
    fresh = {tool for calls in log.calls for tool in calls} - {FORGOTTEN, *parts.seen.tolist()}
    if not fresh:
        return parts
    seen = sorted({*parts.seen.tolist(), *fresh})
    slots = [parts.slots[tool] for tool in seen]
    return _rebuilt(
        parts, parts.vocabulary, seen=seen, slots=slots, encoders=parts.encoders, log=parts.log
    )


def _rebuilt(
    parts: Parts,
    tools: Sequence[Tool],
    *,
    seen: Sequence[int],
    slots: Sequence[int],
    encoders: Encoders,
    log: PlanLog,
) -> Parts:
    """The parts with other outputs: ``slots`` has the old number of each seen tool, -1 if new."""
    outputs = len(parts.seen)
    return Parts(
        tools,
        parts.switches,
        encoders=encoders,
        encoder=parts.encoder,
        seen=np.array(seen, np.intp),
        next_tool=_next_with(parts.next_tool, slots, outputs),
        need=_need_with(parts.need, slots, outputs),
        weights=_columns(parts.weights, np.array(slots)),
        queries=parts.queries,
        log=log,
        memory=parts.memory,
        pending=parts.pending,
        reference=parts.reference,
    )


def _copied(network: Network) -> Network:
    return Network({name: array.copy() for name, array in network.parameters.items()})


def _next_with(network: Network, slots: Sequence[int], outputs: int) -> Network:
    return Network(
        {
            **network.parameters,
            **_outputs(network, np.array(slots), outputs),
            "history": renumber_history(network.parameters["history"], slots, outputs),
        }
    )


def _need_with(network: Network, slots: Sequence[int], outputs: int) -> Network:
    numbers = np.array(slots)
    levels = [np.where(numbers < 0, -1, numbers + level * outputs) for level in range(NEED_LEVELS)]
    found = _outputs(network, np.concatenate(levels), NEED_LEVELS * outputs)
    return Network({**network.parameters, **found})


def _outputs(
    network: Network, numbers: npt.NDArray[np.intp], outputs: int
) -> dict[str, npt.NDArray[np.floating]]:
    """Columns of the last layer; a new one (-1) starts as unlikely as the least likely."""
    output, bias = network.parameters["output"], network.parameters["output_bias"]
    biases = np.append(bias, bias.min())[np.where(numbers < 0, outputs, numbers)]
    return {"output": _columns(output, numbers), "output_bias": biases}


def _columns(
    matrix: npt.NDArray[np.floating], numbers: npt.NDArray[np.intp]
) -> npt.NDArray[np.floating]:
    """Some columns of a matrix; zeros for -1."""
    padded = np.concatenate([matrix, np.zeros_like(matrix[:, :1])], axis=1)
    return np.ascontiguousarray(padded[:, np.where(numbers < 0, matrix.shape[1], numbers)])


def _with_stems(encoder: StemEncoder, texts: Sequence[str]) -> StemEncoder:
    """With columns for stems that are new, as rare as the rarest."""
    known = encoder.vocabulary_
    fresh = {stem for text in texts for stem in encoder._terms(text)} - known.keys()
    if not fresh or encoder.idf_ is None:
        return encoder
    other = copy(encoder)
    first = len(known)
    other.vocabulary_ = known | {stem: first + at for at, stem in enumerate(sorted(fresh))}
    rarest = encoder.idf_.max() if first else np.float32(1)
    weights = encoder.idf_ if first else encoder.idf_[:0]
    other.idf_ = np.append(weights, np.full(len(fresh), rarest)).astype(np.float32)
    return other
