"""Languages of texts: tags, detection, stop words, and the scripts that need a lexical analysis of their own.

Languages have two-letter tags such as `de`; an empty tag stands for a text without enough words to tell.
"""

from __future__ import annotations

import re
from functools import cache

ENGLISH = "en"
UNSPACED = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u0e01-\u0e3a"
    "\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
)
"""The characters, for a regular expression, of scripts without spaces between words, and of Korean."""
MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
    "\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03"
    "\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf\u200c\u200d"
)
"""Accents, vowel signs and joiners, for a regular expression: parts of words that `\\w` does not match."""
UNSPACED_LANGUAGES = frozenset("ja zh ko th lo km my bo".split())  # noqa: SIM905
_TAG = r"([a-z]{2,3})(?:[-_][a-z0-9-_]+)?(?:\..*)?"
_SCRIPTS = {
    "ja": "\u3041-\u30ff\uff66-\uff9f",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    "ko": "\u1100-\u11ff\uac00-\ud7a3",
    "th": "\u0e01-\u0e4e",
    "lo": "\u0e81-\u0ecd",
    "km": "\u1780-\u17d3",
    "my": "\u1000-\u103f",
    "bo": "\u0f40-\u0fbc",
    "ar": "\u0620-\u064a\u066e-\u06d3",
    "he": "\u05d0-\u05ea",
    "el": "\u0370-\u03ff",
    "ru": "\u0400-\u04ff",
    "hy": "\u0531-\u0587",
    "ka": "\u10d0-\u10ff",
    "hi": "\u0900-\u0963",
    "bn": "\u0980-\u09df",
    "pa": "\u0a01-\u0a4d",
    "gu": "\u0a81-\u0acd",
    "ta": "\u0b82-\u0bcd",
    "te": "\u0c00-\u0c4d",
    "kn": "\u0c81-\u0ccd",
    "ml": "\u0d00-\u0d4d",
    "si": "\u0d81-\u0ddf",
}
"""The characters of a script, and the language that most texts in it have."""
_LETTERS_OF = {"ur": "ٹڈڑںے", "fa": "پچژگ", "uk": "іїєґ", "bg": "ъщ", "sr": "јљњћђ"}
"""Letters that other languages with the same script do not have, or seldom."""
_MIN_SHARE = 0.02  # of the letters of a text that must be such letters
_CODE = r"(?sm)^(`{3,}|~{3,}).*?^\1|`[^`\n]*`|https?://\S+|<[^>\n]*>"
_LONGEST = 3_000  # characters of a text that are looked at
_WORD = r"[^\W\d_]+"
_MIN_HITS = 3  # stop words of a language that a text must have
_CLEAR = 1.5  # how many more stop words the detected language must have than English

_STOP_WORDS = {
    "en": """a about above after again all also am an and any are as at be because been before being below
        between both but by can could did do does doing don down during each few for from further get
        had has have having he her here hers him his how i if in into is it its itself just let me more
        most my no nor not of off on once only or other our out over own same she should so some such
        than that the their them then there these they this those through to too under until up us very
        was we were what when where which while who whom why will with would you your""",
    "de": """aber alle als am an auch auf aus bei beim bis da damit dann das dass dein dem den der des die
        dies diese dieselben diesem diesen dieser dieses du durch darf ein eine einem einen einer eines
        er es für fürs gibt habe haben hat hier ich ihr ihre im in ist jede jedem jeden jeder jedes kann
        kannst kein keine können man mehr mein meine meinem meinen meiner mit möchte muss müssen nach
        nicht noch nur ob oder ohne schon sein sich sie sind so soll sollen statt über um und uns unter
        vom von vor wann warum was welche welchen welcher welches wenn wer werden wie wir wird wo
        wodurch wurde zu zum zur""",
    "es": """a al algo antes aquí así como con cómo cual cuál cuando cuándo de del desde donde dónde durante
        e el ella en entre era es esa ese eso esta está están este esto estos fue ha hace hacer hago
        hasta hay la las le les lo los más me mi mis mismo mismos muy ni no nos o para pero por porque
        puede puedes puedo que qué quiero se ser si sí sin sobre solo son su sus también tiene toda
        todas todo todos tu un una uno y ya""",
    "fr": """à ai au aux avec c ce ces cette comme comment d dans de des donc du elle en entre est et être
        fait il ils j je l la le les leur lui ma mais me mes moi mon même n ne nos notre nous on ont ou
        où par pas peut peux plus pour pourquoi qu quand que quel quelle quels qui quoi s sa sans se ses
        si son sont sur ta te tes ton tous tout toute très tu un une votre vous y""",
    "pt": """a ao aos as até com como da das de dela dele do dos e é ela ele em entre era essa esse esta está
        este eu faço fazer foi há isso isto já la lhe mais mas me meu meus minha muito na não nas no nos
        nós o os ou para pela pelo pode por porque posso qual quando que quem se sem ser seu seus só sua
        são também tem ter um uma você""",
    "it": """a ai al alla anche che chi ci come con cosa cui da dal dalla degli dei del della delle di dove e
        è era fare gli ha hanno ho i il in io la le lo loro ma mi mio nei nel nella non o per perché più
        può quale quando questa questo qui se sei si sono su sua sul sulla suo ti tra tu tutti un una
        uno""",
    "nl": """aan als bij dan dat de deze die dit doe door een en er geen had heb hebben heeft het hij hoe hun
        ik in is je kan kunnen maar me met mijn moet naar niet nog of om onder ook op over te tot uit
        van veel voor waar waarom wanneer wat we welke werd wie wij worden wordt zal ze zich zijn zo""",
    "sv": """att av de den det detta du efter eller en ett från för ha han har hon hur i inte jag kan man med
        men min mitt måste när och om på sig som så till under upp ut vad var varför vi vilka är""",
    "da": """af at blev da de dem den der det dette du efter eller en er et for fra ham han har hun hvad hvor
        hvordan hvornår i ikke jeg kan man med men min mit når og også om på sig skal som så til ud
        under var vi være""",
    "nb": """at av da de dem den det dette du eller en er et etter for fra han har hun hva hvor hvordan i
        ikke jeg kan man med men min mitt må når og også om på seg skal som så til under ut var vi være""",
    "fi": """ei en että he hän ja jos joka kanssa kuin kun kuinka me mikä miksi milloin minun minä missä
        miten mitä mutta ne niin nyt näin on ovat sen se sinä tai tämä voi voin vain vai""",
    "pl": """aby ale bo być co czy dla do gdy gdzie i ich jak jaki jakie jako jest już kiedy kto która które
        który lub ma mam mnie może mogę moje mój na nad nie o od oraz po pod przez przy się są tak tego
        ten to tylko u w we z za ze że""",
    "cs": """aby ale ani co do je jeho jej jejich jak jaké jaký jako jsem jsou k kde když který která které
        lze mám mé mezi mi mohu můj může na nebo není o od po pod pro proč před při s se si tak také ten
        to u už v ve více z za ze že""",
    "ro": """a ai al ale am are aceasta această acest asta ca că când care ce cu cum de din după ea el este
        eu fi fie iar în la le lui mai mea meu nu o pe pentru pot prin sau se si și sunt să unde un una
        unei unui""",
    "hu": """a az be csak de egy el és ez ezt ha hogy hogyan hol is itt kell ki le lehet mert mi mint meg
        mikor milyen minden nem nincs olyan össze s sem talán vagy van volt""",
    "tr": """ama bir bu bunu da daha de değil diye en gibi göre hangi hem her için ile ise kadar ki kim mi mı
        mu mü nasıl ne neden nerede o olan olarak olur sonra şu tüm var ve veya ya yok""",
    "vi": """các cách cái cần cho chỉ của có cũng để đã được đang đến đó gì hay hoặc khi không là làm lại mà
        một này nào nên những như nhưng nếu ra rằng sao sẽ thế thì tôi trên trong từ và vào về với""",
    "id": """ada adalah agar akan anda apa atau bagaimana bahwa bisa dalam dan dapat dari dengan di harus ini
        itu jika juga kami kapan karena ke kita lebih mengapa oleh pada saat saja saya sebagai seperti
        tidak untuk yang""",
    "ru": """а без бы был была были было быть в вам вас вы где для до его ее если есть ещё же за и из или им
        их к как какие какой когда кто ли меня мне мой мы на над не него нет ни но о он она они от по
        под почему при с свой себя со так также то только тот у уже что чтобы эта эти это этот я""",
    "uk": """а або але без був була було бути в від він вона вони все все-таки де для до є же з за і із їх й
        його коли ким мене мені ми мій на над не немає ні о по про та так також те ти то той тільки у
        хто це цей ці чи чому що щоб я як який які якщо""",
    "bg": """а ако без беше в ви във все да до е за защо и из или им как какво когато кой които към ли ме
        между мога може на над не него ни но от по под при с са само се си след със те това този той тук
        че ще я""",
    "el": """από αλλά αν αυτή αυτό αυτός για δεν είναι ένα ένας εγώ η ή θα και κατά με μια μου να ο οι όπως
        όταν ότι που πού πρέπει πώς σας σε στη στην στο στον τα τη την της τι το τον του των ως""",
    "ar": """إلى أن أنا أو أي إذا التي الذي إن بعد بين ثم حتى حيث على عن عند عندما غير في قبل قد كان كل كما
        كيف لا لكن لم لماذا لن ما مع متى من منذ هذا هذه هل هناك هو هي و يكون يمكن""",
    "fa": """آن آیا از است اگر این با باید بر برای به بود تا چرا چگونه چه خود در را شد شود که کدام کنم کنید
        کنیم کی ما من می نمی نیست هر هم همه و یا یک""",
    "ur": """اس اور اگر ان ایک آپ بھی پر تک تو تھا تھی تھے جب جو سے کا کب کر کرنا کرنے کریں کس کو کون کہ کہاں
        کی کیا کیسے کیوں کے گا گی لیے میں میرا میرے نہ نہیں نے وہ ہم ہو ہوں ہے ہیں یا یہ""",
    "hi": """और अगर अपने इस उस एक कर करना करने करें का कि किस की के कैसे को कौन क्या क्यों कब कहाँ गया जब जो
        तक तो था थी थे द्वारा नहीं ने पर भी मैं में मेरा मेरे या यह ये रहा लिए वह से हम ही हूँ है हैं हो""",
    "zh": """一个 一种 为何 为什 么样 什么 可以 哪个 哪些 如何 怎么 怎样 我的 我要 我想 是否 的时
        时候 能否 这个""",
    "ko": "그리 리고 어떻 떻게 무엇 까요 나요 니까 습니 하는 하려 려면 에서 으로",
}


def language_tag(text: object) -> str:
    """Return the language of a tag such as `pt-BR` or `zh_Hans`, or an empty tag if it is none."""
    match = re.fullmatch(_TAG, text.strip().lower()) if isinstance(text, str) else None
    return match[1] if match else ""


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the most frequent words of a language, which say nothing about the subject of a text."""
    return frozenset(_STOP_WORDS.get(language, "").split())


def detect_language(text: str, min_hits: int = _MIN_HITS) -> str:
    """Return the language of a text, or an empty tag if it has too few words; code is left out."""
    prose = re.sub(_CODE, " ", text[: 4 * _LONGEST])[:_LONGEST]
    total = sum(map(len, re.findall(_WORD, prose)))
    if not prose.isascii():
        counts = {language: len(re.findall(f"[{letters}]", prose)) for language, letters in _SCRIPTS.items()}
        script = max(counts, key=lambda language: counts[language])
        # A Chinese or Japanese character stands for about three letters; names and code are mostly Latin.
        if 3 * counts[script] > total - counts[script]:
            return _language_of_script(script, prose, counts)
    return _latin_language(prose, min_hits)


def _language_of_script(script: str, text: str, counts: dict[str, int]) -> str:
    """Tell languages apart that share a script: by kana, by letters, by stop words."""
    if script in ("zh", "ja"):
        return "ja" if 10 * counts["ja"] > counts["zh"] else "zh"
    others = {"ar": ("ur", "fa"), "ru": ("uk", "sr", "bg")}.get(script, ())
    for language in others:
        letters = sum(map(text.count, _LETTERS_OF[language]))
        if letters > _MIN_SHARE * counts[script]:
            return language
    return script


def _latin_language(text: str, min_hits: int) -> str:
    words = re.findall(_WORD, text.lower())
    hits = {language: sum(map(stop_words(language).__contains__, words)) for language in _STOP_WORDS}
    english = hits.pop(ENGLISH)
    best = max(hits, key=lambda language: hits[language])
    if hits[best] >= min_hits and hits[best] > _CLEAR * english:
        return best
    return ENGLISH if english >= min_hits else ""
