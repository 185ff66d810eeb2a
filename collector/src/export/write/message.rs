//! A remote-write 1.0 request: its protobuf message (`prometheus.WriteRequest`, the fields that are used), in snappy's block format.
//! <https://prometheus.io/docs/specs/remote_write_spec/>

use prost::Message;

/// `prometheus.WriteRequest`
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// One per set of labels.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// Sorted by name, `__name__` among them, none empty.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Oldest first.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// `prometheus.Label`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Label {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `prometheus.Sample`
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    /// Value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Unix ms.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// As it is sent.
#[must_use]
pub fn encode(request: &WriteRequest) -> Vec<u8> {
    // It fails beyond 4 GiB only; a request is bounded by its number of samples.
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
        let request = WriteRequest {
            timeseries: vec![TimeSeries {
                labels: vec![label("__name__", "up"), label("host", "a")],
                samples: vec![Sample { value: 1.0, timestamp: 50 }],
            }],
        };
        let plain = snap::raw::Decoder::new().decompress_vec(&encode(&request)).unwrap();
        // Worked out by hand from the fields' numbers and types.
        let mut right = vec![0x0a, 0x2b];
        right.extend([0x0a, 0x0e, 0x0a, 0x08]);
        right.extend(b"__name__");
        right.extend([0x12, 0x02]);
        right.extend(b"up");
        right.extend([0x0a, 0x09, 0x0a, 0x04]);
        right.extend(b"host");
        right.extend([0x12, 0x01]);
        right.extend(b"a");
        right.extend([0x12, 0x0b, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 50]);
        right[1] = u8::try_from(right.len() - 2).unwrap();
        assert_eq!(plain, right);
    }
}
