"""Governance of agents (OpenWOP 1.11): budgets, credentials, deployments, evaluations, roster, org chart, triggers."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.governance.account_book import Claim
    from forestay.governance.accounts import Account, ModelCall, Reservation, Short, fit, fit_model_call
    from forestay.governance.authorizations import WORKFLOW as AUTHORIZE
    from forestay.governance.authorizations import Authorizations
    from forestay.governance.budget_policy import BudgetScope
    from forestay.governance.budget_table import BudgetTable
    from forestay.governance.budgets import Budgets, MeteredGate, Metering, Standing
    from forestay.governance.credential import Credential, Use
    from forestay.governance.credentials import Credentials, Secret
    from forestay.governance.deployment import CHANNELS, Deployment, Fleet, State, Transition, decide, evolve, resolve
    from forestay.governance.deployments import UNBOUND_DEPLOYMENT, WORKFLOW, Deployments, Score, Settled
    from forestay.governance.directory import AgentDirectory
    from forestay.governance.eval_suite import EvalMode, EvalSuite, Match, Thresholds, read_suite
    from forestay.governance.evaluation_workflows import EVALUATION, TASK
    from forestay.governance.evaluations import Evaluations
    from forestay.governance.inbound_mail import MailRules, mail_event
    from forestay.governance.inbound_signature import Signed, sign
    from forestay.governance.intake_form import FormField, form_fields, form_inputs, form_page, form_token
    from forestay.governance.oauth_client import Provider, read_return
    from forestay.governance.prompt_library import PromptLibrary, read_prompts
    from forestay.governance.roster import (
        AgentRef,
        OrgChart,
        Responsibilities,
        RosterEntry,
        read_chart,
        responsibilities,
    )
    from forestay.governance.scorecard import TaskScore, Trial, interval, percentile, summary
    from forestay.governance.scoring import Finding, Judge, scorer_of
    from forestay.governance.staff import MEMBER, Staff
    from forestay.governance.trigger import (
        ShownSubscription,
        Source,
        SourceSettings,
        Subscription,
        SubscriptionState,
        TriggerRetry,
        delay_ms,
        move,
    )
    from forestay.governance.trigger_clock import TriggerClock
    from forestay.governance.trigger_table import TriggerTable
    from forestay.governance.triggers import TriggerDelivery, Triggers

__getattr__, __dir__ = face(__name__, __file__)
