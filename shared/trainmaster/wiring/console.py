"""The console on Google Cloud or on the local stack: what its pages read, and what users may do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from cachetools import TTLCache, cached

from trainmaster.console.actions import Action, Actions, Denied, all_denied
from trainmaster.console.caches import LedgerCache, MetricCache
from trainmaster.console.iap_sign_in import IapSignIn
from trainmaster.console.job_counter import JobCounter
from trainmaster.console.pages.log_window import LogQuery
from trainmaster.console.pages.service import Console
from trainmaster.core.model.installation import name_in_installation
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.report import CostSources
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.gcp import clients
from trainmaster.gcp.addresses import DnsAddresses, EmulatorAddresses
from trainmaster.gcp.errors import USER_ERRORS, explain
from trainmaster.gcp.iap_assertions import IapAssertions
from trainmaster.gcp.log_entries import Entry
from trainmaster.gcp.own_permissions import missing_publish_permission, missing_state_permissions
from trainmaster.gcp.retries import OPTIONAL_READ_S
from trainmaster.messaging import topics
from trainmaster.ports import AddressBook
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster.settings import Addressing, settings
from trainmaster.wiring import core_services, log_reader, metrics

PERMISSIONS_KNOWN_S: Final = 60.0
"""Seconds for which the answer about the user's own permissions is used."""
READ_ONLY: Final = (
    "This console is read-only. With roles/iap.httpsResourceAccessor on the service "
    f"{name_in_installation('trainmaster-console-operator')} you can act there."
)


def console(
    version: str,
    denied: Callable[[], Denied] | None = None,
    cost_sources: CostSources | None = None,
) -> Console:
    """Return the console of the installation that the settings name.

    It acts with the credentials of the process.

    `denied`: what its users may not do; None: what the credentials of the process do not permit.
    `cost_sources`: None: pages show neither prices nor when checkpoints were written.
    """
    values = settings()
    store = core_services.store()
    address_book: AddressBook = DnsAddresses(values.project)
    is_emulated = values.addressing is Addressing.EMULATOR
    if is_emulated:
        address_book = EmulatorAddresses(values.compute_endpoint)
    has_emulators = is_emulated or bool(os.environ.get(clients.PUBSUB_EMULATOR))
    # Emulators permit everything.
    by_credentials: Callable[[], Denied] = dict if has_emulators else denied_by_credentials
    return Console(
        project=values.project,
        store=store,
        ledgers=LedgerCache(store),
        counter=JobCounter(store),
        read_log=_read_log,
        metrics=MetricCache(metrics.metric_reader(OPTIONAL_READ_S)),
        address_book=address_book,
        clock=lambda: datetime.now(UTC),
        limits=values.limits,
        ml_unit_price=values.ml_unit_price,
        actions=Actions(core_services.deps, denied or by_credentials),
        version=version,
        log_project=values.log_project,
        cost_sources=replace(
            cost_sources or CostSources(),
            machine_set=lambda job: machine_set_of(job, store),
        ),
        bucket_browser="" if has_emulators else "https://console.cloud.google.com/storage/browser/",
    )


def _read_log(query: LogQuery) -> tuple[Sequence[Entry], str]:
    """See `LogEntries.page`. A page shows also the errors that a user can repair."""
    try:
        return log_reader.log_entries().page(
            query.filter, query.token, newest_first=query.newest_first, limit=query.limit
        )
    except USER_ERRORS as error:
        raise PermanentError(explain(error) or str(error)) from error


def hosted_console(version: str) -> tuple[Console, IapSignIn]:
    """Return the console behind Identity-Aware Proxy, and its sign-in."""
    values = settings()
    sign_in = IapSignIn(IapAssertions(values.console_audience, values.console_keys).user)
    denied = {} if values.console_acts else all_denied(READ_ONLY)
    return console(version, lambda: denied, CostSources(prices=_price_list)), sign_in


def _price_list() -> PriceList | Unknown:
    """Return the price list, or why there is none.

    The first page pays for the import of the Cloud Storage client.
    """
    from trainmaster.wiring.price_list import price_list

    return price_list()


@cached(TTLCache(maxsize=1, ttl=PERMISSIONS_KNOWN_S))
def denied_by_credentials() -> Denied:
    """Return what the credentials of the process do not permit, with the permissions that they
    lack.

    An action writes the state, publishes a message, or both.
    """
    project = settings().project
    state = missing_state_permissions(project)
    on_provision = missing_publish_permission(project, name_in_installation(topics.PROVISION))
    on_submit = missing_publish_permission(project, name_in_installation(topics.SUBMIT))
    missing = {
        Action.CANCEL: state + on_provision,
        Action.SUBMIT: on_submit,
        Action.LABELS: state,
        Action.DELETE: state,
        Action.RELEASE: state + on_provision,
    }
    return {
        action: f"You lack {' and '.join(names)}." for action, names in missing.items() if names
    }
