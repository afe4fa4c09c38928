"""Cleaning as a chain of ``tokenizers`` normalizers, so that ``tokenizer.json`` holds all of it."""

from __future__ import annotations

from tokenizers import Regex, normalizers

from elmokit.text.settings import TextConfig

_ENTITIES = {
    "quot": '"', "apos": "'", "nbsp": " ", "mdash": " - ", "ndash": "-", "hellip": "...",
    "lsquo": "'", "rsquo": "'", "ldquo": '"', "rdquo": '"', "pound": "£", "euro": "€", "cent": "¢",
    "copy": "©", "reg": "®", "trade": "™", "deg": "°", "middot": "·", "bull": "•",
    "eacute": "é", "egrave": "è", "aacute": "á", "oacute": "ó", "iacute": "í", "uacute": "ú",
    "ntilde": "ñ", "ccedil": "ç", "auml": "ä", "ouml": "ö", "uuml": "ü", "szlig": "ß",
}  # fmt: skip
_NUMBERED = {
    34: '"', 36: "$", 38: "&", 39: "'", 40: "(", 41: ")", 60: "<", 62: ">", 91: "[", 92: " ",
    93: "]", 96: "'", 133: "...", 145: "'", 146: "'", 147: '"', 148: '"', 150: "-", 151: " - ",
    153: "™", 160: " ", 163: "£", 169: "©", 174: "®", 176: "°", 224: "à", 225: "á", 227: "ã",
    228: "ä", 231: "ç", 232: "è", 233: "é", 234: "ê", 237: "í", 239: "ï", 241: "ñ", 243: "ó",
    246: "ö", 250: "ú", 252: "ü", 8211: "-", 8212: " - ", 8216: "'", 8217: "'", 8220: '"',
    8221: '"', 8226: "•", 8230: "...", 8364: "€", 8482: "™",
}  # fmt: skip

# Each pattern has a literal part without case folding: the engine jumps to it instead of trying every
# position, which makes the whole chain several times faster.
_CONTRACTIONS = (
    ("’", "'"),
    (r"\b[wW]on't\b", "will not"),
    (r"\b[cC]an't\b", "can not"),
    (r"\b[sS]han't\b", "shall not"),
    (r"\bWON'T\b", "WILL NOT"),
    (r"\bCAN'T\b", "CAN NOT"),
    (r"\bSHAN'T\b", "SHALL NOT"),
    (r"\b[aA]in't\b", "is not"),
    (r"n't\b(?<=\p{L}n't)", " not"),
    (r"N'T\b(?<=\p{L}N'T)", " NOT"),
    (r"\b[lL]et's\b", "let us"),
    (
        r"'s\b(?<=\b[iI]t's|\b[hH]e's|\b[sS]he's|\b[tT]hat's|\b[wW]hat's|\b[wW]ho's"
        r"|\b[wW]here's|\b[tT]here's|\b[hH]ere's|\b[hH]ow's)",
        " is",
    ),
    (r"'re\b(?<=\p{L}'re)", " are"),
    (r"'ve\b(?<=\p{L}'ve)", " have"),
    (r"'ll\b(?<=\p{L}'ll)", " will"),
    (r"'d\b(?<=\b[iI]'d|[yY]ou'd|[hH]e'd|[iI]t'd|[wW]e'd|[tT]hey'd)", " would"),
    (r"'m\b(?<=\b[iI]'m)", " am"),
)

# Atomic groups and bounded repeats: a megabyte without a space must not make a pattern backtrack.
_URLS = (
    r"(?:https?://|ftp://|\bwww\.)[^\s<>\"]{0,2000}[\p{L}\p{N}/#=&_-]",
    r"(?<![\w.+-])(?>[\w.+-]{1,64})@(?>[\w-]{1,63})(?>(?:\.[\w-]{1,63})+)",
)
_CONTROL = r"[\p{Cc}&&[^\t\n\r]]|[\u200B\u2060\uFEFF\uFFF9-\uFFFB]"


def _repairs() -> list[normalizers.Normalizer]:
    """Undo what feeds do to text: entities (also incomplete ones), tags, stray backslashes."""
    replace = normalizers.Replace
    spellings: dict[str, list[str]] = {}
    for number, text in _NUMBERED.items():
        spellings.setdefault(text, []).append(rf"#(?:0*{number}|[xX]0*(?:{number:x}|{number:X}));")
    for name, text in _ENTITIES.items():
        spellings.setdefault(text, []).append(rf"{name};")
    return [
        replace("&amp;", "&"),
        # Feeds lose the ampersand: "company #39;s", "quot;yes quot;". A space takes its place.
        replace(Regex(r"\s?&?#0?39;(?=(?:s|t|re|ve|ll|d|m)\b)"), "'"),
        replace(Regex(r"#(?=x?\d{2,4};)(?<!&#)"), "&#"),
        replace(Regex(r"\bquot;(?<!&quot;)"), '"'),
        replace(Regex(r"\bamp;(?<!&amp;)"), "&"),
        replace(Regex(r"\b[lg]t;(?<!&lt;|&gt;)"), " "),
        *(replace(Regex(f"&(?:{'|'.join(names)})"), text) for text, names in spellings.items()),
        replace("&lt;", "<"),
        replace("&gt;", ">"),
        replace(Regex(r"</?(?!(?:url|unk)>)[a-zA-Z][^<>\n]{0,200}>"), " "),
        replace("\\", " "),
    ]


def normalizer(config: TextConfig) -> normalizers.Normalizer:
    """The normalizer for the switches of ``config``, in a fixed order."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(_CONTROL), " ")]
    if config.unicode != "none":
        steps.append({"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}[config.unicode]())
    if config.mend:
        steps += _repairs()
    if config.urls:
        steps += [normalizers.Replace(Regex(pattern), "<url>") for pattern in _URLS]
    if config.contractions:
        steps += [normalizers.Replace(Regex(pattern), text) for pattern, text in _CONTRACTIONS]
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if config.punctuation == "remove":
        steps += [
            # U.S. is us; company's is company s; O'Neill is ONeill; any other mark is a space.
            normalizers.Replace(Regex(r"\.(?<=\b\p{L}\.)(?=\p{L}\.)"), ""),
            normalizers.Replace(Regex(r"['’](?=\p{L}{2})(?<=\p{L}['’])"), ""),
            # <url> and <unk> are words, not marks.
            normalizers.Replace(
                Regex(r"(?>[\p{P}\p{S}&&[^<>]]+)\u200D?|<(?!(?:url|unk)>)|>(?<!<url>|<unk>)"), " "
            ),
        ]
    return normalizers.Sequence(steps)
