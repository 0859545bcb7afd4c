//! Files and programs.
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

pub const OPERATOR: &str = "traffic-operator";
pub const NAMESPACE: &str = "traffic-operator-system";
pub const OVERLAYS: [&str; 2] = ["deploy/overlays/kube-prometheus", "deploy/overlays/standalone"];

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn yaml<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_yaml::from_str(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn to_yaml(value: &Value) -> String {
    serde_yaml::to_string(value).expect("YAML of JSON")
}

/// Returns the non-empty documents of a YAML stream.
pub fn documents_of(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("YAML"))
        .filter(|document| !document.is_null())
        .collect()
}

/// Returns the files of a directory with this extension, sorted.
pub fn files_in(dir: &str, extension: &str) -> Vec<PathBuf> {
    let dir = root().join(dir);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// Returns the files below a directory with one of these extensions.
pub fn below(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut all = Vec::new();
    for path in entries.map(|entry| entry.expect("a directory entry").path()) {
        if path.is_dir() {
            all.extend(below(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)) {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// Returns the path of a file within the repository.
pub fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// A test's own directory below the build's, empty at first.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("observability").join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        Self(dir)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.to_string_lossy().into_owned()
    }
}

pub fn tool(name: &str) -> PathBuf {
    lab::tools::ensure(name)
        .unwrap_or_else(|error| panic!("{error:#}\nTry: cargo run --bin lab -- tools"))
}

pub fn promtool(args: &[&str]) {
    run(&tool("promtool"), args);
}

/// Runs a program that must succeed and returns its output.
pub fn run(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{} {}\n{}{}",
        program.display(),
        args.join(" "),
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
