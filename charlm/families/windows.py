"""Batches for predictors: cuts texts of any length into windows, and batches them by length in a few shapes.

Predictors of all families use it; open it to change how long texts are cut or how many rows a call gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from charlm.families.unpadded import Call, calls
from charlm.nn.kernels import this_machine
from charlm.text.subwords import Subwords

T = TypeVar("T")

SHORTEST_BATCH = 16  # positions of the smallest batch
GAPS_AT_A_TIME = 8  # most rows of a call with gaps; each gap needs logits over the whole vocabulary
MASKS_A_ROW = 64  # most masks that are predicted in one row, since each needs logits over the vocabulary
CPU_POSITIONS = 1024  # positions per encoder call on a CPU: with more, intermediate arrays no longer fit its caches


class Window(NamedTuple):
    """A part of a text as the input of a model.

    Attributes:
      ids: the ids of its pieces with the special tokens around them.
      before: number of special tokens in front.
      start, end: the range of the text's pieces that it holds, counted without special tokens.
    """

    ids: list[int]
    before: int
    start: int
    end: int


class Text(NamedTuple):
    """An encoded text: ids, offsets and words of its pieces, and separately the special tokens around them.

    Attributes:
      prefix, suffix: ids of the special tokens before and after the pieces.
      text: the text that offsets refer to; "" if it is not needed.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    words: list[int | None]
    prefix: list[int]
    suffix: list[int]
    text: str = ""

    def under(self, window: Window, piece: int | None) -> dict[int, str]:
        """Returns the text under every piece with the id `piece` in the window, by its place in the window."""
        found = [i for i in range(window.start, window.end) if self.ids[i] == piece]
        return {window.before + i - window.start: self.text[slice(*self.offsets[i])] for i in found}


def text_of(item: Subwords, text: str = "") -> Text:
    """Returns an encoded text with its special tokens separated from its pieces."""
    inner = [place for place, special in enumerate(item.special) if not special]
    first, last = (inner[0], inner[-1] + 1) if inner else (len(item.ids), len(item.ids))
    part = slice(first, last)
    columns = list(item.ids[part]), list(item.offsets[part]), list(item.words[part])
    return Text(*columns, list(item.ids[:first]), list(item.ids[last:]), text)


def one_ahead(started: Iterator[T]) -> Iterator[T]:
    """Yields each item after the next one is started, so that the host prepares a batch while the device computes."""
    waiting: list[T] = []
    for item in started:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


def windows(text: Text, longest: int) -> list[Window]:
    """Returns the windows of a text, each of at most `longest` positions, special tokens included.

    Cuts are between words; only a word longer than a window is cut inside.
    """
    room = longest - len(text.prefix) - len(text.suffix)
    cuts = [0]
    while len(text.ids) - cuts[-1] > room:
        end = cuts[-1] + room
        while end > cuts[-1] and text.words[end] == text.words[end - 1]:
            end -= 1
        cuts.append(end if end > cuts[-1] else cuts[-1] + room)
    pairs = itertools.pairwise([*cuts, len(text.ids)])
    return [Window(text.prefix + text.ids[a:b] + text.suffix, len(text.prefix), a, b) for a, b in pairs]


def beginning(text: Text, longest: int | None) -> Text:
    """Returns the part of a text that fits `longest` positions, special tokens included; None: the whole text."""
    if longest is None:
        return text
    part = slice(max(0, longest - len(text.prefix) - len(text.suffix)))
    return text._replace(ids=text.ids[part], offsets=text.offsets[part], words=text.words[part])


def read_windows(
    texts: Sequence[Text],
    longest: int,
    width: int,
    run: Callable[[list[tuple[int, Window]]], Iterator[tuple[dict[int, tuple[int, int]], jax.Array]]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the states of texts of any length, as two float32 arrays for each text.

    The first, [P, width], has the states of the text's pieces; the second, [N, width], those of all positions of its
    windows, special tokens included.

    Args:
      longest: the largest number of positions of a window, special tokens included.
      run: gets all windows, each with the number of its text, and computes them batch by batch. It yields for each
        batch the row and the first position of its windows, by their index, and the states [B, L, width] on the device.
    """
    parts = [(t, window) for t, text in enumerate(texts) for window in windows(text, longest) if window.ids]
    found: dict[int, np.ndarray] = {}
    for at, states_BLD in one_ahead(run(parts)):
        states_BLD = np.asarray(states_BLD)
        for n, (row, start) in at.items():
            found[n] = states_BLD[row, start : start + len(parts[n][1].ids)].copy()
    none_WD = np.zeros((0, width), np.float32)
    inner: list[list[np.ndarray]] = [[none_WD] for _ in texts]
    whole: list[list[np.ndarray]] = [[none_WD] for _ in texts]
    for n, (t, window) in enumerate(parts):
        inner[t].append(found[n][window.before : window.before + window.end - window.start])
        whole[t].append(found[n])
    return [(np.concatenate(some), np.concatenate(every)) for some, every in zip(inner, whole, strict=True)]


def window_around(text: Text, at: int, count: int, longest: int) -> Window:
    """Returns a window of at most `longest` positions around pieces `at` to `at + count`, cut between words."""
    room = longest - len(text.prefix) - len(text.suffix)
    start = max(0, min(at - (room - count) // 2, len(text.ids) - room))
    end = min(start + room, len(text.ids))
    whole = lambda place: place in (0, len(text.ids)) or text.words[place] != text.words[place - 1]
    start = next((place for place in range(start, at) if whole(place)), start)
    end = next((place for place in range(end, at + count, -1) if whole(place)), end)
    return Window(text.prefix + text.ids[start:end] + text.suffix, len(text.prefix), start, end)


def start_around(position: int, count: int, most: int) -> int:
    """Returns where a window of at most `most` of `count` words begins that has a word in its middle, if it can."""
    return max(0, min(position - most // 2, count - most))


def together(rows: Iterable[Hashable], most: int = MASKS_A_ROW) -> list[list[int]]:
    """Returns the indices of equal rows together, at most `most` in a list, so that a model reads such a row once."""
    by_row: dict[Hashable, list[int]] = {}
    for n, row in enumerate(rows):
        by_row.setdefault(row, []).append(n)
    return [equal[at : at + most] for equal in by_row.values() for at in range(0, len(equal), most)]


def read_gaps(
    keys: Sequence[Hashable],
    ids: Sequence[Sequence[int]],
    places: Sequence[np.ndarray],
    longest: int,
    pad_id: int,
    run: Callable[[list[int], np.ndarray, np.ndarray, np.ndarray], jax.Array],
) -> list[np.ndarray]:
    """Returns the log-probabilities [M, V] at the places of each gap; gaps in equal rows are read together.

    Args:
      keys: for each gap what its row is known by; rows of equal keys are one.
      ids: the row.
      places: the M positions there to predict.
      longest: positions of the longest row.
      run: computes log-probabilities [B, M, V] from the numbers of the first gaps of some rows, the rows' ids and mask
        [B, L], and the positions [B, M].
    """
    rows = together(keys, max(1, MASKS_A_ROW // max(map(len, places), default=1)))
    found: dict[int, np.ndarray] = {}
    for chosen, ids_BL, mask_BL in batches([ids[row[0]] for row in rows], GAPS_AT_A_TIME, longest, pad_id):
        at = [np.concatenate([places[n] for n in rows[r]]) for r in chosen]
        most = max(map(len, at))
        positions_BM = np.zeros((len(ids_BL), rounded_batch(most, max(most, longest))), np.int32)
        for b, places_M in enumerate(at):
            positions_BM[b, : len(places_M)] = places_M
        log_probs = jax.device_get(run([rows[r][0] for r in chosen], ids_BL, mask_BL, positions_BM))
        for b, r in enumerate(chosen):
            ends = np.cumsum([len(places[n]) for n in rows[r]])
            found |= dict(zip(rows[r], np.split(log_probs[b], ends)[:-1], strict=True))
    return [found[n] for n in range(len(keys))]


def words_of(
    spans: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], inner_PD: np.ndarray
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Returns the spans of the words that have at least one piece, and their vectors [W, D], the means of their pieces.

    Args:
      spans: characters (start, end) of each word.
      offsets: characters of each piece.
      inner_PD: float32, vectors of the pieces.
    """
    starts_P, ends_P = np.array(offsets, np.int64).reshape(-1, 2).T
    found, vectors = [], [np.zeros((0, inner_PD.shape[1]), np.float32)]
    for start, end in spans:
        first, last = np.searchsorted(ends_P, start, "right"), np.searchsorted(starts_P, end, "left")
        if first < last:
            found.append((start, end))
            vectors.append(inner_PD[first:last].mean(axis=0, keepdims=True))
    return found, np.concatenate(vectors)


def rounded(n: int, limit: int | None = None) -> int:
    """Returns the smallest of 16, 24, 32, 48, 64, 96, ... that is at least n, but at most `limit` (which is >= n).

    This gives few shapes, each compiled once; above the smallest size, at most a third of a batch is such padding.
    """
    size = SHORTEST_BATCH
    while size < n:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size if limit is None else min(size, limit)


def few_widths(n: int, limit: int) -> int:
    """Returns the number of words to which a batch is padded whose longest sequence has n, one of few to compile for.

    At most 31 are padding, and the number is at most `limit`, if n is.
    """
    return max(min(limit, rounded(n), -(-n // 32) * 32), n)


def rounded_batch(n: int, limit: int) -> int:
    """Returns the smallest power of two that is at least n, but at most `limit` (which is >= n)."""
    return min(1 << max(0, n - 1).bit_length(), limit)


def rows_a_call(batch_size: int, length: int) -> int:
    """Returns how many rows of `length` positions an encoder reads per call: `batch_size`, on CPUs often fewer.

    The number is a power of two, or `batch_size`. On two cores, BERT-base and HLM-Base read 32 rows of 83 or 160
    positions, or 8 rows of 512, up to 1.25 times as fast in several calls. Fewer rows per call also need less padding.
    """
    if this_machine().platform != "cpu":
        return batch_size
    return min(batch_size, 1 << (max(1, CPU_POSITIONS // length).bit_length() - 1))


def of_like_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yields the indices of the rows of each batch of at most `most` rows, the shortest rows first."""
    order = sorted(range(len(lengths)), key=lambda n: lengths[n])
    yield from (order[at : at + most] for at in range(0, len(order), most))


def packed(
    rows: Sequence[Sequence[int]], batch_size: int, longest: int, pad_id: int, *, splits: bool, shares: bool = True
) -> Iterator[tuple[Call, np.ndarray, np.ndarray]]:
    """Yields calls that together read every row of ids once, with hardly any padding.

    Yields:
      the call, which says where each row of ids lies; ids int32 [B, L]; and their mask [B, L], which numbers them
      where several share a row (`charlm.nn.masks`).

    Args:
      batch_size: the most rows of a call.
      longest: the most positions of a row; no row of ids may be longer.
      splits: whether calls may have fewer rows where that is faster (`rows_a_call`).
      shares: whether several rows of ids may share one.
    """
    lengths, arrays = [len(row) for row in rows], [np.array(row, np.int32) for row in rows]
    most = lambda length: rows_a_call(batch_size, length) if splits else batch_size
    for call in calls(lengths, lambda n: rounded(min(n, longest), longest), most, shares=shares):
        mask_BL = mask_of(call, lengths) if shares else call.mask(lengths) != 0
        yield call, call.filled(arrays, np.array(pad_id, np.int32)), mask_BL


def unknown_by_row(call: Call, unknown: Sequence[dict[int, str]]) -> list[dict[int, str]]:
    """Returns for each row of a call the texts of its unknown pieces by place, given those of every text."""
    found: list[dict[int, str]] = [{} for _ in range(call.rows)]
    for n, (row, start) in call.at.items():
        found[row] |= {start + place: text for place, text in unknown[n].items()}
    return found


def mask_of(call: Call, lengths: Sequence[int]) -> np.ndarray:
    """Returns the mask [B, L] of the rows of a call; see `Call.mask`.

    On accelerators it is bool if each row has one text, since fused attention reads such masks alone. On CPUs there is
    none, and a second kind of mask would be a second program.
    """
    mask_BL = call.mask(lengths)
    return mask_BL if this_machine().platform == "cpu" or mask_BL.max() > 1 else mask_BL != 0


def batches(
    rows: Sequence[Sequence[int]],
    batch_size: int,
    longest: int,
    pad_id: int,
    *,
    left: bool = False,
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Yields batches of rows of similar length: indices of the rows, ids int32 [B, L], mask of real ids bool [B, L].

    B may be larger than the number of indices; the rows beyond them are padding. Rows are padded on the right, or on
    the left with `left`. No row may be longer than `longest`.
    """
    for chosen in of_like_length([len(row) for row in rows], batch_size):
        B, L = rounded_batch(len(chosen), batch_size), rounded(len(rows[chosen[-1]]), longest)
        ids_BL, mask_BL = np.full((B, L), pad_id, np.int32), np.zeros((B, L), bool)
        for b, n in enumerate(chosen):
            place = slice(L - len(rows[n]), L) if left else slice(0, len(rows[n]))
            ids_BL[b, place], mask_BL[b, place] = rows[n], True
        yield chosen, ids_BL, mask_BL
