"""Deterministic simulation: hosts, their clients and the world around them in one thread, driven by one seed.

`python -m tests.simulation SEED` replays a seed and tells what broke; with `--fleet`, a seed of several hosts on one
ledger. What is real: the whole host below its sockets (surface, dispatch, engine, ledger, webhooks, relay, agents),
SQLite, and the files that it leaves behind. What is simulated: the clock and the event loop, when and whether bytes
reach the disk, both networks, the outside world, the model, and how processes die.

What it cannot find, because it is not there: races between operating-system threads (everything runs in one), a file
system that breaks its promises outside the ledger's log, and PostgreSQL, which has tests on a real server.
"""
