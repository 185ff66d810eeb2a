"""The configurable service of a service graph in Python, behind gunicorn, whose synchronous workers are processes that serve one request each: what
`graphnode` (tests/src/graph/node) is with threads, but that it takes no orders. Its part is in the file that PART names (tests/src/graph/part.rs)."""
import http.client
import json
import os
import time

# A caller lets an idle connection go after this, sooner than the other end does.
KEPT_S = 4.0
# Of every answer, as that of the other runtimes.
BODY = (b'{"served":true,"note":"a body of about two hundred bytes, as small answers of services have it, '
        b'so that an answer is one segment and no more than that"}\n')
# What the other end says that closed a connection while a request was on its way.
CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)

with open(os.environ["PART"], encoding="utf-8") as _file:
    _part = json.load(_file)
_begun = 0


class _Call:
    """A call that requests make. A worker serves one request at a time, so that it keeps one connection."""

    def __init__(self, index, told):
        self.index = index
        self.told = told
        self.host, port = told["to"].rsplit(":", 1)
        self.port = int(port)
        self.kept = None
        self.since = 0.0

    def is_made(self, number):
        # Calls of the same share are not all made by the same requests.
        number += 37 * self.index
        share = self.told["share_percent"]
        return number * share // 100 != (number - 1) * share // 100

    def is_answered(self):
        connection, self.kept = self.kept, None
        if connection is not None and time.monotonic() - self.since > KEPT_S:
            connection.close()
            connection = None
        was_kept = connection is not None
        if not was_kept:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=self.told["timeout_ms"] / 1000)
        try:
            connection.request("GET", "/call")
            answer = connection.getresponse()
            answer.read()
        except CLOSED:
            connection.close()
            # As every client does, once more on a new one.
            return was_kept and self.is_answered()
        except (OSError, http.client.HTTPException):
            connection.close()
            return False
        if self.told["pool"] > 0 and not answer.will_close:
            self.kept, self.since = connection, time.monotonic()
        else:
            connection.close()
        return answer.status == 200


_calls = [_Call(index, told) for index, told in enumerate(_part["calls"])]


def _spin(micros):
    end = time.thread_time_ns() + 1000 * micros
    while time.thread_time_ns() < end:
        pass


def application(_environment, start_response):
    """Serves one request, as its part says."""
    global _begun
    # Each worker begins elsewhere, or after a start all of them would leave out the same calls.
    _begun = (_begun or os.getpid()) + 1
    if _part["allocate_bytes"] > 0:
        _ = b"\1" * _part["allocate_bytes"]
    _spin(_part["cpu_us"])
    if _part["sleep_us"] > 0:
        time.sleep(_part["sleep_us"] / 1e6)
    is_served = all(call.is_answered() for call in _calls if call.is_made(_begun))
    status = "200 OK" if is_served else "503 Service Unavailable"
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(BODY)))])
    return [BODY]
