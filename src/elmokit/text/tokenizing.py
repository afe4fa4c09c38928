"""Split raw text into sentences and words; the word pipeline is saved whole as ``tokenizer.json``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from elmokit.core.errors import FRESH, ConfigError, DataError, ModelError
from elmokit.text.cleaning import normalizer
from elmokit.text.settings import TextConfig

Text = str | Sequence[str]
"""A raw text, or a text that is already a list of words."""

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
        r"[\p{Han}\p{Hiragana}\p{Katakana}]",  # scripts without spaces: each character is a word
        rf"(?>{_LETTER}+(?:[-‐'’](?!{_CLITIC}){_LETTER}+)*)",
        r"(?>\.{2,}|-{2,})",
        r"[^\s\p{M}](?>(?:\p{M}|\u200D\p{So}|[\x{1F3FB}-\x{1F3FF}])*)",  # other marks, one by one
    )
)

_SENTENCE_END = re.compile(r"""(?:[.!?…]+|[。！？।؟])["'’”»)\]]*""")
_NEXT = re.compile(r"\s*(.{0,2})", re.DOTALL)
_ABBREVIATIONS = {
    "mr", "mrs", "ms", "dr", "prof", "rev", "gen", "col", "lt", "sgt", "capt", "st", "sr", "jr", "vs",
    "etc", "inc", "ltd", "co", "corp", "no", "vol", "fig", "al", "eg", "ie", "jan", "feb", "mar", "apr",
    "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "approx", "dept", "est", "gov", "sen",
    "rep", "mt",
}  # fmt: skip


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON and file names can hold, by the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@functools.cache
def _word_splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)


class TextPipeline:
    """Cleans texts and splits them into words. The same text always gives the same words.

    >>> TextPipeline(TextConfig()).words("The U.S. didn't sell 1,000 shares.")
    ['The', 'U.S.', 'did', "n't", 'sell', '1,000', 'shares', '.']
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self._normalizer = normalizer(config)
        self._splitter: pre_tokenizers.PreTokenizer = (
            pre_tokenizers.WhitespaceSplit() if config.tokens == "whitespace" else _word_splitter()
        )

    def words(self, text: str) -> list[str]:
        """The cleaned words of one text."""
        text = replace_surrogates(text)
        spans = self._splitter.pre_tokenize_str(self._normalizer.normalize_str(text))
        return [word for word, _ in spans]

    def word(self, word: str) -> str:
        """One word, cleaned but not split; unchanged if cleaning leaves nothing."""
        return self._normalizer.normalize_str(replace_surrogates(word)).strip() or word

    def tokenizer(self, model: models.Model) -> Tokenizer:
        """A tokenizer that runs this pipeline before ``model``."""
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = self._normalizer
        tokenizer.pre_tokenizer = self._splitter
        return tokenizer

    def word_tokenizer(self, words: Sequence[str]) -> Tokenizer:
        """A tokenizer that maps each of ``words`` to its index, and every other word to ``<unk>``."""
        vocabulary = {word: index for index, word in enumerate(words)}
        return self.tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS[UNK]))

    def frequent_words(self, texts: Iterable[str], *, at_most: int, min_count: int) -> list[str]:
        """The distinct words of ``texts``: specials, then by descending count (ties by spelling)."""
        counter = self.tokenizer(models.WordLevel({}, unk_token=SPECIALS[UNK]))
        trainer = trainers.WordLevelTrainer(
            vocab_size=at_most, min_frequency=min_count, show_progress=False, special_tokens=[]
        )
        counter.train_from_iterator(texts, trainer)
        ids = counter.get_vocab(with_added_tokens=False)
        words = sorted(ids, key=ids.__getitem__)
        return [*SPECIALS, *(word for word in words if word not in SPECIALS)]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    """Word ids of each text. Control words in the text itself become ``<unk>``."""
    encoded = []
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        ids = np.asarray(encoding.ids, dtype=np.uint32)
        ids[ids < len(SPECIALS)] = UNK
        encoded.append(ids)
    return encoded


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json``."""
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception for a bad file
        raise ModelError(f"{path} cannot be read as a tokenizer file: {error}", remedy=FRESH) from error


class Tokenized(list[str]):
    """The words of ``text``, made by the model's own pipeline; ``tokenize_texts`` leaves them as they are."""

    def __init__(self, words: Iterable[str], text: Text) -> None:
        super().__init__(words)
        self.source, self.text = text, text if isinstance(text, str) else " ".join(text)


class PlacedWords(list[str]):
    """The words of ``text`` as they stand in it.

    Attributes:
        offsets: Of each word, its first character and its end.
        mark: Only the words from ``mark[0]`` to before ``mark[1]`` are what a head reads; empty for all.
        answers: The true answers to a question, to measure by.
    """

    mark: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()

    def __init__(self, words: Iterable[str], text: str, offsets: Sequence[tuple[int, int]]) -> None:
        super().__init__(words)
        self.text, self.offsets = text, offsets

    @classmethod
    def split(cls, text: str) -> PlacedWords:
        """Split a raw text by the rules of the ``plain`` pipeline.

        >>> PlacedWords.split("Rates rose.").offsets
        [(0, 5), (6, 10), (10, 11)]
        """
        text = replace_surrogates(text)
        spans = _word_splitter().pre_tokenize_str(text)
        return cls([word for word, _ in spans], text, [place for _, place in spans])

    @classmethod
    def of(cls, text: Text) -> PlacedWords:
        """The words of any text: raw, given as words, or tokenized from either."""
        text = getattr(text, "source", text)
        if isinstance(text, PlacedWords):
            return text
        return cls.split(text) if isinstance(text, str) else cls.join(text)

    @classmethod
    def join(cls, words: Iterable[str]) -> PlacedWords:
        """Words that are given, as a text with spaces between them."""
        words, offsets, end = list(words), list[tuple[int, int]](), -1
        for word in words:
            offsets.append((end + 1, end + 1 + len(word)))
            end = offsets[-1][1]
        return cls(words, " ".join(words), offsets)

    def between(self, start: int, end: int) -> tuple[tuple[int, int] | None, str]:
        """The words with characters from ``start`` to before ``end``: the first, and that after the last.

        Also a remark if there is none, or if they have further characters.

        >>> PlacedWords.split("Rates rose.").between(6, 8)
        ((1, 2), '6 to 8 cuts a word; 6 to 10 is used')
        """
        inside = [place for place, (first, last) in enumerate(self.offsets) if first < end and last > start]
        if not inside:
            return None, f"{start} to {end} holds no word"
        first, last = self.offsets[inside[0]][0], self.offsets[inside[-1]][1]
        is_whole = self.text[start:end].strip() == self.text[first:last]
        remark = "" if is_whole else f"{start} to {end} cuts a word; {first} to {last} is used"
        return (inside[0], inside[-1] + 1), remark


def tokenize_texts(pipeline: TextPipeline, texts: Sequence[Text]) -> list[list[str]]:
    """The cleaned words of each text. A list of words is cleaned word by word, never split or shortened."""
    check_texts(texts)
    return [
        text
        if isinstance(text, Tokenized)
        else pipeline.words(text)
        if isinstance(text, str)
        else [pipeline.word(word) for word in text]
        for text in texts
    ]


def check_texts(texts: Iterable[Any], *, allow_words: bool = True) -> None:
    """Raise an error unless ``texts`` is a list of strings or, if allowed, of lists of words."""
    if isinstance(texts, str):
        raise ConfigError(
            "A list of texts is needed, not a single string.", remedy="Put it in a list: [text]."
        )
    reject_table(texts)
    for index, text in enumerate(texts):
        is_words = allow_words and isinstance(text, Sequence) and all(isinstance(word, str) for word in text)
        if not isinstance(text, str) and not is_words:
            expected = "neither a string nor a list of strings" if allow_words else "not a string"
            raise DataError(
                f"Text {index} is {expected}, but {type(text).__name__}.",
                remedy="Turn missing values into empty strings first.",
            )


def reject_table(texts: object) -> None:
    """Raise an error for a table: iterating over one gives column names or rows, not texts."""
    if hasattr(texts, "columns") or getattr(texts, "ndim", 1) != 1:
        raise DataError(
            f"A list of texts is needed, not a table or a multi-dimensional array ({type(texts).__name__}).",
            remedy='Pass one column of it, as in table["text"].',
        )


def text_of(text: Text) -> str:
    """A text as one string: as it was written, if that is known; else its words, joined by spaces."""
    return text if isinstance(text, str) else str(getattr(text, "text", " ".join(text)))


def n_characters(text: Text) -> int:
    """The length of a text; 0 for a value that is not a text (rejected later)."""
    if isinstance(text, str):
        return len(text)
    return sum(len(word) for word in text if isinstance(word, str)) if isinstance(text, Sequence) else 0


def split_sentences(text: str) -> list[str]:
    """The sentences of ``text``, found by rule. Only the white space between them is dropped.

    >>> split_sentences('Mr. Fox paid $3.50. "Why?" he asked. 本当。はい。')
    ['Mr. Fox paid $3.50.', '"Why?" he asked.', '本当。', 'はい。']
    """
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.group()[0] in "。！？" or _ends_sentence(text, start, match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return list(filter(None, sentences))


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether this punctuation, in a sentence that began at ``start``, ends it."""
    end = match.end()
    if end < len(text) and not text[end].isspace():
        return False  # 3.50, example.org
    following = _NEXT.match(text, end)[1].lstrip("\"'“‘«([")  # type: ignore[index]
    if following and following[0].islower():
        return False
    if not following or match.group()[0] != ".":
        return True
    before = text[start : match.start()].rsplit(None, 1)[-1:] or [""]
    word = before[0].lower().lstrip("(\"'“‘")
    short = all(len(part) <= 2 for part in word.split("."))  # J. or e.g.
    is_initials = word[:1].isalpha() and short and (len(word) == 1 or "." in word)
    return word not in _ABBREVIATIONS and not is_initials
