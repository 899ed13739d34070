# ruff: noqa: E501 - a passage and its question stand on one line
"""Four leaflets and questions about them in other words, written after the thesaurus was finished.

They measure what the thesaurus finds in texts that it was not written for: a coffee machine, a village library, a
rented flat, a tool that keeps versions of files. The handbook's facts are searched with them. They did not influence
any word or weight. No question shares a word with the line that answers it (`tests/relay/test_retrieval.py` checks it).
"""

from __future__ import annotations

from benchmarks.handbook import handbook
from benchmarks.retrieval import Question, take
from forestay.relay import Warm

# title, lines; a line with a question is asked about
_LEAFLETS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("The Moka 300", (
        ("Fill the tank up to the mark and put the lid on.", ""),
        ("The device heats up within two minutes.", "How long does it take until the machine is warm?"),
        ("A red lamp shows that the container is empty.", "Which light tells me there is no water left?"),
        ("Beans are ground in the top compartment.", ""),
        ("Descale the appliance every three months.", "How often must lime be removed?"),
        ("Use citric acid for that, never vinegar.", ""),
        ("It turns itself off after half an hour.", "When does the thing switch to standby automatically?"),
        ("The noise of the grinder is normal.", "Why is it so loud?"),
        ("Children under eight must not operate it.", "May kids use the machine?"),
        ("Hot steam can burn your skin.", "What is dangerous about the vapour?"),
        ("Wash the milk jug by hand.", "How should the pitcher be cleaned?"),
        ("Spare seals can be ordered from the shop for a year after production ended.", "For how much time can I buy replacement parts?"),
        ("We repair faults free of charge for two years.", "How long is the warranty?"),
        ("The cable has a length of ninety centimetres.", "How long is the power cord?"),
        ("Old appliances do not belong in the household waste.", "May I throw the broken machine into the trash?"),
        ("The smallest cup holds forty millilitres.", "What is the minimum amount of an espresso?"),
    )),
    ("Library of Hofen", (
        ("We are open on weekday afternoons and on Saturday mornings.", "At what hours can I visit?"),
        ("Novels may be taken home for four weeks.", "For how long can I borrow a book?"),
        ("Films go back after seven days.", "When must I return a movie?"),
        ("Each day of delay costs twenty cents.", "What is the fine for overdue items?"),
        ("A lost card is replaced for five euros.", "What do I pay if my membership pass is gone?"),
        ("Pupils read for nothing.", "Is there a fee for students?"),
        ("Dogs wait outside.", "Can I bring my pet?"),
        ("Please whisper in the upper room.", "Where should I be quiet?"),
        ("Printing is done at the desk by the entrance.", "Where can I get a document on paper?"),
        ("Wishes for new titles go into the wooden box.", "How do I suggest a purchase?"),
        ("The cellar holds newspapers since 1890.", "Where are old journals kept?"),
        ("Food is eaten in the yard.", "Where am I allowed to have lunch?"),
        ("Wheelchairs come in by the ramp on the north side.", "How do disabled people get inside?"),
        ("On Thursdays a pensioner tells fairy tales to the little ones.", "When is the story hour for children?"),
        ("Volunteers shelve what comes back.", "Who puts returned items away?"),
        ("Somebody else's reservation cannot be extended.", ""),
        ("The wireless network needs no password.", "What is the key for the internet?"),
    )),
    ("Rules of the house at Lindenweg 4", (
        ("Rent is due on the third working day.", "When do I have to pay the landlord?"),
        ("It is transferred to the account of the owner.", ""),
        ("The deposit amounts to two monthly payments.", "How high is the security?"),
        ("Bicycles stand in the shed behind the garage.", "Where do I put my bike?"),
        ("Prams may be left beside the staircase.", ""),
        ("After ten in the evening there is silence.", "From when on must no noise be made at night?"),
        ("Pianos are played until eight.", "How late may I make music?"),
        ("The stairwell is swept by the tenants in turn.", "Who cleans the steps?"),
        ("Rubbish is collected on Tuesday.", "On which day is the garbage picked up?"),
        ("Bottles are brought to the container at the church.", "Where does glass go?"),
        ("Barbecues on the balcony annoy the people above.", "Why should I not grill on the terrace?"),
        ("Visitors park in the street.", "Where can guests leave their car?"),
        ("A burst pipe is reported to the caretaker at once.", "Whom do I call about a water leak?"),
        ("Keys are not copied without permission.", "Am I allowed to duplicate them?"),
        ("Whoever moves out paints the walls white.", "What must be done when leaving the flat?"),
        ("Notice is given three months ahead.", "How early must the contract be cancelled?"),
        ("The heating runs from October to April.", "In which season is it warm indoors?"),
        ("Laundry dries in the attic.", "Where do I hang wet clothes?"),
        ("Subletting requires consent in writing.", "Can I rent a room to somebody else?"),
        ("Animals larger than a cat need approval.", "May we keep a big dog?"),
    )),
    ("Stratum, versions of files", (
        ("`strat keep` records the present state.", "How do I save a snapshot?"),
        ("`strat back` returns to an earlier one.", "How can a change be undone?"),
        ("Nothing is ever erased by either of them.", "Will data be deleted?"),
        ("Each record bears the name of its author.", "Who made a modification?"),
        ("Lines that two people altered are marked as clashes.", "What happens with conflicts?"),
        ("Mend them by hand, then go on with `strat join`.", "How is a merge resolved?"),
        ("Big binaries are stored apart.", "Where do large media files live?"),
        ("A passphrase guards the remote copy.", "How is the server's replica protected?"),
        ("Without a network you can work as usual.", "Does it function offline?"),
        ("Synchronise when you are connected again.", ""),
        ("Temporary things go into the file `.skip`.", "How are items ignored?"),
        ("The history of ten thousand records loads in a second.", "How fast is the log shown?"),
        ("Tags give a record a memorable word.", "How can I label a release?"),
        ("Hooks are small programs that run before a record is made.", "Is there a way to execute scripts automatically?"),
        ("`strat find` walks to the record that broke something.", "How do I search for the change that caused a bug?"),
        ("Damaged storage is noticed by its checksum.", "How is corruption detected?"),
        ("The licence is MIT.", "May I use it in commercial products?"),
        ("It was written in Rust by three students.", "Which language is the program made with?"),
    )),
)  # fmt: skip


def leaflets() -> tuple[Warm, list[Question]]:
    """Return the facts of the four texts and of the handbook, and the questions on the four texts."""
    warm, _ = handbook()
    asked: list[Question] = []
    for title, lines in _LEAFLETS:
        first = len(warm.facts)
        take(warm, f"# {title}\n\n" + " ".join(text for text, _ in lines) + "\n", f"ingest:{title}", 0)
        numbers = {fact.text: fact.number for fact in warm.facts[first:]}
        asked += [("paraphrase", question, frozenset({numbers[text]})) for text, question in lines if question]
    warm.windows = 1
    return warm, asked
