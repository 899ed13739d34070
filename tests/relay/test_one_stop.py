"""One natural stop is one model call, and the output is the provider's text, whatever it is (C1, D1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock
from forestay.relay import Relay

from .conftest import Pieces, make_relay

every_text = st.one_of(st.text(max_size=300), st.text(alphabet=st.characters(), max_size=60))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ledger, ManualClock]]:
    clock = ManualClock()
    path: Path = tmp_path_factory.mktemp("one-stop") / "relay.db"
    ledger = Ledger.open(path, projections=Relay.projections(), clock=clock)
    yield ledger, clock
    ledger.close()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=every_text, step=st.integers(1, 50))
@example(text="", step=1)
@example(text="\x00 nul and \x1b escape", step=3)
@example(text="e\u0301 not composed, \u202e reversed, \ufeff marked", step=1)
@example(text="lone \ud800 surrogate", step=2)
@example(text="trailing white space \n\n\t ", step=7)
@example(text="word " * 2000, step=40)
def test_the_output_is_the_providers_text(shared: tuple[Ledger, ManualClock], text: str, step: int) -> None:
    ledger, clock = shared
    model = Pieces([text], delta=lambda _: step)

    async def main() -> None:
        relay = make_relay(ledger, clock, model)
        session = await relay.init(f"app {len(model.calls)} {clock.now_ms()}", config={"max_output_tokens": 8192})
        reply = await session.dispatch("Be exact.", "Say it.")
        assert reply.output == text
        assert reply.report.output == text
        assert len(model.calls) == 1
        assert reply.report.quality_tier == "S"
        assert reply.report.continuation_windows == 0
        # And the ledger holds the same text: a restarted process would say the same.
        warm, _ = await relay.fold(session.id)
        assert warm.windows == 1
        clock.advance(1)
        await session.close()

    clock.run(main())
