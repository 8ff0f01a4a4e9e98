"""The Compute API's calls, one method each: arguments from the URL, answers in Google's JSON.

Named by `server`'s routes. What a call means is `cloud`'s; here are the shapes: lists, pages, aggregated lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from werkzeug.wrappers import Request

from emulators.compute.api_errors import Json, invalid
from emulators.compute.catalog import stable_id
from emulators.compute.cloud import Cloud
from emulators.compute.list_filter import page, parse_filter
from emulators.compute.operations import Operation


def json_body(request: Request) -> Json:
    """The request's body; none is an empty object."""
    body = request.get_json(force=True, silent=True) if request.get_data() else {}
    if not isinstance(body, dict):
        raise invalid("body", request.get_data(as_text=True)[:100], "The request body must be a JSON object.")
    return body


class ComputeApi:
    """For one request."""

    def __init__(self, cloud: Cloud, request: Request) -> None:
        self._cloud, self._request = cloud, request
        self._args: Mapping[str, str] = request.args

    # What is always there

    def project(self) -> Json:
        project = self._cloud.project
        return {
            "kind": "compute#project",
            "id": str(project.number),
            "name": project.id,
            "selfLink": self._cloud.links(),
            "defaultServiceAccount": project.default_account,
            "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA=", "items": []},
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
        every = ((zone, each) for zone in catalog.zone_names() for each in catalog.machine_types(zone))
        return self._aggregated("compute#machineTypeAggregatedList", "machineTypes", every)

    def accelerator_types(self, zone: str) -> Json:
        types = self._cloud.catalog.accelerator_types(zone)
        return self._list("compute#acceleratorTypeList", types, "zones", zone, "acceleratorTypes")

    # Instances

    def instances(self, zone: str) -> Json:
        self._cloud.catalog.zone(zone)
        links = self._cloud.links
        here = [each.as_json(links) for each in self._cloud.list_all() if each.zone == zone]
        return self._list("compute#instanceList", here, "zones", zone, "instances")

    def aggregated_instances(self) -> Json:
        every = ((each.zone, each.as_json(self._cloud.links)) for each in self._cloud.list_all())
        return self._aggregated("compute#instanceAggregatedList", "instances", every)

    def instance(self, zone: str, name: str) -> Json:
        return self._cloud.get(zone, name).as_json(self._cloud.links)

    def insert(self, zone: str) -> Json:
        return self._begun(self._cloud.insert(zone, json_body(self._request), self._request_id))

    def bulk_insert(self, zone: str) -> Json:
        return self._begun(self._cloud.bulk_insert(zone, json_body(self._request), self._request_id))

    def delete(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.delete(zone, name, self._request_id))

    def stop(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.stop(zone, name, self._request_id))

    def start(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.start(zone, name, self._request_id))

    def reset(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.reset(zone, name, self._request_id))

    def set_metadata(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.set_metadata(zone, name, json_body(self._request), self._request_id))

    def set_labels(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.set_labels(zone, name, json_body(self._request), self._request_id))

    def simulate_maintenance_event(self, zone: str, name: str) -> Json:
        return self._begun(self._cloud.simulate_maintenance_event(zone, name, self._request_id))

    def serial_port(self, zone: str, name: str) -> Json:
        """Port 1 has the output; the others of a VM are silent."""
        instance = self._cloud.get(zone, name)
        asked = int(self._args.get("start") or 0)
        begin, contents, following = (0, "", 0)
        if self._args.get("port", "1") == "1":
            begin, contents, following = instance.disk.serial_output(asked)
        return {
            "kind": "compute#serialPortOutput",
            "start": str(begin),
            "next": str(following),
            "contents": contents,
            "selfLink": f"{instance.link(self._cloud.links)}/serialPort",
        }

    # Resource policies

    def resource_policies(self, region: str) -> Json:
        found = self._cloud.policies.in_region(region)
        return self._list("compute#resourcePolicyList", found, "regions", region, "resourcePolicies")

    def resource_policy(self, region: str, name: str) -> Json:
        return self._cloud.policies.get(region, name)

    def insert_resource_policy(self, region: str) -> Json:
        return self._begun(self._cloud.policies.insert(region, json_body(self._request), self._request_id))

    def delete_resource_policy(self, region: str, name: str) -> Json:
        return self._begun(self._cloud.policies.delete(region, name, self._request_id))

    # Operations

    def operations(self, zone: str | None = None, region: str | None = None) -> Json:
        scope = ("zones", zone) if zone else ("regions", region) if region else ("global",)
        mine = [each for each in self._cloud.operations.list_all() if each.place == (zone or region)]
        shown = [self._cloud.operations.show(each) for each in mine]
        return self._list("compute#operationList", shown, *(part for part in scope if part), "operations")

    def aggregated_operations(self) -> Json:
        store = self._cloud.operations
        every = ((each.place or "", store.show(each)) for each in store.list_all())
        return self._aggregated("compute#operationAggregatedList", "operations", every)

    def operation(self, name: str, zone: str | None = None, region: str | None = None) -> Json:
        return self._begun(self._cloud.operations.get(region or zone, name))

    def wait(self, name: str, zone: str | None = None, region: str | None = None) -> Json:
        return self._begun(self._cloud.operations.wait(region or zone, name))

    # Shapes

    @property
    def _request_id(self) -> str | None:
        return self._args.get("requestId") or None

    def _begun(self, operation: Operation) -> Json:
        return self._cloud.operations.show(operation)

    def _page(self, items: Iterable[tuple[str, Json]]) -> tuple[list[Json], str | None]:
        desired = parse_filter(self._args.get("filter", ""))
        found = sorted(((key, item) for key, item in items if desired(item)), key=lambda pair: pair[0])
        return page(found, self._args.get("maxResults"), self._args.get("pageToken"))

    def _list(self, kind: str, items: Iterable[Json], *collection: str) -> Json:
        found, following = self._page((item["name"], item) for item in items)
        return self._listing(kind, found, following, *collection)

    def _aggregated(self, kind: str, collection: str, items: Iterable[tuple[str, Json]]) -> Json:
        """By scope; every zone is named, those without a result with a warning that says so."""
        zones = {f"zones/{zone}": zone for zone in self._cloud.catalog.zone_names()}
        found, following = self._page((f"{zone}/{item['name']}", item) for zone, item in items)
        scopes: dict[str, Json] = {}
        for item in found:
            place = next((key for key in ("zone", "region") if key in item), None)
            scope = f"{place}s/{item[place].rpartition('/')[2]}" if place else "global"
            scopes.setdefault(scope, {collection: []})[collection].append(item)
        for scope in zones.keys() - scopes.keys():
            message = f"There are no results for scope '{scope}' on this page."
            data = [{"key": "scope", "value": scope}]
            scopes[scope] = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": data}}
        listing = self._listing(kind, [], following, "aggregated", collection)
        return listing | {"items": {scope: scopes[scope] for scope in sorted(scopes)}}

    def _listing(self, kind: str, items: list[Json], following: str | None, *collection: str) -> Json:
        link = self._cloud.links(*collection)
        listing: Json = {"kind": kind, "id": str(stable_id(link)), "items": items, "selfLink": link}
        return listing | ({"nextPageToken": following} if following else {})
