"""Tables in other programs' formats: there and back, and what is wrong with bad ones."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from elmokit.core.errors import ConfigError, DataError, RunError
from elmokit.static.exchange import export_vectors, import_vectors
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS

NAMES = ["v.txt", "v.vec", "v.bin"]


def make() -> WordVectors:
    words = ["the", "Cat", "naïve", "日本", "n't", "\u00a0", "#", "1"]
    rows = np.random.default_rng(0).normal(size=(len(words), 3)).astype(np.float32)
    rows[0] = [1e-30, -3.4e38, 1 / 3]
    return WordVectors.of(words, rows, TextConfig())


def binary(rows: list[tuple[bytes, list[float]]]) -> bytes:
    dim = len(rows[0][1])
    body = b"".join(word + b" " + struct.pack(f"<{dim}f", *row) for word, row in rows)
    return f"{len(rows)} {dim}\n".encode() + body


@pytest.mark.parametrize("name", NAMES)
def test_export_and_import_give_the_same_bits(tmp_path: Path, name: str) -> None:
    export_vectors(tmp_path / name, make())
    imported = import_vectors(tmp_path / name)
    assert imported.vocabulary.words == make().vocabulary.words
    assert np.array_equal(imported.vectors, make().vectors)
    assert imported.text == TextConfig()  # there is an upper-case letter in it
    assert (imported.training["method"], imported.training["file"]) == ("import", name)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert import_vectors(packed).fingerprint == imported.fingerprint
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="decompressed"):
        import_vectors(packed)


def test_special_rows_that_are_not_zero_survive(tmp_path: Path) -> None:
    table = WordVectors.of(["</s>", "a", "unk"], [[1.0], [2.0], [3.0]], TextConfig())
    export_vectors(tmp_path / "v.txt", table)
    assert (tmp_path / "v.txt").read_text() == "3 1\n</s> 1.0\n<unk> 3.0\na 2.0\n"
    assert import_vectors(tmp_path / "v.txt").vectors.ravel().tolist() == [0, 3, 0, 1, 2]


def test_line_ends_trailing_spaces_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "v.vec"
    file.write_bytes(b"2 2\r\ncat 1 2 \r\n\r\ndog -3.5e0 4\r\n\r\n")
    imported = import_vectors(file)
    assert imported.vocabulary.words[4:] == ["cat", "dog"]
    assert imported.vectors[4:].tolist() == [[1, 2], [-3.5, 4]]
    assert imported.text.lowercase


def test_words_with_spaces_are_left_out_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("cat 1 2\n. . . 3 4\nat me@x.org 5 6\ndog 7 8\n")
    imported = import_vectors(file)
    assert imported.vocabulary.words[4:] == ["cat", "dog"]
    assert imported.training["n_left_out"] == 2


def test_original_word2vec_puts_line_ends_after_vectors_and_gensim_does_not(tmp_path: Path) -> None:
    rows = [("ca\u00f1a".encode(), [1.0, 2.0]), (b"dog", [3.0, 4.0])]
    with_ends = [(b"\n" * (number > 0) + word, row) for number, (word, row) in enumerate(rows)]
    for some, end in ((rows, b""), (with_ends, b"\n")):
        (tmp_path / "v.bin").write_bytes(binary(some) + end)
        imported = import_vectors(tmp_path / "v.bin")
        assert imported.vocabulary.words[4:] == ["ca\u00f1a", "dog"]
        assert imported.vectors[4:].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_only_the_first_words_are_read_if_so_wanted(tmp_path: Path, name: str) -> None:
    export_vectors(tmp_path / name, make())
    imported = import_vectors(tmp_path / name, max_words=3)
    assert imported.vocabulary.words == [*SPECIALS, "the", "Cat"]
    assert import_vectors(tmp_path / name, max_words=100).n_words == 8


def test_other_encodings_and_odd_bytes(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(b"caf\xe9 1 2\n")
    (tmp_path / "v.bin").write_bytes(binary([(b"caf\xe9", [1.0, 2.0])]))
    for name in ("v.txt", "v.bin"):
        assert import_vectors(tmp_path / name, encoding="latin-1").vocabulary.words[4:] == ["café"]
        assert import_vectors(tmp_path / name, errors="ignore").vocabulary.words[4:] == ["caf"]
        with pytest.raises(DataError, match=name or "Cannot open"):
            import_vectors(tmp_path / name)
        with pytest.raises(DataError, match="klingon"):
            import_vectors(tmp_path / name, encoding="klingon")


@pytest.mark.parametrize(
    ("words", "lowers"),
    [(["cat", "日本", "1"], True), (["cat", "Dog"], False), (["cat", "UNK"], True), (["<UNK>", "a"], True)],
)
def test_words_are_lower_cased_if_the_table_has_no_capital(
    tmp_path: Path, words: list[str], lowers: bool
) -> None:
    (tmp_path / "v.txt").write_text("".join(f"{word} 1 2\n" for word in words), encoding="utf-8")
    assert import_vectors(tmp_path / "v.txt").text == TextConfig(lowercase=lowers)
    own = TextConfig(tokens="whitespace")
    assert import_vectors(tmp_path / "v.txt", text=own).text == own


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cat 1 2\ndog 3\n", "line 2: 1 numbers where 2"),
        ("cat 1 2\ndog 3 4 5\n", "line 2: 3 numbers where 2"),
        ("cat 1 2\ndog 3 nan\n", "line 2: the vector of 'dog'"),
        ("cat 1 1e60\n", "line 1: the vector of 'cat'"),
        ("cat 1 x\n", "line 1: could not convert .* 'x'"),
        ("3 2\ncat 1 2\n", "line 1: the header declares 3 words, but there are 1"),
        ("1 0\ncat\n", "line 1: there is no number"),
        ("\n \n", "is empty"),
        ("0 2\n", "contains no word vectors"),
        ("cat 1 2\ncat 3 4\n", "line 2: the word 'cat' was in line 1 already"),
        ("cat\t1\t2\n", "line 1: there is no number"),
        (" 1 2\n", "line 1: there is no word"),
    ],
)
def test_bad_text_tables_are_refused_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "v.txt"
    file.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        import_vectors(file)
    assert str(file) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begin with the number of words"),
        (b"2 3", "truncated after 0 of 2"),
        (b"2 \xff\n", "begin with the number of words"),
        ((793712314).to_bytes(4, "little") + b"\x0c\0\0\0\n" + b"\0" * 50, "begin with the number of words"),
        (binary([(b"a", [1.0, 2.0])])[:-3], "truncated after 0 of 1"),
        (binary([(b"a", [1.0]), (b"a", [2.0])]), "word 2: the word 'a' was in word 1 already"),
        (binary([(b"a", [float("nan")])]), "word 1: the vector of 'a'"),
        (binary([(b"", [1.0])]), "word 1: there is no word"),
        (b"99999999999999 300\na 123", "truncated"),
        (b"1 0\na ", "there is no number"),
    ],
)
def test_bad_binary_tables_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        import_vectors(tmp_path / "v.bin")
    assert "v.bin" in caught.value.message
    assert caught.value.remedy


def test_pickles_archives_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return (Path.touch, (tmp_path / "sprung",))

    (tmp_path / "v.kv").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "glove.zip").write_bytes(b"PK\x03\x04\x14\0\0\0\x08\0")
    for name in ("v.kv", "glove.zip", "nothing.txt", ""):
        with pytest.raises(DataError, match=name or "Cannot open"):
            import_vectors(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_export_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    for name in ("v.kv", "v", "v.txt.gz", "v.csv"):
        with pytest.raises(ConfigError, match="not the name of a word vector file"):
            export_vectors(tmp_path / name, make())
    with pytest.raises(RunError, match="Cannot write"):
        export_vectors(tmp_path / "nowhere" / "v.txt", make())
    with pytest.raises(DataError, match="contains a space"):
        export_vectors(tmp_path / "v.txt", WordVectors.of(["a b"], [[1.0]], TextConfig()))
    assert list(tmp_path.iterdir()) == []
