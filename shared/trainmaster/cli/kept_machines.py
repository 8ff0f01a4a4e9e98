"""`trainmaster machines --kept` and `--release`: the machines that wait for a next job."""

from __future__ import annotations

from typing import Any

from trainmaster.cli.installation import open_store, user_name
from trainmaster.cli.output import Format, print_json, print_table, say
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.ports import Store
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.kept_machines import kept_machine_words, kept_price, submitter_of


def show_kept(form: Format) -> None:
    """Print the machine sets that are kept."""
    store = open_store()
    rows = [_row(loaded.machine_set, store) for loaded in store.kept_machines()]
    if form is Format.JSON:
        print_json(rows)
    elif not rows:
        say("No machines are kept. A job keeps its own with keepMachines, or with --keep.")
    else:
        columns = ("jobId", "owner", "machines", "zone", "keptUntil", "perHour")
        print_table(columns, [[row[column] for column in columns] for row in rows])


def _row(machines: MachineSet, store: Store) -> dict[str, Any]:
    return {
        "jobId": machines.holder,
        "owner": submitter_of(machines),
        "machines": kept_machine_words(machines),
        "zone": machines.zone,
        "keptUntil": timestamp(machines.until),
        "perHour": _price_per_hour(machines, store),
        "vms": [vm.instance_id for vm in machines.vms],
    }


def _price_per_hour(machines: MachineSet, store: Store) -> str:
    """Return the list price in words; empty: it is not known."""
    from trainmaster.wiring.price_list import price_list

    prices = price_list()
    loaded = store.load(machines.holder)
    price = kept_price(machines, loaded.state.job, prices) if loaded else None
    if price is None or isinstance(prices, Unknown):
        return ""
    return f"{price:.2f} {prices.currency}"


def release_kept(job_id: str) -> None:
    """Release the machines that the job keeps. Raises PermanentError if it keeps none."""
    from trainmaster.flows.user_requests import release_machines
    from trainmaster.wiring.core_services import deps

    if not release_machines(job_id, deps(), by=user_name()):
        raise PermanentError(
            f"{job_id} keeps no machines: `trainmaster machines --kept` shows who does"
        )
    say(f"The machines of {job_id} are being deleted.")
