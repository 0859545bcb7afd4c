//! Every kind has the same shape, and every place that lists kinds lists all of them.
use traffic_operator::api::{KINDS, KindInfo};

use crate::files::{below, files_in, name, read, root};

/// One part of a kind, and its files, at least one of which must exist.
struct Role {
    name: &'static str,
    files: &'static [&'static str],
    /// Texts that one of the files, or one in a folder of that name, must contain.
    holds: &'static [&'static str],
}

/// The parts that every kind has, in reading order.
const ROLES: &[Role] = &[
    Role { name: "observe", files: &["observe.rs"], holds: &["async fn"] },
    Role {
        name: "plan",
        files: &["plan.rs", "plan/mod.rs"],
        holds: &["Observed", "struct Desired"],
    },
    Role { name: "apply", files: &["apply.rs"], holds: &["async fn"] },
    Role { name: "conflict", files: &["conflict.rs"], holds: &[] },
    Role {
        name: "memory",
        files: &["memory.rs", "memory/mod.rs"],
        holds: &["pub type Memories = controller::Memories<"],
    },
    Role { name: "metrics", files: &["metrics.rs", "metrics/mod.rs"], holds: &["Collector"] },
    Role { name: "report", files: &["report.rs", "report/mod.rs"], holds: &[] },
];

/// The additional part of a kind whose objects carry a finalizer.
const CLEANUP: Role = Role { name: "cleanup", files: &["cleanup.rs"], holds: &["async fn"] };

/// The facts of a plan: in its file, or in `observed.rs` where several files decide by them.
const OBSERVED: &str = "pub struct Observed {";

/// The folder of a kind below `src`.
fn folder(kind: &KindInfo) -> String {
    let mut folder = String::new();
    for letter in kind.name().chars() {
        if letter.is_uppercase() && !folder.is_empty() {
            folder.push('_');
        }
        folder.extend(letter.to_lowercase());
    }
    folder.strip_suffix("_set").map(ToOwned::to_owned).unwrap_or(folder)
}

fn fault(folder: &str, role: &Role) -> Option<String> {
    let there = |file: &&&str| root().join("src").join(folder).join(file).is_file();
    let found: Vec<_> = role.files.iter().filter(there).collect();
    let [file] = found[..] else {
        return Some(format!("src/{folder} has {} of {:?}", found.len(), role.files));
    };
    let text = read(&root().join("src").join(folder).join(file));
    let missing: Vec<_> = role.holds.iter().filter(|word| !text.contains(**word)).collect();
    (!missing.is_empty()).then(|| format!("src/{folder}/{file} does not hold {missing:?}"))
}

/// Every kind keeps the same parts in files of the same names.
#[test]
fn every_kind_has_the_files_of_the_shape() {
    let mut faults = Vec::new();
    for kind in KINDS {
        let folder = folder(kind);
        let roles = ROLES.iter().chain(kind.finalizer.then_some(&CLEANUP));
        for role in roles {
            if let Some(fault) = fault(&folder, role) {
                faults.push(format!("{}: {fault}", role.name));
            }
        }
        let path = root().join("src").join(&folder);
        let holders = ["plan.rs", "plan/mod.rs", "observed.rs"].map(|file| path.join(file));
        let holders = holders.iter().filter(|file| file.is_file() && read(file).contains(OBSERVED));
        if holders.count() != 1 {
            faults.push(format!("src/{folder}: {OBSERVED} is in neither plan nor observed.rs"));
        }
        let module = read(&root().join("src").join(&folder).join("mod.rs"));
        if !module.contains("impl Reconciler for") {
            faults.push(format!("src/{folder}/mod.rs has no impl of Reconciler"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Parts that every kind may use.
const BELOW: [&str; 10] = [
    "api",
    "controller",
    "infra",
    "nodes",
    "pods",
    "prometheus",
    "selector.rs",
    "serving",
    "text",
    "webhook",
];

/// Parts that stand above the kinds, which only they import.
const ABOVE: [&str; 3] = ["cli", "inspect", "runtime"];

/// Returns the modules at the root of the crate that a source names.
fn roots(source: &str) -> Vec<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<String>().replace(' ', "");
    let mut roots = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let path = code.get(at + start.len()..).unwrap_or_default();
        // Either one path, or a group whose members are parted by the commas outside of groups.
        let (mut depth, mut root, mut begins) = (0, String::new(), true);
        for letter in path.chars() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => begins = true,
                _ if begins && (letter.is_alphanumeric() || letter == '_') => {
                    root.push(letter);
                    continue;
                }
                _ => begins = false,
            }
            if !root.is_empty() {
                roots.push(std::mem::take(&mut root));
            }
            if depth <= 0 {
                break;
            }
        }
    }
    roots
}

/// No arrow leads upwards: what many parts share knows nothing of the commands and the process.
#[test]
fn no_part_imports_one_above_it() {
    let source = "use crate::{\n a::{b, c},\n d_e, f,\n};\nuse crate::g::h;\n// crate::i\n";
    assert_eq!(roots(source), ["a", "d_e", "f", "g"]);
    let kinds = KINDS.iter().map(folder);
    let mut faults = Vec::new();
    for part in kinds.chain(BELOW.map(ToOwned::to_owned)) {
        let part = root().join("src").join(part);
        let files = if part.is_dir() { below(&part, &["rs"]) } else { vec![part] };
        for file in files {
            for found in roots(&read(&file)) {
                if ABOVE.contains(&found.as_str()) {
                    faults.push(format!("{} imports crate::{found}", name(&file)));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Places that name every kind, each by the form of the name that it uses.
#[test]
fn every_place_knows_every_kind() {
    let text = |path: &str| read(&root().join(path));
    let samples: String =
        files_in("deploy/samples", "yaml").iter().map(|file| read(file)).collect();
    let readme = text("README.md");
    let index = text("docs/README.md");
    let listed = text("docs/reference/samples.md");
    let values = text("deploy/chart/values.yaml");
    let kinds_of_chart: String = values
        .split_inclusive('\n')
        .skip_while(|line| *line != "kinds:\n")
        .skip(1)
        .take_while(|line| line.starts_with("  - "))
        .collect();
    let schema = text("deploy/chart/values.schema.json");
    let bundle = text("deploy/olm/manifests/traffic-operator.clusterserviceversion.yaml");
    let mut faults = Vec::new();
    for kind in KINDS {
        let names = (kind.crd)().spec.names;
        let (name, plural) = (names.kind, names.plural);
        let singular = names.singular.unwrap_or_else(|| name.to_lowercase());
        let group = (kind.crd)().spec.group;
        let folder = folder(kind);
        let crd = format!("{plural}.{group}");
        let dashboard = folder.replace('_', "");
        let mut expect = |place: &str, text: &str, word: &str| {
            if !text.contains(word) {
                faults.push(format!("{place} does not name {word}"));
            }
        };
        expect("hack/delete-resources", &text("hack/delete-resources"), &crd);
        expect("src/lib.rs", &text("src/lib.rs"), &format!("- [`{folder}`]: "));
        expect("CONTRIBUTING.md", &text("CONTRIBUTING.md"), &format!("| `src/{folder}/` |"));
        for place in ["deploy/crds/kustomization.yaml", "deploy/rbac/kustomization.yaml"] {
            let file = if place.contains("crds") { &crd } else { &singular };
            expect(place, &text(place), &format!("{file}.yaml"));
        }
        let without = format!("deploy/components/without-{singular}/kind.yaml");
        expect(&without, &text(&without), &format!("kind: -{name}}}\n"));
        expect("deploy/chart/values.yaml", &kinds_of_chart, &format!("  - {name}\n"));
        expect("deploy/chart/values.schema.json", &schema, &format!("\"{name}\""));
        expect("the examples of deploy/olm", &bundle, &format!("kind: {name}\n"));
        for file in [
            &crd,
            &format!("{singular}-editor.clusterrole"),
            &format!("{singular}-viewer.clusterrole"),
        ] {
            let file = format!("deploy/olm/manifests/{file}.yaml");
            expect(&file, &text(&file), &plural);
        }
        let dashboards = text("grafana/kustomization.yaml");
        expect("grafana/kustomization.yaml", &dashboards, &format!("{dashboard}.json"));
        let kinds = table(&readme, "| kind | does |");
        let linked = kinds.replace("**[", "**");
        expect("README.md, the table of kinds", &linked, &format!("**{name}"));
        let page = format!("docs/reference/{singular}.md");
        expect("README.md, its links", &readme, &format!("({page})"));
        expect("docs/README.md, its links", &index, &format!("(reference/{singular}.md)"));
        // The README's table has some of the samples; the page has all of them.
        let row = kinds.lines().find(|row| row.contains(&format!("[{name}]"))).unwrap_or_default();
        expect("README.md, the row of its table", row, "](deploy/samples/");
        for file in files_in("deploy/samples", "yaml") {
            let base = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if read(&file).contains(&format!("kind: {name}\n")) {
                expect("docs/reference/samples.md", &listed, &format!("| [{base}]("));
            }
        }
        expect("deploy/samples", &samples, &format!("kind: {name}\n"));
        expect("docs/reference/metrics.md", &text("docs/reference/metrics.md"), &name);
        expect("docs/reference/commands.md", &text("docs/reference/commands.md"), &name);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the rows of the first table with this heading.
fn table(text: &str, heading: &str) -> String {
    let rows = text.lines().skip_while(|line| !line.starts_with(heading));
    rows.take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n")
}
