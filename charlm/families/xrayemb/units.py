"""How XRayEmb reads text for tasks and predictors: units are pieces of its tokenizer and selected words (section 2).

Fine-tuning tasks and the predictor read text through it. Open it to change how selected words enter a batch. A policy
selects the words. A selected word is one position, whatever its number of pieces, so sequences get shorter.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import jax

from charlm.core.flops import TotalLengths, lengths_of, text_lengths
from charlm.core.types import Params
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.spellings import Spellings, spelling_slots
from charlm.families.spelled.units import SpelledUnits
from charlm.families.subword.flops import bert_forward
from charlm.families.units import Encoded, words_at
from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.conversion import chars_of
from charlm.families.xrayemb.flops import xr_encoder_forward
from charlm.families.xrayemb.model import XRayEmbBert, XRayEmbConfig, XRayEmbGPT2, XRayEmbGPT2Config
from charlm.families.xrayemb.policies import Policy, get_policy, is_random, no_words, text_rng
from charlm.families.xrayemb.words import Collapsed, XRayWords
from charlm.nn.apply import applied
from charlm.text.subwords import Subwords

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

EVALUATION = (0,)  # seed of a policy that draws outside of training


class XRayEmbUnits(SpelledUnits):
    """Reads text as pieces and words by the tokenizer's template; with GPT-2, with the end-of-text token.

    A unit is the id of a piece, or -1 - n for word n. A given word has several units if it is not selected, or if only
    a part of it is (BERT separates punctuation). The first unit carries the word's label; with GPT-2 it is the last,
    whose state has read the whole word, unless the model's config says the first. Words are kept as long as this
    object; see `fresh`.

    Args:
      pretrained: the model.
      longest: see `charlm.families.lookup.units_of`.
      policy: the policy of training; None: the one in the model's config.
      eval_policy: the policy outside of training; None: `policy` if that is given, else the one in the model's config;
        in both cases "none" replaces a training policy that draws words.

    Attributes:
      policy: the policy in use: outside of training, or in copies that `training` returns, that of training.

    Raises:
      ValueError: there is no tokenizer or no such policy, or the tokenizer or the characters do not fit the model.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        longest: int = 0,
        policy: str | Policy | None = None,
        eval_policy: str | Policy | None = None,
    ) -> None:
        super().__init__(pretrained, longest)
        encoder, chars = pretrained.config.encoder, chars_of(pretrained)
        if chars.size != encoder.char_vocab_size:
            raise ValueError(
                f"{pretrained.folder}: {chars.size} characters, but the model has rows for {encoder.char_vocab_size}: "
                "they do not belong together"
            )
        self.words = XRayWords(self._tokenizer)
        self.spellings = Spellings(chars, encoder.char_slots, word_rows)
        # If padding is read as a character, the slots of a table change the vectors, so there is only one table.
        slots = encoder.char_slots
        self.buckets = (slots,) if encoder.compat_padding else spelling_slots(slots)
        self._learning = get_policy(pretrained.config.policy if policy is None else policy)
        if eval_policy is None and policy is None:
            eval_policy = pretrained.config.eval_policy or None
        if eval_policy is None:
            self.policy = no_words if is_random(self._learning) else self._learning
        else:
            self.policy = get_policy(eval_policy)
        self._seed: tuple[int, ...] = EVALUATION
        self.draws = is_random(self._learning)

    def training(self, seed: int, epoch: int) -> Self:
        """Returns units that use the policy of training; its draws depend only on seed, epoch and text."""
        other = copy.copy(self)
        other.policy, other._seed = self._learning, (1, seed, epoch)
        return other

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the pieces and words of texts."""
        texts = list(texts)
        return [
            self._read(item, [text], False)
            for item, text in zip(self._tokenizer.encode_batch(texts), texts, strict=True)
        ]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the pieces and words of given words; no two given words are joined."""
        sentences = [list(words) for words in sentences]
        items = self._tokenizer.encode_words_batch(sentences)
        return [self._read(item, words, True) for item, words in zip(items, sentences, strict=True)]

    def _read(self, item: Subwords, texts: Sequence[str], given: bool) -> Encoded:
        found = self.collapse(item, texts, given)
        inner = [place for place, special in enumerate(found.special) if not special]
        content = self.spellings.codes([found.items[place] for place in inner])
        offsets = tuple(found.offsets[place] for place in inner)
        return Encoded(content, offsets, words_at(found.words, inner) if given else None)

    def collapse(self, item: Subwords, texts: Sequence[str], given: bool = False) -> Collapsed:
        """Returns an encoded text, or encoded given words, with the selected words as one position each."""
        rng = text_rng(self._seed, *texts) if is_random(self.policy) else None
        return self.words.collapse(item, self.policy, rng, given=given)

    def forward_flops(self, config: XRayEmbConfig, inputs: SpelledBatch) -> float:
        """Returns the operations of the encoder over the distinct words plus those of the backbone."""
        words = sum((lengths_of(chars) for chars in inputs.chars), TotalLengths())
        return xr_encoder_forward(config.encoder, words) + bert_forward(config, text_lengths(inputs.mask_SBL))

    def states(self, config: XRayEmbConfig, params: Params, inputs: SpelledBatch) -> jax.Array:
        """Returns the states of the last layer; see `Units.states`."""
        causal = isinstance(config, XRayEmbGPT2Config)
        backbone, model = ("gpt2", XRayEmbGPT2(config)) if causal else ("bert", XRayEmbBert(config))
        encoder = {name: params[name] for name in (backbone, "xr_enc")}
        return applied(model, {"params": encoder})(inputs).states_BLD
