"""What `run-kong --mode hybrid` asks: a control plane with PostgreSQL and a data plane, which talk by WebSocket with mutual TLS."""

import running
from kong_database import SOON, Writer
from kong_postgres import Postgres
from kong_server import Kong, count, until


def planes(options, workers, database, place):
    """The control plane, and what a data plane needs to find it."""
    cluster, telemetry = running.free_ports(2)
    shared = {"KONG_CLUSTER_CERT": str(place / "cluster.crt"), "KONG_CLUSTER_CERT_KEY": str(place / "cluster.key"), **SOON}
    control = Kong(options, workers, settings={
        **database.settings(), **shared, "KONG_ROLE": "control_plane", "KONG_CLUSTER_LISTEN": f"127.0.0.1:{cluster}",
        "KONG_CLUSTER_TELEMETRY_LISTEN": f"127.0.0.1:{telemetry}", "KONG_PROXY_LISTEN": "off"})
    return control, {**shared, "KONG_ROLE": "data_plane", "KONG_CLUSTER_CONTROL_PLANE": f"127.0.0.1:{cluster}",
                     "KONG_CLUSTER_TELEMETRY_ENDPOINT": f"127.0.0.1:{telemetry}", "KONG_ADMIN_LISTEN": "off"}


def checks(control, data, stranger, writer):
    nodes = lambda: control.admin("/clustering/data-planes")[1]["data"]
    routed = lambda path: (lambda: all(data.ask(path)[0] == 200 for _ in range(8)))
    writer.route("plain")
    writer.route("keyed", [("key-auth", {})])
    writer.make("/consumers", {"username": "one"})
    writer.make("/consumers/one/key-auth", {"key": "k1"})
    yield "the data plane has the route", until("the route", routed("/plain"), 40)
    key = lambda value: data.ask("/keyed", fields={"apikey": value})[0]
    yield "and the consumers", until("the key", lambda: all([key("k1"), key("k2")] == [200, 401] for _ in range(8)), 20)
    yield "the control plane knows it", until("the node", lambda: [(one["sync_status"], one["ip"]) for one in nodes()] == [("normal", "127.0.0.1")], 20)
    writer.route("later")
    yield "a change reaches it", until("the change", routed("/later"), 20)
    yield "a stranger's certificate is refused", until("the refusal", lambda: "unable to verify" in stranger_log(stranger) or "failed" in stranger_log(stranger), 20) and len(nodes()) == 1
    yield "and it has no route", stranger.ask("/plain")[0] == 404
    control.command("stop")
    yield "without the control plane it serves on", routed("/plain")()
    data.command("stop")
    yield "and when it is started again", data.command("start").returncode == 0 and until("the route", routed("/later"), 20)
    yield "the control plane comes back", control.command("start").returncode == 0 and until("the Admin API", lambda: answers(control), 20)
    writer.route("last")
    yield "a change reaches it again", until("the change", routed("/last"), 60)


def answers(control):
    try:
        return control.admin("/status")[0] == 200
    except OSError:
        return False


def stranger_log(stranger):
    return (stranger.place / "prefix/logs/error.log").read_text(errors="replace")


def run(options, workers, upstream):
    database = Postgres()
    place = database.place
    started = []
    try:
        control, settings = planes(options, workers, database, place)
        started.append(control)
        # Each plane is one of Kong's prefixes; the certificate is of the first's command.
        for made in (control.command("hybrid", "gen_cert", str(place / "cluster.crt"), str(place / "cluster.key")), control.command("migrations", "bootstrap")):
            if made.returncode != 0:
                print(f"not ok  {made.args}: {made.stderr[-2000:]}")
                return 0, 1
        control.command("hybrid", "gen_cert", str(place / "other.crt"), str(place / "other.key"))
        data = Kong(options, workers, settings=settings)
        stranger = Kong(options, workers, settings={**settings, "KONG_CLUSTER_CERT": str(place / "other.crt"), "KONG_CLUSTER_CERT_KEY": str(place / "other.key")})
        started += [data, stranger]
        if not all([one.start() for one in started]):
            return 0, 1
        until("the Admin API", lambda: answers(control))
        return count(control, checks(control, data, stranger, Writer(control, upstream)))
    finally:
        for one in started:
            one.end()
        database.end()
