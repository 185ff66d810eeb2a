//! libFuzzer on one target, which the environment names (`TAILWATER_FUZZ_TARGET`): it calls `main` itself. `tests/fuzz/run.sh` builds and starts it.
#![no_main]

use std::sync::LazyLock;
use tailwater_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TAILWATER_FUZZ_TARGET").unwrap_or_default();
    tailwater_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = tailwater_fuzz::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("TAILWATER_FUZZ_TARGET={name}: no such target: name one of {}", names.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.take)(bytes));
