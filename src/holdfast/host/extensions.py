"""The project's extensions, opened when somebody first needs them: engines and compilers are not paid for before.

N1  Only extensions that a person trusts are executed (`trust`); the others are listed, not loaded.
N2  An agent's own tools go through the same door as an extension's host calls: same policy, same evidence.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.host.trust import Candidate, Trust
from holdfast.kernel.clock import Clock
from holdfast.kernel.config import Config
from holdfast.kernel.ids import Randomness
from holdfast.kernel.ledger import Ledger

if TYPE_CHECKING:
    from holdfast.extensions.connectors.small import Model
    from holdfast.extensions.consent import Consent
    from holdfast.extensions.suite import Suite


class ProjectExtensions:
    """The suite of one project folder, once."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        root: Path,
        config: Config,
        clock: Clock,
        randomness: Randomness,
        consent: Consent | None = None,
        model: Model | None = None,
    ) -> None:
        self.root = root
        self.trust = Trust(ledger)
        self.has_consent = consent is not None
        self.candidates: list[Candidate] = []
        self._ledger = ledger
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self._consent = consent
        self._model = model
        self._suite: Suite | None = None
        self._opening = asyncio.Lock()

    @property
    def named(self) -> bool:
        """Whether the project names any extension at all."""
        return bool(self._config.extensions.paths)

    async def found(self) -> list[Candidate]:
        """What the project names, with what a person trusts of it."""
        return await self.trust.candidates(self.root, self._config.extensions.paths)

    async def trust_all(self) -> None:
        """Trust what the project names, as it is now."""
        for item in await self.found():
            if not item.trusted and item.problem is None:
                await self.trust.give(item.path, item.digest)

    async def suite(self) -> Suite:
        """The running suite; the first caller opens it and the others wait."""
        async with self._opening:
            if self._suite is None:
                self._suite = await self._open()
            return self._suite

    @property
    def opened(self) -> Suite | None:
        return self._suite

    async def _open(self) -> Suite:
        from holdfast.extensions.suite import Suite

        suite = Suite(
            self._ledger,
            root=self.root,
            config=self._config.extensions,
            consent=self._consent,
            model=self._model,
            clock=self._clock,
            randomness=self._randomness,
        )
        await suite.__aenter__()
        try:
            self.candidates = await self.found()
            for item in self.candidates:
                if item.trusted:
                    await suite.try_load(item.path)
            await suite.emit({"type": "session_start", "reason": "startup"})
        except BaseException:
            await suite.__aexit__(None, None, None)
            raise
        return suite

    async def close(self) -> None:
        if self._suite is not None:
            await self._suite.emit({"type": "session_shutdown", "reason": "quit"})
            await self._suite.__aexit__(None, None, None)
            self._suite = None
