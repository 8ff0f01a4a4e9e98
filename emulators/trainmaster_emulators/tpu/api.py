"""The calls of the Cloud TPU API, one method each: arguments from the URL, responses in Google's
JSON.

The routes of `server` contain the methods' names. `cloud` and `resource_queue` carry out the calls;
this module builds lists, pages and operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.machines.field_mask import select
from trainmaster_emulators.machines.injected_faults import ALL_ZONES
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.rest import pages
from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.rest.server import json_body
from trainmaster_emulators.tpu import catalog
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.fields import NODE, QUEUED, V2_ALPHA, check
from trainmaster_emulators.tpu.nodes import Node
from trainmaster_emulators.tpu.operations import Operation
from trainmaster_emulators.tpu.resource_queue import TpuQueue
from trainmaster_emulators.tpu.tpu_errors import bad_request

PAGE_SIZE_MAX: Final = 1000


class TpuApi:
    """The calls of one request. `version`: V2, or V2_ALPHA, which has more fields."""

    def __init__(self, cloud: TpuCloud, queue: TpuQueue, request: Request, version: str) -> None:
        self._cloud = cloud
        self._queue = queue
        self._request = request
        self._shown_version = "V2_ALPHA1" if version == V2_ALPHA else "V2"
        self._node_fields = NODE[version]
        self._queued_fields = QUEUED[version]

    # Fixed resources

    def locations(self) -> Json:
        return {"locations": [self.location(zone) for zone in catalog.zones()]}

    def location(self, zone: str) -> Json:
        catalog.check_zone(zone)
        return {"name": self._cloud.parent(zone), "locationId": zone}

    def accelerator_types(self, zone: str) -> Json:
        base = f"{self._cloud.parent(zone)}/acceleratorTypes"
        types = [
            {
                "name": f"{base}/{slice_.type}",
                "type": slice_.type,
                "acceleratorConfigs": [{"type": slice_.kind, "topology": slice_.topology}],
            }
            for slice_ in catalog.slices(zone)
        ]
        return self._page("acceleratorTypes", types)

    def runtime_versions(self, zone: str) -> Json:
        catalog.check_zone(zone)
        base = f"{self._cloud.parent(zone)}/runtimeVersions"
        versions = [
            {"name": f"{base}/{version}", "version": version}
            for version in catalog.RUNTIME_VERSIONS
        ]
        return self._page("runtimeVersions", versions)

    # Nodes

    def nodes(self, zone: str) -> Json:
        """List the nodes of a zone, or with `-` of all zones, sorted by name."""
        if zone != ALL_ZONES:
            catalog.check_zone(zone)
        nodes = [
            self._node_json(node)
            for node in self._cloud.list_all()
            if self._is_listed(node.zone, zone)
        ]
        return self._page("nodes", nodes) | self._unreachable(zone)

    def node(self, zone: str, node_id: str) -> Json:
        return self._node_json(self._cloud.get(zone, node_id))

    def create(self, zone: str) -> Json:
        body = check(self._body(), self._node_fields, "node")
        return self._show(self._cloud.create(zone, self._argument("nodeId", "node_id"), body))

    def update(self, zone: str, node_id: str) -> Json:
        mask = set(filter(None, self._argument("updateMask", "update_mask").split(",")))
        body = check(self._body(), self._node_fields, "node")
        return self._show(self._cloud.update(zone, node_id, mask, body))

    def _transition(self, verb: str, zone: str, node_id: str) -> Json:
        return self._show(self._cloud.transition(verb, zone, node_id))

    delete = partialmethod(_transition, "delete")
    start = partialmethod(_transition, "start")
    stop = partialmethod(_transition, "stop")

    def guest_attributes(self, zone: str, node_id: str) -> Json:
        """Return the guest attributes of some hosts, or of all.

        A path is `NAMESPACE/KEY`, `NAMESPACE/` or empty, with or without a slash before it. Google
        does not document the answer for a value that does not exist: here, the host has no items.
        """
        node = self._cloud.get(zone, node_id)
        body = self._body()
        requested = {str(number) for number in body.get("workerIds") or () if number}
        all_numbers = {str(number) for number in range(node.spec.slice.hosts)}
        unknown = requested - all_numbers
        if unknown:
            raise bad_request(f"Invalid worker ids: {', '.join(sorted(unknown))}.")
        path = str(body.get("queryPath") or "")
        shown = requested or all_numbers
        return {
            "guestAttributes": [
                {"queryPath": path, "queryValue": _guest_values(host, path)}
                for number, host in enumerate(node.hosts)
                if str(number) in shown
            ]
        }

    # QueuedResource resources

    def all_queued(self, zone: str) -> Json:
        if zone != ALL_ZONES:
            catalog.check_zone(zone)
        queued = [
            select(resource.as_json(), self._queued_fields)
            for resource in self._queue.list_all()
            if self._is_listed(resource.zone, zone)
        ]
        return self._page("queuedResources", queued) | self._unreachable(zone)

    def queued(self, zone: str, name: str) -> Json:
        queued: Json = select(self._queue.get(zone, name).as_json(), self._queued_fields)
        return queued

    def enqueue(self, zone: str) -> Json:
        name = self._argument("queuedResourceId", "queued_resource_id")
        body = check(self._body(), self._queued_fields, "queued_resource")
        return self._show(self._queue.create(zone, name, body))

    def delete_queued(self, zone: str, name: str) -> Json:
        force = self._argument("force").lower() == "true"
        return self._show(self._queue.delete(zone, name, force=force))

    # Operations

    def operations(self, zone: str) -> Json:
        catalog.check_zone(zone)
        return self._page("operations", self._cloud.operations.list_of(self._cloud.parent(zone)))

    def operation(self, zone: str, name: str) -> Json:
        return self._cloud.operations.get(f"{self._cloud.parent(zone)}/operations/{name}")

    def delete_operation(self, zone: str, name: str) -> Json:
        self._cloud.operations.delete(f"{self._cloud.parent(zone)}/operations/{name}")
        return {}

    def _node_json(self, node: Node) -> Json:
        return {**select(node.as_json(), self._node_fields), "apiVersion": self._shown_version}

    def _is_listed(self, zone: str, requested_zone: str) -> bool:
        if requested_zone == ALL_ZONES:
            return zone not in self._cloud.faults.now.unreachable_zones
        return zone == requested_zone

    def _unreachable(self, requested_zone: str) -> Json:
        """Return the locations that a list lacks. Only a list of all zones can lack one."""
        zones = self._cloud.faults.now.unreachable_zones
        if requested_zone != ALL_ZONES or not zones:
            return {}
        return {"unreachable": [self._cloud.parent(zone) for zone in zones]}

    def _show(self, operation: Operation) -> Json:
        return self._cloud.operations.get(operation.name)

    def _argument(self, *spellings: str) -> str:
        """Return a URL parameter. Google's clients write its name in camel case or snake case."""
        for name in spellings:
            if name in self._request.args:
                return self._request.args[name]
        return ""

    def _body(self) -> Json:
        return json_body(self._request, error=bad_request)

    def _page(self, key: str, items: Sequence[Json]) -> Json:
        size = self._argument("pageSize", "page_size") or "0"
        token = self._argument("pageToken", "page_token") or "0"
        error = bad_request(f"Invalid pageSize '{size}' or pageToken '{token}'.")
        shown, next_token = pages.numbered_page(
            items, token, pages.page_size(size, PAGE_SIZE_MAX, error), error
        )
        page: Json = {}
        if shown:
            page[key] = list(shown)
        if next_token:
            page["nextPageToken"] = next_token
        return page


def _guest_values(host: Instance, path: str) -> Json:
    """Return the values of a path: NAMESPACE/KEY, NAMESPACE/ or empty for all."""
    namespace, _, key = path.strip("/").partition("/")
    items = []
    for space, values in host.guest_attributes.items():
        for name, value in values.items():
            if namespace in ("", space) and key in ("", name):
                items.append({"namespace": space, "key": name, "value": value})
    return {"items": items} if items else {}
