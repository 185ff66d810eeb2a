"""Sends spans by OTLP over HTTP with the SDK of the OpenTelemetry project, as an instrumented application does, until standard input ends. Prints the trace
ids of those that are slow, by service, as JSON.

send_spans.py ENDPOINT COMPRESSION SERVICE..."""

import json
import sys
import threading
import time

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

endpoint, compression, *services = sys.argv[1:]
MS = 1_000_000
ended = threading.Event()


def wait_for_the_end():
    sys.stdin.read()
    ended.set()


def tracer(service):
    provider = TracerProvider(resource=Resource.create({"service.name": service, "host.name": "web-1"}))
    exporter = OTLPSpanExporter(endpoint=endpoint, compression=Compression(compression), timeout=30)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=300))
    return provider, provider.get_tracer("test")


threading.Thread(target=wait_for_the_end, daemon=True).start()
providers = {service: tracer(service) for service in services}
slow = {service: [] for service in services}
number = 0
while not ended.is_set():
    for service, (_, of) in providers.items():
        now = time.time_ns()
        number += 1
        # Three in four are fast; the slow ones differ in how slow they are.
        duration = (300 + number % 200) * MS if number % 4 < 2 else 5 * MS
        span = of.start_span("GET /cart", kind=SpanKind.SERVER, start_time=now - duration)
        inner = of.start_span(
            "SELECT", context=set_span_in_context(span), kind=SpanKind.CLIENT, start_time=now - duration,
            attributes={"db.query.text": "SELECT secret FROM cards"},
        )
        inner.end(end_time=now)
        if number % 8 == 0:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=now)
        if duration > 200 * MS:
            slow[service].append(format(span.get_span_context().trace_id, "032x"))
    time.sleep(0.02)
for provider, _ in providers.values():
    provider.force_flush()
    provider.shutdown()
print(json.dumps(slow))
