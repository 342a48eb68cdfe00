"""lockstep's tokenizer and Hugging Face's, side by side: vocabularies, hard texts, and how each is asked."""

import dataclasses
import json
import pathlib
import random
import subprocess
import unicodedata

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TRUNCATIONS = ["longest_first", "only_first", "only_second", None]

# tokenizer_config.json of each kind of model
KINDS = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "uncased with accents": {"do_lower_case": True, "strip_accents": False},
    "cased without accents": {"do_lower_case": False, "strip_accents": True},
    "ideographs in words": {"do_lower_case": True, "tokenize_chinese_chars": False},
    "not cleaned": {"do_lower_case": True, "clean_text": False},
}


def span(first, last):
    return [chr(code) for code in range(first, last + 1) if not 0xD800 <= code < 0xE000]


def stays(character):
    """It combines with what stands before it, and is no accent: NFD may move it, and it is not taken out."""
    return unicodedata.combining(character) and unicodedata.category(character) != "Mn"


ALPHABETS = {
    "letters": span(0x61, 0x7A) * 4 + span(0x41, 0x5A),
    "ascii": span(0x00, 0x7F),
    "latin": span(0xA0, 0x24F) + span(0x1E00, 0x1EFF),
    "greek and cyrillic": span(0x370, 0x52F) + span(0x1F00, 0x1FFF),
    "marks": span(0x300, 0x36F) + span(0x483, 0x489) + span(0x591, 0x5C7) + span(0x64B, 0x65F) + span(0x1DC0, 0x1DFF),
    "marks that stay": [c for c in span(0x300, 0x1FFFF) if stays(c)] + ["\u08d4", "\u1dfb", "\U0001e944"],
    "right to left": span(0x5D0, 0x5EA) + span(0x620, 0x64A) + span(0x200E, 0x200F) + span(0x202A, 0x202E),
    "indic": span(0x900, 0x97F) + span(0xE01, 0xE4E) + span(0xF00, 0xFBC),
    "ideographs": span(0x4E00, 0x4E40) + span(0x3400, 0x3410) + span(0xF900, 0xFA2D) + span(0x2F800, 0x2F810) +
                  span(0x20000, 0x20010) + span(0x2B81E, 0x2B821),
    "kana": span(0x3040, 0x30FF) + span(0xFF00, 0xFFEF),
    "hangul": span(0xAC00, 0xAC40) + span(0x1100, 0x11FF),
    "emoji": span(0x1F600, 0x1F64F) + span(0x1F3FB, 0x1F3FF) + ["\u200d", "\ufe0f", "\u2764", "\U0001f468", "\U000e0067"],
    "controls": span(0x00, 0x1F) + span(0x7F, 0x9F) + span(0x200B, 0x206F) + ["\ufeff", "\ufffd", "\u00ad"],
    "private": span(0xE000, 0xE010) + span(0xF8F0, 0xF900) + ["\U000f0000", "\U0010fffd", "\U0010ffff"],
    "blanks": list(" \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2007\u200a\u2028\u2029\u202f\u205f\u3000"),
    "signs": list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + span(0x2010, 0x2027) + span(0x3001, 0x3011) + span(0x2E30, 0x2E52),
    "mathematics": span(0x2190, 0x22FF) + span(0x1D15E, 0x1D172) + span(0x1D400, 0x1D420),
    "capitals": list("İIΣSßẞKÅΩDŽDžLJϓϔԱႠᏸᾈÅ") + span(0x10400, 0x10410) + span(0xA7C0, 0xA7DC) + span(0x1E900, 0x1E910),
}
WORDS = SPECIALS + ["[SEP", "SEP]", "[[SEP]]", "[sep]", "##", "##a", "a" * 99, "b" * 100, "c" * 101, "É" * 100, "é" * 101]

HARD = [
    "", " ", "\0", "\0a\0b\0", "a", "A", "hello world", "Hello, World!", "naïve café", "nai\u0308ve cafe\u0301", "Ångström Å Å",
    "Straße STRASSE ẞ", "İstanbul ISTANBUL ıi", "ΣΊΣΥΦΟΣ σίσυφος ς", "Ǆ ǅ ǆ ﬁ ﬂ ½", "a\u0300\u0301\u0302b", "\u0301a", "a \u0301 b",
    "q\u0307\u0323 q\u0323\u0307", "\u0344 \u0f73\u0f71 \u0f81", "z" + "\u0335\u0321\u0342" * 40 + "algo", "가각힣 한국어 \u1100\u1161\u11a8",
    "\u302e\u302f가\u302e\u0301", "漢字かなカナ", "漢\u0301字\u0323", "a漢b字c", "豈更車 \U0002f800", "中文 and English混合text",
    "\U0002b740\U0002b81f\U0002b820\U0002b920", "שלום עולם", "שָׁלוֹם", "السَّلامُ عَلَيْكُم", "\u202eabc\u202c", "नमस्ते क़", "ภาษาไทย", "བོད་སྐད",
    "👨\u200d👩\u200d👧\u200d👦", "👍🏽 ❤\ufe0f 🏴\U000e0067\U000e0062\U000e007f", "🇩🇪🇫🇷", "a\u200bb a\u200db a\u00adb a\ufeffb", "a\x01b\x7fc\x85d",
    "a\vb\fc\x1cd", "tab\tline\nreturn\rend", "a\u00a0b\u2003c\u3000d\u2028e\u2029f", "\ue000 x\uf8ffy \U000f0000 \U0010fffd", "\ufffda\ufffd",
    "\uffff \U0010ffff \u0378", "don't stop-me_now...!?", "¿Qué? «oui» „ja“ —no—", "a\u037eb a\u1fefb a\u2260b x≮y", "1,234.56€ $5 100% 3×4=12",
    "http://example.com/a?b=c&d=e#f", "[SEP]", "a[SEP]b", "[CLS] a [SEP] b [SEP]", "[UNK][PAD][MASK]", "[sep] [Sep] [SEP ] [ SEP]",
    "[[SEP]] [SEP][SEP]x", "é[MASK]\u0301é", "漢[SEP]字", "##a ## #a", "x" * 100, "x" * 101, "x" * 5000, "é" * 100, "é" * 101, "e\u0301" * 100,
    "e\u0301" * 101, "漢" * 101, "x" * 100 + "\u0301", "x" * 99 + "É!", "x\u200b" * 101, "!" * 300, "a " * 600, "aaaa bbbb abab baba",
    "𝒜𝓑 𝟙", "\U0001d15e\U0001d15f", "\U0001d157\U0001d165\U0001d16d\u0301", "ꟃꟵ\ua7cb\ua7dc \U00010d50 \U00016ea0", "\u1734 \u166d \U000111c9",
    "\u0890 \u0898 \u061d \u2e52", "K Å Ω ` ´",
]


@dataclasses.dataclass
class Ask:
    """What is to be encoded, and how."""
    first: str
    second: str | None = None
    max_length: int = 512
    truncation: str | None = None
    special_tokens: bool = True

    def frame(self):
        first, second = self.first.encode(), None if self.second is None else self.second.encode()
        return framed(first, second, self.max_length, self.truncation, self.special_tokens)


def framed(first, second=None, max_length=512, truncation=None, special_tokens=True):
    """A request as text_peer reads it; the texts are bytes."""
    head = (max_length, TRUNCATIONS.index(truncation), int(special_tokens), len(first), -1 if second is None else len(second))
    return " ".join(map(str, head)).encode() + b"\n" + first + (second or b"")


def write_folder(folder, tokens, kind="uncased"):
    """A folder as Hugging Face has it, with that vocabulary."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(KINDS[kind]))
    return folder


def theirs(folder):
    """The package's tokenizer of a folder, put together as transformers' BertTokenizer does it."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    made = Tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(
        clean_text=config.get("clean_text", True), handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"), lowercase=config.get("do_lower_case", True))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIALS)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")])
    return made


def line_of(encoding):
    """An Encoding as text_peer prints its own."""
    columns = zip(encoding.ids, encoding.type_ids, encoding.special_tokens_mask, encoding.offsets)
    return " ".join(f"{token}:{kind}:{special}:{begin}:{end}" for token, kind, special, (begin, end) in columns)


def their_answer(package, ask):
    if ask.truncation is None:
        package.no_truncation()
    else:
        package.enable_truncation(ask.max_length, strategy=ask.truncation)
    try:
        return line_of(package.encode(ask.first, ask.second, add_special_tokens=ask.special_tokens))
    except Exception as error:  # the package's own type
        return f"error {error}"


def peer_answers(peer, folder, frames):
    """What text_peer answers to requests, line by line."""
    result = subprocess.run([peer, folder], input=b"".join(frames), capture_output=True, timeout=600)
    assert result.returncode == 0, result.stderr.decode()
    return [line.rstrip(" ") for line in result.stdout.decode().splitlines()]


def vocabulary(seed=0, characters=None):
    """The special tokens, single characters (each to begin and to go on with), and pieces of both kinds."""
    draw = random.Random(seed)
    known = sorted({c for alphabet in ALPHABETS.values() for c in alphabet if not c.isspace() and c != "\0"})
    known = characters or [c for c in known if draw.random() < 0.9]
    letters = "abcdefghij" * 3 + "ABCéüñσдшאبकあ"
    pieces = {"".join(draw.choices(letters, k=draw.randint(2, 6))) for _ in range(3000)}
    tokens = SPECIALS + known + [f"##{c}" for c in known]
    tokens += [f"##{piece}" if draw.random() < 0.5 else piece for piece in sorted(pieces)]
    return list(dict.fromkeys(tokens))


def random_text(draw):
    """Of a few alphabets, in words of all lengths."""
    alphabets = draw.choices(list(ALPHABETS.values()), k=draw.randint(1, 4)) + [ALPHABETS["letters"]]
    parts = []
    for _ in range(draw.choice((0, 1, 2, 5, 12, 30))):
        chance = draw.random()
        if chance < 0.06:
            parts.append(draw.choice(WORDS))
        elif chance < 0.1:
            parts.append(chr(draw.choice((draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)))))
        elif chance < 0.4:
            parts.append(" ")
        else:
            parts.append("".join(draw.choices(draw.choice(alphabets), k=draw.choice((1, 1, 2, 3, 4, 8)))))
    return "".join(parts)


def random_ask(draw):
    pair = draw.random() < 0.4
    special_tokens = draw.random() < 0.8
    return Ask(random_text(draw), random_text(draw) if pair else None,
               draw.choice((3, 4, 5, 8, 9, 16, 31, 64)) if draw.random() < 0.9 or special_tokens else 0,
               draw.choice(TRUNCATIONS) if draw.random() < 0.6 else None, special_tokens)
