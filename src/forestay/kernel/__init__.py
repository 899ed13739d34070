"""What everything else stands on: canonical JSON, clock, ids, problems, ledger, policy, redaction, budgets, config."""
