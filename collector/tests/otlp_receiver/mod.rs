//! A receiver of OTLP over gRPC, plain or over TLS: the services that the OpenTelemetry project generates from its definitions, on tonic. It
//! keeps what comes and answers as the test says: well, in part, badly or never. Shares no code with the collector.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(unreachable_pub, reason = "a module of several tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure is the test's")]
#![allow(clippy::disallowed_methods, reason = "tests need deadlines")]

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// How to answer.
#[derive(Clone)]
pub enum Answer {
    Good,
    /// Taken but for so many.
    Partial(i64, &'static str),
    Status(Status),
    /// Nothing.
    Hang,
}

/// What came.
#[derive(Debug, Default, Clone)]
pub struct Got {
    pub metrics: Vec<ExportMetricsServiceRequest>,
    pub logs: Vec<ExportLogsServiceRequest>,
    pub headers: Vec<MetadataMap>,
    /// Those that were not answered well, too.
    pub tries: usize,
}

/// A data point with what it is a point of.
#[derive(Debug, Clone)]
pub struct Point {
    /// Of its resource.
    pub resource: Vec<KeyValue>,
    pub metric: Metric,
    pub point: NumberDataPoint,
}

/// The text or number of an attribute, as text.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|a| a.key == name)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(n) => n.to_string(),
        Value::DoubleValue(n) => n.to_string(),
        other => panic!("{name}: {other:?}"),
    })
}

impl Point {
    pub fn label(&self, name: &str) -> Option<String> {
        attribute(&self.point.attributes, name)
    }

    pub fn of(&self, name: &str) -> Option<String> {
        attribute(&self.resource, name)
    }

    pub fn value(&self) -> f64 {
        match self.point.value {
            Some(number_data_point::Value::AsDouble(n)) => n,
            Some(number_data_point::Value::AsInt(n)) => n as f64,
            None => f64::NAN,
        }
    }
}

impl Got {
    /// All data points of this name, in the order in which they came.
    pub fn points(&self, name: &str) -> Vec<Point> {
        let mut all = Vec::new();
        for of in self.metrics.iter().flat_map(|request| &request.resource_metrics) {
            let resource = of.resource.clone().unwrap_or_default().attributes;
            let metrics = of.scope_metrics.iter().flat_map(|scope| &scope.metrics);
            for metric in metrics.filter(|metric| metric.name == name) {
                let points = match metric.data.as_ref().unwrap() {
                    Data::Gauge(gauge) => &gauge.data_points,
                    Data::Sum(sum) => &sum.data_points,
                    other => panic!("{name}: {other:?}"),
                };
                for point in points {
                    let mut metric = metric.clone();
                    if let Some(Data::Gauge(g)) = &mut metric.data {
                        g.data_points.clear();
                    }
                    if let Some(Data::Sum(s)) = &mut metric.data {
                        s.data_points.clear();
                    }
                    all.push(Point { resource: resource.clone(), metric, point: point.clone() });
                }
            }
        }
        all
    }

    /// All log records, each with its resource.
    pub fn records(&self) -> Vec<(Vec<KeyValue>, LogRecord)> {
        let mut all = Vec::new();
        for of in self.logs.iter().flat_map(|request| &request.resource_logs) {
            let resource = of.resource.clone().unwrap_or_default().attributes;
            let records = of.scope_logs.iter().flat_map(|scope| &scope.log_records);
            all.extend(records.map(|record| (resource.clone(), record.clone())));
        }
        all
    }
}

type Script = Arc<dyn Fn(usize) -> Answer + Send + Sync>;

/// The server; it ends with the test's process.
#[derive(Clone)]
pub struct OtlpReceiver {
    pub address: SocketAddr,
    got: Arc<Mutex<Got>>,
    script: Script,
    tls: bool,
}

impl OtlpReceiver {
    /// Answers the nth request (from 0) as `script` says.
    pub fn start(script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", None, Arc::new(script))
    }

    /// Answers all as it should.
    pub fn good() -> Self {
        Self::start(|_| Answer::Good)
    }

    /// The same, on an address that nobody had so far.
    pub fn good_at(address: SocketAddr) -> Self {
        Self::at(&address.to_string(), None, Arc::new(|_| Answer::Good))
    }

    /// The same over TLS.
    pub fn tls(mut config: rustls::ServerConfig) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::at("127.0.0.1:0", Some(Arc::new(config)), Arc::new(|_| Answer::Good))
    }

    fn at(address: &str, tls: Option<Arc<rustls::ServerConfig>>, script: Script) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self { address, got: Arc::default(), script, tls: tls.is_some() };
        let own = receiver.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(own.accept(listener, tls));
        });
        receiver
    }

    async fn accept(self, listener: std::net::TcpListener, tls: Option<Arc<rustls::ServerConfig>>) {
        let listener = TcpListener::from_std(listener).unwrap();
        // A sender that goes away, or does not trust us, is not the server's problem.
        while let Ok((stream, _)) = listener.accept().await {
            let (own, tls) = (self.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => own.serve(stream).await,
                    Some(tls) => {
                        if let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await {
                            own.serve(stream).await;
                        }
                    }
                }
            });
        }
    }

    async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let metrics = MetricsServiceServer::new(self.clone()).accept_compressed(CompressionEncoding::Gzip);
        let logs = LogsServiceServer::new(self).accept_compressed(CompressionEncoding::Gzip);
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let (mut metrics, mut logs) = (metrics.clone(), logs.clone());
            async move {
                if request.uri().path().starts_with("/opentelemetry.proto.collector.metrics.v1.") {
                    metrics.call(request).await
                } else {
                    logs.call(request).await
                }
            }
        });
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(io), service);
        let _ = served.await;
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    pub fn got(&self) -> Got {
        self.got.lock().unwrap().clone()
    }

    /// What came once `enough` of it did.
    pub fn wait(&self, what: &str, enough: impl Fn(&Got) -> bool) -> Got {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let got = self.got();
            if enough(&got) {
                return got;
            }
            assert!(Instant::now() < deadline, "waited 60 s for {what}; {} tries came", got.tries);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    async fn take(
        &self,
        headers: &MetadataMap,
        keep: impl FnOnce(&mut Got),
    ) -> Result<Option<(i64, &'static str)>, Status> {
        let answer = {
            let mut got = self.got.lock().unwrap();
            got.tries += 1;
            got.headers.push(headers.clone());
            let answer = (self.script)(got.tries - 1);
            if matches!(answer, Answer::Good | Answer::Partial(..)) {
                keep(&mut got);
            }
            answer
        };
        match answer {
            Answer::Good => Ok(None),
            Answer::Partial(rejected, said) => Ok(Some((rejected, said))),
            Answer::Status(status) => Err(status),
            Answer::Hang => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl MetricsService for OtlpReceiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let (headers, _, message) = request.into_parts();
        let part = self.take(&headers, |got| got.metrics.push(message)).await?;
        let partial_success = part.map(|(rejected_data_points, said)| ExportMetricsPartialSuccess {
            rejected_data_points,
            error_message: said.to_owned(),
        });
        Ok(Response::new(ExportMetricsServiceResponse { partial_success }))
    }
}

#[tonic::async_trait]
impl LogsService for OtlpReceiver {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let (headers, _, message) = request.into_parts();
        let part = self.take(&headers, |got| got.logs.push(message)).await?;
        let partial_success = part.map(|(rejected_log_records, said)| ExportLogsPartialSuccess {
            rejected_log_records,
            error_message: said.to_owned(),
        });
        Ok(Response::new(ExportLogsServiceResponse { partial_success }))
    }
}
