//! Compiles every `bpf/*.bpf.c` to an object with BTF and generates `objects.rs`, which names each object's bytes. Owns the
//! compiler's command line; knows no signal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error(
        "no {what} found (tried {tried}); install the Debian package {package}, or set {variable} to the path of one"
    )]
    NoTool { what: &'static str, tried: String, package: &'static str, variable: &'static str },
    #[error("{tool} failed on {source_file}:\n{stderr}")]
    Failed { tool: String, source_file: String, stderr: String },
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error(
        "bpf/bpf_helpers.h not found in /usr/include or /usr/local/include; install the Debian package libbpf-dev"
    )]
    NoHeaders,
    #[error("cargo did not set {0}")]
    Environment(&'static str),
}

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), BuildError> {
    println!("cargo::rerun-if-changed=bpf");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let headers = ["/usr/include", "/usr/local/include"]
        .iter()
        .any(|d| Path::new(d).join("bpf/bpf_helpers.h").exists());
    if !headers {
        return Err(BuildError::NoHeaders);
    }
    let clang =
        tool("clang", "CLANG", "clang-19", &["clang-19", "clang-20", "clang-21", "clang-18", "clang"])?;
    let strip = tool(
        "llvm-strip",
        "LLVM_STRIP",
        "llvm-19",
        &["llvm-strip-19", "llvm-strip-20", "llvm-strip-21", "llvm-strip-18", "llvm-strip"],
    )?;
    let mut generated = String::new();
    for source in sources()? {
        let stem =
            source.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".bpf.c")).unwrap_or("");
        let object = out.join(format!("{stem}.bpf.o"));
        compile(&clang, &strip, &source, &object)?;
        let constant = stem.to_uppercase();
        let _ = writeln!(
            generated,
            "/// The compiled `bpf/{stem}.bpf.c`, with BTF.\npub static {constant}: &[u8] = &Aligned(*include_bytes!({:?})).0;",
            object.display().to_string()
        );
    }
    let path = out.join("objects.rs");
    std::fs::write(&path, generated)
        .map_err(|source| BuildError::File { path: path.display().to_string(), source })
}

fn variable(name: &'static str) -> Result<String, BuildError> {
    std::env::var(name).map_err(|_| BuildError::Environment(name))
}

/// The first of `candidates` that runs, unless the environment variable names one.
fn tool(
    what: &'static str,
    variable: &'static str,
    package: &'static str,
    candidates: &[&str],
) -> Result<String, BuildError> {
    println!("cargo::rerun-if-env-changed={variable}");
    let named = std::env::var(variable).ok();
    let tried: Vec<&str> = named.as_deref().map_or_else(|| candidates.to_vec(), |n| vec![n]);
    tried
        .iter()
        .find(|t| Command::new(t).arg("--version").output().is_ok_and(|o| o.status.success()))
        .map(|t| (*t).to_owned())
        .ok_or_else(|| BuildError::NoTool { what, tried: tried.join(", "), package, variable })
}

fn sources() -> Result<Vec<PathBuf>, BuildError> {
    let file_error = |source| BuildError::File { path: "bpf".to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir("bpf").map_err(file_error)? {
        let path = entry.map_err(file_error)?.path();
        if path.to_string_lossy().ends_with(".bpf.c") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The same object serves every architecture, so none is named: what reads registers, and so depends on one, does not compile then.
fn compile(clang: &str, strip: &str, source: &Path, object: &Path) -> Result<(), BuildError> {
    run(
        Command::new(clang)
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-std=gnu11"])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-declarations"])
            .args(["-Ibpf/include", "-Ibpf/vmlinux", "-c"])
            .arg(source)
            .arg("-o")
            .arg(object),
        clang,
        source,
    )?;
    // DWARF goes, BTF stays: the loader needs BTF alone.
    run(Command::new(strip).arg("-g").arg(object), strip, source)
}

fn run(command: &mut Command, tool: &str, source: &Path) -> Result<(), BuildError> {
    let source_file = source.display().to_string();
    let output = command.output().map_err(|source| BuildError::File { path: tool.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BuildError::Failed { tool: tool.to_owned(), source_file, stderr })
}
