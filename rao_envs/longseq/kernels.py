"""The dynamics of long sequences: begin, answer, turn pages, take notes, spawn, observe, over a batch. Compiled.

See `rao_envs.core.hooks` for the contract. A frame is a span of the sequence (pairs: two spans) and the answers of the children it gave
its halves to. Exact answers of any span come from the sorted places of the question's records, never from the sequence itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.callstack import FAILURE, RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.hooks import implement
from rao_envs.core.jit import inline, jit, lean, splice
from rao_envs.core.rng import below
from rao_envs.longseq.generator import background, choose_codes, collect, draw_length, most_planted, plant
from rao_envs.longseq.layout import (
    AT_CODES,
    AT_FITS,
    AT_FRESH,
    AT_KIND,
    AT_NOTE,
    AT_PAGES,
    AT_WRITTEN,
    CHILDREN,
    PAGE_FLAGS,
    PER_CHILD,
)
from rao_envs.longseq.queries import COUNT, DIGITS, KEYS, MAJORITY, MODULUS, NONE, PAIRS, PLACES, QUERIES, QUERY_CODES, SYMBOLS, TOPK

PREVIEW = 16
"""Records shown of a span that does not fit the window, until a page is opened."""
CLOSED = -1
"""A pointer before its first page is opened."""
PAGE_ACTIONS = 2
"""Per pointer: next (from the last page on to the first), previous."""
SPAWN_LEFT, SPAWN_RIGHT, SPAWN_ALL = 0, 1, 2
UNANSWERED, ANSWERED, SILENT = 0, 1, 2
"""Of a frame's half: no child has returned; one has answered; the latest ended without an answer."""

CONFIG = np.dtype(
    [
        ("records", np.int32),  # that fit one window
        ("pointers", np.int32),
        ("notes", np.int32),  # symbols of the note's alphabet
        ("paging", np.bool_),  # whether pages and notes may be used
        ("finer", np.int32),  # halvings allowed of a span that fits
        ("low", np.int32),  # lengths
        ("high", np.int32),
        ("density", np.float64),
        ("kinds", np.int32),  # how many kinds of question are asked
        ("questions", np.int32),  # of a given corpus; 0: sequences are generated
    ],
    align=True,
)

TASK = np.dtype(
    [
        ("kind", np.int32),
        ("question", np.int32),  # asked for by reset options; -1: any
        ("row", np.int32),  # of a given corpus's `offsets`; a generated sequence has its instance's
        ("lo", np.int32),  # the root's span, half open
        ("hi", np.int32),
    ],
    align=True,
)

QUESTION = np.dtype([("kind", np.int32), ("lo", np.int32), ("hi", np.int32)], align=True)

FRAME = np.dtype(
    [
        ("lo", np.int32),  # span, half open
        ("hi", np.int32),
        ("lo2", np.int32),  # pairs: where the second key is looked for
        ("hi2", np.int32),
        ("page", np.int32),  # of the first pointer; CLOSED
        ("page2", np.int32),
        ("fresh", np.int32),  # symbols noted since a page was turned, up to PLACES
        ("slot", np.int32),  # which half of its parent it is: 0 left, 1 right
        ("n_written", np.int32),  # symbols of the answer so far
        ("state0", np.int32),  # of the left half: UNANSWERED, ANSWERED or SILENT
        ("state1", np.int32),
        ("reached", np.int64),  # the latest page (pairs: pair of pages) whose running answer was noted right; -1
        ("noted", np.float64),  # how much of the span was covered by right notes, counting each page once and in order
        ("covered0", np.float64),  # how much of it by right answers below: left half
        ("covered1", np.float64),
    ],
    align=True,
)

NOTE, WRITTEN, LEFT, RIGHT = 0, PLACES, 2 * PLACES, 3 * PLACES
"""Where a frame's symbols lie in `symbols`: note and answer so far, then the answers of the children. Symbol + 1; 0 is nothing."""

ALPHABET = np.array([query.alphabet for query in QUERIES], np.int64)
N_PLACES = np.array([query.places for query in QUERIES], np.int64)
N_KEYS = np.array([query.keys for query in QUERIES], np.int64)
FIRST_QUERY_CODE = QUERY_CODES[0]
assert NONE == SYMBOLS - 1 and tuple(range(FIRST_QUERY_CODE, FIRST_QUERY_CODE + PLACES)) == QUERY_CODES


class LongSeqState(NamedTuple):
    """`n` instances; D = max_depth + 1, L = the longest sequence, H = the most records that a question is about."""

    config: npt.NDArray[Any]  # CONFIG (1,) shared
    kinds: npt.NDArray[np.int32]  # (K,) the kinds asked, shared
    questions: npt.NDArray[Any]  # QUESTION (Q,) of a given corpus, shared
    keys: npt.NDArray[np.int8]  # (n, L), or (1, L) shared: code + 1
    values: npt.NDArray[np.int8]  # (n, L), or (1, L) shared: digits
    hits: npt.NDArray[np.int32]  # (n, H), or (1, H) shared: places of the question's records, see `generator.collect`
    offsets: npt.NDArray[np.int64]  # (n, 31), or (Q, 31) shared: where in `hits`
    codes: npt.NDArray[np.int8]  # (n, 3) the question's keys, -1 where it has fewer
    task: npt.NDArray[Any]  # TASK (n,)
    frames: npt.NDArray[Any]  # FRAME (n, D)
    symbols: npt.NDArray[np.int8]  # (n, D, 12) see NOTE


# -- truths ------------------------------------------------------------------------------------------------------------------------


@inline
def lower_bound(hits: npt.NDArray[np.int32], first: int, end: int, place: int) -> int:
    """The first index in [first, end) whose entry is at least `place`, else `end`."""
    while first < end:
        middle = (first + end) >> 1
        if hits[middle] < place:
            first = middle + 1
        else:
            end = middle
    return first


@lean
def occurrences(domain: LongSeqState, i: int, j: int, digit: int, lo: int, hi: int) -> int:
    """How many records in [lo, hi) have the question's key number `j` and `digit`."""
    if hi <= lo:
        return 0
    given = domain.config[0]["questions"] > 0
    hits = domain.hits[0 if given else i]
    row = domain.task[i]["row"] if given else i
    first, end = domain.offsets[row, j * DIGITS + digit], domain.offsets[row, j * DIGITS + digit + 1]
    return lower_bound(hits, first, end, hi) - lower_bound(hits, first, end, lo)


@inline
def shared_digit(domain: LongSeqState, i: int, lo: int, hi: int, lo2: int, hi2: int) -> bool:
    """Whether a record of the first key in [lo, hi) and one of the second in [lo2, hi2) have the same digit."""
    shared = False
    for digit in range(DIGITS):
        shared = shared or (occurrences(domain, i, 0, digit, lo, hi) > 0 and occurrences(domain, i, 1, digit, lo2, hi2) > 0)
    return shared


@lean
def symbol_of(domain: LongSeqState, i: int, place: int, lo: int, hi: int, lo2: int, hi2: int) -> int:
    """Symbol number `place` of the exact answer for a span (pairs: two)."""
    kind = domain.task[i]["kind"]
    if kind == PAIRS:
        return 1 if shared_digit(domain, i, lo, hi, lo2, hi2) else 0
    key = place if kind == KEYS else 0
    total = 0
    answer = NONE
    # Descending, so that for max, topk and majority the first digit that satisfies is the answer.
    for k in range(DIGITS):
        digit = DIGITS - 1 - k
        total += occurrences(domain, i, key, digit, lo, hi)
        if answer == NONE and total > (place if kind == TOPK else 0):
            answer = digit
    if kind == COUNT:
        return total % MODULUS
    if kind == MAJORITY:
        answer = NONE
        for digit in range(DIGITS):
            if 2 * occurrences(domain, i, 0, digit, lo, hi) > total:
                answer = digit
    return answer


@lean
def is_right(domain: LongSeqState, i: int, symbols: npt.NDArray[np.int8], lo: int, hi: int, lo2: int, hi2: int) -> bool:
    """Whether `symbols`, (3,), spell the exact answer for a span."""
    right = True
    for place in range(N_PLACES[domain.task[i]["kind"]]):
        right = right and symbols[place] == symbol_of(domain, i, place, lo, hi, lo2, hi2) + 1
    return right


# -- spans, pages ------------------------------------------------------------------------------------------------------------------


@inline
def fits(records: int, frame: Any) -> bool:
    """Whether the window shows the whole span; two spans share it."""
    if frame["hi2"] > frame["lo2"]:
        return frame["hi"] - frame["lo"] <= records // 2 and frame["hi2"] - frame["lo2"] <= records // 2
    return frame["hi"] - frame["lo"] <= records


@inline
def size_of(frame: Any) -> float:
    """Records of the span; pairs of records of two spans."""
    size = float(frame["hi"] - frame["lo"])
    if frame["hi2"] > frame["lo2"]:
        size *= frame["hi2"] - frame["lo2"]
    return size


@inline
def page_count(config: Any, frame: Any, pointer: int) -> int:
    """Pages that `pointer` (0 or 1) turns: of the whole window with one pointer, of half of it with two."""
    length = frame["hi"] - frame["lo"]
    if pointer == 1 and frame["hi2"] > frame["lo2"]:
        length = frame["hi2"] - frame["lo2"]
    page = config["records"] // config["pointers"]
    return (length + page - 1) // page


@inline
def halve(lo: int, hi: int, lo2: int, hi2: int, slot: int) -> tuple[int, int, int, int]:
    """The spans of half number `slot`: the longer span is halved, of equal ones the first; an odd record goes to the left."""
    if hi - lo >= hi2 - lo2:
        middle = (lo + hi + 1) // 2
        return (lo, middle, lo2, hi2) if slot == 0 else (middle, hi, lo2, hi2)
    middle = (lo2 + hi2 + 1) // 2
    return (lo, hi, lo2, middle) if slot == 0 else (lo, hi, middle, hi2)


@inline
def frame_budget(records: int, frame: Any) -> int:
    """Steps a frame wants: eight for each piece that the halving of its spans ends with, and 32."""
    first, second = frame["hi"] - frame["lo"], frame["hi2"] - frame["lo2"]
    fit = records // 2 if second > 0 else records
    steps = 8
    while max(first, second) > fit and steps < 1 << 28:
        if first >= second:
            first = (first + 1) // 2
        else:
            second = (second + 1) // 2
        steps *= 2
    return steps + 32


# -- hooks -------------------------------------------------------------------------------------------------------------------------


@inline
def clear(domain: LongSeqState, i: int, depth: int) -> None:
    """A frame that has done nothing."""
    frame = domain.frames[i, depth]
    frame["page"], frame["page2"] = CLOSED, CLOSED
    frame["fresh"] = 0
    frame["n_written"] = 0
    frame["state0"], frame["state1"] = UNANSWERED, UNANSWERED
    frame["reached"] = -1
    frame["noted"], frame["covered0"], frame["covered1"] = 0.0, 0.0, 0.0
    for k in range(domain.symbols.shape[2]):
        domain.symbols[i, depth, k] = 0


@splice
def make_task(domain: LongSeqState, stack: CallStack, i: int) -> None:
    """Draw a question of the given corpus, or a sequence and a question."""
    config = domain.config[0]
    task = domain.task[i]
    rng = stack.rng[i]
    if config["questions"] > 0:
        k = task["question"]
        if k < 0:
            k = below(rng, config["questions"])
        question = domain.questions[k]
        task["row"], task["kind"], task["lo"], task["hi"] = k, question["kind"], question["lo"], question["hi"]
        for j in range(PLACES):
            domain.codes[i, j] = FIRST_QUERY_CODE + j if j < N_KEYS[task["kind"]] else -1
        return
    kind = domain.kinds[below(rng, config["kinds"])]
    length = draw_length(config["low"], config["high"], rng)
    task["row"], task["kind"], task["lo"], task["hi"] = 0, kind, 0, length
    n_keys = N_KEYS[kind]
    codes = domain.codes[i]
    choose_codes(codes, n_keys, rng)
    background(domain.keys[i], domain.values[i], length, codes, n_keys, rng)
    plant(domain.keys[i], domain.values[i], length, kind, codes, most_planted(length, config["density"]), rng)
    collect(domain.keys[i], domain.values[i], length, codes, n_keys, domain.hits[i], domain.offsets[i])


@jit
def begin(domain: LongSeqState, stack: CallStack, i: int) -> None:
    """A new task and its root frame."""
    make_task(domain, stack, i)
    task, root = domain.task[i], domain.frames[i, 0]
    root["lo"], root["hi"] = task["lo"], task["hi"]
    root["lo2"], root["hi2"] = (task["lo"], task["hi"]) if task["kind"] == PAIRS else (0, 0)
    root["slot"] = 0
    clear(domain, i, 0)


@inline
def allowed(domain: LongSeqState, stack: CallStack, i: int, action: int) -> bool:
    """Answer symbols of the question's alphabet; pages and notes where the span does not fit; spawns for halves without an answer."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    if action < SYMBOLS:
        return action < ALPHABET[domain.task[i]["kind"]]
    action -= SYMBOLS
    pages = PAGE_ACTIONS * config["pointers"]
    if action < pages + config["notes"]:
        if not config["paging"] or fits(config["records"], frame):
            return False
        if action < pages:
            pointer = action // PAGE_ACTIONS
            page = frame["page"] if pointer == 0 else frame["page2"]
            if action % PAGE_ACTIONS == 1:
                return page > 0
            return page == CLOSED or page_count(config, frame, pointer) > 1
        places = N_PLACES[domain.task[i]["kind"]]
        changes = frame["fresh"] < places
        for place in range(places):
            changes = changes or domain.symbols[i, depth, NOTE + place] != action - pages + 1
        return changes
    action -= pages + config["notes"]
    fit = config["records"] // 2 if frame["hi2"] > frame["lo2"] else config["records"]
    if max(frame["hi"] - frame["lo"], frame["hi2"] - frame["lo2"]) <= max(fit >> config["finer"], 1):
        return False
    left, right = frame["state0"] != ANSWERED, frame["state1"] != ANSWERED
    return (left and right) if action == SPAWN_ALL else (left if action == SPAWN_LEFT else right)


@inline
def act(domain: LongSeqState, stack: CallStack, i: int, action: int) -> None:
    """Write a symbol of the answer, turn a page, or write a symbol into the note."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    symbols = domain.symbols[i, depth]
    pages = PAGE_ACTIONS * config["pointers"]
    if action < SYMBOLS:
        symbols[WRITTEN + frame["n_written"]] = action + 1
        frame["n_written"] += 1
        if frame["n_written"] == N_PLACES[domain.task[i]["kind"]]:
            value = 0.0
            for place in range(frame["n_written"]):
                value = value * SYMBOLS + (symbols[WRITTEN + place] - 1)
            stack.frames[i, depth]["value"] = value
    elif action < SYMBOLS + pages:
        pointer = (action - SYMBOLS) // PAGE_ACTIONS
        page = frame["page"] if pointer == 0 else frame["page2"]
        if (action - SYMBOLS) % PAGE_ACTIONS == 1:
            page -= 1
        elif page + 1 < page_count(config, frame, pointer):
            page += 1
        else:
            page = 0
        if pointer == 0:
            frame["page"] = page
        else:
            frame["page2"] = page
        frame["fresh"] = 0
    else:
        # The symbol written last comes first: a reader who renews a longer note back to front loses only what it has just used.
        last = N_PLACES[domain.task[i]["kind"]] - 1
        for place in range(last):
            symbols[NOTE + last - place] = symbols[NOTE + last - place - 1]
        symbols[NOTE] = action - SYMBOLS - pages + 1
        frame["fresh"] = min(frame["fresh"] + 1, PLACES)
        credit_note(domain, i, depth)


@lean
def credit_note(domain: LongSeqState, i: int, depth: int) -> None:
    """If the note is the exact answer for all up to the open page (pairs with two pointers: pair of pages), count that page as covered.

    In order, each page once: what a wrong note has missed stays missed.
    """
    config = domain.config[0]
    frame = domain.frames[i, depth]
    page = config["records"] // config["pointers"]
    lo, hi, lo2, hi2 = frame["lo"], frame["hi"], frame["lo2"], frame["hi2"]
    # The far pointer says how far one has read; a pointer that was never opened says nothing.
    here = max(frame["page"], frame["page2"]) if hi2 <= lo2 else frame["page"]
    if here < 0:
        return
    end = min(lo + (here + 1) * page, hi)
    share = float(end - (lo + here * page))
    right = False
    reached = np.int64(here)
    note = domain.symbols[i, depth, NOTE:WRITTEN]
    if hi2 <= lo2:
        right = is_right(domain, i, note, lo, end, 0, 0)
    elif config["pointers"] == 1:
        # One pointer sees one span only: what it can have found out about both is what lies before it in each.
        end2 = min(lo2 + (here + 1) * page, hi2)
        right = is_right(domain, i, note, lo, end, lo2, end2)
        share = float(end - lo) * (end2 - lo2) - float(lo + here * page - lo) * min(here * page, hi2 - lo2)
    elif frame["page2"] >= 0:
        here2 = frame["page2"]
        end2 = min(lo2 + (here2 + 1) * page, hi2)
        before = shared_digit(domain, i, lo, lo + here * page, lo2, hi2)
        now = shared_digit(domain, i, lo + here * page, end, lo2, end2)
        right = note[0] == (2 if before or now else 1)
        share *= end2 - (lo2 + here2 * page)
        reached = np.int64(here) * page_count(config, frame, 1) + here2
    if right and reached > frame["reached"]:
        frame["reached"] = reached
        frame["noted"] += share


@inline
def fanout(domain: LongSeqState, stack: CallStack, i: int, action: int) -> int:
    """Two halves, or one."""
    config = domain.config[0]
    return 2 if action == SYMBOLS + PAGE_ACTIONS * config["pointers"] + config["notes"] + SPAWN_ALL else 1


@inline
def open_child(domain: LongSeqState, stack: CallStack, i: int, action: int, k: int) -> int:
    """One half of the span (pairs: of the longer of the two)."""
    config = domain.config[0]
    depth = stack.episodes[i]["depth"]
    parent, child = domain.frames[i, depth], domain.frames[i, depth + 1]
    spawn = action - SYMBOLS - PAGE_ACTIONS * config["pointers"] - config["notes"]
    slot = k if spawn == SPAWN_ALL else spawn
    child["lo"], child["hi"], child["lo2"], child["hi2"] = halve(parent["lo"], parent["hi"], parent["lo2"], parent["hi2"], slot)
    child["slot"] = slot
    clear(domain, i, depth + 1)
    return frame_budget(config["records"], child)


@inline
def resolve(domain: LongSeqState, stack: CallStack, i: int) -> int:
    """Once the whole answer is written: whether it is right."""
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    if frame["n_written"] < N_PLACES[domain.task[i]["kind"]]:
        return RUNNING
    right = is_right(domain, i, domain.symbols[i, depth, WRITTEN:LEFT], frame["lo"], frame["hi"], frame["lo2"], frame["hi2"])
    return SUCCESS if right else FAILURE


@inline
def half_size(frame: Any) -> float:
    """How much a frame's first half counts: its records (pairs: pairs of records)."""
    lo, hi, lo2, hi2 = halve(frame["lo"], frame["hi"], frame["lo2"], frame["hi2"], 0)
    return float(hi - lo) * (hi2 - lo2) if hi2 > lo2 else float(hi - lo)


@inline
def with_child(frame: Any, slot: int, covered: float) -> float:
    """What a half counts as, of which a child has covered so much.

    Piece by piece only where nothing was covered before; after that all or nothing. What one of several independent children adds must
    not depend on what the others do.
    """
    half = half_size(frame)
    noted = min(frame["noted"], half)
    if slot == 0:
        size, known = half, max(frame["covered0"], noted)
    else:
        size, known = size_of(frame) - half, max(frame["covered1"], frame["noted"] - noted)
    return covered if known == 0.0 or covered >= size else known


@inline
def cover(frame: Any, left: float, right: float) -> float:
    """How much of a frame's span is covered, its halves to `left` and `right`; notes cover it from the beginning."""
    noted = min(frame["noted"], half_size(frame))
    return max(left, noted) + max(right, frame["noted"] - noted)


@inline
def receive(domain: LongSeqState, stack: CallStack, i: int, success: bool) -> None:
    """Keep the child's answer, right or wrong: nobody tells which."""
    depth = stack.episodes[i]["depth"]
    parent, child = domain.frames[i, depth], domain.frames[i, depth + 1]
    complete = child["n_written"] == N_PLACES[domain.task[i]["kind"]]
    at = LEFT if child["slot"] == 0 else RIGHT
    for place in range(PLACES):
        domain.symbols[i, depth, at + place] = domain.symbols[i, depth + 1, WRITTEN + place] if complete else 0
    covered = size_of(child) if success else cover(child, child["covered0"], child["covered1"])
    if child["slot"] == 0:
        parent["state0"] = ANSWERED if complete else SILENT
        parent["covered0"] = with_child(parent, 0, covered)
    else:
        parent["state1"] = ANSWERED if complete else SILENT
        parent["covered1"] = with_child(parent, 1, covered)


@inline
def progress(domain: LongSeqState, stack: CallStack, i: int) -> float:
    """The share of the sequence (pairs: of its pairs of records) that right answers and right running notes cover."""
    depth = stack.episodes[i]["depth"]
    covered = 0.0
    for k in range(depth + 1):
        frame = domain.frames[i, depth - k]
        left, right = frame["covered0"], frame["covered1"]
        if k > 0 and domain.frames[i, depth - k + 1]["slot"] == 0:
            left = with_child(frame, 0, covered)
        elif k > 0:
            right = with_child(frame, 1, covered)
        covered = cover(frame, left, right)
        if k == 0 and frame["n_written"] == N_PLACES[domain.task[i]["kind"]]:
            # The root, or a detached child, at its end: any other frame has handed its answer back by now.
            written = domain.symbols[i, depth, WRITTEN:LEFT]
            if is_right(domain, i, written, frame["lo"], frame["hi"], frame["lo2"], frame["hi2"]):
                covered = size_of(frame)
    return covered / size_of(domain.frames[i, 0])


# -- observation -------------------------------------------------------------------------------------------------------------------


@lean
def show(domain: LongSeqState, task: npt.NDArray[np.int8], i: int, lo: int, hi: int, at: int) -> None:
    """Copy the records [lo, hi) to the window from its record number `at` on."""
    config = domain.config[0]
    given = config["questions"] > 0
    row = 0 if given else i
    keys, values = domain.keys[row], domain.values[row]
    to_keys = AT_NOTE + PLACES * config["notes"] + at
    to_values = to_keys + config["records"]
    for k in range(hi - lo):
        task[to_keys + k] = keys[lo + k]
    for k in range(hi - lo):
        task[to_values + k] = values[lo + k]
    if given:
        offsets = domain.offsets[domain.task[i]["row"]]
        hits = domain.hits[0]
        for j in range(N_KEYS[domain.task[i]["kind"]]):
            for digit in range(DIGITS):
                end = offsets[j * DIGITS + digit + 1]
                k = lower_bound(hits, offsets[j * DIGITS + digit], end, lo)
                while k < end and hits[k] < hi:
                    task[to_keys + hits[k] - lo] = domain.codes[i, j] + 1
                    task[to_values + hits[k] - lo] = digit
                    k += 1


@inline
def pane(config: Any, frame: Any, pointer: int) -> tuple[int, int]:
    """The records [lo, hi) that `pointer` shows, (0, 0) for none, of a frame whose span does not fit."""
    lo, hi = frame["lo"], frame["hi"]
    page = frame["page"]
    if pointer == 1:
        page = frame["page2"]
        if frame["hi2"] > frame["lo2"]:
            lo, hi = frame["lo2"], frame["hi2"]
        elif page == CLOSED:
            return 0, 0
    if page == CLOSED:
        return lo, min(hi, lo + PREVIEW)
    size = config["records"] // config["pointers"]
    return lo + page * size, min(hi, lo + (page + 1) * size)


@inline
def observe(domain: LongSeqState, stack: CallStack, obs: Observation, i: int) -> None:
    """Question, flags, note, answer so far, records; children's answers."""
    config = domain.config[0]
    records = config["records"]
    depth = stack.episodes[i]["depth"]
    frame = domain.frames[i, depth]
    symbols = domain.symbols[i, depth]
    task, results = obs.task[i], obs.results[i]
    task[:] = 0
    results[:] = 0
    task[AT_KIND + domain.task[i]["kind"]] = 1
    for j in range(PLACES):
        task[AT_CODES + j] = domain.codes[i, j] + 1
    if fits(records, frame):
        task[AT_FITS] = 1
        show(domain, task, i, frame["lo"], frame["hi"], 0)
        if frame["hi2"] > frame["lo2"]:
            show(domain, task, i, frame["lo2"], frame["hi2"], records // 2)
    else:
        two = config["pointers"] == 2 or frame["hi2"] > frame["lo2"]
        for pointer in range(2 if two else 1):
            lo, hi = pane(config, frame, pointer)
            # One pointer's page of pairs fills the window, and leaves no room for the second span's preview.
            if pointer == 0 or config["pointers"] == 2 or frame["page"] == CLOSED:
                show(domain, task, i, lo, hi, pointer * (records // 2))
        for pointer in range(config["pointers"]):
            page = frame["page"] if pointer == 0 else frame["page2"]
            if page != CLOSED:
                task[AT_PAGES + PAGE_FLAGS * pointer] = 1
                task[AT_PAGES + PAGE_FLAGS * pointer + 1] = page == 0
                task[AT_PAGES + PAGE_FLAGS * pointer + 2] = page == page_count(config, frame, pointer) - 1
        if frame["fresh"] > 0:
            task[AT_FRESH + frame["fresh"] - 1] = 1
    for place in range(PLACES):
        if symbols[WRITTEN + place] > 0:
            task[AT_WRITTEN + place * SYMBOLS + symbols[WRITTEN + place] - 1] = 1
        if symbols[NOTE + place] > 0:
            task[AT_NOTE + place * config["notes"] + symbols[NOTE + place] - 1] = 1
        for child in range(CHILDREN):
            symbol = symbols[LEFT + child * PLACES + place]
            if symbol > 0:
                results[child * PER_CHILD + 1 + place * SYMBOLS + symbol - 1] = 1
    results[0] = frame["state0"] == SILENT
    results[PER_CHILD] = frame["state1"] == SILENT


implement(
    LongSeqState,
    begin=begin,
    allowed=allowed,
    act=act,
    fanout=fanout,
    open_child=open_child,
    resolve=resolve,
    receive=receive,
    observe=observe,
    progress=progress,
)


# -- for Python --------------------------------------------------------------------------------------------------------------------


@jit
def exact_symbol(domain: LongSeqState, i: int, place: int, lo: int, hi: int, lo2: int, hi2: int) -> int:
    """`symbol_of`, to be called from Python."""
    return symbol_of(domain, i, place, lo, hi, lo2, hi2)


def exact(domain: LongSeqState, i: int, lo: int, hi: int, lo2: int = 0, hi2: int = 0) -> tuple[int, ...]:
    """The symbols of the exact answer to instance `i`'s question for a span (pairs: two)."""
    places = QUERIES[int(domain.task["kind"][i])].places
    return tuple(int(exact_symbol(domain, i, place, lo, hi, lo2, hi2)) for place in range(places))


def plain(kernel: Any) -> Any:
    """A kernel as an ordinary Python function."""
    return getattr(kernel, "py_func", kernel)


def spans_of(frame: Any) -> tuple[int, int, int, int]:
    """A frame's span, and its second (0, 0 where it has none)."""
    return int(frame["lo"]), int(frame["hi"]), int(frame["lo2"]), int(frame["hi2"])


def panes(records: int, pointers: int, frame: Any) -> list[tuple[int, int]]:
    """The stretches of the sequence that a window of so many records shows of a frame: what `observe` does, for pictures."""
    lo, hi, lo2, hi2 = spans_of(frame)
    if plain(fits)(records, frame):
        return [(lo, hi), (lo2, hi2)] if hi2 > lo2 else [(lo, hi)]
    config = {"records": records, "pointers": pointers}
    shown = []
    for pointer in range(2 if pointers == 2 or hi2 > lo2 else 1):
        if pointer == 0 or pointers == 2 or frame["page"] == CLOSED:
            start, end = plain(pane)(config, frame, pointer)
            if end > start:
                shown.append((int(start), int(end)))
    return shown
