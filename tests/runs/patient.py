"""The ledger and the clock of the runs' tests."""

from tests.kernel.ledger.patient import CountedLedger, PatientClock

__all__ = ["CountedLedger", "PatientClock"]
