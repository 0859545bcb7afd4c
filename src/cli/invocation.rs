//! The name by which this process was called: its own, or that of the kubectl plugin.
use std::{ffi::OsStr, path::Path};

/// The name of the executable that kubectl runs for `kubectl traffic …`.
const PLUGIN: &str = "kubectl-traffic";

/// The command as the user typed it, for usage and help texts; `None` is the name of the binary.
pub(super) fn typed(program: Option<&OsStr>) -> Option<&'static str> {
    let name = Path::new(program?).file_stem()?;
    (name == PLUGIN).then_some("kubectl traffic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plugin_name_is_special() {
        for (program, expected) in [
            ("/home/me/.local/bin/kubectl-traffic", Some("kubectl traffic")),
            ("kubectl-traffic", Some("kubectl traffic")),
            ("/usr/bin/traffic-operator", None),
            ("kubectl-traffic-jam", None),
            ("", None),
        ] {
            assert_eq!(typed(Some(OsStr::new(program))), expected, "{program}");
        }
        assert_eq!(typed(None), None);
    }
}
