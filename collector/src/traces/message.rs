//! An `ExportTraceServiceRequest` of OTLP, as far as it is of use: of each span its ids, name, kind, times and status, of each resource two names.
//! Attributes, events and links of spans are not looked at: whatever is in them of requests and people stays out of memory. The generated types hold all
//! of it, two bytes on the wire becoming some hundred; here one span at a time is in memory.

use super::slow::Slow;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use std::sync::Arc;

/// A resource, bytes: an SDK describes a process in some hundred, with its command line in some thousand.
const RESOURCE_BYTES_MAX: usize = 64 << 10;
/// Characters of a name that are kept: more does not fit on a line.
const NAME_CHARS_MAX: usize = 128;
/// As the conventions of OpenTelemetry call it.
const UNKNOWN: &str = "unknown_service";
/// `SPAN_KIND_SERVER` and `SPAN_KIND_CONSUMER` of trace.proto.
const TAKES_REQUESTS: [i32; 2] = [2, 5];
/// `STATUS_CODE_ERROR` of trace.proto.
const ERROR: i32 = 2;

/// What is read of a span; the numbers are those of trace.proto.
#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    /// Bytes: a name that is not UTF-8 is no reason to refuse all others.
    #[prost(bytes = "vec", tag = "5")]
    name: Vec<u8>,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_unix_ns: u64,
    #[prost(fixed64, tag = "8")]
    end_unix_ns: u64,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

/// How many spans of a message were what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Faster than what is kept, and not failed.
    pub(super) fast: u64,
    /// Neither take a request nor begin a trace: another span of their service does.
    pub(super) inner: u64,
    /// Without ids or times that could be, or of a resource that is too large.
    pub(super) unusable: u64,
}

/// Reads a message, and hands `take` each span that is slow or failed.
///
/// # Errors
/// The bytes are no such message. What was read before the fault has been handed over.
pub(super) fn read(
    bytes: &[u8],
    slower_than_ns: u64,
    mut take: impl FnMut(Slow),
) -> Result<Counts, DecodeError> {
    let mut counts = Counts::default();
    each(bytes, |tag, resource_spans| {
        if tag == 1 { of_resource(resource_spans, slower_than_ns, &mut counts, &mut take) } else { Ok(()) }
    })?;
    Ok(counts)
}

/// The fields with a length, in their order; others are passed over.
fn each<'a>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(u32, &'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes)?;
        let mut value = bytes;
        skip_field(wire, tag, &mut bytes, DecodeContext::default())?;
        if wire == WireType::LengthDelimited {
            // That it is not longer than what is there has just been seen.
            decode_varint(&mut value)?;
            take(tag, value.get(..value.len() - bytes.len()).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// `ResourceSpans`: a resource (1) and its scopes (2), in whatever order.
fn of_resource(
    bytes: &[u8],
    slower_than_ns: u64,
    counts: &mut Counts,
    take: &mut impl FnMut(Slow),
) -> Result<(), DecodeError> {
    let mut resource: &[u8] = &[];
    each(bytes, |tag, value| {
        if tag == 1 {
            resource = value;
        }
        Ok(())
    })?;
    let from = match resource.len() {
        0..=RESOURCE_BYTES_MAX => Some(From::of(&Resource::decode(resource)?)),
        _ => None,
    };
    each(bytes, |tag, scope_spans| {
        if tag != 2 {
            return Ok(());
        }
        each(scope_spans, |tag, span| {
            let (2, Some(from)) = (tag, &from) else {
                counts.unusable += u64::from(tag == 2);
                return Ok(());
            };
            match of_span(Head::decode(span)?, from, slower_than_ns) {
                Ok(slow) => take(slow),
                Err(Left::Fast) => counts.fast += 1,
                Err(Left::Inner) => counts.inner += 1,
                Err(Left::Unusable) => counts.unusable += 1,
            }
            Ok(())
        })
    })
}

/// Whose spans they are.
struct From {
    service: Arc<str>,
    host: Arc<str>,
}

impl From {
    fn of(resource: &Resource) -> Self {
        let text = |wanted: &str| {
            let found = resource.attributes.iter().find(|of| of.key == wanted)?;
            match found.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) if !text.is_empty() => Some(shortened(text)),
                _ => None,
            }
        };
        let service = text("service.name").map_or_else(|| UNKNOWN.into(), Arc::from);
        Self { service, host: text("host.name").map_or_else(|| "".into(), Arc::from) }
    }
}

/// The beginning of a name.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

/// Why a span is left out.
enum Left {
    Fast,
    Inner,
    Unusable,
}

fn of_span(head: Head, from: &From, slower_than_ns: u64) -> Result<Slow, Left> {
    let trace_id: [u8; 16] = head.trace_id.as_slice().try_into().map_err(|_| Left::Unusable)?;
    let span_id: [u8; 8] = head.span_id.as_slice().try_into().map_err(|_| Left::Unusable)?;
    let Head { start_unix_ns, end_unix_ns, .. } = head;
    // Ids of zeros are none (W3C Trace Context, 3.2.2.3 and 3.2.2.4).
    if trace_id == [0; 16] || span_id == [0; 8] || start_unix_ns == 0 || end_unix_ns < start_unix_ns {
        return Err(Left::Unusable);
    }
    if !TAKES_REQUESTS.contains(&head.kind) && !head.parent_span_id.is_empty() {
        return Err(Left::Inner);
    }
    let error = head.status.is_some_and(|status| status.code == ERROR);
    if end_unix_ns - start_unix_ns < slower_than_ns && !error {
        return Err(Left::Fast);
    }
    Ok(Slow {
        trace_id,
        span_id,
        service: Arc::clone(&from.service),
        host: Arc::clone(&from.host),
        name: shortened(&String::from_utf8_lossy(&head.name)).into(),
        start_unix_ns,
        end_unix_ns,
        error,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use prost::encoding::{encode_key, encode_varint};

    const MS: u64 = 1_000_000;
    const BEGIN: u64 = 1_700_000_000_000_000_000;

    /// A field with a length.
    fn field(tag: u32, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_key(tag, WireType::LengthDelimited, &mut out);
        encode_varint(value.len() as u64, &mut out);
        out.extend(value);
        out
    }

    fn attribute(key: &str, text: &str) -> KeyValue {
        let value = Some(AnyValue { value: Some(Value::StringValue(text.to_owned())) });
        KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
    }

    fn resource(attributes: Vec<KeyValue>) -> Vec<u8> {
        Resource { attributes, ..Resource::default() }.encode_to_vec()
    }

    /// A message of one resource with these spans.
    fn message(resource: &[u8], spans: &[Vec<u8>]) -> Vec<u8> {
        let scope: Vec<u8> = spans.iter().flat_map(|span| field(2, span)).collect();
        field(1, &[field(1, resource), field(2, &scope)].concat())
    }

    fn head(n: u8, ms: u64) -> Head {
        Head {
            trace_id: vec![n; 16],
            span_id: vec![n; 8],
            parent_span_id: vec![9; 8],
            name: format!("GET /{n}").into_bytes(),
            kind: 2,
            start_unix_ns: BEGIN,
            end_unix_ns: BEGIN + ms * MS,
            status: None,
        }
    }

    /// What an SDK sends: one service, and spans of so many milliseconds that take requests, each with attributes of its own.
    pub(in super::super) fn sent(service: &str, end_unix_ns: u64, ms: &[u64]) -> Vec<u8> {
        let spans: Vec<Vec<u8>> = ms
            .iter()
            .zip(1_u8..)
            .map(|(ms, n)| {
                let start_unix_ns = end_unix_ns - ms * MS;
                let mut span = Head { start_unix_ns, end_unix_ns, ..head(n, *ms) }.encode_to_vec();
                span.extend(field(9, &attribute("http.route", "/cart").encode_to_vec()));
                span
            })
            .collect();
        message(&resource(vec![attribute("service.name", service)]), &spans)
    }

    fn all(bytes: &[u8]) -> Result<(Vec<Slow>, Counts), DecodeError> {
        let mut slow = Vec::new();
        let counts = read(bytes, 200 * MS, |one| slow.push(one))?;
        Ok((slow, counts))
    }

    #[test]
    fn slow_spans_that_take_requests_or_begin_traces_are_taken_with_whose_they_are() {
        let failed = Head { status: Some(Status { code: ERROR }), ..head(3, 1) };
        let inner = Head { kind: 3, ..head(4, 900) };
        let root = Head { kind: 1, parent_span_id: Vec::new(), ..head(5, 900) };
        let consumer = Head { kind: 5, ..head(6, 200) };
        let spans = [head(1, 250), head(2, 199), failed, inner, root, consumer];
        let of = vec![attribute("host.name", "web-1"), attribute("service.name", "shop")];
        let message = message(&resource(of), &spans.map(|head| head.encode_to_vec()));
        let (slow, counts) = all(&message).unwrap();
        let told: Vec<_> = slow.iter().map(|s| (s.trace_id[0], s.duration_ns() / MS, s.error)).collect();
        assert_eq!(told, [(1, 250, false), (3, 1, true), (5, 900, false), (6, 200, false)]);
        assert!(slow.iter().all(|s| (s.service.as_ref(), s.host.as_ref()) == ("shop", "web-1")));
        assert_eq!(slow[0].name.as_ref(), "GET /1");
        assert_eq!(counts, Counts { fast: 1, inner: 1, unusable: 0 });
    }

    #[test]
    fn what_a_span_must_have_and_has_not_is_counted_and_the_others_are_taken() {
        let spans = [
            Head { trace_id: vec![1; 8], ..head(1, 900) },
            Head { trace_id: vec![0; 16], ..head(1, 900) },
            Head { span_id: Vec::new(), ..head(1, 900) },
            Head { start_unix_ns: 0, ..head(1, 900) },
            Head { end_unix_ns: BEGIN - 1, ..head(1, 900) },
            Head { name: vec![0xff, b'x'], ..head(2, 900) },
        ];
        let message = message(&[], &spans.map(|head| head.encode_to_vec()));
        let (slow, counts) = all(&message).unwrap();
        assert_eq!((slow.len(), counts.unusable), (1, 5));
        assert_eq!((slow[0].service.as_ref(), slow[0].name.as_ref()), (UNKNOWN, "\u{fffd}x"));
    }

    #[test]
    fn a_resource_counts_wherever_it_stands_and_one_that_is_too_large_has_no_usable_spans() {
        let of = resource(vec![attribute("service.name", "shop")]);
        let scope = field(2, &head(1, 900).encode_to_vec());
        let behind = field(1, &[field(2, &scope), field(1, &of)].concat());
        assert_eq!(all(&behind).unwrap().0[0].service.as_ref(), "shop");
        let large = resource(vec![attribute("process.command_args", &"x".repeat(RESOURCE_BYTES_MAX))]);
        let (slow, counts) = all(&message(&large, &[head(1, 900).encode_to_vec()])).unwrap();
        assert_eq!((slow.len(), counts.unusable), (0, 1));
        let long = resource(vec![attribute("service.name", &"ä".repeat(200))]);
        let (slow, _) = all(&message(&long, &[head(1, 900).encode_to_vec()])).unwrap();
        assert_eq!(slow[0].service.chars().count(), NAME_CHARS_MAX + 1);
    }

    #[test]
    fn bytes_that_are_no_such_message_are_refused_wherever_they_break_off() {
        let whole = sent("shop", BEGIN + 900 * MS, &[900, 300]);
        assert_eq!(all(&whole).unwrap().0.len(), 2);
        assert_eq!(all(&[]).unwrap().0.len(), 0, "an empty message is one");
        for end in 1..whole.len() {
            assert!(all(&whole[..end]).is_err(), "{end} of {} bytes", whole.len());
        }
        for odd in
            [&b"{\"resourceSpans\":[]}"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0a\x05ab"]
        {
            assert!(all(odd).is_err(), "{odd:?}");
        }
    }
}
