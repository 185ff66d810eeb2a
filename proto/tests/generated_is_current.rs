//! The committed code is what the schema generates, byte for byte. `UPDATE=1 cargo test -p tailwater-proto` rewrites it.
//! No protoc: protox compiles the schema.

use std::path::Path;

#[test]
fn the_committed_code_is_what_the_schema_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["telemetry/v1/telemetry.proto"], [root]).expect("the schema compiles");
    let out = tempfile::tempdir().expect("a scratch folder");
    tonic_prost_build::configure()
        .out_dir(out.path())
        .build_transport(true)
        .compile_fds(descriptors)
        .expect("the schema generates");
    let name = "tailwater.telemetry.v1.rs";
    let fresh = std::fs::read_to_string(out.path().join(name)).expect("one file per package");
    let committed = root.join("src/generated").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&committed, &fresh).expect("rewrite the committed code");
    }
    let kept = std::fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        kept == fresh,
        "{} is not current: run `UPDATE=1 cargo test -p tailwater-proto`",
        committed.display()
    );
}
