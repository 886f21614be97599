"""The paths of the API's smaller questions, of health checks, and of what is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from qindex.serve.http import accounts, details
from qindex.serve.http import health_checks as health
from qindex.serve.http.asked import Asked

Path = tuple[str, str, Callable[[Asked], Any]]
_CHECKS: Final = "/api/health/checks"
_DAYS: Final = "{number:\\d+}/{unit:days|weeks|months|years}"


def _not_there() -> Iterator[Path]:
    """Lists are empty, one of them is not found, and none can be made."""
    for name in ("policies", "operator-policies"):
        yield "GET", f"/api/{name}", accounts.none
        yield "GET", f"/api/{name}/{{vhost}}", accounts.none
        yield "GET", f"/api/{name}/{{vhost}}/{{name}}", accounts.no_such
    for name in ("vhost-limits", "user-limits", "topic-permissions"):
        yield "GET", f"/api/{name}", accounts.none
        yield "GET", f"/api/{name}/{{first}}", accounts.none
        yield "GET", f"/api/{name}/{{vhost}}/{{user}}", accounts.none
    for name in ("parameters", "global-parameters", "shovels", "federation-links"):
        yield "GET", f"/api/{name}", accounts.none
        yield "GET", f"/api/{name}/{{first}}", accounts.none
        yield "GET", f"/api/{name}/{{first}}/{{vhost}}", accounts.none
        yield "GET", f"/api/{name}/{{first}}/{{vhost}}/{{name}}", accounts.no_such
    yield "GET", "/api/feature-flags", accounts.none
    yield "GET", "/api/users/{user}/topic-permissions", accounts.none
    yield "GET", "/api/vhosts/{vhost}/topic-permissions", accounts.none
    for name in (
        "policies",
        "operator-policies",
        "parameters",
        "global-parameters",
        "vhost-limits",
        "user-limits",
        "topic-permissions",
        "feature-flags",
    ):
        yield "PUT", f"/api/{name}/{{rest:.*}}", accounts.not_there
        is_of_all = name.endswith(("limits", "permissions"))  # deleting means: none from now on
        gone = accounts.none_left if is_of_all else accounts.not_there
        yield "DELETE", f"/api/{name}/{{rest:.*}}", gone
    yield "POST", "/api/queues/{vhost}/{name}/actions", accounts.not_there


MORE: Final[tuple[Path, ...]] = (
    ("GET", "/api/nodes/{name}", details.node),
    ("GET", "/api/cluster-name", details.cluster_name),
    ("PUT", "/api/cluster-name", details.put_cluster_name),
    ("GET", "/api/connections/{name}", details.connection),
    ("GET", "/api/connections/{name}/channels", details.channels_of_connection),
    ("GET", "/api/channels/{name}", details.channel),
    ("GET", "/api/vhosts/{vhost}/connections", details.connections_in_vhost),
    ("GET", "/api/vhosts/{vhost}/channels", details.channels_in_vhost),
    ("GET", "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{name}", details.bindings_between),
    ("GET", "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{name}/{key}", details.binding),
    (
        "GET",
        "/api/exchanges/{vhost}/{name}/bindings/{end:source|destination}",
        details.bindings_of_exchange,
    ),
    ("GET", f"{_CHECKS}/alarms", health.alarms),
    ("GET", f"{_CHECKS}/local-alarms", health.alarms),
    ("GET", f"{_CHECKS}/certificate-expiration/{_DAYS}", health.always),
    ("GET", f"{_CHECKS}/port-listener/{{port:\\d+}}", health.port_listener),
    ("GET", f"{_CHECKS}/protocol-listener/{{protocol}}", health.protocol_listener),
    ("GET", f"{_CHECKS}/virtual-hosts", health.virtual_hosts),
    ("GET", f"{_CHECKS}/node-is-mirror-sync-critical", health.single_node),
    ("GET", f"{_CHECKS}/node-is-quorum-critical", health.single_node),
    *_not_there(),
)
