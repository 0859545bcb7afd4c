use super::*;

fn image() -> Image {
    Image {
        reference: "example.org/team/thing:1.2".to_owned(),
        entries: vec![
            Entry::text("/etc/passwd", "root:x:0:0:root:/:/\n"),
            Entry::tmp(),
            Entry::directory("/etc"),
            Entry { path: "/bin".to_owned(), mode: 0o777, kind: Kind::Link("/usr/bin".to_owned()) },
        ],
        entrypoint: vec!["/thing".to_owned()],
        user: "65532:65532".to_owned(),
        ..Image::default()
    }
}

fn path() -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(format!("image-{}-{}.tar", name.0, name.1))
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for compression in [Compression::None, Compression::Gzip] {
        let (one, two) = (path(), path());
        let mut shuffled = image();
        shuffled.entries.reverse();
        let first = image().write(&one, compression).unwrap();
        let second = shuffled.write(&two, compression).unwrap();
        assert_eq!(first.digest, second.digest);
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        std::fs::remove_file(one).unwrap();
        std::fs::remove_file(two).unwrap();
    }
}

#[test]
fn the_layer_lists_parents_first_and_keeps_modes() {
    let layer = image().layer().unwrap();
    let mut archive = tar::Archive::new(Cursor::new(layer));
    let found: Vec<(String, u32)> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap()))
        .collect();
    let wanted = [("bin", 0o777), ("etc/", 0o755), ("etc/passwd", 0o644), ("tmp/", 0o1777)];
    assert_eq!(found, wanted.map(|(path, mode)| (path.to_owned(), mode)));
}

#[test]
fn the_archive_holds_what_its_index_names() {
    let path = path();
    let archive = image().write(&path, Compression::Gzip).unwrap();
    let mut names = Vec::new();
    for entry in tar::Archive::new(File::open(&path).unwrap()).entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().display().to_string());
    }
    assert_eq!(names[..2], ["oci-layout", "index.json"]);
    assert!(names.contains(&format!("blobs/{}", archive.digest.replace(':', "/"))));
    assert_eq!(archive.size, std::fs::metadata(&path).unwrap().len());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn tags_are_found_behind_ports_too() {
    assert_eq!(tag("localhost:5000/a/b:v1"), "v1");
    assert_eq!(tag("localhost:5000/a/b"), "latest");
}

/// Writes the beginning of a program for a machine of ELF.
fn program(machine: u16) -> PathBuf {
    let path = path();
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    header[18..20].copy_from_slice(&machine.to_le_bytes());
    std::fs::write(&path, header).unwrap();
    path
}

const AMD64: u16 = 62;
const ARM64: u16 = 183;

fn image_of(programs: &[&Path]) -> Image {
    let entry = |(number, source): (usize, &&Path)| Entry::program(&format!("/{number}"), source);
    Image { entries: programs.iter().enumerate().map(entry).collect(), ..image() }
}

/// The blob of an archive, or `index.json`, as JSON.
fn json_in(archive: &Path, name: &str) -> serde_json::Value {
    for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
        let entry = entry.unwrap();
        if entry.path().unwrap() == Path::new(name) {
            return serde_json::from_reader(entry).unwrap();
        }
    }
    panic!("{} has no {name}", archive.display())
}

fn blob(value: &serde_json::Value) -> String {
    format!("blobs/{}", value["digest"].as_str().unwrap().replace(':', "/"))
}

#[test]
fn an_image_is_for_the_architecture_of_its_programs() {
    let (amd64, arm64, script) = (program(AMD64), program(ARM64), path());
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let of = |programs: &[&Path]| image_of(programs).architecture();
    assert_eq!(of(&[&amd64, &script]).unwrap(), "amd64");
    assert_eq!(of(&[&script, &arm64, &arm64]).unwrap(), "arm64");
    assert_eq!(of(&[&script]).unwrap(), architecture::of_machine());
    let error = of(&[&amd64, &arm64]).unwrap_err().to_string();
    assert!(error.contains("is for amd64") && error.contains("for arm64"), "{error}");

    let out = path();
    image_of(&[&arm64]).write(&out, Compression::Gzip).unwrap();
    let manifest = &json_in(&out, "index.json")["manifests"][0];
    assert_eq!(manifest["platform"], json!({"architecture": "arm64", "os": "linux"}));
    let config = json_in(&out, &blob(&json_in(&out, &blob(manifest))["config"]));
    assert_eq!(config["architecture"], "arm64");
    for file in [amd64, arm64, script, out] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn an_index_names_the_image_of_each_architecture_in_one_order() {
    let (amd64, arm64, one, two) = (program(AMD64), program(ARM64), path(), path());
    let (first, second) = (image_of(&[&amd64]), image_of(&[&arm64]));
    let archive = write_index(&[first.clone(), second.clone()], &one).unwrap();
    let turned = write_index(&[second.clone(), first.clone()], &two).unwrap();
    assert_eq!(archive.digest, turned.digest);

    let root = json_in(&one, "index.json");
    assert_eq!(root["manifests"].as_array().unwrap().len(), 1);
    assert_eq!(root["manifests"][0]["digest"], archive.digest);
    assert_eq!(root["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1.2");
    let index = json_in(&one, &blob(&root["manifests"][0]));
    let each: Vec<_> = index["manifests"].as_array().unwrap().iter().collect();
    let architectures: Vec<_> = each.iter().map(|m| &m["platform"]["architecture"]).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    // Each is the image that is written alone, with all that it names.
    for (image, manifest) in [first, second].iter().zip(each) {
        assert_eq!(image.write(&two, Compression::Gzip).unwrap().digest, manifest["digest"]);
        let manifest = json_in(&one, &blob(manifest));
        json_in(&one, &blob(&manifest["config"]));
    }

    let error = write_index(&[image_of(&[&amd64]), image_of(&[&amd64])], &two).unwrap_err();
    assert!(error.to_string().contains("are for amd64"), "{error}");
    assert!(write_index(&[], &two).is_err());
    for file in [amd64, arm64, one, two] {
        std::fs::remove_file(file).unwrap();
    }
}
