//! Every kind has the same shape, and every place that lists kinds lists all of them.
use traffic_operator::api::{KINDS, KindInfo};

use crate::files::{files_in, read, root};

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
        let module = read(&root().join("src").join(&folder).join("mod.rs"));
        if !module.contains("impl Reconciler for") {
            faults.push(format!("src/{folder}/mod.rs has no impl of Reconciler"));
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
        let dashboards = text("grafana/kustomization.yaml");
        expect("grafana/kustomization.yaml", &dashboards, &format!("{dashboard}.json"));
        let kinds = table(&readme, "| kind | does |");
        let linked = kinds.replace("**[", "**");
        expect("README.md, the table of kinds", &linked, &format!("**{name}"));
        let page = format!("docs/reference/{singular}.md");
        expect("README.md, its links", &readme, &format!("({page})"));
        expect("docs/README.md, its links", &index, &format!("(reference/{singular}.md)"));
        for file in files_in("deploy/samples", "yaml") {
            let base = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if read(&file).contains(&format!("kind: {name}\n")) {
                expect("README.md, its table", &kinds, &format!("](deploy/samples/{base})"));
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
