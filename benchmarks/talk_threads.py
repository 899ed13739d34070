"""The hand-written threads of `benchmarks/talk.py`, and a third person's questions about them.

A thread is a short exchange between {a} and {b}. A question has a kind, the line that answers it, and its own words:
apart from names it shares no word with that line (`tests/relay/test_retrieval.py` checks it).

- `neighbour`   the line answers the line just before it, which has the subject
- `pronoun`     the line says it, she, there, that one
- `paraphrase`  the line has its subject, in other words than the question's
- `dated`       people say the same in several months; the question names the month, the line does not
- `changed`     somebody says one thing and months later another; the later line counts
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Thread(NamedTuple):
    """Lines as (speaker, text); questions as (kind, line, text); `later` is the change of mind, months later."""

    lines: tuple[tuple[str, str], ...]
    asks: tuple[tuple[str, int, str], ...]
    slots: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    later: tuple[tuple[str, str], ...] = ()


THREADS: tuple[Thread, ...] = (
    Thread(
        (
            ("a", "I finally went to the doctor about my {x}."),
            ("b", "And? What did she say?"),
            ("a", "Nothing torn, thank goodness. {n} weeks without sport."),
        ),
        (("neighbour", 2, "How long must {a} rest after the medical visit for the {x}?"),),
        {
            "x": ("knee", "ankle", "shoulder", "wrist", "elbow", "hip"),
            "n": ("Two", "Three", "Four", "Five", "Six", "Eight"),
        },
    ),
    Thread(
        (
            ("a", "We got a {x} from the shelter on Saturday!"),
            ("b", "No way. What do you call it?"),
            ("a", "{y}. The kids voted."),
        ),
        (("neighbour", 2, "What is the name of the {x} that {a} adopted?"),),
        {
            "x": ("puppy", "kitten", "rabbit", "parrot", "tortoise", "greyhound"),
            "y": ("Biscuit", "Pepper", "Waffle", "Nimbus", "Pickle", "Juno"),
        },
    ),
    Thread(
        (
            ("a", "My {x} turned seventy, so we drove up to see her."),
            ("b", "How was it?"),
            ("a", "She cried when she saw the {y} that we had brought."),
        ),
        (("pronoun", 2, "What present did {a} give to the {x}?"),),
        {
            "x": ("mother", "aunt", "grandmother", "neighbour", "godmother", "teacher"),
            "y": ("quilt", "photo album", "rocking chair", "telescope", "rose bush", "accordion"),
        },
    ),
    Thread(
        (
            ("a", "The course in {x} starts in the autumn and I have a place."),
            ("b", "Is it expensive?"),
            ("a", "Not bad, {n} euros for the whole term."),
        ),
        (("neighbour", 2, "What does {a} pay for learning {x}?"),),
        {
            "x": ("pottery", "welding", "Portuguese", "bookbinding", "beekeeping", "fencing"),
            "n": ("140", "220", "185", "310", "95", "260"),
        },
    ),
    Thread(
        (
            ("b", "How is the new job treating you?"),
            ("a", "I like it. The commute is the worst part, {n} minutes on the {x} each way."),
        ),
        (("paraphrase", 1, "Which means of transport takes {a} to work?"),),
        {"x": ("tram", "ferry", "bus", "underground", "bike", "train"), "n": ("70", "55", "80", "65", "45", "90")},
    ),
    Thread(
        (
            ("b", "You look tired."),
            ("a", "The {x} next door barks, drums or drills until two in the morning."),
            ("b", "Have you talked to them?"),
            ("a", "Twice. Now I sleep with {y}."),
        ),
        (("pronoun", 3, "What does {a} use against the noise at night?"),),
        {
            "x": ("student", "landlord", "band", "builder", "baker", "sergeant"),
            "y": (
                "earplugs",
                "a fan running",
                "wax in my ears",
                "headphones on",
                "the radio on",
                "a pillow over my head",
            ),
        },
    ),
    Thread(
        (
            ("a", "Guess who passed the {x} exam!"),
            ("b", "You? On the first try?"),
            ("a", "On the {y}, but who counts."),
        ),
        (("neighbour", 2, "How many attempts at the {x} test did {a} need?"),),
        {
            "x": ("driving", "sailing", "pilot", "bar", "nursing", "radio"),
            "y": ("second", "third", "fourth", "fifth", "sixth", "seventh"),
        },
    ),
    Thread(
        (
            ("a", "I have stopped eating {x}."),
            ("b", "For your health?"),
            ("a", "My skin got itchy each time, and since then it has been fine."),
        ),
        (("pronoun", 2, "Which reaction made {a} give up {x}?"),),
        {"x": ("peanuts", "shrimp", "cheese", "strawberries", "wheat", "eggs")},
    ),
    Thread(
        (
            ("b", "Did you two find a flat?"),
            ("a", "Yes! Top floor, no lift, but you can see the {x} from the kitchen."),
        ),
        (("paraphrase", 1, "What view does {a} have in the new apartment?"),),
        {"x": ("harbour", "cathedral", "castle", "river", "stadium", "mountains")},
    ),
    Thread(
        (
            ("a", "My brother called from {x} last night."),
            ("b", "What is he doing there?"),
            ("a", "He repairs {y} and sleeps in a van."),
        ),
        (("pronoun", 2, "How does the sibling of {a} earn money abroad?"),),
        {
            "x": ("Chile", "Norway", "Laos", "Ghana", "Oman", "Iceland"),
            "y": ("boats", "pianos", "wind turbines", "clocks", "bicycles", "satellite dishes"),
        },
    ),
    Thread(
        (
            ("a", "The car broke down again on the motorway."),
            ("b", "The brakes, as before?"),
            ("a", "No, the {x} this time. It will cost more than the thing is worth."),
        ),
        (("neighbour", 2, "Which part of the vehicle of {a} failed?"),),
        {"x": ("gearbox", "clutch", "alternator", "radiator", "fuel pump", "turbo")},
    ),
    Thread(
        (
            ("b", "What are you reading?"),
            ("a", "A thick thing on {x}. I fall asleep after two pages."),
            ("b", "Then why go on?"),
            ("a", "Because {y} lent it to me and asks every week."),
        ),
        (("pronoun", 3, "Who owns the book on {x} that {a} has at home?"),),
        {
            "x": ("whales", "volcanoes", "chess", "Byzantium", "mushrooms", "glaciers"),
            "y": ("my boss", "the dentist", "my cousin", "the vicar", "my flatmate", "the librarian"),
        },
    ),
    Thread(
        (
            ("a", "I broke up with {x}."),
            ("b", "Oh no. What happened?"),
            ("a", "Wants children, I do not. Nobody is to blame."),
        ),
        (("neighbour", 2, "Why did {a} and {x} separate?"),),
        {"x": ("Robin", "Kim", "Alex", "Sascha", "Noor", "Toni")},
    ),
    Thread(
        (
            ("b", "So are you going to take the offer from the {x}?"),
            ("a", "I signed yesterday. {n} more a month, and Fridays off."),
        ),
        (("neighbour", 1, "What rise in salary did {a} get at the {x}?"),),
        {
            "x": ("museum", "hospital", "brewery", "ministry", "shipyard", "university"),
            "n": ("300", "450", "520", "610", "280", "700"),
        },
    ),
    Thread(
        (
            ("a", "Our basement was under water after the storm."),
            ("b", "Did you lose much?"),
            ("a", "My old {x}, mostly. I could have wept."),
        ),
        (("neighbour", 2, "Which belongings of {a} did the flood ruin?"),),
        {"x": ("records", "letters", "paintings", "comics", "cameras", "school books")},
    ),
    Thread(
        (("b", "Where shall we meet on Thursday?"), ("a", "At the {x} by the bridge, it has the better cake.")),
        (("paraphrase", 1, "Where do {a} and {b} want to get together?"),),
        {"x": ("bakery", "kiosk", "tea room", "old mill", "boathouse", "pavilion")},
    ),
    Thread(
        (
            ("a", "I made up my mind about the summer: we are going to {x}."),
            ("b", "Lovely. By car?"),
            ("a", "Yes, with the tent."),
        ),
        (("changed", 3, "Where does {a} really travel for the holidays?"),),
        {
            "x": ("Brittany", "Sicily", "Wales", "Croatia", "Finland", "Madeira"),
            "y": ("Tuscany", "Scotland", "Crete", "Denmark", "Corsica", "Estonia"),
        },
        (("a", "Change of plan, the prices are mad. It will be {y} instead."), ("b", "Also good!")),
    ),
    Thread(
        (("a", "I want to paint the kitchen {x}."), ("b", "Bold."), ("a", "You will see.")),
        (("changed", 3, "Which colour did {a} pick for the walls in the end?"),),
        {
            "x": ("orange", "purple", "turquoise", "black", "crimson", "gold"),
            "y": ("white", "grey", "mint", "cream", "beige", "navy"),
        },
        (("a", "Forget what I said about the kitchen. We took {y}."), ("b", "Sensible.")),
    ),
    Thread(
        (("b", "Have you thought about what to study?"), ("a", "{x}, I am quite sure."), ("b", "Good for you.")),
        (("changed", 3, "What subject will {a} take at college after all?"),),
        {
            "x": ("Medicine", "Law", "Physics", "Theology", "Economics", "Music"),
            "y": ("forestry", "nursing", "Spanish", "architecture", "chemistry", "geology"),
        },
        (
            ("a", "I handed in the form today, and at the last moment I wrote {y}."),
            ("b", "What? That came out of nowhere."),
        ),
    ),
    Thread(
        (("a", "From Monday on I go swimming before breakfast."), ("b", "I give you a week."), ("a", "Wait and see.")),
        (("changed", 3, "What exercise does {a} do these days?"),),
        {"x": ("",), "y": ("rowing", "climbing", "yoga", "boxing", "dancing", "judo")},
        (("a", "You were right, the pool was not for me. I am at the {y} club now."), ("b", "I said a week!")),
    ),
)

# The same person says these in several months; the question names the month.
MONTHLY: tuple[Thread, ...] = (
    Thread(
        (("b", "How was the weekend?"), ("a", "We walked from the station to {x} and got soaked.")),
        (("dated", 1, "Where did {a} go hiking in {month}?"),),
        {
            "x": (
                "Ashcombe",
                "the lighthouse",
                "Moorgate Falls",
                "the monastery",
                "Saint Ives",
                "the quarry",
                "the old border",
                "Lake Harm",
            )
        },
    ),
    Thread(
        (("b", "Anything good on at the cinema?"), ("a", "I saw the one about the {x}. Do not bother.")),
        (("dated", 1, "Which film did {a} watch in {month}?"),),
        {"x": ("astronaut", "bank robber", "nun", "chess champion", "shark", "twins", "butler", "glacier")},
    ),
    Thread(
        (("b", "You sound hoarse, are you ill?"), ("a", "It is the {x} again. Two days in bed."), ("b", "Poor you.")),
        (("dated", 1, "What made {a} sick in {month}?"),),
        {"x": ("flu", "sinuses", "tonsils", "hay fever", "bronchitis", "cough from work", "throat", "fever")},
    ),
)

CHATTER: tuple[tuple[str, str], ...] = (
    ("Morning! Did you sleep?", "Barely. The wind kept me up."),
    ("It has been raining for days here.", "Same. My boots never dry."),
    ("Did you see the match?", "Only the last ten minutes, and they were enough."),
    ("I am making soup. Again.", "You and your soup."),
    ("Can I call you later?", "After eight, when the dishes are done."),
    ("Remember the old gym?", "They are tearing it down, I think."),
    ("I cannot find my keys anywhere.", "Look in the fridge. I am serious."),
    ("The bus was late again.", "Write to them. It never helps, but write."),
    ("Happy name day!", "You are the only one who thinks of it."),
    ("My phone dies at forty percent now.", "Mine does that in the cold too."),
    ("We should cook together some time.", "Name a day and I bring the wine."),
    ("There is a fair in town next week.", "I only go for the roasted almonds."),
    ("My plants look sad.", "Less water. It is always less water."),
    ("Did the parcel arrive?", "It is at the neighbour's, I hope."),
    ("I forgot my umbrella at your place.", "It stands by the door and waits for you."),
    ("The new bakery is overpriced.", "But the rye bread, though."),
)  # fmt: skip
