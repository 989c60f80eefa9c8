#!/usr/bin/env python3
"""Writes tests/golden/tokenizer_scripts.json: what the reference tokenizer
library (tokenizers, PyPI) makes of text in many scripts.

  python3 tools/make_tokenizer_golden.py [MODEL_DIR] [OUT]

The file holds
  cases     text and ids, each text also in NFD, and odd white space
  sweep     per block of 4096 code points a hash of the ids of a text in which
            each code point stands in several surroundings
  decode    ids, also such that break characters, and their text
  variants  the same tokenizer with parts replaced (other pre-tokenizer, flags of
            added tokens, ignore_merges), with texts and ids
"""
import copy
import json
import random
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer

SENTENCES = {
    "latin marks": "Příliš žluťoučký kůň úpěl ďábelské ódy. Năm nay trời lạnh sớm hơn mọi năm. "
                   "Où êtes-vous né? Ça dépend… Straße, Ærø, Łódź, İstanbul'da ılık çay içtik.",
    "cyrillic": "Жили-были старик со старухой у самого синего моря. Йод, ёлка и ещё чай! "
                "Щастя є, її їжак їсть ґудзик.",
    "greek": "Η αλεπού πήδηξε πάνω από τον σκύλο. Τί ἐστιν ἀλήθεια; "
             "Ἐν ἀρχῇ ἦν ὁ λόγος, ᾧ ᾖ ῥᾴδιον.",
    "arabic": "السماء صافية اليوم، والطقس جميل. أين المكتبة؟ كِتَابٌ جَدِيدٌ فِي البَيْتِ ٣ كتب.",
    "persian": "من امروز به کتابخانه می‌روم. هوا سرد است؛ چای می‌خواهی؟ ۱۲۳",
    "hebrew": "השמש זורחת בבוקר. אֵיפֹה הַסֵּפֶר שֶׁלִּי? שָׁלוֹם לְכֻלָּם, תל־אביב.",
    "devanagari": "आज मौसम अच्छा है। क्या आप चाय पिएंगे? क़लम, ज़मीन और फ़सल। १२३ रुपये।",
    "bengali": "আজ আকাশ পরিষ্কার। তুমি কেমন আছো? কোথায় যাও, পড়া হয়েছে কি? ১২৩",
    "tamil": "இன்று வானம் தெளிவாக உள்ளது. நீங்கள் எப்படி இருக்கிறீர்கள்? கொடு, பௌர்ணமி.",
    "telugu kannada": "ఈ రోజు వాతావరణం బాగుంది. ಇಂದು ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ, ಕೋಳಿ ಬೇಕೇ?",
    "thai": "วันนี้อากาศดีมาก คุณอยากดื่มชาไหม? น้ำแข็งอยู่ในตู้เย็น ๑๒๓",
    "lao khmer": "ມື້ນີ້ອາກາດດີ ເຈົ້າສະບາຍດີບໍ? ថ្ងៃនេះអាកាសធាតុល្អ។ តើអ្នកសុខសប្បាយទេ?",
    "tibetan": "བཀྲ་ཤིས་བདེ་ལེགས། ཁྱེད་རང་ག་པར་ཕེབས་ཀ? དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག",
    "myanmar": "ဒီနေ့ ရာသီဥတု ကောင်းတယ်။ နေကောင်းလား။ ဦးလေး ဘယ်သွားမလို့လဲ၊",
    "georgian armenian": "დღეს კარგი ამინდია. როგორ ხარ? Այսօր եղանակը լավն է։ Ինչպե՞ս ես։",
    "han": "今天天气很好，我们去图书馆看书吧。你想喝茶吗？這裡有三本書：「紅樓夢」。豈更車賈",
    "kana": "今日はとても良い天気ですね。ガギグゲゴとぱぴぷぺぽ、ヴァイオリン。ｶﾞｷﾞｸﾞ！",
    "hangul": "오늘은 날씨가 아주 좋습니다. 차 한 잔 드시겠어요? 닭갈비와 값싼 책을 샀다.",
    "jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af \u1100\u1161\u11a8 \uac00\u11a8 \u115f\u1161 "
            "\ua960\u1161\ud7cb \u1100 \u1161 \u11a8 \u110a\u116d\u11a7 \uac00\u11a7\u0301",
    "ethiopic": "ዛሬ አየሩ ጥሩ ነው። ሻይ ትፈልጋለህ? መጽሐፉ የት አለ፣ ወንድሜ፤ ፩፪፫",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇯🇵 ❤️‍🔥 1️⃣ ☕️ 🫠🫨 (•‿•) ¯\\_(ツ)_/¯",
    "mathematics": "∀ε>0 ∃δ>0: |x−a|<δ ⇒ |ƒ(x)−ƒ(a)|<ε; 𝔄𝔅𝔠 ℝⁿ ½ ⅓ Ⅷ ④ ²³ ∑ᵢ₌₁ⁿ Å Ω K ≠ ⊄",
    "compositions": "\u212b\u2126\u0344\u0958\u09dc\u0b5c\ufb1d\ufb2c\u2adc\u1e9b\u0323 "
                    "q\u0323\u0307 q\u0307\u0323 d\u0323\u0307 \u1e0b\u0323 \u0f77\u0f81 "
                    "a\u0315\u0300\u05ae\u0300\u0062 a\u0300\u05ae\u0302\u0315 "
                    "\U0001d15e\U0001d1bb "
                    "\u03b9\u0308\u0301 \u0928\u093c \u0b47\u0b56 \u30ab\u3099 \uf900\ufa0e "
                    "\U00011935\U00011930 \U00011099\U000110ba",
    "white space": " \u0085a\u0085\u0085b \u00a0 c\u00a0\u00a0 d\u2028e\u2028\u2028 f\u2029\n"
                   "\u3000g\u3000\u3000h\u180ei\u180e\u180e j\u200bk\ufeffl\u1680m\u2000\u200a n"
                   "\u202fo\u205fp\x0b\x0cq\x1c\x1d\x1e\x1fr   \t",
    "line ends": "a\r\nb\r\n\r\nc\n\rd\re\r\r \nf \r\n g\t\n\th  \n\n   i \n",
    "contractions": "I'm you're we'LL he'D they'Ve 'S't 'ſ it'ſ can'T 'll'l ''re d'd 'tis",
    "digits": "0123 4567,89 １２３ ٣٤٥ ६७८ Ⅳ ¾ 1e-5 0x1F 3.14",
    "punctuation": "...!?\r\n\r\n ##x ((y)) --z \"q\" «r» ‹s› „t“ ¡u! ¿v? @w #x $y "
                   "%z ^_^ `b` ~c~ |d|\n",
    "younger letters": "a\U00031350\U000323af b\U0001e4d0\U0001e4ec\u0323 c\U00010d50\U00010d70 "
                       "d\u0cf3\u0ece e\U00011f02\U00011f41 f\u1c89\u1c8a g\U00016d63 1\U00010d40",
}


def decompose_forms(name, text):
    yield name, text
    for form in ("NFD", "NFC"):
        other = unicodedata.normalize(form, text)
        if other != text:
            yield f"{name} {form}", other


def fnv1a(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def sweep_text(first):
    parts = []
    for code in range(first, first + 4096):
        if not 0xD800 <= code <= 0xDFFF:
            c = chr(code)
            parts.append(f"q{c}\u0323 {c}\u0315{c}1{c}\n {c}{c} \u0315{c}e\u0301;")
    return "".join(parts)


def added(i, content, **flags):
    token = dict(id=i, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=False)
    token.update(flags)
    return token


def variants(base):
    split = base["pre_tokenizer"]["pretokenizers"][0]
    byte_level = base["pre_tokenizer"]["pretokenizers"][1]
    gpt2 = dict(byte_level, use_regex=True)
    space = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated",
              "invert": True}
    empty = {"type": "Split", "pattern": {"Regex": "(?=\\p{Lu})|\\d*"}, "behavior": "Isolated",
             "invert": False}
    plain = [" ".join(SENTENCES[k] for k in ("latin marks", "thai", "han", "digits")),
             SENTENCES["white space"], SENTENCES["contractions"], SENTENCES["line ends"],
             SENTENCES["younger letters"]]
    tokens = [
        added(4096, "<left>", lstrip=True), added(4097, "<right>", rstrip=True),
        added(4098, "<both>", lstrip=True, rstrip=True, special=True),
        added(4099, "word", single_word=True), added(4100, "<le"),
        added(4101, "<left><right>"), added(4102, "Åk", normalized=True),
        added(4103, "é\u0323x", normalized=True, lstrip=True),
        added(4104, "normal", normalized=True, single_word=True, rstrip=True),
        added(4105, "日本"), added(4106, "éé"), added(4107, " sp "), added(4108, "\u0301z"),
    ]
    tricky = [
        "a <left> b <right> c <both> d", "\u3000\u0085 <left>\u00a0<right> \n <both> \t<left>",
        "word sword words word, (word) _word_ \u0301word word\u0301 wordⒶ Word word \U00013cedword",
        "<lef <le <left><right> <left><righ <left> <right>  <right><left>",
        "\u212bk A\u030ak Åk xe\u0301\u0323x ẹ\u0301x é\u0323x  \u1eb9\u0301x",
        "normal abnormal normal  x normalÅk normal", "日本 日本éé日 本 é éé", "x sp  sp sp  sp y",
        "e\u0301z \u0301z ez", "<both><both> <both>\n", "<|im_end|> <left>word<|im_end|>word x",
    ]
    yield "gpt2 regex", {"pre_tokenizer": gpt2}, plain
    yield "string split", {"pre_tokenizer": {"type": "Sequence", "pretokenizers":
                                             [space, digits, split, byte_level]}}, plain
    yield "empty matches", {"pre_tokenizer": {"type": "Sequence", "pretokenizers":
                                              [empty, byte_level]}}, plain
    yield "no split", {"pre_tokenizer": byte_level}, plain
    yield "no normalizer", {"normalizer": None}, [SENTENCES["compositions"], SENTENCES["jamo"]]
    merges = base["model"]["merges"]
    yield "ignore merges", {"model.ignore_merges": True, "model.merges": merges[:40]}, plain
    yield "merges as text", {"model.merges": [" ".join(m) for m in merges]}, plain
    yield "added tokens", {"added_tokens": base["added_tokens"] + tokens}, tricky
    yield "added tokens, no normalizer", {"added_tokens": base["added_tokens"] + tokens,
                                          "normalizer": None}, tricky


def patched(base, patch):
    out = copy.deepcopy(base)
    for key, value in patch.items():
        place, _, name = key.rpartition(".")
        (out[place] if place else out)[name] = value
    return out


def decode_cases(tokenizer, rng, limit, known):
    fixed = [[172, 253, 247, 224], [172, 253], [253, 247], [172, 253, 4090, 247, 224],
             [4090, 172, 4091], [158, 222, 72], [172, 172, 158, 158, 158, 222, 222]]
    lists = fixed + [[rng.choice(known) for _ in range(n)] for n in (1, 2, 3, 5, 9, 40, 200)]
    # Ids below 256 are single bytes: mostly broken text.
    lists += [[rng.randrange(256) for _ in range(n)] for n in (3, 8, 30, 200, 1000)]
    lists += [[rng.choice([rng.randrange(100, 256), rng.randrange(limit - 7, limit)])
               for _ in range(300)] for _ in range(2)]
    for ids in lists:
        for skip in (False, True):
            yield {"ids": ids, "skip_special": skip,
                   "text": tokenizer.decode(ids, skip_special_tokens=skip)}


def rows(value):
    compact = lambda x: json.dumps(x, separators=(",", ":"))
    if not isinstance(value, list):
        return compact(value)
    return "[\n" + ",\n".join(map(compact, value)) + "]"


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "models/strata-tiny"
    path = sys.argv[2] if len(sys.argv) > 2 else "tests/golden/tokenizer_scripts.json"
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as file:
        base = json.load(file)
    tokenizer = Tokenizer.from_str(json.dumps(base))
    encode = lambda t, text: t.encode(text, add_special_tokens=False).ids
    out = {"made_by": "tools/make_tokenizer_golden.py",
           "reference": f"tokenizers {tokenizers.__version__}", "cases": [], "variants": []}
    for name, sentence in SENTENCES.items():
        for label, text in decompose_forms(name, sentence):
            ids = encode(tokenizer, text)
            out["cases"].append({"name": label, "text": text, "ids": ids,
                                 "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    out["sweep"] = [fnv1a(encode(tokenizer, sweep_text(first)))
                    for first in range(0, 0x110000, 4096)]
    known = sorted(base["model"]["vocab"].values()) + [t["id"] for t in base["added_tokens"]]
    out["decode"] = list(decode_cases(tokenizer, random.Random(1), max(known) + 1, known))
    for name, patch, texts in variants(base):
        other = Tokenizer.from_str(json.dumps(patched(base, patch)))
        for token in patch.get("added_tokens", []):
            assert other.token_to_id(token["content"]) == token["id"], token
        samples = []
        for text in texts:
            ids = encode(other, text)
            samples.append({"text": text, "ids": ids,
                            "decoded": other.decode(ids, skip_special_tokens=False)})
        # The merges come from the model's own file: the test makes them again.
        if name in ("ignore merges", "merges as text"):
            patch["model.merges"] = name
        out["variants"].append({"name": name, "patch": patch, "texts": samples})
    with open(path, "w", encoding="ascii") as file:
        # One row a line, so that a change shows where it is.
        file.write(",\n".join(f"{'{' if i == 0 else ''}{json.dumps(key)}:{rows(value)}"
                              for i, (key, value) in enumerate(out.items())) + "}\n")


if __name__ == "__main__":
    main()
