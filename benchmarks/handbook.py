# ruff: noqa: E501 - a passage and its question stand on one line
"""Technical documentation, and questions about it in other words.

`guide` is written by hand: passages of a job server's handbook, each with a question that a newcomer might ask.
`reference` is made from a seed: twenty parts of the server, each documented with some of the same statements and other
figures; its questions name the part and use other words for the rest. Apart from the names of parts, no question
shares a word with the passage that answers it (`tests/relay/test_retrieval.py` checks it).
"""

from __future__ import annotations

import random

from benchmarks.retrieval import Question, take
from forestay.relay import Warm

# heading, passages; a passage with a question is asked about
_GUIDE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Installation", (
        ("Quayside runs on Linux and macOS.", "Which operating systems are supported?"),
        ("At least four gigabytes of RAM are needed.", "How much memory must the machine have?"),
        ("Download the archive and unpack it anywhere.", ""),
        ("Removing the folder uninstalls everything; no traces stay behind.", "How do I get rid of the program?"),
        ("Administrator rights are not required.", "Does it have to be root?"),
    )),
    ("First steps", (
        ("Type `quay up` to launch the daemon.", "How is the server started?"),
        ("Press Ctrl-C to halt it; work in progress is completed first.", "What happens to running tasks at shutdown?"),
        ("The dashboard listens on port 7070.", "Where can I open the web interface?"),
        ("A sample queue named demo is created on the initial launch.", ""),
        ("Log in with the address that you gave to the setup wizard.", "Which user name do I sign on with?"),
    )),
    ("Jobs", (
        ("Each job carries a payload of up to 256 kilobytes.", "What is the maximum size of a message?"),
        ("Larger content belongs into an object store; put its address into the job.", "What should I do with big files?"),
        ("Jobs with equal keys are merged into one.", "How are duplicates avoided?"),
        ("Order is kept within a lane and nowhere else.", "Is there a guarantee on the sequence?"),
        ("A job that crashed five times lands in the morgue.", "Where do tasks go that fail over and over?"),
        ("Inspect the morgue with `quay dead` and revive what you like.", "How can a failed item be run again by hand?"),
        ("The pause between attempts doubles until it reaches an hour.", "How long are the delays when something is retried?"),
        ("An urgent job overtakes the others in its lane.", "Can I give something priority?"),
        ("Work that is scheduled for tomorrow sleeps on disk until then.", "Does a delayed task survive a reboot?"),
    )),
    ("Workers", (
        ("Workers fetch jobs over HTTP; no library is necessary.", "Do I need a client package?"),
        ("A worker that is silent for thirty seconds is presumed gone.", "When is a consumer treated as dead?"),
        ("Its jobs are handed to somebody else.", "Who finishes the tasks of a lost machine?"),
        ("Scale out by starting more of them; they find each other.", "How do I handle increased load?"),
        ("Pin a worker to a lane with `--lane`.", "Can one process be restricted to certain queues?"),
        ("Heartbeats cost about one kilobyte per minute.", "How much network traffic do liveness checks make?"),
    )),
    ("Storage", (
        ("Everything lives in one SQLite file.", "Which database is used?"),
        ("Copy that file while the daemon runs; the copy is consistent.", "How do I make a backup?"),
        ("Finished jobs are erased after fourteen days.", "How long is history kept?"),
        ("Set `keep` to lengthen this period.", "Can I retain old records for more time?"),
        ("When the disk is full, new jobs are refused and existing ones continue.", "What if there is no space left?"),
        ("The file shrinks at night.", ""),
    )),
    ("Security", (
        ("Traffic is encrypted with TLS when a certificate is present.", "Is the connection protected from eavesdropping?"),
        ("Passwords are stored as Argon2 hashes.", "How are credentials saved?"),
        ("Tokens expire after ninety minutes of idleness.", "When am I signed out automatically?"),
        ("Three wrong attempts lock an account for ten minutes.", "What protects against guessing passwords?"),
        ("Payloads are never written to the log.", "Could private data leak through trace output?"),
        ("Report a vulnerability to the security desk, not in public.", "Whom do I tell about a hole?"),
    )),
    ("Upgrades", (
        ("Two adjacent versions can work side by side.", "Can I update without downtime?"),
        ("Downgrading is not possible once the schema has moved.", "Is there a way back to the previous release?"),
        ("A release appears on the first Tuesday of a month.", "How often are there new versions?"),
        ("Breaking changes are announced half a year ahead.", "How early do I hear of incompatible modifications?"),
    )),
    ("Monitoring", (
        ("Metrics are offered in the Prometheus format.", "How can I watch it with Grafana?"),
        ("An alarm fires when the oldest waiting job is above five minutes.", "Will I be warned about a backlog?"),
        ("Set the verbosity to 3 to see each request.", "How do I get more detailed output for debugging?"),
        ("The clock of all machines should agree within a second.", "Is time synchronisation important?"),
    )),
    ("Prices", (
        ("Small teams pay nothing.", "Is there a free plan?"),
        ("Beyond ten seats the licence is 30 euros per head and month.", "What does it cost for a larger company?"),
        ("Invoices come by mail at the end of each quarter.", "How often are we billed?"),
        ("Schools and charities get half off.", "Are there discounts for non-profits?"),
    )),
)  # fmt: skip

PARTS = (
    "Anchor Beacon Capstan Davit Ensign Fender Gangway Halyard Isobar Jetty Keelson Lantern Mooring Nautilus Oarlock "
    "Pilot Quadrant Rudder Sextant Tiller"
).split()

# a statement of the reference, and the question after it
_STATEMENTS: tuple[tuple[str, str], ...] = (
    ("It gives up after {n} unsuccessful tries.", "How many attempts does the {part} make before it fails?"),
    ("At most {n} connections are open at a time.", "What is the limit of parallel sockets in the {part}?"),
    ("Answers are cached for {n} seconds.", "How long does the {part} remember results?"),
    ("It writes to `/var/quay/{n}.log`.", "Where does the {part} record events?"),
    ("It begins automatically when the machine boots.", "Must I launch the {part} by hand?"),
    ("A broken input is set aside and reported.", "What does the {part} do with corrupt data?"),
    ("It is switched off unless you ask for it.", "Is the {part} enabled by default?"),
    ("Only administrators may alter its settings.", "Who can change the configuration of the {part}?"),
    ("It was rewritten from scratch for speed in release {n}.", "Which version made the {part} faster?"),
    ("Text is expected in UTF-8.", "Which character encoding does the {part} need?"),
    ("It swallows {n} megabytes of RAM under load.", "How much memory does a busy {part} consume?"),
    ("It answers within {n} milliseconds on ordinary hardware.", "How quick is the response of the {part}?"),
    ("It must not run twice on one host.", "Can I have several instances of the {part}?"),
    ("It is going away; use the newer one instead.", "Is the {part} deprecated?"),
)
_OF_A_PART = 9


def handbook(seed: int = 53) -> tuple[Warm, list[Question]]:
    """Return the facts of the guide and the reference, and the questions on both."""
    warm = Warm()
    asked: list[Question] = []

    def told(text: str, source: str, kind: str, answers: dict[str, str]) -> None:
        first = len(warm.facts)
        take(warm, text, source, 0)
        numbers = {fact.text: fact.number for fact in warm.facts[first:]}
        asked.extend((kind, question, frozenset({numbers[text]})) for text, question in answers.items() if question)

    chapters = [f"## {heading}\n\n{' '.join(text for text, _ in passages)}" for heading, passages in _GUIDE]
    told(
        "# Quayside\n\n" + "\n\n".join(chapters),
        "ingest:guide.md",
        "guide",
        dict(item for _, passages in _GUIDE for item in passages),
    )
    rng = random.Random(seed)
    for part in PARTS:
        chosen = [(text.format(n=rng.randint(2, 900)), ask.format(part=part)) for text, ask in _some(rng)]
        body = " ".join(text for text, _ in chosen)
        told(f"# {part}\n\n{body}\n", f"ingest:reference/{part.lower()}.md", "reference", dict(chosen))
    warm.windows = 1
    return warm, asked


def _some(rng: random.Random) -> list[tuple[str, str]]:
    return rng.sample(_STATEMENTS, _OF_A_PART)
