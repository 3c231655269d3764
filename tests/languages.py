"""Sentences in many languages, and random ones that are made of their words."""

from __future__ import annotations

import random

SENTENCES = {
    "de": "Die Häuser am Fluss wurden für das Straßenfest geschmückt; wie prüfe ich die Größe mit config.yaml?",
    "es": "¿Cómo envío el correo después de la respuesta? La configuración está en settings.py y no cambió.",
    "fr": "L’été dernier, nous avons déployé l'application : où trouve-t-on les paramètres de l'hôte ?",
    "pt": "Não há informações sobre a função; você pode usar o código do usuário quando ela estiver pronta.",
    "tr": "İstanbul'da ışık hızıyla çalışan bir sistem için DEĞİŞKEN ayarları nasıl değiştirilir?",
    "ru": "Ещё раз проверьте настройки сервера: если ключ не найден, то запрос будет отклонён.",
    "ar": "كيف يمكنني إرسال الرسالة بعد الاستجابة؟ الإعدادات موجودة في مَلَفّ القـــاعدة رقم ٢٣ والمستخدمون هنا.",
    "ur": "میں جواب کے بعد ای میل کیسے بھیج سکتا ہوں؟ یہ ترتیبات فائل میں ہیں اور صفحہ ۱۲ پر لکھی گئی ہیں۔",
    "hi": "मैं उत्तर के बाद ईमेल कैसे भेज सकता हूँ? यह सेटिंग फ़ाइल में है और हिन्दी में लिखी गई है।",
    "zh": "如何在返回响应之后发送邮件？静态文件放在 static 文件夹里，FastAPI 2.0 的版本是 v1.2.3。",
    "ja": "クライアントに返事を返したあとでメールを送る。静的ファイルはＳｔａｔｉｃ Filesで配信する。",
    "ko": "응답을 보낸 뒤에 메일을 어떻게 보내나요? 정적 파일은 static 폴더에 있습니다.",
    "th": "ฉันจะส่งอีเมลหลังจากตอบกลับได้อย่างไร ไฟล์อยู่ในโฟลเดอร์ static ของระบบ",
}

MARKED = {"th": "ก็ได้น้ำผึ้ง", "km": "ស្រ្តីក្រុម", "hi": "क्षत्रियोंस्त्रियाँ", "my": "မြန်မာစာ"}
"""Words with many marks and joined letters, which are part of the character before them."""


_CODE = "--dry-run get_user_name BackgroundTasks 9.81 v2.0 user@example.org ａｂｃ１ x²"


def random_sentences(language: str, count: int) -> list[str]:
    """Return sentences of pieces of a language's sentence, of code, and of some characters of others."""
    numbers = random.Random(f"sentences in {language}")
    own = SENTENCES[language]
    sentences = []
    for _ in range(count):
        pieces = []
        for _ in range(numbers.randint(2, 9)):
            start = numbers.randrange(len(own))
            pieces.append(own[start : start + numbers.randint(1, 14)])
        pieces.insert(numbers.randrange(len(pieces)), numbers.choice(_CODE.split()))
        pieces.append("".join(numbers.choices("".join(SENTENCES.values()), k=4)))
        sentences.append(numbers.choice((" ", "", "-", "\n")).join(pieces))
    return sentences
