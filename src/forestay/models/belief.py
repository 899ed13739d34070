"""Measures how far to trust an embedder: how often it finds a word's synonym among many other words.

An embedder that compares spellings, or that does not know the language, would rank facts that only look alike above
facts with a synonym. Its similarities do not show this: they are as high as those of a good embedder. So each embedder
is tested once with words whose meaning is known: each word of a pair below has to find the other one first. The words
of a pair share no run of three letters (two characters in Chinese and Japanese), so spelling finds none.
"""

from __future__ import annotations

from collections.abc import Sequence

from forestay.models.embed import Embedder

_WORDS = {
    "en": "buy purchase,begin start,doctor physician,lawyer attorney,film movie,sick ill,jail prison,"
    "rubbish garbage,woman lady,fast quick,shop store,child kid,smart clever,near close,car automobile,"
    "salary wage,cash money,holiday vacation,test exam,sea ocean,stone rock,angry mad,error mistake,"
    "help assist,big large,rich wealthy,silent quiet,stop cease,end finish,pupil student,answer reply,"
    "present gift,road street,journey trip,house home,cure heal,hide conceal,build construct,"
    "flat apartment,soldier warrior,forest woods,rabbit hare,taxi cab,engine motor,autumn fall,"
    "chief boss,scared afraid,delete erase,cup mug,country nation,couch sofa,choose select",
    "de": "Arzt Doktor,kaufen erwerben,beginnen anfangen,Auto Wagen,Frau Dame,schnell flink,Fehler Irrtum,"
    "Gefängnis Haft,Müll Abfall,klug schlau,Lohn Gehalt,Urlaub Ferien,Prüfung Test,Wald Forst,"
    "helfen unterstützen,groß riesig,antworten erwidern,Straße Weg,bauen errichten,Junge Bub,"
    "Treppe Stiege,wütend zornig,Angst Furcht,Samstag Sonnabend",
    "fr": "médecin docteur,acheter acquérir,commencer débuter,voiture auto,argent fric,rapide vite,"
    "erreur faute,prison taule,ordures déchets,malin futé,salaire paie,vacances congé,forêt bois,"
    "aider secourir,grand énorme,beau joli,rue chemin,bâtir construire,garçon gamin,vélo bicyclette,"
    "fâché colère,peur crainte,maison logis,travail boulot",
    "es": "médico doctor,comprar adquirir,empezar iniciar,coche automóvil,dinero plata,rápido veloz,"
    "error fallo,cárcel prisión,basura desechos,listo inteligente,sueldo salario,bosque selva,"
    "ayudar socorrer,grande enorme,responder contestar,calle camino,niño chico,enojado furioso,"
    "miedo temor,casa hogar,trabajo empleo,cara rostro,pelo cabello,regalo obsequio",
    "ru": "врач доктор,купить приобрести,начало старт,машина автомобиль,смелый храбрый,ошибка промах,"
    "тюрьма острог,мусор отходы,умный толковый,зарплата оклад,отпуск каникулы,лес роща,помощь содействие,"
    "большой огромный,улица дорога,мальчик парень,злой сердитый,страх боязнь,дом жилище,работа труд,"
    "лицо физиономия,подарок презент",
    "zh": "医生 大夫,购买 采购,开始 启动,汽车 轿车,金钱 钞票,迅速 快捷,错误 过失,监狱 牢房,垃圾 废物,聪明 机智,"
    "工资 薪水,假期 休假,森林 树木,帮助 协作,巨大 庞然,回答 答复,街道 马路,男孩 小子,愤怒 生气,害怕 恐惧,"
    "房子 住宅,工作 职业,礼物 赠品,美丽 漂亮",
    "ja": "医者 ドクター,購入 買い物,開始 スタート,自動車 クルマ,お金 現金,速い 迅速,間違い ミス,刑務所 牢屋,"
    "ゴミ 廃棄物,賢い 利口,給料 賃金,休暇 バカンス,森 林,助ける 手伝う,大きい 巨大,答える 返事,"
    "道路 ストリート,少年 男の子,怒る 腹立つ,恐怖 怖い,家 住宅,仕事 労働,贈り物 プレゼント",
}
PAIRS = {language: [pair.split() for pair in pairs.split(",")] for language, pairs in _WORDS.items()}
_NOTHING, _ALL = 0.2, 0.6  # the shares of synonyms found first that mean no trust and full trust
_LEAST = 0.001  # when words find nothing, even a spelling is better than nothing

_known: dict[str, float] = {}


def believed(embedder: Embedder) -> float:
    """Return the trust in an embedder, 0 to 1, by its best language; measured once per name. Call it in a thread."""
    if embedder.name not in _known:
        best = 0.0
        for pairs in PAIRS.values():
            best = max(best, found_first(embedder, pairs))
            if best >= _ALL:
                break
        _known[embedder.name] = min(1.0, max(_LEAST, (best - _NOTHING) / (_ALL - _NOTHING)))
    return _known[embedder.name]


def found_first(embedder: Embedder, pairs: Sequence[Sequence[str]]) -> float:
    """Return the share of pairs whose first word is more similar to its second word than to any other second word."""
    one, other = (embedder.embed([pair[place] for pair in pairs]) for place in (0, 1))
    right = 0
    for number, asked in enumerate(one):
        likeness = [sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in other]
        best = likeness.pop(number)
        right += best > max(likeness)
    return right / len(pairs)
