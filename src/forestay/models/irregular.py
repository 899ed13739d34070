"""Irregular verbs of English: forms whose infinitive no rule finds.

It leaves out forms that are more often another word (`left`, `saw`, `ground`, `lay`, `wound`, `bore`, `rose`, `fell`).
"""

from __future__ import annotations

_VERBS = """
arise arose arisen; awake awoke awoken; beat beaten; become became; begin began begun; bend bent; bite bit bitten;
bleed bled; blow blew blown; break broke broken; breed bred; bring brought; build built; burn burnt; buy bought; catch
caught; choose chose chosen; cling clung; come came; creep crept; deal dealt; dig dug; draw drew drawn; dream dreamt;
drink drank drunk; drive drove driven; eat ate eaten; feed fed; feel felt; fight fought; find found; flee fled; fly
flew flown; forbid forbade forbidden; forget forgot forgotten; forgive forgave forgiven; freeze froze frozen; get got
gotten; give gave given; go went gone; grow grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept;
kneel knelt; know knew known; lead led; lean leant; leap leapt; learn learnt; lend lent; light lit; lose lost; make
made; mean meant; meet met; mistake mistook mistaken; overcome overcame; pay paid; prove proven; ride rode ridden;
ring rang rung; rise risen; run ran; say said; see seen; seek sought; sell sold; send sent; shake shook shaken; shine
shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk; sit sat; sleep slept; slide slid;
speak spoke spoken; spend spent; spin spun; spoil spoilt; steal stole stolen; stick stuck; sting stung; strike struck;
strive strove striven; swear swore sworn; sweep swept; swell swollen; swim swam swum; swing swung; take took taken;
teach taught; tear torn; tell told; think thought; throw threw thrown; understand understood; undo undid undone; wake
woke woken; wear wore worn; weave wove woven; weep wept; win won; withdraw withdrew withdrawn; write wrote written
"""

IRREGULAR: dict[str, str] = {
    form: verb for verb, *forms in (line.split() for line in _VERBS.split(";")) for form in forms
}
