"""Dialogs of extensions in a host: a form becomes an interrupt of the run that waits for it (`form_inquiry`).

When no run waits for the extension, the person at the terminal answers. Without a person the dialog is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.extensions import NoUi, Ui
from forestay.host.form_inquiry import TYPES, FormInquiry
from forestay.host.prompts import Prompts


class RunUi:
    """Lets runs ask the forms; `ui` shows everything else. Without `ui` nobody answers the rest."""

    def __init__(self, prompts: Prompts, ui: Ui | None = None) -> None:
        self._prompts = prompts
        self._ui = ui or NoUi()
        self.colour, self.color_mode = self._ui.colour, self._ui.color_mode

    @property
    def interactive(self) -> bool:
        return self._ui.interactive

    def columns(self, extension: str) -> int:
        return self._ui.columns(extension)

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation not in TYPES:
            return await self._ui.request(extension, operation, params)
        answer = await self._prompts.inquire(FormInquiry(extension, operation, params))
        return await self._ui.request(extension, operation, params) if answer is None and self.interactive else answer
