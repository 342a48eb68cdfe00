"""Token for token and offset for offset: lockstep's tokenizer beside Hugging Face's `tokenizers`."""

import os
import random
import unicodedata

import pytest

pytest.importorskip("tokenizers", reason="no tokenizers package to compare with")

from tokenizers import normalizers

from tokenizer_kit import HARD, KINDS, Ask, line_of, peer_answers, random_ask, their_answer, theirs, vocabulary, write_folder

pytestmark = pytest.mark.about("text")

os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture
def peer(build_dir):
    program = build_dir / "bin/text_peer"
    if not program.exists():
        pytest.skip("text_peer is not built")
    return program


@pytest.fixture(scope="module")
def tokens():
    return vocabulary()


def compare(peer, folder, asks):
    """Both answer the same; where the package refuses, so does lockstep. -> (answers, refusals)"""
    package, refused = theirs(folder), 0
    for ask, ours in zip(asks, peer_answers(peer, folder, [ask.frame() for ask in asks]), strict=True):
        wanted = their_answer(package, ask)
        if wanted.startswith("error"):
            refused += 1
            wanted, ours = "error", ours.split()[0]
        assert ours == wanted, ask
    return len(asks), refused


def test_hard_texts(peer, tokens, tmp_path):
    for kind in KINDS:
        folder = write_folder(tmp_path / "model", tokens, kind)
        assert compare(peer, folder, [Ask(text) for text in HARD])[1] == 0, kind


def what_characters_become(codes):
    """All that the package makes of these which is not what they were."""
    steps = [normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=strip, lowercase=True)
             for strip in (False, True)]
    return sorted({c for code in codes for step in steps for c in step.normalize_str(chr(code)) if c != chr(code) and not c.isspace()})


def every_character(codes):
    """Texts in which each stands inside a word, many words a text."""
    return [Ask(" ".join(f"a{chr(code)}b" for code in codes[at:at + 400]), max_length=10**6) for at in range(0, len(codes), 400)]


def check_characters(peer, tmp_path, kind, codes):
    # what is in the vocabulary shows; what is not, and stays what it is, would be unknown to both
    folder = write_folder(tmp_path / "model", vocabulary(characters=["a", "b", *what_characters_become(codes)]), kind)
    compare(peer, folder, every_character(codes))


ASSIGNED = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn"]


def test_characters_that_are_more_than_a_letter(peer, tmp_path):
    plain = {*range(0x3500, 0x9F01), *range(0xAD00, 0xD701), *range(0xE010, 0xF8F1)}  # thousands of these are alike
    check_characters(peer, tmp_path, "uncased", [code for code in ASSIGNED if code not in plain and code < 0x20010])


@pytest.mark.full
@pytest.mark.parametrize("kind", ["uncased", "cased without accents"])
def test_every_character(peer, tmp_path, kind):
    check_characters(peer, tmp_path, kind, [code for code in range(0x110000) if not 0xD800 <= code < 0xE000])


def fuzz(peer, folder, tokens, kind, count, seed):
    write_folder(folder, tokens, kind)
    draw = random.Random(f"{kind} {seed}")
    asked, refused = compare(peer, folder, [random_ask(draw) for _ in range(count)])
    assert refused < asked / 4


@pytest.mark.parametrize("count, seed", [(600, 0), pytest.param(17_000, 1, marks=pytest.mark.full)])
def test_random_strings(peer, tokens, tmp_path, count, seed):
    for kind in KINDS:
        fuzz(peer, tmp_path / "model", tokens, kind, count, seed)


def test_a_folder_that_the_package_saved_alone_is_read(peer, tokens, tmp_path):
    """Newer versions of transformers write tokenizer.json and no vocab.txt."""
    folder = write_folder(tmp_path / "model", tokens, "cased")
    package = theirs(folder)
    package.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").write_text("{}")
    for text, ours in zip(HARD, peer_answers(peer, folder, [Ask(text).frame() for text in HARD]), strict=True):
        assert ours == line_of(package.encode(text)), text


def test_tokens_that_were_added_are_found(peer, tokens, tmp_path):
    folder = write_folder(tmp_path / "model", tokens)
    package = theirs(folder)
    package.add_special_tokens(["<who>", "<who>s", "@"])
    package.save(str(folder / "tokenizer.json"))
    texts = ["a <who> b<who>s <whos @@ <wh@o>", "<WHO>", "@", "[SEP]<who>[SEP]"]
    for text, ours in zip(texts, peer_answers(peer, folder, [Ask(text).frame() for text in texts]), strict=True):
        assert ours == line_of(package.encode(text)), text
