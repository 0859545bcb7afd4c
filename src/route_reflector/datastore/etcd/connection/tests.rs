//! The credentials that are taken, and where they go.
use super::*;

const URL: &str = "https://10.0.0.1:2379";

fn secret(entries: &[(&str, &str)]) -> Result<Credentials, Error> {
    let data = [("endpoints", URL)].iter().chain(entries);
    bare(&data.copied().collect::<Vec<_>>())
}

fn bare(entries: &[(&str, &str)]) -> Result<Credentials, Error> {
    let data = entries.iter().map(|(k, v)| ((*k).into(), ByteString(v.as_bytes().to_vec())));
    Credentials::from_secret("etcd-secrets", &data.collect())
}

#[test]
fn a_secret_has_both_halves_or_none() {
    let all = secret(&[
        ("etcd-ca", "CA"),
        ("etcd-cert", "CERT"),
        ("etcd-key", "KEY"),
        ("username", "calico"),
        ("password", "secret\n"),
    ]);
    let expected = Credentials {
        endpoints: vec![URL.into()],
        ca: Some(b"CA".to_vec()),
        identity: Some((b"CERT".to_vec(), b"KEY".to_vec())),
        user: Some(("calico".into(), "secret".into())),
    };
    assert!(all.is_ok_and(|all| all == expected));
    // Calico's own manifest has the keys with nothing in them.
    let empty = secret(&[("etcd-ca", ""), ("etcd-cert", ""), ("etcd-key", "")]);
    assert!(empty.is_ok_and(|empty| empty == Credentials::anonymous(vec![URL.into()])));
    for (entries, text) in [
        (&[("etcd-cert", "SECRET")], "has etcd-cert but no etcd-key"),
        (&[("etcd-key", "SECRET")], "has etcd-key but no etcd-cert"),
        (&[("username", "SECRET")], "has username but no password"),
        (&[("password", "SECRET")], "has password but no username"),
    ] {
        let error = secret(entries).err().unwrap().to_string();
        assert!(error.starts_with("spec.datastore.etcd.secretRef: Secret etcd-secrets"));
        assert!(error.ends_with(text) && !error.contains("SECRET"), "{error}");
    }
}

#[test]
fn the_endpoints_are_read_where_the_credentials_are() {
    let list = "https://10.0.0.1:2379, https://10.0.0.2:2379\nhttps://10.0.0.3:2379\n";
    for key in ENDPOINTS {
        let found = bare(&[(key, list), ("username", "u"), ("password", "p")]).ok().unwrap();
        assert_eq!(found.endpoints.len(), 3, "{key}");
        assert_eq!(found.endpoints[2], "https://10.0.0.3:2379");
    }
    for (entries, text) in [
        (&[("username", "u"), ("password", "p")][..], "has no endpoints: the URLs of"),
        (&[("endpoints", URL), ("etcd_endpoints", URL)], "has endpoints and etcd_endpoints"),
        (&[("endpoints", "10.0.0.1:2379")], "has under endpoints something that is not a URL"),
        (&[("endpoints", ", ,")], "has under endpoints something that is not a URL"),
    ] {
        let error = bare(entries).err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!((error.reason(), error.is_transient()), ("SecretInvalid", true));
    }
}

#[test]
fn no_credentials_leave_over_http() {
    let plain = ("endpoints", "https://10.0.0.1:2379,http://10.0.0.2:2379");
    for pair in
        [[("username", "u"), ("password", "PASS")], [("etcd-cert", "c"), ("etcd-key", "KEY")]]
    {
        let error = bare(&[plain, pair[0], pair[1]]).err().unwrap().to_string();
        assert!(error.contains("endpoint http://10.0.0.2:2379: they are only sent"), "{error}");
        assert!(!error.contains("PASS") && !error.contains("KEY"), "{error}");
    }
    assert!(bare(&[plain, ("etcd-ca", "CA")]).is_ok(), "no credentials are at risk");
}

#[test]
fn https_needs_an_authority() {
    let none = Credentials::default();
    assert!(none.options("http://10.0.0.1:2379").is_ok());
    let error = none.options("https://10.0.0.1:2379").err().unwrap().to_string();
    assert!(error.contains("https://10.0.0.1:2379 needs a Secret with etcd-ca"), "{error}");
}
