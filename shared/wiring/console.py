"""The console on Google Cloud, or on the local stack: what its pages read, and how they cancel a job."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.console.ledger_cache import LedgerCache
from shared.console.pages.service import Console
from shared.flows.user_requests import cancel_job
from shared.gcp.addresses import DnsAddresses, EmulatorAddresses
from shared.settings import Addressing, settings
from shared.wiring import core_services, log_reader


def console(version: str) -> Console:
    """Return the console of the installation that the settings name. It acts with the credentials of the process."""
    values, store = settings(), core_services.store()
    is_emulated = values.addressing is Addressing.EMULATOR
    return Console(
        project=values.project,
        store=store,
        ledgers=LedgerCache(store),
        read_log=log_reader.log_entries().newest,
        address_book=EmulatorAddresses(values.compute_endpoint) if is_emulated else DnsAddresses(values.project),
        clock=lambda: datetime.now(UTC),
        limits=values.limits,
        ml_unit_price=values.ml_unit_price,
        cancel=lambda job_id, by: cancel_job(job_id, by, core_services.deps()),
        version=version,
    )
