"""Which language a response is in, by its script, its letters and its commonest words: enough for IFEval's languages.

The published scorer asks a statistical classifier, which is another package and draws at random; on texts of more than
a sentence the two should differ rarely.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from routelab.errors import EvaluationError, closest

#: Languages that have a script of their own here, by the first word of a letter's Unicode name.
_SCRIPTS: Mapping[str, str] = MappingProxyType(
    {
        "BENGALI": "bn",
        "GUJARATI": "gu",
        "GURMUKHI": "pa",
        "HANGUL": "ko",
        "KANNADA": "kn",
        "TAMIL": "ta",
        "TELUGU": "te",
        "THAI": "th",
    }
)
#: Languages that share a script: letters that only one of them writes, then words that are frequent in it.
_SHARED: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "ARABIC": {
            "ar": ("ةىأإ", "في من على إلى أن هذا هذه التي الذي مع هو لا"),
            "fa": ("پچژگ", "و در به از که این است را با برای می آن"),
            "ur": ("ٹڈڑںےہھ", "کے میں کی ہے اور سے کا کو یہ ہیں نے پر"),
        },
        "CYRILLIC": {
            "bg": ("", "на и да се за от е не са с ще като това че по"),
            "ru": ("ыэё", "и в не на что с по это как а для от к его из"),
        },
        "DEVANAGARI": {
            "hi": ("", "है के में की से का और को हैं यह पर कि लिए एक नहीं"),
            "mr": ("ळ", "आहे आणि आहेत हे च्या या एक नाही तर मी होते ते साठी"),
            "ne": ("", "छ र को मा लाई हो छन् यो गर्न भएको पनि एक तपाईं गर्नुहोस्"),
        },
        "LATIN": {
            "de": ("ß", "und der die das ist nicht ein eine zu den mit ich sie auf für"),
            "en": ("", "the and of to a in is that it for you with on i this be are"),
            "es": ("ñ¿¡", "de la que el en y los se del las por un una con para es"),
            "fi": ("", "ja on ei se että hän oli ovat kun mutta myös tai joka niin voi"),
            "fr": ("œ", "de la le et les des en un une est que pour dans qui pas je"),
            "it": ("", "di che e la il un una per non sono con è del della in si"),
            "pt": ("ãõ", "de que e o a do da em um uma para não com os é se"),
            "sw": ("", "na ya wa kwa ni katika za la kuwa hii cha ili kama yako sana"),
            "vi": ("đơưạảấầẩậắằặẹẻẽếềểệỉịọỏốồổộớờởợụủứừửựỳỵỷỹ", "và của là có trong không được cho một với"),
        },
    }
)
_WORD = re.compile(r"[^\s\d.,;:!?¿¡।،؟()\[\]\"'«»*_]+")


def is_language(text: str, language: str) -> bool:
    """Return whether ``text`` is in ``language``, a code of two letters. A text without letters counts as being so.

    Raises:
        EvaluationError: there are no rules for ``language``.
    """
    known = {*_SCRIPTS.values(), *(name for shared in _SHARED.values() for name in shared)}
    if language not in known:
        raise EvaluationError(f"there are no rules to tell the language {language!r}{closest(language, known)}")
    scripts = Counter(script for letter in text if letter.isalpha() and (script := _script(letter)))
    if not scripts:
        return True
    script = scripts.most_common(1)[0][0]
    return detect(text, script) == language


def detect(text: str, script: str) -> str:
    """Return the likeliest language of a text in ``script``; empty where there is none for the script.

    Frequent words count one each, letters of one language only two; ties go to the first in alphabetical order.
    """
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    lowered = unicodedata.normalize("NFC", text.lower())
    words = Counter(_WORD.findall(lowered))
    scores = {
        language: 2 * sum(map(lowered.count, letters)) + sum(words[word] for word in set(common.split()))
        for language, (letters, common) in _SHARED.get(script, {}).items()
    }
    if script == "LATIN" and not any(scores.values()):
        return "en"
    return max(sorted(scores), key=scores.__getitem__) if scores else ""


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").split(" ")[0]
