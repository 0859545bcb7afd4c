//! Texts that readers of YAML 1.1 take for something else than text: `on` for true, `12:30` for
//! 750, `=` for nothing that they know. Many workers' libraries are such readers, and quotes mean
//! the same to all.

/// Words that mean a boolean, nothing, or a sign, in any case.
const WORDS: [&str; 12] =
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<"];

/// Quotes such names of streams and workers. Quoted names stay as they are.
pub(super) fn quoted(config: String) -> String {
    // A name of several lines could be read as an entry. No pod has such a name.
    let odd = config.split('\n').any(|line| line.starts_with("  ?"));
    let mistaken = |line| parts(line).filter(|(_, name, _)| is_other(name));
    if odd || !config.split('\n').any(|line| mistaken(line).is_some()) {
        return config;
    }
    let lines = config.split('\n').map(|line| match mistaken(line) {
        Some((before, name, after)) => format!("{before}'{}'{after}", name.replace('\'', "''")),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A line of the file that is a stream (`    - ID`) or a worker (`  NAME:`): the text before the
/// name, the name, and the text after it. Further lines of a longer text are indented further.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    if let Some(name) = line.strip_prefix("    - ") {
        return Some((&line[..6], name, ""));
    }
    let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
    Some((&line[..2], name.strip_suffix(':')?, ":"))
}

/// Reports whether some reader may parse this as something other than text. It includes more than
/// necessary: numbers, dates and times have many forms, and quotes do no harm.
fn is_other(name: &str) -> bool {
    if WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        return true;
    }
    // Ruby's symbols.
    if name.starts_with(':') {
        return true;
    }
    let number = name.trim_start_matches(['+', '-']);
    let may = |c: char| c.is_ascii_hexdigit() || "_:.,+- oxtTzZ".contains(c);
    number.starts_with(|c: char| c.is_ascii_digit() || c == '.') && number.chars().all(may)
}
