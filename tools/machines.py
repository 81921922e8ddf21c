"""Machines of a network that is not there: network namespaces joined by a bridge, each behind a link of its own rate.

Root alone can make them. A machine has an address, a host name (for what tools/netns_agent.sh starts there), and a link that can be cut or
slowed down; its processes can be killed as if the power had gone.
"""

import os
import pathlib
import shutil
import signal
import subprocess

TOOLS = pathlib.Path(__file__).resolve().parent


# mpirun itself waits for a machine that is gone unless it looks for signs of life of its own connections (its default is 300 s).
NOTICE = ["--mca", "oob_tcp_keepalive_time", "1", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "1"]


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


def why_none():
    """Why there can be no such machines here; empty where there can."""
    missing = [name for name in ("ip", "tc", "sysctl", "unshare", "mpirun") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: iproute2, procps, util-linux, openmpi-bin)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    probe = f"plimsoll-probe-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    run("ip", "netns", "del", probe)
    return ""


class Machines:
    """`with Machines(2) as machines:` - they are gone afterwards, with all that runs in them."""

    def __init__(self, count, rate="1gbit"):
        self.count, self.rate = count, rate
        self.name = f"pl{os.getpid() % 100000}"
        self.net = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 250}"

    def machine(self, number):
        return f"{self.name}-{number}"

    def address(self, number):
        return f"{self.net}.{number}"

    def __enter__(self):
        try:
            self.make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise RuntimeError(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except OSError:
            self.__exit__()
            raise
        return self

    # A namespace of its own is the switch: the bridge needs nothing of the host's network.
    def make(self):
        switch = f"{self.name}-switch"
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number in range(1, self.count + 1):
            machine = self.machine(number)
            run("ip", "netns", "add", machine)
            run("ip", "-n", machine, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            run("ip", "-n", machine, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            run("ip", "-n", machine, "link", "set", "eth0", "up")
            run("ip", "-n", machine, "link", "set", "lo", "up")
            self.set_rate(number, self.rate)
            # What is sent to a machine that is gone is given up after seconds, not after a quarter of an hour.
            run("ip", "netns", "exec", machine, "sysctl", "-w", "net.ipv4.tcp_retries2=3")

    # Both ways: what leaves the machine, and what the switch sends to it.
    def set_rate(self, number, rate):
        for namespace, device in ((self.machine(number), "eth0"), (f"{self.name}-switch", f"port{number}")):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms")

    def cut(self, number):
        run("ip", "-n", f"{self.name}-switch", "link", "set", f"port{number}", "down")

    def processes(self, number):
        found = subprocess.run(["ip", "netns", "pids", self.machine(number)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def power_off(self, number):
        self.cut(number)
        for pid in self.processes(number):
            end(pid)

    def mpirun(self, layout, command, options=()):
        """mpirun on machine 1, with layout[i] ranks on machine i + 1."""
        hosts = ",".join(f"{self.address(i + 1)}:{ranks}" for i, ranks in enumerate(layout) if ranks)
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", str(TOOLS / "netns_agent.sh"), "--mca",
                  "plm_rsh_no_tree_spawn", "1", "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", f"{self.net}.0/24", "--mca",
                  "oob_tcp_if_include", f"{self.net}.0/24", *NOTICE, "-n", str(sum(layout)), "-H", hosts, *options]
        inside = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.machine(1)]
        return ["ip", "netns", "exec", self.machine(1), *inside, *launch, *command]

    def environment(self):
        return {"PLIMSOLL_MACHINES": self.name, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def __exit__(self, *_):
        for number in range(1, self.count + 1):
            for pid in self.processes(number):
                end(pid)
        for namespace in [self.machine(number) for number in range(1, self.count + 1)] + [f"{self.name}-switch"]:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
