"""deploy/compose.yaml without a container engine: its files, commands and addresses, with real programs.

Each service gets a folder that stands for its root, with what compose.yaml mounts, where it mounts it. Its command
then runs with these files, as the programs are packaged here; names of other services become addresses of 127.0.0.1,
and nothing else is changed. No Grafana is at hand: of its files only names, addresses and paths are held against the
others.
"""

import json
import re
import shlex
import subprocess
import sys

import yaml
from monitoring import Alertmanager, Prometheus, fetch, promtool, started, until
from parts import HERE, Gauge, bench, check

PROJECT = HERE.parent.parent
DEPLOY = PROJECT / "deploy"
SECONDS = 60
MARK = "UPSTREAM:?"  # without it `docker compose` says so and starts nothing


def prove(parts):
    file = DEPLOY / "compose.yaml"
    services = yaml.safe_load(file.read_text())["services"]
    check_schema(parts, file)
    check_shape(services)
    gauge = start_gauge(parts, services["streamgauge"])
    alerts = start_alertmanager(parts, services["alertmanager"])
    server = start_prometheus(
        parts, services["prometheus"], {"streamgauge:9464": gauge.address, "alertmanager:9093": alerts.address}
    )
    bench(parts, gauge.port, "--output-tokens", 20, "--runs", 20)
    check_scraped(server, alerts)
    check_health(parts, services, {"streamgauge": gauge, "prometheus": server, "alertmanager": alerts})
    check_grafana(services)
    check_kubernetes(services["streamgauge"])


# --- what it says -----------------------------------------------------------------------------------------------------


def check_schema(parts, file):
    check("compose.yaml fits the schema of the Compose specification", fits_schema(file) == "")
    misspelt = parts.file("misspelt.yaml")
    misspelt.write_text(file.read_text().replace("healthcheck:", "healthchek:", 1))
    check("which takes no misspelt key", "healthchek" in fits_schema(misspelt))


def fits_schema(file):
    """What is wrong with it by the schema that the package check-jsonschema carries."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def check_shape(services):
    for name, service in services.items():
        if "build" in service:
            context = DEPLOY / service["build"]["context"]
            check(
                f"{name}: there is a {service['build']['dockerfile']} to build",
                (context / service["build"]["dockerfile"]).is_file(),
            )
        else:
            check(
                f"{name}: {service['image']} stays with one release",
                re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]),
            )
        ports = [port.split(":") for port in service["ports"]]
        check(
            f"{name}: ports are published on loopback only",
            all(port[0] == "127.0.0.1" and len(port) == 3 for port in ports),
        )
        check(f"{name}: it has a health check", service["healthcheck"]["test"][0] == "CMD")
    volumes = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["volumes"]
    mounts = [mount for service in services.values() for mount in mounts_of(service)]
    files = [source for source, _, _ in mounts if source.startswith(".")]
    check(
        f"each of {len(files)} mounted files and folders is there", all((DEPLOY / source).exists() for source in files)
    )
    check("and mounted to be read", all(mode == "ro" for source, _, mode in mounts if source.startswith(".")))
    named = {source for source, _, _ in mounts if not source.startswith(".")}
    check(f"each of {len(named)} volumes is declared, and used", named == set(volumes))


def mounts_of(service):
    """(source, target, mode) of each."""
    for mount in service.get("volumes", []):
        source, target, *mode = mount.split(":")
        yield source, target, mode[0] if mode else "rw"


# --- carrying it out --------------------------------------------------------------------------------------------------


def root_of(parts, service, addresses):
    """A folder that stands for the service's root. In its files, names of other services are replaced by addresses."""
    root = parts.file("root")
    for source, target, _ in mounts_of(service):
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        origin = DEPLOY / source
        if not source.startswith("."):
            place.mkdir()
        elif origin.is_dir():
            place.symlink_to(origin.resolve())
        else:
            text = origin.read_text()
            for name, address in addresses.items():
                check(f"{source} names {name}", name in text)
                text = text.replace(name, address)
            place.write_text(text)
    return root


def command_of(program, service, root):
    """Its command, paths of the container replaced by those below `root`."""
    paths = [target for _, target, _ in mounts_of(service)]
    words = [re.sub(rf"=({'|'.join(map(re.escape, paths))})$", rf"={root}\1", word) for word in service["command"]]
    print(f"    $ {program} {shlex.join(service['command'])}", flush=True)
    return [program, *words, "--web.listen-address=127.0.0.1:0"]


def start_alertmanager(parts, service):
    root = root_of(parts, service, {})
    config = root / "etc/alertmanager/alertmanager.yml"
    said = subprocess.run(["amtool", "check-config", config], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check("amtool check-config", said.returncode == 0, said.stdout + said.stderr)
    return started(parts, command_of("prometheus-alertmanager", service, root), Alertmanager, SECONDS)


def start_prometheus(parts, service, addresses):
    root = root_of(parts, service, addresses)
    said = promtool("check", "config", root / "etc/prometheus/prometheus.yml")
    found = re.findall(r"SUCCESS: (\d+) rules found", said)
    check(f"promtool check config: {len(found)} files of rules, {sum(map(int, found))} rules", found, said)
    return started(parts, command_of("prometheus", service, root), Prometheus, SECONDS)


def start_gauge(parts, service):
    """The program with the environment of the image and the service, before a simulated provider."""
    _, upstream = parts.sim()
    image = dict(re.findall(r"\b(STREAMGAUGE_\w+)=(\S+)", (PROJECT / "Dockerfile").read_text()))
    asked = service["environment"]
    check("without an upstream nothing starts, and it says so", MARK in asked["STREAMGAUGE_UPSTREAM"])
    environment = image | asked | {"STREAMGAUGE_UPSTREAM": f"http://127.0.0.1:{upstream}"}
    inside = {port.split(":")[2] for port in service["ports"]}
    check("its ports are those the image listens on", inside == {address.rsplit(":")[1] for address in image.values()})
    environment |= {name: "127.0.0.1:0" for name in image}
    print(f"    $ {' '.join(f'{name}={value}' for name, value in environment.items())} streamgauge", flush=True)
    ready = r"clients connect to http://127\.0\.0\.1:(\d+)(?:.|\n)*metrics at http://127\.0\.0\.1:(\d+)"
    process, found = parts.start([parts.program], ready, env=environment | {"NO_COLOR": "1"})
    gauge = Gauge(process, int(found[1]), int(found[2]), None)
    gauge.address = f"127.0.0.1:{gauge.admin}"
    return gauge


def check_scraped(server, alerts):
    def scraped():
        return server.query('sum(streamgauge_ttft_seconds_count{job="streamgauge"}) >= 20')

    until("the 20 requests are in Prometheus", scraped, SECONDS)
    check("Prometheus scrapes the gauge", server.query('up{job="streamgauge"}')[0][1] == 1)
    # Groups with an interval of their own may take that long to be evaluated for the first time.
    until("half of the rules were evaluated", lambda: 2 * len(evaluated(server)) > len(server.rules()), SECONDS)
    rules, ill = server.rules(), [rule["name"] for rule in server.rules() if rule["health"] == "err"]
    check(f"of {len(rules)} rules {len(evaluated(server))} were evaluated so far, none with a fault", not ill, ill)
    now = server.query("time()")[0][1]
    kept = server.ask("query_exemplars", query="streamgauge_ttft_seconds_bucket", start=now - 600, end=now + 1)
    exemplars = [one for series in kept for one in series["exemplars"]]
    check(
        f"it asked for OpenMetrics and kept {len(exemplars)} exemplars",
        exemplars and all("exchange_id" in e["labels"] for e in exemplars),
    )
    known = [one["url"] for one in server.ask("alertmanagers")["activeAlertmanagers"]]
    check("it sends alerts to the Alertmanager", known == [f"{alerts.url}/api/v2/alerts"], known)


def evaluated(server):
    return [rule for rule in server.rules() if rule["health"] != "unknown"]


def check_health(parts, services, running):
    for name, server in running.items():
        test = services[name]["healthcheck"]["test"][1:]
        if name == "streamgauge":
            environment = {"STREAMGAUGE_ADMIN": server.address}
            done = subprocess.run(
                [parts.program, *test[1:]], env=environment, stdin=subprocess.DEVNULL, timeout=SECONDS
            )
            check(f"{name}: `{shlex.join(test)}` says that it is well", done.returncode == 0)
            continue
        port = services[name]["ports"][0].split(":")[2]
        found = re.fullmatch(rf"http://127\.0\.0\.1:{port}(/\S+)", test[-1])
        check(f"{name}: {test[-1]} is at its own port, and well", found and fetch(server.url + found[1]))


# --- what can't be started here ---------------------------------------------------------------------------------------


def check_grafana(services):
    provisioning = DEPLOY / "grafana/provisioning"
    sources = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    for source in sources:
        name, port = re.fullmatch(r"http://([\w-]+):(\d+)", source["url"]).groups()
        published = {mapping.split(":")[2] for mapping in services.get(name, {}).get("ports", [])}
        check(f"Grafana's source {source['name']} is the service {name}, at its port", port in published)
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["global"]
    check("its interval is Prometheus's", sources[0]["jsonData"]["timeInterval"] == config["scrape_interval"])
    path = yaml.safe_load((provisioning / "dashboards/streamgauge.yml").read_text())["providers"][0]["options"]["path"]
    folder = next(DEPLOY / source for source, target, _ in mounts_of(services["grafana"]) if target == path)
    titles = [json.loads(file.read_text())["title"] for file in sorted(folder.glob("*.json"))]
    check(f"its dashboards are mounted where it looks: {', '.join(titles)}", titles)
    print(
        "    not tried: Grafana itself, which is not to be had as a package; the images, which need an engine",
        flush=True,
    )


def check_kubernetes(service):
    """The objects in docs/deploy.md are YAML, and name paths and ports that are there."""
    text = (PROJECT / "docs/deploy.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.S)
    objects = [found for block in blocks for found in yaml.safe_load_all(block)]
    deployment = next(found for found in objects if found.get("kind") == "Deployment")
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    inside = {int(port.split(":")[2]) for port in service["ports"]}
    check("docs/deploy.md: the ports of the Deployment are the image's", set(ports.values()) == inside)
    annotations = pod["metadata"]["annotations"]
    check("its annotations name the admin port", annotations["prometheus.io/port"] == str(ports["admin"]))
    check(
        "its selectors agree",
        pod["metadata"]["labels"].items() >= deployment["spec"]["selector"]["matchLabels"].items(),
    )
