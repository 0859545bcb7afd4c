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
    std::env::temp_dir().join(format!("lab-image-{}.tar", crate::workspace::unique()))
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
