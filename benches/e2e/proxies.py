"""What is measured side by side: nothing in between, nginx, HAProxy, and one or more builds of the gauge."""

import grp
import os
import pwd
import subprocess
from pathlib import Path

from processes import Fault, found, free_port

# As one would set them up before an LLM: streams pass unbuffered, connections to the provider are kept, one log line
# for each request.
NGINX = """\
daemon off;
master_process {master};
{user}
worker_processes {workers};
worker_rlimit_nofile {descriptors};
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections {descriptors}; multi_accept on; }}
http {{
    access_log {folder}/access.log combined buffer=64k flush=1s;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    tcp_nodelay on;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    upstream provider {{
        server 127.0.0.1:{provider};
        keepalive 4096;
        keepalive_timeout 1h;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=4096;
        listen 127.0.0.1:{tls_port} ssl reuseport backlog=4096;
        ssl_certificate {certificates}/cert.pem;
        ssl_certificate_key {certificates}/key.pem;
        ssl_protocols TLSv1.3;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 1h;
            proxy_send_timeout 1h;
        }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread {workers}
    maxconn {connections}
    log stdout format raw local0
    ssl-default-bind-options ssl-min-ver TLSv1.3
defaults
    mode http
    maxconn {connections}
    log global
    option httplog
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
frontend clients
    bind 127.0.0.1:{port} backlog 4096 {from_clients}
    bind 127.0.0.1:{tls_port} ssl crt {certificates}/both.pem alpn http/1.1 backlog 4096
    default_backend providers
backend providers
    server provider 127.0.0.1:{provider} pool-max-conn -1 pool-purge-delay 1h {to_providers}
"""

GAUGE = """\
[[upstreams]]
name = "{upstream}"
url = "http://127.0.0.1:{provider}"
http = "{http}"
"""
# By the first part of the path: many providers, for more series than there may be by default.
MANY_SERIES = """
[metrics]
max_series = 48000
"""
ROUTED = """
[[routes]]
path_prefix = "/{upstream}"
strip_prefix = true
upstream = "{upstream}"
"""


class Proxy:
    """One kind of proxy; `start` gives a running process, and the ports it has for plain clients and for TLS."""

    def __init__(self, name, words, template=None):
        self.name, self.words, self.template = name, words, template
        self.is_gauge = template is None
        # nginx has no HTTP/2 to a provider.
        self.speaks_http2 = template is not NGINX

    def start(self, processes, provider, certificates, workers, before=(), http2=(), routes=0, **more):
        folder = Path(processes.folder) / f"{self.name.replace(' ', '-')}-{free_port()}"
        folder.mkdir()
        descriptors = os.sysconf("SC_OPEN_MAX")
        facts = {
            "port": free_port(), "tls_port": free_port(), "admin": free_port(), "provider": provider,
            "workers": workers, "folder": folder, "certificates": certificates, "log": folder / "access.log",
            "descriptors": descriptors, "connections": (descriptors - 200) // 2, "master": "on", "user": nginx_user(),
            "from_clients": "proto h2" if "clients" in http2 else "",
            "to_providers": "proto h2" if "providers" in http2 else "",
            "http": "2" if "providers" in http2 else "auto",
        } | more  # fmt: skip
        (folder / "config").write_text((self.template or gauge_config(routes)).format(**facts))
        words = [*before, *(word.format(**facts) for word in self.words)]
        log = folder / "said"
        process = processes.start(words, log, env=os.environ | {"NO_COLOR": "1"})
        processes.listening(process, facts["port"], log, seconds=60)
        return process, facts


def gauge_config(routes):
    """One provider for every path, or as many as there are routes."""
    names = [f"up-{route}" for route in range(routes)]
    if not names:
        return GAUGE.replace("{upstream}", "sim")
    return MANY_SERIES + "".join((GAUGE + ROUTED).replace("{upstream}", name) for name in names)


def nginx_user():
    """Its workers would be of a user who may not enter the folder of this run."""
    if os.geteuid() != 0:
        return ""
    return f"user {pwd.getpwuid(0).pw_name} {grp.getgrgid(0).gr_name};"


def gauge(name, program, *flags):
    words = [
        program, "run", "--listen", "127.0.0.1:{port}", "--tls-listen", "127.0.0.1:{tls_port}",
        "--tls-cert", "{certificates}/cert.pem", "--tls-key", "{certificates}/key.pem",
        "--config", "{folder}/config", "--workers", "{workers}",
        "--admin", "127.0.0.1:{admin}", "--access-log", "{log}", *flags,
    ]  # fmt: skip
    return Proxy(name, [str(word) for word in words])


def known(programs):
    """All proxies by name; `programs` are the builds of the gauge by theirs."""
    proxies = {}
    if found("nginx"):
        words = [found("nginx"), "-c", "{folder}/config", "-p", "{folder}", "-e", "{folder}/error.log"]
        proxies["nginx"] = Proxy("nginx", words, NGINX)
    if found("haproxy"):
        proxies["haproxy"] = Proxy("haproxy", [found("haproxy"), "-db", "-f", "{folder}/config"], HAPROXY)
    for name, program in programs.items():
        if not os.access(program, os.X_OK):
            raise Fault(f"{program} is no program")
        proxies[name] = gauge(name, program)
        told = subprocess.run([program, "run", "--help"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=20)
        if b"--observe" in told.stdout:
            proxies[f"{name}-off"] = gauge(f"{name}-off", program, "--observe", "off")
    return proxies
