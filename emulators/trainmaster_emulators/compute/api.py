"""The calls of the Compute API, one method each: arguments from the URL, responses in Google's
JSON.

The routes of `server` contain the methods' names. `cloud` carries out the calls; this module builds
lists, pages and aggregated lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, partialmethod

from werkzeug.wrappers import Request

from trainmaster_emulators.compute.cloud import Cloud
from trainmaster_emulators.compute.list_filter import parse_filter
from trainmaster_emulators.compute.pages import take_page
from trainmaster_emulators.machines.catalog import basename, stable_id
from trainmaster_emulators.machines.compute_errors import ApiError, Json, not_found
from trainmaster_emulators.machines.operations import Operation
from trainmaster_emulators.rest import server as rest

json_body = partial(rest.json_body, error=lambda problem: ApiError(400, "parseError", problem))


class ComputeApi:
    """The calls of one request."""

    def __init__(self, cloud: Cloud, request: Request) -> None:
        self._cloud = cloud
        self._request = request
        self._args: Mapping[str, str] = request.args

    # Fixed resources

    def project(self) -> Json:
        project = self._cloud.project
        return {
            "kind": "compute#project",
            "id": str(project.number),
            "name": project.id,
            "selfLink": self._cloud.links(),
            "defaultServiceAccount": project.default_account,
            "commonInstanceMetadata": {
                "kind": "compute#metadata",
                "fingerprint": "AAAAAAAAAAA=",
                "items": [],
            },
            "quotas": [],
        }

    def regions(self) -> Json:
        return self._list("compute#regionList", self._cloud.catalog.regions(), "regions")

    def region(self, name: str) -> Json:
        return self._cloud.catalog.region(name)

    def zones(self) -> Json:
        return self._list("compute#zoneList", self._cloud.catalog.zones(), "zones")

    def zone(self, zone: str) -> Json:
        return self._cloud.catalog.zone(zone)

    def machine_types(self, zone: str) -> Json:
        types = self._cloud.catalog.machine_types(zone)
        return self._list("compute#machineTypeList", types, "zones", zone, "machineTypes")

    def machine_type(self, zone: str, name: str) -> Json:
        return self._cloud.catalog.machine_type(zone, name)

    def aggregated_machine_types(self) -> Json:
        catalog = self._cloud.catalog
        types: list[tuple[str, Json]] = []
        for zone in catalog.zone_names():
            types += [(zone, machine_type) for machine_type in catalog.machine_types(zone)]
        return self._aggregated("compute#machineTypeAggregatedList", "machineTypes", types)

    def accelerator_types(self, zone: str) -> Json:
        types = self._cloud.catalog.accelerator_types(zone)
        return self._list("compute#acceleratorTypeList", types, "zones", zone, "acceleratorTypes")

    # Instances

    def instances(self, zone: str) -> Json:
        self._cloud.catalog.zone(zone)
        links = self._cloud.links
        instances = [
            instance.as_json(links)
            for instance in self._cloud.instances.list_visible()
            if instance.zone == zone
        ]
        return self._list("compute#instanceList", instances, "zones", zone, "instances")

    def aggregated_instances(self) -> Json:
        """List all instances.

        A zone that cannot be reached is named twice: by its warning and in `unreachables`.
        """
        links = self._cloud.links
        unreachable_zones = self._cloud.faults.now.unreachable_zones
        instances = [
            (instance.zone, instance.as_json(links))
            for instance in self._cloud.instances.list_visible()
            if instance.zone not in unreachable_zones
        ]
        listing = self._aggregated("compute#instanceAggregatedList", "instances", instances)
        for zone in unreachable_zones:
            scope = f"zones/{zone}"
            message = f"The zone '{zone}' is unreachable."
            listing["items"][scope] = {"warning": _warning("UNREACHABLE", message, scope)}
        if unreachable_zones:
            listing["unreachables"] = [f"zones/{zone}" for zone in unreachable_zones]
        return listing

    def instance(self, zone: str, name: str) -> Json:
        return self._cloud.instances.get(zone, name).as_json(self._cloud.links)

    def insert(self, zone: str) -> Json:
        return self._show(self._cloud.insert(zone, json_body(self._request), self._request_id))

    def bulk_insert(self, zone: str) -> Json:
        return self._show(self._cloud.bulk_insert(zone, json_body(self._request), self._request_id))

    def _transition(self, verb: str, zone: str, name: str) -> Json:
        return self._show(self._cloud.transition(verb, zone, name, self._request_id))

    delete = partialmethod(_transition, "delete")
    stop = partialmethod(_transition, "stop")
    start = partialmethod(_transition, "start")
    reset = partialmethod(_transition, "reset")

    def set_metadata(self, zone: str, name: str) -> Json:
        return self._show(
            self._cloud.set_metadata(zone, name, json_body(self._request), self._request_id)
        )

    def set_labels(self, zone: str, name: str) -> Json:
        return self._show(
            self._cloud.set_labels(zone, name, json_body(self._request), self._request_id)
        )

    def simulate_maintenance_event(self, zone: str, name: str) -> Json:
        return self._show(self._cloud.simulate_maintenance_event(zone, name, self._request_id))

    def serial_port(self, zone: str, name: str) -> Json:
        """Return the output of port 1. The other ports have none."""
        instance = self._cloud.instances.get(zone, name)
        if self._args.get("port", "1") == "1":
            first_byte = int(self._args.get("start") or 0)
            start, contents, next_start = instance.disk.serial_output(first_byte)
        else:
            start, contents, next_start = 0, "", 0
        return {
            "kind": "compute#serialPortOutput",
            "start": str(start),
            "next": str(next_start),
            "contents": contents,
            "selfLink": f"{instance.link(self._cloud.links)}/serialPort",
        }

    def guest_attributes(self, zone: str, name: str) -> Json:
        """Return the values of a namespace, `NAMESPACE/`, or one of them, `NAMESPACE/KEY`."""
        instance = self._cloud.instances.get(zone, name)
        path = self._args.get("queryPath", "")
        namespace, _, key = path.partition("/")
        values = instance.guest_attributes.get(namespace, {})
        found = {name: value for name, value in values.items() if key in ("", name)}
        if not found:
            raise not_found(f"{instance.path(self._cloud.links)}/guestAttributes/{path}")
        return {
            "kind": "compute#guestAttributes",
            "queryPath": path,
            "queryValue": {
                "items": [
                    {"namespace": namespace, "key": name, "value": value}
                    for name, value in found.items()
                ]
            },
            "selfLink": f"{instance.link(self._cloud.links)}/guestAttributes",
        }

    def advise_capacity(self, region: str) -> Json:
        return self._cloud.capacity.advise(region, json_body(self._request))

    # Resource policies

    def resource_policies(self, region: str) -> Json:
        policies = self._cloud.policies.in_region(region)
        return self._list(
            "compute#resourcePolicyList", policies, "regions", region, "resourcePolicies"
        )

    def resource_policy(self, region: str, name: str) -> Json:
        return self._cloud.policies.get(region, name)

    def insert_resource_policy(self, region: str) -> Json:
        return self._show(
            self._cloud.policies.insert(region, json_body(self._request), self._request_id)
        )

    def delete_resource_policy(self, region: str, name: str) -> Json:
        return self._show(self._cloud.policies.delete(region, name, self._request_id))

    # Operations

    def operations(self, zone: str | None = None, region: str | None = None) -> Json:
        """List the operations of a zone, of a region, or of the project."""
        scope: tuple[str, ...] = ("global",)
        if zone:
            scope = ("zones", zone)
        elif region:
            scope = ("regions", region)
        store = self._cloud.operations
        operations = [
            store.show(operation)
            for operation in store.list_all()
            if operation.location == (zone or region)
        ]
        return self._list("compute#operationList", operations, *scope, "operations")

    def aggregated_operations(self) -> Json:
        store = self._cloud.operations
        operations = ((operation.location, store.show(operation)) for operation in store.list_all())
        return self._aggregated("compute#operationAggregatedList", "operations", operations)

    def operation(self, name: str, zone: str | None = None, region: str | None = None) -> Json:
        return self._show(self._cloud.operations.get(region or zone, name))

    def wait(self, name: str, zone: str | None = None, region: str | None = None) -> Json:
        return self._show(self._cloud.operations.wait(region or zone, name))

    # Responses

    @property
    def _request_id(self) -> str | None:
        return self._args.get("requestId") or None

    def _show(self, operation: Operation) -> Json:
        return self._cloud.operations.show(operation)

    def _page(self, items: Iterable[tuple[str, Json]]) -> tuple[list[Json], str | None]:
        """Return the page that the request asks for, and the token of the next one.

        `items`: sort keys and resources.
        """
        is_match = parse_filter(self._args.get("filter", ""))
        matches = sorted(
            ((key, item) for key, item in items if is_match(item)), key=lambda pair: pair[0]
        )
        return take_page(matches, self._args.get("maxResults"), self._args.get("pageToken"))

    def _list(self, kind: str, items: Iterable[Json], *collection: str) -> Json:
        """Return a page of resources, sorted by name. `collection`: parts of their list's path."""
        page, next_token = self._page((item["name"], item) for item in items)
        return self._listing(kind, page, next_token, *collection)

    def _aggregated(self, kind: str, collection: str, items: Iterable[tuple[str, Json]]) -> Json:
        """Return the items by scope.

        A zone without items is included with a warning, as Google does.
        """
        zone_scopes = {f"zones/{zone}" for zone in self._cloud.catalog.zone_names()}
        page, next_token = self._page((f"{zone}/{item['name']}", item) for zone, item in items)
        scopes: dict[str, Json] = {}
        for item in page:
            scopes.setdefault(_scope_of(item), {collection: []})[collection].append(item)
        for scope in zone_scopes - scopes.keys():
            message = f"There are no results for scope '{scope}' on this page."
            scopes[scope] = {"warning": _warning("NO_RESULTS_ON_PAGE", message, scope)}
        listing = self._listing(kind, [], next_token, "aggregated", collection)
        return listing | {"items": {scope: scopes[scope] for scope in sorted(scopes)}}

    def _listing(
        self, kind: str, items: list[Json], next_token: str | None, *collection: str
    ) -> Json:
        link = self._cloud.links(*collection)
        listing: Json = {"kind": kind, "id": str(stable_id(link)), "items": items, "selfLink": link}
        if next_token:
            listing["nextPageToken"] = next_token
        return listing


def _scope_of(item: Json) -> str:
    """Return the scope of a resource in an aggregated list, such as `zones/us-central1-a`."""
    for kind in ("zone", "region"):
        if kind in item:
            return f"{kind}s/{basename(item[kind])}"
    return "global"


def _warning(code: str, message: str, scope: str) -> Json:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}
