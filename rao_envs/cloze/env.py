"""`RAO/LongSeq-cloze`: which word comes next, where the only evidence lies thousands of words earlier in a real text."""

from __future__ import annotations

from rao_envs.longseq.env import LongSeqEnv, LongSeqVectorEnv
from rao_envs.longseq.language import ClozeDomain


class ClozeEnv(LongSeqEnv):
    """Predict a masked word of a real text of up to 10,000 words through a window of 2,000 tokens.

    ## Description
    The language-modelling member of the long sequences (MISSION: "long-sequence language modelling"). The phrase of three words before the
    masked one has occurred exactly once within reach, at least 2,000 words earlier, and was followed there by the same word; no shorter
    way leads to the answer. The sequence is the text up to the phrase, one record per word: its key is a hash of the word, its digit the class,
    0 to 9, of the word that follows it. The question is a needle: the class of the word after the one record with the question's
    key, the end of the earlier phrase. There are ten candidates, one of each class, chosen so that their frequency and their neighbours tell
    nothing: guessers by word frequency, by bigrams of the window, of the whole text or of other texts are right 7 to 13 % of the
    time. The environment recognises the phrase, so that what is measured is recall over a long reach.

    Texts come with the package (licences, which may be copied verbatim): `split="train"` has 1,500 places in the GNU General and Lesser
    General Public Licenses, `split="test"` 1,050 in the GNU Free Documentation License, the Mozilla Public Licenses, the Apache License and
    CC0. No document is in both. A reset draws a place, `reset(options={"question": k})` picks one.

    ## Action space, observation space, rewards, endings
    Those of `LongSeqEnv`, with needle as the only kind of question.

    ## Registered ids
    `RAO/LongSeq-cloze-v0` (the training texts) and `RAO/LongSeq-cloze-test-v0` (the others).

    Args:
        **kwargs: those of `rao_envs.longseq.language.ClozeDomain` (`split`, `reach`, `distance`, `phrase`, `window`, `pointers`, `notes`,
            `finer`, `document`, `text`) and of `RecursiveEnv` (`spawn`, `feedback`, `budget`, `max_depth`, `render_mode`).
    """

    domain_class = ClozeDomain  # type: ignore[assignment]
    domain: ClozeDomain


class ClozeVectorEnv(LongSeqVectorEnv):
    """Any number of masked words at once; everything else as `ClozeEnv`."""

    domain_class = ClozeDomain  # type: ignore[assignment]
