# ruff: noqa: E501 - a question and its answer stand on one line
"""Ten short texts, like files of a project, with 200 questions. A sentence of the text answers half of them; no sentence
answers the other half, although their words are similar.

They were written before the model was asked any of them. The model's rules may be changed with the first five texts in
view (`FIRST`); the other five (`SECOND`) only count.
"""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """`answered` pairs a question with words of the sentence that answers it; no sentence answers `unanswered`."""

    name: str
    text: str
    answered: tuple[tuple[str, str], ...]
    unanswered: tuple[str, ...]


FIRST = (
    Text(
        "harbour.md",
        """# Harbour notes

The Aurora lies at berth 7. She sails on Thursday at noon.
The Petrel lies at berth 3 and carries timber.

## Rules
- Ferries use the east gate.
- Fires are forbidden on the pier.
- The harbour office opens at 07:30 and closes at 18:00.
- Mooring costs 14 euros a night, paid in advance.

The harbour master is Ines Duarte. The crane was repaired in 2019 by Holm & Sons. It lifts nine tons.
""",
        (
            ("At which berth does the Aurora lie?", "lies at berth 7"),
            ("When does the Aurora sail?", "She sails on Thursday"),
            ("What does the Petrel carry?", "carries timber"),
            ("Which gate do ferries use?", "Ferries use the east gate"),
            ("When does the harbour office open?", "opens at 07:30"),
            ("How much does mooring cost?", "14 euros"),
            ("Who is the harbour master?", "Ines Duarte"),
            ("When was the crane repaired?", "repaired in 2019"),
            ("How much does the crane lift?", "It lifts nine tons"),
            ("Are fires forbidden on the pier?", "Fires are forbidden"),
        ),
        (
            "When does the Petrel sail?",
            "What does the Aurora carry?",
            "Who repaired the pier?",
            "How old is the harbour master?",
            "At which berth does the Borealis lie?",
            "How long is the Aurora?",
            "When was the pier built?",
            "What is the phone number of the harbour office?",
            "Which gate do tankers use?",
            "What colour is the crane?",
        ),
    ),
    Text(
        "release.md",
        """# Releasing

Releases are made every second Tuesday. Only maintainers may push tags.
Run `make dist` to build the wheel; it takes about four minutes.
The wheel is signed with the key of Priya Raman, which expires in March 2028.
Version numbers follow semantic versioning. A release candidate is tested for three days on the staging cluster.
If a release breaks production, roll back with `deploy undo`.
The changelog is written by hand. Downloads are mirrored in Frankfurt and Osaka.
Old versions are supported for eighteen months.
""",
        (
            ("When are releases made?", "every second Tuesday"),
            ("Who may push tags?", "Only maintainers may push tags"),
            ("How do I build the wheel?", "Run `make dist`"),
            ("How long does building the wheel take?", "about four minutes"),
            ("Whose key signs the wheel?", "key of Priya Raman"),
            ("When does the key expire?", "March 2028"),
            ("How long is a release candidate tested?", "three days"),
            ("Where are downloads mirrored?", "Frankfurt and Osaka"),
            ("How do I roll back a release?", "deploy undo"),
            ("How long are old versions supported?", "eighteen months"),
        ),
        (
            "Who writes the documentation?",
            "How large is the wheel?",
            "When was the first release made?",
            "Which licence do releases have?",
            "How many maintainers are there?",
            "Who tests the release candidate?",
            "How often is production rolled back?",
            "Where is the staging cluster?",
            "What does a download cost?",
            "Which compiler builds the wheel?",
        ),
    ),
    Text(
        "garden.md",
        """# The garden

The apple trees were planted in 1987 by grandmother Elsa. They bear fruit every other year.
Tomatoes grow in the glasshouse. Water them each morning, never at noon.
The compost heap stands behind the shed. The shed key hangs under the stairs.
Slugs are kept away with crushed eggshells. Potatoes are dug up in late August.
The pond is 1.4 metres deep and has a fence around it. Our hedgehog is called Otto.
Roses are pruned in February. The mower needs unleaded petrol.
""",
        (
            ("When were the apple trees planted?", "planted in 1987"),
            ("Who planted the apple trees?", "grandmother Elsa"),
            ("Where do the tomatoes grow?", "in the glasshouse"),
            ("Where is the key of the shed?", "hangs under the stairs"),
            ("How deep is the pond?", "1.4 metres deep"),
            ("What is the hedgehog called?", "Otto"),
            ("When are the roses pruned?", "February"),
            ("When are potatoes dug up?", "late August"),
            ("Which petrol does the mower need?", "unleaded petrol"),
            ("What keeps slugs away?", "crushed eggshells"),
        ),
        (
            "When was the glasshouse built?",
            "How many apple trees are there?",
            "Who prunes the roses?",
            "What is the cat called?",
            "When are the carrots dug up?",
            "How tall is the fence?",
            "Where does the mower stand?",
            "What keeps deer away?",
            "How much does the petrol cost?",
            "Who built the shed?",
        ),
    ),
    Text(
        "clinic.txt",
        """The clinic is open from Monday to Friday. On Saturdays only emergencies are seen.
Doctor Okafor treats children. Doctor Lindqvist treats broken bones and speaks Swedish.
Appointments are made by telephone or at the front desk. A missed appointment costs 25 francs.
The waiting room is on the second floor. Blood samples go to the laboratory in Bern twice a day.
Vaccines are stored at four degrees. The ambulance has the number 144.
Patients under sixteen need a parent with them. Results arrive after two working days.
""",
        (
            ("When is the clinic open?", "Monday to Friday"),
            ("Who treats children?", "Doctor Okafor treats children"),
            ("Which language does Doctor Lindqvist speak?", "speaks Swedish"),
            ("How are appointments made?", "by telephone or at the front desk"),
            ("What does a missed appointment cost?", "25 francs"),
            ("Where is the waiting room?", "on the second floor"),
            ("Where do blood samples go?", "laboratory in Bern"),
            ("What number has the ambulance?", "number 144"),
            ("When do results arrive?", "two working days"),
            ("How are vaccines stored?", "stored at four degrees"),
        ),
        (
            "Which language does Doctor Okafor speak?",
            "Where does Doctor Lindqvist live?",
            "How many doctors work at night?",
            "What does an appointment with a dentist cost?",
            "Where is the laboratory's waiting list?",
            "When was the clinic founded?",
            "Who drives the ambulance?",
            "How much do vaccines cost?",
            "Where can patients park?",
            "What is the email address of the front desk?",
        ),
    ),
    Text(
        "service.md",
        """# Billing service

The service listens on port 9443. It keeps its data in PostgreSQL 16.
Invoices are sent on the first day of each month. Failed payments are tried again after six hours, at most five times.
The team lead is Tomasz Nowak; the pager rotates weekly.
Logs are kept for 90 days. Secrets are read from Vault when the process starts.
Backups run at 02:15 and are copied to Dublin. A restore was last rehearsed in May.
Customers in Norway pay in kroner. The rate limit is 200 requests a second for each key.
""",
        (
            ("On which port does the service listen?", "port 9443"),
            ("Where does the service keep its data?", "PostgreSQL 16"),
            ("When are invoices sent?", "first day of each month"),
            ("How often are failed payments tried again?", "at most five times"),
            ("Who is the team lead?", "Tomasz Nowak"),
            ("How long are logs kept?", "90 days"),
            ("When do backups run?", "02:15"),
            ("Where are backups copied to?", "copied to Dublin"),
            ("When was a restore last rehearsed?", "rehearsed in May"),
            ("What is the rate limit?", "200 requests a second"),
        ),
        (
            "Who wrote the service?",
            "How large are the backups?",
            "Which currency do customers in Denmark pay in?",
            "When was the database upgraded?",
            "On which port does Vault listen?",
            "How many customers are there?",
            "Who rehearsed the restore?",
            "Which cloud does the service run in?",
            "How long are invoices kept?",
            "What does the pager cost?",
        ),
    ),
)

SECOND = (
    Text(
        "observatory.md",
        """# Observatory

The dome was opened in 1911. The main telescope has a mirror of 61 centimetres and weighs two tons.
It was built in Jena by Carl Winter. Visitors are welcome on clear Fridays after dark.
Tickets are sold at the gate. Children pay half.
The comet of 1957 was photographed here by Lidia Marques. Her plates are kept in the cellar.
The dome turns once in nine minutes. Red lamps only: white light is forbidden near the telescope.
The library holds 4,200 volumes. The nearest bus stop is Kestrel Lane.
""",
        (
            ("When was the dome opened?", "opened in 1911"),
            ("How much does the main telescope weigh?", "weighs two tons"),
            ("Where was the telescope built?", "built in Jena"),
            ("When are visitors welcome?", "clear Fridays after dark"),
            ("Where are tickets sold?", "sold at the gate"),
            ("Who photographed the comet of 1957?", "Lidia Marques"),
            ("Where are the plates kept?", "kept in the cellar"),
            ("How long does the dome take to turn once?", "once in nine minutes"),
            ("How many volumes does the library hold?", "4,200 volumes"),
            ("What is the nearest bus stop?", "Kestrel Lane"),
        ),
        (
            "Who opened the dome?",
            "How much does a ticket cost?",
            "When was the library built?",
            "Who photographed the eclipse?",
            "How many visitors come each year?",
            "What is the director called?",
            "How high is the dome?",
            "When does the last bus leave?",
            "Where was Carl Winter born?",
            "Which lamps light the library?",
        ),
    ),
    Text(
        "bakery.txt",
        """The ovens are lit at three in the morning. Rye bread bakes for 55 minutes, rolls for eighteen.
Flour comes from the mill in Aster Valley every Wednesday. The sourdough is called Brunhilde and is fed twice a day.
Yusuf Demir bakes the pastries. Cakes must be ordered two days ahead.
The shop closes at one o'clock on Sundays. Card payments are taken from five euros on.
Unsold bread goes to the shelter on Mill Street. The cellar is cooled to twelve degrees.
Apprentices start in September and stay three years.
""",
        (
            ("When are the ovens lit?", "three in the morning"),
            ("How long does rye bread bake?", "55 minutes"),
            ("Where does the flour come from?", "mill in Aster Valley"),
            ("What is the sourdough called?", "Brunhilde"),
            ("Who bakes the pastries?", "Yusuf Demir"),
            ("How far ahead must cakes be ordered?", "two days ahead"),
            ("When does the shop close on Sundays?", "one o'clock on Sundays"),
            ("Where does unsold bread go?", "shelter on Mill Street"),
            ("How long do apprentices stay?", "three years"),
            ("How cold is the cellar?", "cooled to twelve degrees"),
        ),
        (
            "Who feeds the sourdough?",
            "When does the shop open on Mondays?",
            "How much does rye bread cost?",
            "Who delivers the flour?",
            "How many apprentices are there?",
            "Where are the eggs from?",
            "How long do cakes bake?",
            "When was the bakery founded?",
            "Which oven is the oldest?",
            "What do apprentices earn?",
        ),
    ),
    Text(
        "library.md",
        """# Using the library

Install it with `pip install kestrel`. It needs Python 3.11 or newer.
A client is opened with `kestrel.connect(url)`; close it when you are done.
Requests time out after thirty seconds. Set `retries=0` to turn retries off.
Kestrel was started by Amara Diallo in 2021. It is licensed under Apache 2.0.
Bugs are reported on the tracker, security holes by mail to the address in SECURITY.md.
The cache holds 500 entries and lives in memory. Streaming answers are not cached.
Type hints are complete. Windows is not supported.
""",
        (
            ("How do I install it?", "pip install kestrel"),
            ("Which Python does it need?", "Python 3.11 or newer"),
            ("How is a client opened?", "kestrel.connect(url)"),
            ("When do requests time out?", "after thirty seconds"),
            ("How do I turn retries off?", "retries=0"),
            ("Who started Kestrel?", "Amara Diallo"),
            ("Under which licence is Kestrel?", "Apache 2.0"),
            ("Where are bugs reported?", "on the tracker"),
            ("How many entries does the cache hold?", "500 entries"),
            ("Is Windows supported?", "Windows is not supported"),
        ),
        (
            "Who maintains the tracker?",
            "How large is the wheel?",
            "How do I clear the cache?",
            "Which proxy does a client use?",
            "When was version 2 released?",
            "How many people use Kestrel?",
            "Does it run on FreeBSD?",
            "Where is the documentation hosted?",
            "What does a licence cost?",
            "How are type hints checked?",
        ),
    ),
    Text(
        "minutes.txt",
        """Minutes of the meeting on 4 May. Present were Ada, Ben and Chidi; Dora sent apologies.
Ada reported that the roof leaks above room 12. Ben will call the roofer before Friday.
The budget for the summer party is 600 euros. Chidi books the band.
It was decided to buy a second projector. The old one goes to the school in Elm Road.
The next meeting takes place on 8 June at six in the evening.
Dora keeps the keys of the archive. Membership fees rise to 40 euros in January.
""",
        (
            ("Who sent apologies?", "Dora sent apologies"),
            ("Where does the roof leak?", "above room 12"),
            ("Who will call the roofer?", "Ben will call the roofer"),
            ("What is the budget for the summer party?", "600 euros"),
            ("Who books the band?", "Chidi books the band"),
            ("What was decided to buy?", "second projector"),
            ("Where does the old projector go?", "school in Elm Road"),
            ("When does the next meeting take place?", "8 June"),
            ("Who keeps the keys of the archive?", "Dora keeps the keys"),
            ("When do membership fees rise?", "in January"),
        ),
        (
            "Who repairs the projector?",
            "What does the band cost?",
            "When is the summer party?",
            "Who cleans room 12?",
            "How many members are there?",
            "What did Ben report?",
            "Where does Ada live?",
            "What is the budget for the winter party?",
            "When was the archive opened?",
            "Who wrote the minutes?",
        ),
    ),
    Text(
        "trail.md",
        """# The ridge trail

The trail begins at the chapel of Saint Anne. It is 17 kilometres long and climbs 940 metres.
Most people need seven hours. The hut at the pass sells soup and has twelve beds.
Water is found at the spring below the pass. Dogs must be on a lead until the forest ends.
The bridge over the Lorn was rebuilt in 2016 after the flood. It carries one person at a time.
The last train from Carrow leaves at 19:52. In winter the trail is closed.
The hut is run by Greta Moser. Maps are sold at the station.
""",
        (
            ("Where does the trail begin?", "chapel of Saint Anne"),
            ("How long is the trail?", "17 kilometres long"),
            ("How many hours do most people need?", "seven hours"),
            ("How many beds has the hut?", "twelve beds"),
            ("Where is water found?", "spring below the pass"),
            ("When was the bridge rebuilt?", "rebuilt in 2016"),
            ("When does the last train leave?", "19:52"),
            ("Who runs the hut?", "Greta Moser"),
            ("Where are maps sold?", "sold at the station"),
            ("When is the trail closed?", "In winter"),
        ),
        (
            "Who built the chapel?",
            "How many people walk the trail each year?",
            "What does a bed cost?",
            "When does the first train leave?",
            "How cold is the spring?",
            "Who rebuilt the bridge?",
            "Where can dogs sleep?",
            "How high is the chapel?",
            "What does the soup contain?",
            "When does the hut open?",
        ),
    ),
)
