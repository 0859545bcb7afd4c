//! A newcomer to the product: reads a page of the documentation, and runs its commands as they
//! stand there, in a copy of the repository.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{tools, workspace};

/// The longest time for the commands of a section, in seconds: those that wait for a roll-out give
/// up after two minutes, and a section has at most two of them.
const LIMIT: &str = "300";

/// The parts of the repository that the commands of the pages use.
const PARTS: [&str; 6] = ["Cargo.toml", "Makefile", "deploy", "grafana", "hack", "monitoring"];

/// Directories of scripts that run at the same time; they come and go.
const PASSING: &str = ".render.";

/// Variables that change what the commands do.
const SETTINGS: [&str; 8] =
    ["CATALOG_IMG", "CRDS", "IMG", "KUBECTL", "MAKEFLAGS", "MAKELEVEL", "NAMESPACE", "OVERLAY"];

/// A person with a copy of the repository, kubectl, Helm, and a cluster.
#[derive(Debug)]
pub struct Newcomer {
    dir: PathBuf,
    kubeconfig: PathBuf,
    path: OsString,
}

/// An object in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its kind and name: `Namespace/default`.
    pub name: String,
    /// A value that changes with each write: the generation, which status writes leave alone, or
    /// the resource version for kinds without generations.
    pub written: String,
}

impl Newcomer {
    /// Copies the repository to `dir`, which is emptied first.
    pub fn arrive(dir: &Path, kubeconfig: &Path) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("emptying {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        for part in PARTS {
            copy(&workspace::root().join(part), &dir.join(part))?;
        }
        let mut path = Vec::new();
        for tool in ["kubectl", "helm"] {
            let program = tools::ensure(tool)?;
            path.push(program.parent().context("a program in no directory")?.to_owned());
        }
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(path).context("PATH")?;
        Ok(Self { dir: dir.to_owned(), kubeconfig: kubeconfig.to_owned(), path })
    }

    /// Returns the directory of the copy, where the commands run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs commands in one shell, which ends with the first that fails. Returns what they print,
    /// errors last.
    pub fn run(&self, commands: &[String]) -> Result<String> {
        let Output { stdout, stderr, .. } = self.execute(&commands.concat())?;
        Ok(String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    }

    /// Returns those objects of a file of manifests that are in the cluster, in the order of the
    /// file.
    pub fn installed(&self, file: &str) -> Result<Vec<Installed>> {
        let metadata = "{.metadata.name} {.metadata.resourceVersion} {.metadata.generation}";
        let path = format!(r#"{{range .items[*]}}{{.kind}}/{metadata}{{"\n"}}{{end}}"#);
        let script = format!("kubectl get -f {file} --ignore-not-found -o jsonpath='{path}'\n");
        let said = String::from_utf8(self.execute(&script)?.stdout).context("no UTF-8")?;
        said.lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                let (name, written) = (words.next(), words.next_back());
                let (name, written) = name.zip(written).with_context(|| format!("{line:?}"))?;
                anyhow::Ok(Installed { name: name.to_owned(), written: written.to_owned() })
            })
            .collect()
    }

    fn execute(&self, script: &str) -> Result<Output> {
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=10", LIMIT, "bash", "-euo", "pipefail", "-c", script]);
        for name in SETTINGS {
            shell.env_remove(name);
        }
        // No caches and settings of the user who runs the tests.
        shell.current_dir(&self.dir).env("HOME", &self.dir);
        shell.env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.path);
        let output = shell.stdin(Stdio::null()).output().context("running timeout and bash")?;
        let said = || {
            let said = [&output.stdout[..], &output.stderr[..]].concat();
            String::from_utf8_lossy(&said).into_owned()
        };
        ensure!(output.status.success(), "{}:\n{script}{}", output.status, said());
        Ok(output)
    }
}

/// Copies a file with its mode, or a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
        return Ok(());
    }
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?;
    for entry in entries {
        let name = entry.with_context(|| format!("reading {}", from.display()))?.file_name();
        if !name.to_string_lossy().starts_with(PASSING) {
            copy(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}

/// Returns the commands of a section: those in its blocks of the language `sh`, up to the next
/// heading. `page` is below the root of the repository.
pub fn commands(page: &str, heading: &str) -> Result<Vec<String>> {
    let text = workspace::read(&workspace::root().join(page))?;
    let found = section(&text, heading);
    let found = found.with_context(|| format!("{page} has no heading {heading:?}"))?;
    ensure!(!found.is_empty(), "{page} has no block of sh below {heading:?}");
    Ok(found)
}

/// Removes the commands that begin with one of these texts: a test names those that it cannot run.
pub fn without(mut commands: Vec<String>, left_out: &[&str]) -> Result<Vec<String>> {
    for beginning in left_out {
        let before = commands.len();
        commands.retain(|command| !command.starts_with(beginning));
        ensure!(commands.len() < before, "no command begins with {beginning:?}: {commands:?}");
    }
    Ok(commands)
}

/// The commands below a heading, each with its line breaks; `None` without such a heading.
fn section(text: &str, heading: &str) -> Option<Vec<String>> {
    let mut commands: Option<Vec<String>> = None;
    let (mut inside, mut fence) = (false, None::<bool>);
    // The lines of a command that goes on.
    let mut begun = String::new();
    // Blocks within a list are indented.
    for line in text.lines().map(str::trim_start) {
        if let Some(language) = line.strip_prefix("```") {
            fence = if fence.is_none() { Some(language.trim_end() == "sh") } else { None };
        } else if fence.is_none() && line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == heading;
            if inside {
                commands.get_or_insert_default();
            }
        } else if inside && fence == Some(true) {
            if begun.is_empty() && (line.is_empty() || line.starts_with('#')) {
                continue;
            }
            begun.push_str(line);
            begun.push('\n');
            if !line.ends_with('\\') {
                commands.get_or_insert_default().push(std::mem::take(&mut begun));
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Page

```sh
before
```

## Install

1. **First**, in a list:

   ```sh
   # a comment
   make deploy \\
     IMG=x   # and why

   kubectl get nodes
   ```

```yaml
# Install
not: a command
```

```console
$ shown, not run
```

```sh
last
```

### Deeper

```sh
another section
```
";

    #[test]
    fn a_section_s_commands_are_those_of_its_shell_blocks() {
        let commands = section(PAGE, "Install").unwrap();
        let expected = ["make deploy \\\nIMG=x   # and why\n", "kubectl get nodes\n", "last\n"];
        assert_eq!(commands, expected);
        assert_eq!(section(PAGE, "Deeper").unwrap(), ["another section\n"]);
        // A heading has to match as a whole, and a line within a block is not a heading.
        assert_eq!(section(PAGE, "Instal"), None);
        assert_eq!(section(PAGE, "a comment"), None);
        assert_eq!(section("# Empty\n", "Empty"), Some(vec![]));
    }

    #[test]
    fn an_exception_without_its_command_is_an_error() {
        let commands = || vec!["docker build .\n".to_owned(), "make deploy\n".to_owned()];
        assert_eq!(without(commands(), &["docker "]).unwrap(), ["make deploy\n"]);
        let error = without(commands(), &["docker ", "podman "]).unwrap_err().to_string();
        assert!(error.contains("\"podman \""), "{error}");
    }
}
