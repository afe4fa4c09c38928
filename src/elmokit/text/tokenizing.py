"""From raw text to words: one ``tokenizers`` pipeline, saved whole as ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from elmokit.core.errors import ModelError
from elmokit.text.cleaning import normalizer
from elmokit.text.settings import TextConfig

__all__ = ["BOS", "EOS", "PAD", "SPECIALS", "UNK", "TextPipeline"]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

_CLITIC = r"(?:s|re|ve|ll|d|m|S|RE|VE|LL|D|M)(?![\p{L}\p{M}\p{N}])"
_LETTER = r"[\p{L}\p{M}\p{N}_\u200C\u200D&&[^\p{Han}\p{Hiragana}\p{Katakana}]]"
# Groups are atomic (?>...) and repeats bounded so that no text, however odd, backtracks for long.
_WORDS = "|".join(
    (
        r"<(?:unk|url)>",
        r"(?:https?://|www\.)[^\s<>\"]{0,2000}[\p{L}\p{N}/#=&_-]",  # an address is one word
        r"(?>(?:\p{L}\.){2,20})",  # U.S.
        r"\p{L}{1,20}?(?=[nN]['’][tT](?!\p{L}))",  # the do of don't
        r"[nN]['’][tT](?!\p{L})",
        rf"['’]{_CLITIC}",
        r"(?>\d+(?:[.,:/]\d+)*)(?!\p{L})",  # 1,000.50  10:30
        r"[\p{Han}\p{Hiragana}\p{Katakana}]",  # scripts without spaces: a sign is a word
        rf"(?>{_LETTER}+(?:[-‐'’](?!{_CLITIC}){_LETTER}+)*)",
        r"(?>\.{2,}|-{2,})",
        r"[^\s\p{M}](?>(?:\p{M}|\u200D\p{So}|[\x{1F3FB}-\x{1F3FF}])*)",  # other marks, one by one
    )
)


def without_surrogates(text: str) -> str:
    """Half a character (JSON can hold one) becomes the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class TextPipeline:
    """Cleaning and word-finding, as ``config`` says. The same text always gives the same words.

    >>> TextPipeline(TextConfig()).words("The U.S. didn't sell 1,000 shares.")
    ['The', 'U.S.', 'did', "n't", 'sell', '1,000', 'shares', '.']
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self._normalizer = normalizer(config)
        self._splitter: pre_tokenizers.PreTokenizer = (
            pre_tokenizers.WhitespaceSplit()
            if config.tokens == "whitespace"
            else pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
        )

    def words(self, text: str) -> list[str]:
        """The words of one text, cleaned."""
        text = without_surrogates(text)
        spans = self._splitter.pre_tokenize_str(self._normalizer.normalize_str(text))
        return [word for word, _ in spans]

    def word(self, word: str) -> str:
        """One word, cleaned but neither split nor dropped; as it was if cleaning leaves nothing."""
        return self._normalizer.normalize_str(without_surrogates(word)).strip() or word

    def tokenizer(self, model: models.Model) -> Tokenizer:
        """A tokenizer with this pipeline in front of ``model``."""
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = self._normalizer
        tokenizer.pre_tokenizer = self._splitter
        return tokenizer

    def word_tokenizer(self, words: Sequence[str]) -> Tokenizer:
        """A tokenizer that gives each of ``words`` its place in the list, and others ``<unk>``."""
        vocabulary = {word: place for place, word in enumerate(words)}
        return self.tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS[UNK]))

    def frequent_words(self, texts: Iterable[str], *, at_most: int, min_count: int) -> list[str]:
        """The distinct words of ``texts`` by falling count (ties by spelling), specials first."""
        counter = self.tokenizer(models.WordLevel({}, unk_token=SPECIALS[UNK]))
        trainer = trainers.WordLevelTrainer(
            vocab_size=at_most, min_frequency=min_count, show_progress=False, special_tokens=[]
        )
        counter.train_from_iterator(texts, trainer)
        places = counter.get_vocab(with_added_tokens=False)
        found = sorted(places, key=places.__getitem__)
        return [*SPECIALS, *(word for word in found if word not in SPECIALS)]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    """Word ids of each text; control words that stand in the text itself count as ``<unk>``."""
    encoded = []
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        ids = np.asarray(encoding.ids, dtype=np.uint32)
        ids[(ids == PAD) | (ids == BOS) | (ids == EOS)] = UNK
        encoded.append(ids)
    return encoded


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json``, or say plainly that it is damaged."""
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(
            f"Cannot read {path}: {error.strerror}.",
            remedy="A file of the folder is missing; take a fresh copy of the folder.",
        ) from error
    except Exception as error:  # the library raises bare Exception for a bad file
        raise ModelError(
            f"{path} is not a tokenizer file: {error}",
            remedy="The file is damaged or foreign; take it again from where the model came from.",
        ) from error
