# ruff: noqa: E501 - a passage and its question stand on one line
"""Four notices and questions about them in other words: what the default finds in texts that it was not made for.

They were written after the ranking's weights and the first 3,100 families of the thesaurus. Their author had seen a few
dozen of those families, and had not run any question before. They are about a campsite, an animal doctor, a night train
and a message broker. The handbook's and the leaflets' facts are searched with them. No question shares a word with the
line that answers it (`tests/relay/test_retrieval.py` checks it).
"""

from __future__ import annotations

from benchmarks.leaflets import leaflets
from benchmarks.retrieval import Question, take
from forestay.relay import Warm

# title, lines; a line with a question is asked about
_NOTICES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Camping at the Weir", (
        ("The barrier is closed between noon and three.", "When can I not drive in?"),
        ("Pitches with electricity are numbered in yellow.", "Which spots have power?"),
        ("Tap water is drinkable everywhere on the site.", "Is it safe to fill my bottle here?"),
        ("Fires may only be lit in the iron bowls.", "Where is it allowed to burn wood?"),
        ("Fishing requires a permit from the village hall.", "What do I need to catch trout?"),
        ("The river is dangerous after heavy rain.", "Is swimming risky when there was a storm?"),
        ("Canoes can be hired by the hour at the jetty.", "Where do I rent a boat?"),
        ("A shower costs fifty cents.", "What is the price of washing myself?"),
        ("Dirty dishes are washed behind the kitchen hut.", "Where do I clean my plates?"),
        ("Gas cylinders are exchanged at reception.", "How do I get a new bottle of fuel?"),
        ("Bread rolls have to be ordered the evening before.", "Until when must I request breakfast?"),
        ("Ball games are played on the meadow only.", "Where may the kids kick a football?"),
        ("On the day of departure tents come down by eleven.", "At what time must I leave?"),
        ("Long stays of more than a month get a discount of a tenth.", "Is it cheaper if I remain for several weeks?"),
        ("Thunder can be heard early because of the valley.", ""),
        ("The warden sleeps in the wooden house by the gate.", "Whom do I wake in an emergency at night?"),
        ("A first-aid box hangs in the laundry.", "Where are bandages?"),
        ("Lost property is kept until the end of the season.", "How long do you store things that somebody forgot?"),
    )),
    ("Dr. Amsel, animal doctor", (
        ("Puppies are vaccinated at eight weeks and again at twelve.", "At what age does a young dog get its shots?"),
        ("Cats stay in their basket in the waiting room.", "May my kitten walk around before the appointment?"),
        ("Nothing to eat for twelve hours before an operation.", "Should the animal be hungry when surgery begins?"),
        ("Stitches come out after ten days.", "When are the threads of a wound removed?"),
        ("Call the emergency line when your pet has swallowed poison.", "What should I do if he ate something toxic?"),
        ("Ticks are turned out with tweezers, without oil.", "How do I get rid of a parasite in the fur?"),
        ("Old rabbits need their teeth trimmed.", ""),
        ("We visit farms on Wednesday.", "On which day does the vet come to cows?"),
        ("Bills are settled at once, in cash or by card.", "How can I pay?"),
        ("Tablets go down easily inside a piece of cheese.", "Any trick to give medicine?"),
        ("An itchy ear is often an inflammation.", "Why does he scratch his head?"),
        ("The collar must stay on until the wound is healed.", "How long should the plastic cone be worn?"),
        ("Overweight dogs live two years less.", "Is being fat bad for the health of my hound?"),
        ("Birds are treated by my colleague Dr. Stieglitz.", "Who looks after parrots?"),
        ("Blood results arrive the next morning.", "How soon do I hear from the laboratory?"),
        ("A chip under the skin tells whose animal it is.", "How is the owner of a stray identified?"),
        ("Worms are fought four times a year.", "How often is deworming due each quarter?"),
    )),
    ("Night train 401", (
        ("Beds are made up by the attendant after the first stop.", "Who prepares the couch for sleeping?"),
        ("Doors between the coaches are locked at midnight.", "Can I walk through the carriages late in the evening?"),
        ("Breakfast is brought half an hour before you get off.", "When is the morning meal served?"),
        ("Bicycles travel in the last wagon and need a reservation.", "Must I book a place for my bike?"),
        ("Suitcases fit under the lower berth.", "Where does my luggage go?"),
        ("The window cannot be opened because of the air conditioning.", "Why is there no fresh breeze?"),
        ("If we are more than two hours late, half of the fare is paid back.", "Do I get a refund for a delay?"),
        ("Changing the date of a ticket is free until the day before.", "Can I rebook my trip without a fee?"),
        ("Smoking sets off the alarm and costs two hundred euros.", "What is the punishment for a cigarette?"),
        ("Passports are collected and given back at dawn.", "Why do you keep my identity papers overnight?"),
        ("Ladies may ask for a compartment of their own.", "Is there a separate cabin for women?"),
        ("The dining car serves soup until ten.", "Where can I have supper?"),
        ("Sockets are above the mirror.", "Where do I charge my phone?"),
        ("Children below six ride without paying when they share a bunk.", "Is it free for toddlers?"),
        ("Valuables belong in the safe of the conductor.", "Where should jewellery be deposited?"),
        ("Earplugs lie on the pillow.", "What helps against the noise?"),
    )),
    ("Pigeon, a broker of messages", (
        ("A message is deleted when its consumer has acknowledged it.", "When does an item vanish from the queue?"),
        ("Unread ones expire after a week.", "How long are they retained if nobody fetches them?"),
        ("What fails five times goes to the dead letter box.", "What happens after repeated errors?"),
        ("Producers are slowed down when memory runs short.", "How does it react to low RAM?"),
        ("Order is kept within one topic.", "Do things arrive in the right sequence?"),
        ("Everything is written to disk before the sender hears yes.", "Can data be lost in a crash?"),
        ("Traffic between nodes is encrypted.", "Is the connection secure?"),
        ("Three servers elect a leader by majority.", "How is the master of the cluster chosen?"),
        ("Restart one machine after the other to update without interruption.", "How do I upgrade with zero downtime?"),
        ("`pigeon top` displays the busiest senders.", "How can I see who causes the most load?"),
        ("Passwords are stored as hashes.", "Are credentials saved in plain text?"),
        ("The largest body is one megabyte.", "What is the maximum size of a payload?"),
        ("Bigger things are put into a bucket and linked.", ""),
        ("Old clients keep working for two major versions.", "How long is backward compatibility guaranteed?"),
        ("Clocks that differ by more than a second cause warnings.", "What if the time of the hosts is not in sync?"),
        ("Set `verbose` to find out why something was refused.", "How do I debug a rejection?"),
        ("A subscription can be paused without losing its place.", "Is it possible to stop listening for a while and continue?"),
        ("Monitoring reads numbers at port 9090.", "Where are the metrics exposed?"),
    )),
)  # fmt: skip


def notices() -> tuple[Warm, list[Question]]:
    """Return the facts of the four texts, the leaflets and the handbook, and the questions on the four texts."""
    warm, _ = leaflets()
    asked: list[Question] = []
    for title, lines in _NOTICES:
        first = len(warm.facts)
        take(warm, f"# {title}\n\n" + " ".join(text for text, _ in lines) + "\n", f"ingest:{title}", 0)
        numbers = {fact.text: fact.number for fact in warm.facts[first:]}
        asked += [("paraphrase", question, frozenset({numbers[text]})) for text, question in lines if question]
    warm.windows = 1
    return warm, asked
