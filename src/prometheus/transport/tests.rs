//! TLS and credentials against real servers, and files that change while the process runs.
use super::{
    super::{
        Client,
        testing::{Authority, Directory, ask, endpoint, recorder, server, tls_server},
    },
    *,
};

/// Returns the client of an endpoint over TLS at `address` that trusts `ca`.
fn secured(directory: &Directory, address: SocketAddr, ca: &str, more: &str) -> Client {
    let ca = directory.write("ca.pem", ca);
    let tls = format!("tls: {{caFile: {}{more}}}", ca.display());
    endpoint(directory, &format!("https://localhost:{}", address.port()), &tls)
}

fn assert_refused(result: Result<usize, QueryError>, class: Class, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.class, class, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{error} lacks {word}");
    }
    assert!(!error.message.contains("hunter2"), "{error}");
    assert!(!error.message.contains("query="), "{error}");
}

#[tokio::test]
async fn a_token_is_read_again_when_it_rotates() {
    let (seen, answer) = recorder();
    let (address, _) = server(answer).await;
    let directory = Directory::new();
    let token = directory.write("token", "first\n");
    let fields = format!("bearerTokenFile: {}", token.display());
    let client = endpoint(&directory, &format!("http://{address}"), &fields);
    assert_eq!(ask(&client).await, Ok(0));
    directory.write("token", "second");
    assert_eq!(ask(&client).await, Ok(0));
    for (content, what) in [("", "is empty"), (" \n", "is empty"), ("hunter2\u{1}", "characters")] {
        directory.write("token", content);
        let words = ["endpoint default: bearerTokenFile", "token", what];
        assert_refused(ask(&client).await, Class::Unauthorized, &words);
    }
    std::fs::remove_file(&token).unwrap();
    let words = ["endpoint default: bearerTokenFile", "token", "No such file"];
    assert_refused(ask(&client).await, Class::Unauthorized, &words);
    std::fs::create_dir(&token).unwrap();
    assert_refused(ask(&client).await, Class::Unauthorized, &["is no file"]);
    let seen = seen.lock().unwrap();
    let tokens: Vec<_> = seen.iter().map(|(headers, _)| &headers["authorization"]).collect();
    assert_eq!(tokens, ["Bearer first", "Bearer second"]);
}

#[tokio::test]
async fn a_password_is_sent_as_it_stands_in_its_file() {
    let (seen, answer) = recorder();
    let (address, _) = server(answer).await;
    let directory = Directory::new();
    let password = directory.write("password", "pass word \r\n");
    let fields = format!("basicAuth: {{username: u, passwordFile: {}}}", password.display());
    let client = endpoint(&directory, &format!("http://{address}"), &fields);
    assert_eq!(ask(&client).await, Ok(0));
    // printf 'u:pass word ' | base64
    assert_eq!(seen.lock().unwrap()[0].0["authorization"], "Basic dTpwYXNzIHdvcmQg");
    std::fs::remove_file(&password).unwrap();
    let words = ["basicAuth.passwordFile", "No such file"];
    assert_refused(ask(&client).await, Class::Unauthorized, &words);
}

#[tokio::test]
async fn a_file_of_ones_own_is_the_only_authority_and_may_be_replaced() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (address, _) = tls_server(new.server("localhost", None)).await;
    let directory = Directory::new();
    let client = secured(&directory, address, &old.pem(), "");
    let words = ["https://localhost", "unknown CA", "tls.caFile", "ca.pem"];
    assert_refused(ask(&client).await, Class::Unreachable, &words);
    // As long as both are in use, both are in the file.
    directory.write("ca.pem", &(old.pem() + &new.pem()));
    assert_eq!(ask(&client).await, Ok(0));
    directory.write("ca.pem", &new.pem());
    assert_eq!(ask(&client).await, Ok(0));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for content in ["hunter2", broken, &(new.pem() + broken)] {
        directory.write("ca.pem", content);
        let words = ["tls.caFile", "ca.pem", "certificate in PEM form"];
        assert_refused(ask(&client).await, Class::Unreachable, &words);
    }
    std::fs::remove_file(directory.path("ca.pem")).unwrap();
    assert_refused(ask(&client).await, Class::Unreachable, &["tls.caFile", "No such file"]);
}

#[tokio::test]
async fn without_a_file_only_public_authorities_are_trusted() {
    let own = Authority::new("own");
    let (address, seen) = tls_server(own.server("localhost", None)).await;
    let directory = Directory::new();
    let url = format!("https://localhost:{}", address.port());
    let client = endpoint(&directory, &url, "");
    assert_refused(ask(&client).await, Class::Unreachable, &["unknown CA", "tls.caFile"]);
    assert!(!client.insecure() && seen.lock().unwrap().is_empty());
    let client = endpoint(&directory, &url, "tls: {insecureSkipVerify: true}");
    assert_eq!(ask(&client).await, Ok(0));
    assert!(client.insecure());
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_ours() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (address, _) = tls_server(servers.server("localhost", Some(&clients))).await;
    let directory = Directory::new();
    let anonymous = secured(&directory, address, &servers.pem(), "");
    let words = ["wants a client certificate", "tls.certFile"];
    assert_refused(ask(&anonymous).await, Class::Unauthorized, &words);

    let (cert, key) = clients.issue("operator");
    let files = [directory.write("cert.pem", &cert), directory.write("key.pem", &key)];
    let more = format!(", certFile: {}, keyFile: {}", files[0].display(), files[1].display());
    let client = secured(&directory, address, &servers.pem(), &more);
    assert_eq!(ask(&client).await, Ok(0));

    let (stranger, its_key) = servers.issue("stranger");
    // Half of a rotation: the new certificate with the old key.
    directory.write("cert.pem", &stranger);
    let words = ["tls.keyFile", "key.pem", "does not belong"];
    assert_refused(ask(&client).await, Class::Unauthorized, &words);
    directory.write("key.pem", &its_key);
    let words = ["wants a client certificate", "refuses that of tls.certFile"];
    assert_refused(ask(&client).await, Class::Unauthorized, &words);
    directory.write("key.pem", "hunter2");
    assert_refused(ask(&client).await, Class::Unauthorized, &["tls.keyFile", "private key"]);
    directory.write("cert.pem", "hunter2");
    assert_refused(
        ask(&client).await,
        Class::Unauthorized,
        &["tls.certFile", "certificate in PEM"],
    );
    directory.write("cert.pem", &cert);
    directory.write("key.pem", &key);
    assert_eq!(ask(&client).await, Ok(0));
    std::fs::remove_file(&files[1]).unwrap();
    assert_refused(ask(&client).await, Class::Unauthorized, &["tls.keyFile", "No such file"]);
}

#[tokio::test]
async fn the_certificate_may_have_another_name_than_the_url() {
    let own = Authority::new("own");
    let (address, seen) = tls_server(own.server("thanos.example.com", None)).await;
    let directory = Directory::new();
    let client = secured(&directory, address, &own.pem(), "");
    let words = ["not for localhost", "tls.serverName"];
    assert_refused(ask(&client).await, Class::Unreachable, &words);
    let client = secured(&directory, address, &own.pem(), ", serverName: thanos.example.com");
    assert_eq!(ask(&client).await, Ok(0));
    // A proxy in front of it still finds its virtual host.
    let host = format!("localhost:{}", address.port());
    assert_eq!(seen.lock().unwrap()[0].0["host"], host.as_str());
}

/// A clock of ours that is wrong has the same error.
#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_and_named_as_that() {
    let own = Authority::new("own");
    let (address, seen) = tls_server(own.expired("localhost")).await;
    let directory = Directory::new();
    let client = secured(&directory, address, &own.pem(), "");
    assert_refused(ask(&client).await, Class::Unreachable, &["expired"]);
    assert!(seen.lock().unwrap().is_empty(), "nothing was sent to it");
}
