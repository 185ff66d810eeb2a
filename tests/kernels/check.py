#!/usr/bin/env python3
"""Holds what the agent says of this kernel against what the kernel says itself: one experiment for each signal.

Runs in a guest, as root, with nothing else at work: check.py AGENT. The agent runs with the user and the capabilities of its packages,
and with one more where it is to read the headers of frames.
Writes one JSON object a line: {"kernel", "attach_s"}, then {"signal", "state", "said"} for each signal of `doctor`, where state is right,
wrong, sampled or uncovered. Shares no code with the agent.
"""
import collections
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

CGROUPS = "/sys/fs/cgroup"
CAPABILITIES = "+bpf,+perfmon,+sys_ptrace,+dac_read_search"


def with_capabilities(capabilities):
    # A kernel without CAP_BPF and CAP_PERFMON (before 5.8) is not among those that are looked at.
    return [
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all," + capabilities, "--ambient-caps=-all," + capabilities, "--bounding-set=-all," + capabilities,
    ]


AS_PACKAGED = with_capabilities(CAPABILITIES)
PORT_STREAMS = 8095
PORT_VIRTUAL, PORT_DEFERRED, PORT_FULL, PORT_SERVED = 8096, 8097, 8098, 8099
MS = 1_000_000


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def counter(file, kind, name):
    """A counter of /proc/net/netstat or /proc/net/snmp."""
    names, values = [line.split() for line in read("/proc/net/" + file).splitlines() if line.startswith(kind + ":")]
    return int(values[names.index(name)])


class Group:
    """A cgroup, version 2 or the controllers of version 1; processes of it are forked into it."""

    def __init__(self, name):
        self.name = name
        trees = [line.split() for line in read("/proc/mounts").splitlines()]
        self.trees = [t[1] for t in trees if t[2] in ("cgroup", "cgroup2") and "name=" not in t[3]]
        self.controllers = {}
        for tree in self.trees:
            folder = f"{tree}/{name}"
            os.makedirs(folder, exist_ok=True)
            for option in ("cpu", "memory", "cpuset"):
                if option in tree.split("/")[-1].split(","):
                    self.controllers[option] = folder
                elif os.path.exists(f"{folder}/cgroup.controllers") and option in read(f"{folder}/cgroup.controllers").split():
                    self.controllers.setdefault(option, folder)

    def fork(self, work):
        """Runs `work` in a process of the cgroup; its result comes back as JSON.

        `used` of what is returned has then how long the process ran, and how long it waited for a CPU, in ns, each as the least and the most
        that may be told of it: from its first step in the cgroup until it was gone, and all its life. A process moves in the middle of a
        turn on the CPU, which is told of where it ends; an emulated machine may need a tenth of a second for its beginning and its end.
        """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                for tree in self.trees:
                    write(f"{tree}/{self.name}/cgroup.procs", "0")
                begun = schedstat("self")
                os.write(writer, json.dumps({"begun": begun, "said": work()}).encode())
                os._exit(0)
            except BaseException as error:  # whatever it is, it is told by the parent
                os.write(writer, json.dumps({"error": repr(error)}).encode())
                os._exit(1)
        os.close(writer)

        def result():
            with os.fdopen(reader) as file:
                told = json.loads(file.read() or '{"error": "it died"}')
            # The kernel tells it as long as nobody has asked for its exit code.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            ended = schedstat(pid)
            os.waitpid(pid, 0)
            if "error" in told:
                raise RuntimeError(f"{self.name}: {told['error']}")
            result.used = [(end - begin, end) for begin, end in zip(told["begun"], ended)]
            return told["said"]

        result.pid = pid
        return result


def cgroup2_controllers():
    for line in read("/proc/mounts").splitlines():
        _, tree, kind, *_ = line.split()
        if kind == "cgroup2":
            for name in ("cpu", "memory", "io"):
                try:
                    write(f"{tree}/cgroup.subtree_control", "+" + name)
                except OSError:
                    pass  # the controller is version 1's, or not there


class Agent:
    """`tailwater-agent dump --json`, and what it wrote."""

    def __init__(self, program, *more, command=AS_PACKAGED):
        self.program = program
        self.lines = []
        self.first = threading.Event()
        begun = time.monotonic()
        self.process = subprocess.Popen([*command, program, "dump", "--json", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.take, daemon=True).start()
        self.errors = []
        threading.Thread(target=self.take_errors, daemon=True).start()
        while not self.first.wait(0.1):
            if self.process.poll() is not None:
                raise SystemExit("the agent ended: " + "".join(self.errors)[-2000:])
            if time.monotonic() - begun > 90:
                raise SystemExit("the agent has told nothing for 90 s: " + "".join(self.errors)[-2000:])
        self.attach_s = time.monotonic() - begun

    def take(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))
            self.first.set()

    def take_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def end(self):
        # What was measured last is told some windows later.
        time.sleep(2)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        time.sleep(0.5)

    def rows(self, kind, part):
        return [line for line in self.lines if line.get("kind") == kind and part in line.get("name", "")]

    def sum(self, kind, part, metric):
        """None if no row has it: not covered is not zero."""
        values = [row["values"][metric] for row in self.rows(kind, part) if metric in row["values"]]
        return sum(values) if values else None

    def read_late(self, from_ns, to_ns):
        """Windows that were read late, and those right after them, which have none before to be held against."""
        lines = [line for line in self.lines if "late" in line and from_ns <= line["window_unix_ns"] < to_ns]
        late = {line["window_unix_ns"]: line["late"] for line in lines}
        ordered = [late[at] for at in sorted(late)]
        return sum(now or before for now, before in zip(ordered, [False] + ordered))

    def most(self, kind, part, metric):
        values = [row["values"][metric] for row in self.rows(kind, part) if metric in row["values"]]
        return max(values) if values else None

    def paired(self, part):
        """Connections of which both ends were told, by the number that they have in common."""
        ends = collections.defaultdict(set)
        for line in self.lines:
            if line.get("kind") == "meeting" and part in line["end"]:
                ends[line["pair"]].add(line["how"])
        return sum(len(how) == 2 for how in ends.values())


class Findings:
    """What was measured for a signal, held against the truth."""

    def __init__(self):
        self.of = collections.defaultdict(list)
        # Why one that no file of the agent tells of could not be had.
        self.refused = {}

    def same(self, signal_name, what, told, truth):
        self.of[signal_name].append((told == truth, f"{what} {told} of {truth}"))

    def near(self, signal_name, what, told, truth, ratio, slack):
        right = told is not None and abs(told - truth) <= truth * ratio + slack
        self.of[signal_name].append((right, f"{what} {told} of {truth}"))

    def used(self, signal_name, what, told, used, slack):
        """What processes used: `used` of each, to 3 % and `slack` ns."""
        least, most = (sum(bound) for bound in zip(*used))
        self.within(signal_name, what, told, int(least * 0.97) - slack, int(most * 1.03) + slack)

    def within(self, signal_name, what, told, least, most):
        right = told is not None and least <= told <= most
        self.of[signal_name].append((right, f"{what} {told} in {least} to {most}"))


def schedstat(pid):
    """How long a process of one thread ran and waited for a CPU, in ns."""
    run, wait, _ = read(f"/proc/{pid}/schedstat").split()
    return int(run), int(wait)


def spin_for(seconds, cpu):
    def work():
        os.sched_setaffinity(0, {cpu})
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    return work


def experiment_cpu():
    """Two processes share a CPU for two seconds, a third one sleeps."""
    spin, doze = Group("check-spin"), Group("check-doze")
    dozing = doze.fork(lambda: time.sleep(2.2))
    both = [spin.fork(spin_for(2, 0)) for _ in range(2)]
    for result in both:
        result()
    dozing()

    def hold(agent, found):
        for group, who, forked in (spin, "", both), (doze, " of the sleeper", [dozing]):
            run, wait = ([result.used[i] for result in forked] for i in (0, 1))
            found.used("cpu", "ns on CPU" + who, agent.sum("workload", group.name, "cpu_busy_ns"), run, 30 * MS)
            found.used("run_queue", "ns waited" + who, agent.sum("workload", group.name, "run_queue_wait_ns"), wait, 60 * MS)

    return hold


def experiment_stacks(program):
    """Four processes on one CPU: somebody is short of it all the time, and an agent that is told to says which code runs. It is one of its own: what
    the first one takes and holds is without."""
    group = Group("check-code")
    others = "block_io,memory,accept_queue,requests,calls,retransmits,throttling"
    teller = Agent(program, "--stacks", "--disabled-signals", others)
    forked = [group.fork(spin_for(2, 0)) for _ in range(4)]
    for result in forked:
        result()
    teller.end()
    refused = [line for line in teller.errors if "stacks: which code" in line]

    def hold(_, found):
        if refused:
            found.refused["stacks"] = refused[0].strip()
            return
        told = [line for line in teller.lines if line.get("kind") == "code" and group.name in line["workload"]]
        runs = [line for line in told if line["doing"] == "runs"]
        # The interpreter is one that has names, and its caller is found where more than the innermost function is told.
        named = [line for line in runs if any("Eval" in frame for frame in line["frames"]) and len(line["frames"]) > 2]
        found.within("stacks", "looks with code that ran, of 40 windows", len({line["window_unix_ns"] for line in runs}), 2, 40)
        found.within("stacks", "paths with the interpreter's function and its callers", len(named), 1, 1000)

    return hold


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS = 1, 4
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, holds=b""):
    """Of HTTP/2 (RFC 9113, 4.1)."""
    return len(holds).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + holds


def say_to(hearer, speaker, *parts):
    said = b"".join(parts)
    speaker.sendall(said)
    if hearer.recv(len(said), socket.MSG_WAITALL) != said:
        raise OSError("it was not heard")


def experiment_streams(program, requests):
    """One request on a stream of HTTP/2 without TLS, and an agent that is told to read the headers of frames, with the capability that it needs for that.
    It is one of its own, as that of stacks. As turns these would be two requests."""
    if not requests["covered"] or requests.get("sampled"):
        return lambda _, found: found.refused.update(streams="requests are not seen by hooks")
    # Something that is told in each window stays, or an agent that sees no request yet says nothing.
    others = "run_queue,throttling,block_io,memory"
    packets = with_capabilities(CAPABILITIES + ",+net_admin")
    teller = Agent(program, "--frame-headers", "--disabled-signals", others, command=packets)
    walked = max(((count, name) for name, count in verified().items() if name.startswith("net_")), default=None)
    with socket.create_server(address(PORT_STREAMS)) as listener, socket.create_connection(address(PORT_STREAMS), 5) as client:
        server, _ = listener.accept()
        with server:
            say_to(server, client, PREFACE, frame(SETTINGS, 0, 0))
            say_to(client, server, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0))
            # What a HEADERS frame holds is read by nobody here.
            say_to(server, client, frame(SETTINGS, ACK, 0), frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82\x86\x84"))
            say_to(client, server, frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x88"))
            teller.end()
    refused = [line for line in teller.errors if "frame_headers:" in line]

    def hold(_, found):
        if refused:
            found.refused["streams"] = refused[0].strip()
            return
        port = f":{PORT_STREAMS}"
        found.same("streams", "requests received", teller.sum("listener", port, "requests_received"), 1)
        found.same("streams", "requests answered", teller.sum("listener", port, "requests_answered"), 1)
        found.same("streams", "calls started", teller.sum("edge", port, "calls_started"), 1)
        found.same("streams", "calls answered", teller.sum("edge", port, "calls_answered"), 1)
        if walked:
            # As many as a kernel allows: what is beyond a tenth of it shows that older ones may refuse it.
            found.within("streams", f"instructions that the verifier walked of {walked[1]}", walked[0], 1, 1_000_000)

    return hold


def experiment_throttling():
    group = Group("check-quota")
    folder = group.controllers.get("cpu")
    if folder is None:
        return lambda agent, found: None
    if os.path.exists(f"{folder}/cpu.max"):
        write(f"{folder}/cpu.max", "20000 100000")
    else:
        write(f"{folder}/cpu.cfs_period_us", "100000")
        write(f"{folder}/cpu.cfs_quota_us", "20000")
    begun_ns = time.time_ns()
    group.fork(spin_for(1.5, 0))()
    ended_ns = time.time_ns()
    stat = dict(line.split() for line in read(f"{folder}/cpu.stat").splitlines())
    ns = int(stat["throttled_usec"]) * 1000 if "throttled_usec" in stat else int(stat["throttled_time"])

    def hold(agent, found):
        told = agent.sum("workload", group.name, "cpu_throttled_ns")
        # Of a window that is read late it is told as unknown.
        unknown = agent.read_late(begun_ns - 60 * MS, ended_ns + 60 * MS) * 50 * MS
        found.within("throttling", "ns throttled", told, int(ns * 0.98) - 120 * MS - unknown, int(ns * 1.02) + 120 * MS)

    return hold


def address(port):
    return ("127.0.0.1", port)


def begin_connect(port):
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.connect_ex(address(port))
    return client


def experiment_overflow():
    """Forty clients come to a listener that takes five and accepts none; each tries again after a second.

    TCPSynRetrans counts SYN-ACKs that are sent again, too (tcp_rtx_synack): there are none, because no handshake gets that far.
    """
    group = Group("check-full")
    before = counter("netstat", "TcpExt", "ListenDrops"), counter("netstat", "TcpExt", "TCPSynRetrans")

    def work():
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address(PORT_FULL))
        listener.listen(4)
        # The queue is full before the others come: where several handshakes are under way at once, a last ACK may be what is dropped, and
        # before 6.11 nothing tells that from a SYN.
        clients = [begin_connect(PORT_FULL) for _ in range(5)]
        time.sleep(0.3)
        clients += [begin_connect(PORT_FULL) for _ in range(35)]
        deadline = time.monotonic() + 3
        while counter("netstat", "TcpExt", "TCPSynRetrans") < before[1] + 35 and time.monotonic() < deadline:
            time.sleep(0.02)
        # From here on nobody tries again.
        for client in clients:
            client.close()
        time.sleep(0.2)
        after = counter("netstat", "TcpExt", "ListenDrops"), counter("netstat", "TcpExt", "TCPSynRetrans")
        # The listener's owner is known to the agent as long as it lives.
        time.sleep(0.5)
        return after

    after = group.fork(work)()
    drops, retries = after[0] - before[0], after[1] - before[1]

    def hold(agent, found):
        port = f":{PORT_FULL}"
        if drops < 35:
            found.same("accept_queue", "the experiment dropped", f"{drops}", "at least 35")
        found.same("accept_queue", "packets dropped", agent.sum("listener", port, "listen_drops"), drops)
        found.same("accept_queue", "most in the queue", agent.most("listener", port, "accept_queue_depth_max"), 5)
        found.same("accept_queue", "its limit", agent.most("listener", port, "accept_queue_limit"), 4)
        told = sum(line["count"] or 0 for line in agent.lines if line.get("kind") == "drop" and port in line.get("name", ""))
        found.same("accept_queue", "packets of drop events", told, drops)
        found.near("retransmits", "SYNs sent again", agent.sum("edge", port, "syn_retransmits"), retries, 0, 0)

    return hold


def experiment_deferred():
    """Ten clients of a listener with TCP_DEFER_ACCEPT, as Apache's: the bare ACK that the kernel discards is no drop."""
    group = Group("check-deferred")
    before = counter("netstat", "TcpExt", "ListenDrops")

    def work():
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
        listener.bind(address(PORT_DEFERRED))
        listener.listen(16)
        for _ in range(10):
            with socket.create_connection(address(PORT_DEFERRED), 5) as client:
                time.sleep(0.02)
                client.sendall(b"question")
                connection, _ = listener.accept()
                connection.recv(100)
                connection.close()
        time.sleep(0.3)
        return None

    group.fork(work)()
    drops = counter("netstat", "TcpExt", "ListenDrops") - before

    def hold(agent, found):
        told = agent.sum("listener", f":{PORT_DEFERRED}", "listen_drops")
        found.same("accept_queue", "packets dropped of ten deferred", told or 0, drops)

    return hold


LOOKUPS, UNANSWERED_S = 3, 0.6


def experiment_names():
    """Lookups that a server of names does not answer for a time, on sockets that are connected to it as those of resolvers are."""
    group = Group("check-names")

    def work():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(address(53))
        resolvers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(LOOKUPS)]
        begun_ns = time.time_ns()
        for resolver in resolvers:
            resolver.connect(address(53))
            resolver.send(b"question")
        time.sleep(UNANSWERED_S)
        for resolver in resolvers:
            _, whom = server.recvfrom(100)
            server.sendto(b"answer", whom)
        for resolver in resolvers:
            resolver.recv(100)
        ended_ns = time.time_ns()
        time.sleep(0.4)
        return begun_ns, ended_ns

    begun_ns, ended_ns = group.fork(work)()

    def hold(agent, found):
        told = [line for line in agent.lines if line.get("kind") == "names" and "check-names" in line["workload"]]
        found.same("calls", "lookups that waited", max((line["lookups"] for line in told), default=None), LOOKUPS)
        longest = max((line["longest_ms"] for line in told), default=None)
        # A window that is drained late tells nothing of it.
        found.within("calls", "ms that the longest waited", longest, 500 * UNANSWERED_S, (ended_ns - begun_ns) / MS)
        late = sum(line["window_unix_ns"] > ended_ns for line in told)
        found.same("calls", "windows that told of lookups after the answers", late, 0)

    return hold


WORKERS, KEPT, NEW, SERVE_S = 3, 20, 30, 0.02


def serve():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address(PORT_SERVED))
    listener.listen(64)

    def worker():
        while True:
            connection, _ = listener.accept()
            while connection.recv(100):
                time.sleep(SERVE_S)
                connection.sendall(b"answer" * 20)
            connection.close()

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    signal.pause()


def ask(connection):
    connection.sendall(b"question")
    if not connection.recv(1000):
        raise OSError("no answer")


def call():
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(address(PORT_SERVED), 5).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    # What the agent knows of who listens comes by a look at /proc.
    time.sleep(1.5)
    for _ in range(NEW):
        with socket.create_connection(address(PORT_SERVED), 20) as connection:
            ask(connection)

    def kept():
        with socket.create_connection(address(PORT_SERVED), 20) as connection:
            for _ in range(KEPT):
                ask(connection)

    threads = [threading.Thread(target=kept) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.3)
    return None


def experiment_requests():
    """Thirty requests over as many connections, then sixty over three; three workers."""
    server, client = Group("check-serve"), Group("check-call")
    serving = server.fork(serve)
    try:
        client.fork(call)()
    finally:
        os.kill(serving.pid, signal.SIGKILL)
        os.waitpid(serving.pid, 0)
    asked = NEW + WORKERS * KEPT

    def hold(agent, found):
        port = f":{PORT_SERVED}"
        found.same("requests", "received", agent.sum("listener", port, "requests_received"), asked)
        found.same("requests", "answered", agent.sum("listener", port, "requests_answered"), asked)
        found.same("requests", "most in flight", agent.most("listener", port, "requests_in_flight_max"), WORKERS)
        found.same("requests", "most workers busy", agent.most("listener", port, "workers_busy_max"), WORKERS)
        found.within(
            "requests", "ns to answer", agent.sum("listener", port, "response_time_ns"), asked * SERVE_S * 1e9, asked * 10 * SERVE_S * 1e9
        )
        found.same("calls", "started", agent.sum("edge", port, "calls_started"), asked)
        found.same("calls", "answered", agent.sum("edge", port, "calls_answered"), asked)
        # Two connections whose hashes fall on one place of the table count as one; the one by which the client waits for the server is one more.
        connections = NEW + WORKERS
        found.within("calls", "connections with both ends", agent.paired(port), 0.9 * connections, connections + 1)

    return hold


VIRTUAL, REAL_SERVERS = "10.96.7.1", ("10.97.7.2", "10.97.7.6")
ANSWERS = """
import socket
listener = socket.create_server(("", %d))
while True:
    connection, _ = listener.accept()
    while connection.recv(100):
        connection.sendall(b"answer")
    connection.close()
""" % PORT_VIRTUAL


def command(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout.strip()}")


def virtual_address():
    """A virtual address of IPVS, which gives connections to two servers in turn, each in a network namespace of its own."""
    for module in ("dummy", "veth", "ip_vs", "ip_vs_rr"):
        command("modprobe", module)
    command("ip", "link", "add", "virtual", "type", "dummy")
    command("ip", "address", "add", VIRTUAL + "/32", "dev", "virtual")
    command("ip", "link", "set", "virtual", "up")
    command("ipvsadm", "--add-service", "--tcp-service", f"{VIRTUAL}:{PORT_VIRTUAL}", "--scheduler", "rr")
    for number, server in enumerate(REAL_SERVERS):
        router = server[:-1] + str(int(server[-1]) - 1)
        name, link = f"real-{number}", f"to-real-{number}"
        command("ip", "netns", "add", name)
        command("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "address", "add", router + "/30", "dev", link)
        command("ip", "link", "set", link, "up")
        for words in ("link set lo up", f"address add {server}/30 dev eth0", "link set eth0 up", f"route add default via {router}"):
            command("ip", "-n", name, *words.split())
        real = f"{server}:{PORT_VIRTUAL}"
        command("ipvsadm", "--add-server", "--tcp-service", f"{VIRTUAL}:{PORT_VIRTUAL}", "--real-server", real, "--masquerading")


def listens(namespace):
    """Whether its server is there."""
    shown = subprocess.run(["ip", "netns", "exec", namespace, "ss", "-Hltn"], stdout=subprocess.PIPE, text=True)
    return f":{PORT_VIRTUAL} " in shown.stdout


def experiment_virtual():
    """Thirty connections to it: the address that was dialled is no server's, and both ends are told all the same."""
    virtual_address()
    names = [f"real-{number}" for number in range(len(REAL_SERVERS))]
    servers = [subprocess.Popen(["ip", "netns", "exec", name, "python3", "-c", ANSWERS]) for name in names]
    try:
        deadline = time.monotonic() + 20
        while not all(listens(name) for name in names):
            if time.monotonic() > deadline:
                raise RuntimeError("a real server does not listen after 20 s")
            time.sleep(0.2)
        # What the agent knows of who listens comes by a look at /proc.
        time.sleep(2)
        for _ in range(NEW):
            with socket.create_connection((VIRTUAL, PORT_VIRTUAL), 20) as connection:
                ask(connection)
        # What is over is told within a second or two.
        time.sleep(3)
    finally:
        for server in servers:
            server.kill()
            server.wait()

    def hold(agent, found):
        paired = agent.paired(f":{PORT_VIRTUAL}")
        # Two whose hashes fall on one place of the table count as one, and each is over soon after it began.
        found.within("calls", "connections to a virtual address of IPVS with both ends", paired, 0.8 * NEW, NEW)

    return hold


def disk_stat(device):
    values = [int(value) for value in read(f"/sys/block/{device}/stat").split()]
    # Documentation/block/stat.rst: reads, merges, sectors, ms, writes, merges, sectors, ms, in flight, ms, ms, discards x 4, flushes, ms
    return values[0] + values[4] + values[11], values[2] + values[6], values[15]


def experiment_disk(device, folder):
    """Thirty files, each written with fsync."""
    group = Group("check-write")
    os.sync()
    time.sleep(0.3)
    before = disk_stat(device)
    begun_ns = time.time_ns()

    def work():
        begun = time.monotonic_ns()
        for index in range(30):
            with open(f"{folder}/{index}", "wb") as file:
                file.write(os.urandom(65536))
                file.flush()
                os.fsync(file.fileno())
        return time.monotonic_ns() - begun

    took = group.fork(work)()
    os.sync()
    time.sleep(0.3)
    after = disk_stat(device)
    ended_ns = time.time_ns()
    requests, sectors, flushes = (after[i] - before[i] for i in range(3))

    def hold(agent, found):
        def of_device(metric):
            rows = [r for r in agent.rows("device", device) if begun_ns - 60 * MS <= r["window_unix_ns"] <= ended_ns]
            values = [r["values"][metric] for r in rows if metric in r["values"]]
            return sum(values) if values else None

        # The kernel's own counts take flushes apart, and each write of the journal has one before and one after it.
        found.near("block_io", "requests", (of_device("device_completed") or 0) - (of_device("device_flushes") or 0), requests, 0.02, 4)
        found.near("block_io", "bytes", of_device("device_bytes"), sectors * 512, 0.02, 65536)
        found.within("block_io", "flushes", of_device("device_flushes"), 30, max(flushes, 30) * 2)
        found.within("block_io", "ns its writer was blocked", agent.sum("workload", group.name, "blocked_io_ns"), 1, took)

    return hold


def experiment_memory(folder):
    """A process with 24 MiB reads and writes files of 96 MiB: its cgroup reclaims what it read."""
    group, beside = Group("check-small"), Group("check-roomy")
    limits = group.controllers.get("memory")
    if limits is None:
        return lambda agent, found: None
    write(limits + ("/memory.max" if os.path.exists(limits + "/memory.max") else "/memory.limit_in_bytes"), str(24 << 20))
    path = f"{folder}/large"
    with open(path, "wb") as file:
        for _ in range(96):
            file.write(os.urandom(1 << 20))
    os.sync()
    write("/proc/sys/vm/drop_caches", "1")
    resting = beside.fork(lambda: time.sleep(1))

    def work():
        begun = time.monotonic_ns()
        for _ in range(2):
            with open(path, "rb") as file:
                while file.read(1 << 18):
                    pass
        return time.monotonic_ns() - begun

    took = group.fork(work)()
    resting()

    def hold(agent, found):
        found.within("memory", "ns reclaiming", agent.sum("workload", group.name, "reclaim_ns"), 1, took)
        found.within("memory", "ns of the neighbour", agent.sum("workload", beside.name, "reclaim_ns") or 0, 0, 0)

    return hold


def experiment_hotplug():
    """The last CPU goes away for five seconds and comes back."""
    cpus = os.cpu_count()
    switch = f"/sys/devices/system/cpu/cpu{cpus - 1}/online"
    if cpus < 2 or not os.path.exists(switch):
        return lambda agent, found: None
    write(switch, "0")
    begun_ns = time.time_ns()
    time.sleep(5)
    ended_ns = time.time_ns()
    write(switch, "1")
    # An emulated CPU may need half a second for it.
    back_ns = time.time_ns()
    time.sleep(3)

    def hold(agent, found):
        def capacities(from_ns, to_ns):
            rows = [r for r in agent.rows("host", "") if from_ns <= r["window_unix_ns"] < to_ns]
            return {r["values"]["cpu_capacity_ns"] // (50 * MS) for r in rows if "cpu_capacity_ns" in r["values"]}

        # It is looked for once a second, by a thread that an emulated machine lets wait; a window that is read when it is back, and that has been
        # seen, is told with it.
        found.same("cpu", "CPUs while one was away", capacities(begun_ns + 1800 * MS, ended_ns - 1800 * MS), {cpus - 1})
        found.same("cpu", "CPUs when it was back", capacities(back_ns + 1800 * MS, back_ns + 2900 * MS), {cpus})

    return hold


def experiment_clock():
    """The clock goes forward by an hour: what comes then is told as of then, and no window is lost."""
    group = Group("check-later")
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600)
    # It is looked at once a second.
    time.sleep(1.5)
    begun_ns = time.time_ns()
    spinning = group.fork(spin_for(1, 0))
    spinning()

    def hold(agent, found):
        rows = [r for r in agent.rows("workload", group.name) if r["window_unix_ns"] >= begun_ns - 60 * MS]
        told = sum(r["values"].get("cpu_busy_ns", 0) for r in rows)
        found.used("cpu", "ns on CPU an hour later", told, [spinning.used[0]], 30 * MS)

    return hold


def verified():
    """Instructions that the verifier walked, by program, of those that are loaded: `verified_insns` of `struct bpf_prog_info`."""
    system_call = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    get_next, get_fd, get_info = 11, 13, 15
    libc = ctypes.CDLL(None, use_errno=True)

    def bpf(command, attributes):
        return libc.syscall(system_call, command, attributes, len(attributes))

    walked, program = {}, 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("III", program, 0, 0), 12)
        if bpf(get_next, attributes) != 0:
            return walked
        program = struct.unpack("III", attributes.raw)[1]
        fd = bpf(get_fd, ctypes.create_string_buffer(struct.pack("III", program, 0, 0), 12))
        if fd < 0:
            continue
        info = ctypes.create_string_buffer(224)
        if bpf(get_info, ctypes.create_string_buffer(struct.pack("IIQ", fd, len(info), ctypes.addressof(info)), 16)) == 0:
            name = info.raw[64:80].split(b"\0")[0].decode()
            count = struct.unpack_from("I", info.raw, 216)[0]
            # Zero before 5.16. What systemd and others load is not asked about.
            if count and name:
                walked[name] = max(count, walked.get(name, 0))
        os.close(fd)


def memory(pid):
    """Bytes of a process that are in memory without pages of maps, bytes of all maps of this kernel, and what the largest are."""
    resident, of_maps = 0, False
    for line in read(f"/proc/{pid}/smaps").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            of_maps = "bpf-map" in line
        elif line.startswith("Rss:") and not of_maps:
            resident += int(line.split()[1]) * 1024
    maps = subprocess.run(["bpftool", "-j", "map", "show"], check=True, stdout=subprocess.PIPE).stdout
    maps = sorted(json.loads(maps), key=lambda one: one["bytes_memlock"], reverse=True)
    largest = ", ".join(f"{one.get('name', one['type'])} {one['bytes_memlock']}" for one in maps[:8])
    return resident, sum(one["bytes_memlock"] for one in maps), largest


def disk():
    """An empty disk with a file system on it: the guest's second one."""
    device = "vda"
    if not os.path.exists(f"/dev/{device}"):
        return None, None
    folder = "/mnt"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", f"/dev/{device}"], check=True)
    subprocess.run(["mount", "-t", "ext4", f"/dev/{device}", folder], check=True)
    return device, folder


def say(**what):
    print(json.dumps(what), flush=True)


def coverage(program):
    said = subprocess.run(AS_PACKAGED + [program, "doctor", "--json"], capture_output=True, text=True, timeout=300)
    try:
        return {s["signal"]: s for s in json.loads(said.stdout)["signals"]}
    except (ValueError, KeyError):
        raise SystemExit(f"doctor: {said.stdout[-500:]} {said.stderr[-1500:]}")


def main():
    # Where its user may read it.
    program = shutil.copy(sys.argv[1], "/run/tailwater-agent")
    cgroup2_controllers()
    device, folder = disk()
    signals = coverage(program)
    try:
        agent = Agent(program)
    except SystemExit:
        for name, signal_ in signals.items():
            say(signal=name, state="untried" if signal_["covered"] else "uncovered", said="; ".join(signal_["limits"]))
        raise
    possible = read("/sys/devices/system/cpu/possible").strip()
    say(kernel=os.uname().release, cpus=os.cpu_count(), possible=possible, attach_s=round(agent.attach_s, 1))
    say(verified=verified())
    experiments = {
        "cpu": experiment_cpu,
        "stacks": lambda: experiment_stacks(program),
        "streams": lambda: experiment_streams(program, signals["requests"]),
        "throttling": experiment_throttling,
        "overflow": experiment_overflow,
        "deferred": experiment_deferred,
        "requests": experiment_requests,
        "names": experiment_names,
        "virtual address": experiment_virtual,
    }
    if device:
        experiments["disk"] = lambda: experiment_disk(device, folder)
        experiments["memory"] = lambda: experiment_memory(folder)
    # Last: what follows would find its CPU gone, and another time.
    experiments["hotplug"] = experiment_hotplug
    experiments["clock"] = experiment_clock
    found, holds = Findings(), []
    for name, experiment in experiments.items():
        try:
            holds.append(experiment())
        except Exception as error:  # one that cannot be made is no reason to leave out the others
            say(experiment=name, failed=repr(error))
    resident, maps, largest = memory(agent.process.pid)
    say(resident_bytes=resident, map_bytes=maps, largest_maps=largest)
    agent.end()
    for hold in holds:
        hold(agent, found)
    lost = sum(line["windows"] for line in agent.lines if line.get("kind") == "lost")
    say(windows=len({line["window_unix_ns"] for line in agent.lines if "window_unix_ns" in line}), lost=lost)
    # No signals of doctor's: they are told where an agent is asked to.
    for name in ("stacks", "streams"):
        limits = [found.refused[name]] if name in found.refused else []
        signals[name] = {"covered": not limits, "limits": limits}
    for name, signal_ in signals.items():
        if not signal_["covered"]:
            say(signal=name, state="uncovered", said="; ".join(signal_["limits"]))
        elif signal_.get("sampled"):
            # Polled: what only a hook can tell is not there, so a fault is told and is none.
            told = [("" if ok else "NOT ") + text for ok, text in found.of[name]]
            say(signal=name, state="sampled", said="; ".join(told + signal_["limits"]))
        elif not found.of[name]:
            say(signal=name, state="untried", said="no experiment")
        else:
            right = all(ok for ok, _ in found.of[name])
            said = "; ".join(text for ok, text in found.of[name] if right or not ok)
            say(signal=name, state="right" if right else "wrong", said=said)
    if agent.errors:
        say(agent="".join(agent.errors)[-3000:])


main()
