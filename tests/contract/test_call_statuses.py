"""What each status of Google's answers means for each call of the fleets: no refusal is guessed.

    done       the request was repeated, or its answer is not needed
    undone     the call is made again by the next reconciliation
    pending    the same, of a create
    unknown    nothing is known, and nothing follows from that
    later      TemporaryError: Pub/Sub delivers the event again
    refused    RefusedError: the same, and an alert tells an operator
    blocked    the create is refused until an operator repairs something
    denied     the create is refused, whatever an operator does

A PermanentError would end the event in the dead-letter topic, while the VMs that it is about go on
to cost money. 412 is what Compute Engine answers when an organisation policy forbids a call.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.contract.call_statuses import CALLS, STATUSES, Call, Clouds, outcome
from tests.integration.compute.emulator import Emulator

MEANINGS: Final = """
                             400      403      404      409      412      429      500      503
list VMs                     done     refused  refused  later    refused  done     done     done
list all VMs                 done     refused  refused  later    refused  done     done     done
insert VMs                   denied   blocked  blocked  later    blocked  done     later    later
wait for an operation        refused  refused  refused  later    refused  later    later    later
list VMs of a zone           done     refused  refused  later    refused  done     done     done
create a placement policy    denied   blocked  blocked  later    blocked  done     later    later
delete a placement policy    refused  refused  done     later    refused  done     later    later
delete a VM                  refused  done     done     later    refused  done     later    later
read a VM                    refused  done     undone   later    refused  done     done     done
write metadata               refused  done     undone   later    refused  done     later    later
write labels                 refused  done     undone   later    refused  done     later    later
read a heartbeat             unknown  unknown  unknown  later    unknown  unknown  unknown  unknown
read a trial's metric        unknown  unknown  unknown  later    unknown  unknown  unknown  unknown
read the serial console      refused  refused  done     later    refused  done     done     done
ask for advice               done     done     done     done     done     done     done     done
list TPU nodes               done     refused  refused  refused  refused  done     done     done
list all TPU nodes           done     refused  refused  refused  refused  done     done     done
list queued resources        done     refused  refused  refused  refused  done     done     done
list a slice's operations    refused  refused  refused  refused  refused  later    later    later
create a slice               denied   blocked  blocked  pending  blocked  later    later    later
follow a slice's operation   refused  refused  refused  refused  refused  later    later    later
read a slice                 refused  refused  done     refused  refused  done     done     done
delete a slice               refused  refused  done     refused  undone   later    later    later
direct a slice               undone   refused  undone   refused  refused  later    later    later
read a slice's heartbeat     unknown  unknown  unknown  unknown  unknown  unknown  unknown  unknown
read a queued resource       refused  refused  pending  refused  refused  pending  pending  pending
queue a slice                denied   blocked  blocked  pending  blocked  later    later    later
"""


def parse(table: str) -> dict[str, list[str]]:
    """Return the words of each row after the name of its call."""
    rows = [line.rsplit(maxsplit=len(STATUSES)) for line in table.strip("\n").splitlines()[1:]]
    return {name: words for name, *words in rows}


def test_table_has_each_call() -> None:
    assert list(parse(MEANINGS)) == [call.name for call in CALLS]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_status_means_what_the_table_says(call: Call, emulator: Emulator) -> None:
    clouds = Clouds(emulator)
    found = []
    make = call.prepare(clouds)
    for status in STATUSES:
        clouds.fail(call, status)
        found.append(outcome(make))
        assert clouds.has_failed(), f"the call makes no such request before the answer {status}"
        if not call.is_read:
            make = call.prepare(clouds)
    assert found == parse(MEANINGS)[call.name]
    clouds.clear()


@pytest.mark.parametrize("name", ["read a heartbeat", "read a slice's heartbeat"])
def test_status_that_the_client_library_does_not_know_says_nothing_about_a_vm(
    name: str, emulator: Emulator
) -> None:
    """It has classes for the usual ones only."""
    (call,) = [call for call in CALLS if call.name == name]
    clouds = Clouds(emulator)
    make = call.prepare(clouds)
    found = {}
    for status in (408, 410, 422):
        clouds.fail(call, status)
        found[status] = outcome(make)
    assert found == {408: "later", 410: "unknown", 422: "unknown"}
