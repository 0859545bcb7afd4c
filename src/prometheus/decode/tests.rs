//! Answers of real servers, proxies and gateways, and invented ones.
use proptest::prelude::*;

use super::*;

const JSON: &str = "application/json";

type Elements = Vec<(String, Option<f64>)>;

/// Returns the elements and the warnings.
fn read(
    status: u16,
    content_type: &str,
    body: &[u8],
) -> Result<(Elements, Vec<String>), QueryError> {
    let mut series = Vec::new();
    let warnings = vector(status, content_type, body, |one| {
        series.push((one.labels.to_string(), one.value));
        Ok(())
    })?;
    Ok((series, warnings))
}

fn class(status: u16, content_type: &str, body: &str) -> Class {
    read(status, content_type, body.as_bytes()).unwrap_err().class
}

#[test]
fn reads_a_vector() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"instance":"a","device":"eth\u0030"},"value":[1.5,"8"]},
        {"metric":{},"value":[1,"NaN"]},
        {"metric":{"instance":"b"},"value":[1,"+Inf"],"future":{}},
        {"metric":{"instance":"c"},"histogram":[1,{"count":"1"}]}]},
        "warnings":["partial"],"infos":["x"]}"#;
    let (series, warnings) = read(200, JSON, body.as_bytes()).unwrap();
    let [a, nan, inf, histogram] = &series[..] else { panic!("{series:?}") };
    assert_eq!(*a, (r#"{instance="a",device="eth0"}"#.into(), Some(8.0)));
    assert!(nan.1.unwrap().is_nan());
    assert_eq!(inf.1, Some(f64::INFINITY));
    assert_eq!(histogram.1, None);
    assert_eq!(warnings, ["partial"]);
}

#[test]
fn labels_are_found_and_empty_ones_are_absent() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"a":"1","b":""},"value":[0,"1"]}]}}"#;
    vector(200, JSON, body.as_bytes(), |one| {
        assert_eq!((one.labels.get("a"), one.labels.get("b")), (Some("1"), None));
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_empty_vector_is_an_answer() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    assert_eq!(read(200, "application/json; charset=utf-8", body.as_bytes()), Ok((vec![], vec![])));
}

#[test]
fn every_other_answer_has_its_class() {
    let success = |kind, result| {
        format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
    };
    let error = |kind| format!(r#"{{"status":"error","errorType":"{kind}","error":"e"}}"#);
    for (status, content_type, body, expected) in [
        (200, JSON, success("matrix", "[]"), Class::QueryInvalid),
        (200, JSON, success("scalar", r#"[1,"NaN"]"#), Class::QueryInvalid),
        (200, JSON, success("string", r#"[1,"x"]"#), Class::QueryInvalid),
        (200, JSON, success("vector", r#"[{"metric":{},"value":[1,"x"]}]"#), Class::BadAnswer),
        (200, JSON, success("vector", r#"[{"metric":{},"value":[1,"0x1p-2"]}]"#), Class::BadAnswer),
        (200, JSON, r#"{"status":"success"}"#.into(), Class::BadAnswer),
        (200, JSON, "{\"status\":".into(), Class::BadAnswer),
        (200, JSON, error("bad_data"), Class::QueryInvalid),
        (200, "text/html; charset=utf-8", "<html>login".into(), Class::BadAnswer),
        (204, "", String::new(), Class::BadAnswer),
        (400, JSON, error("bad_data"), Class::QueryInvalid),
        (422, JSON, error("execution"), Class::QueryFailed),
        (503, JSON, error("timeout"), Class::Timeout),
        (499, JSON, error("canceled"), Class::Unavailable),
        (500, JSON, error("internal"), Class::Unavailable),
        (503, "text/plain", "Service Unavailable".into(), Class::Unavailable),
        (502, "text/html", "<html>".into(), Class::Unavailable),
        (401, "text/html", "<html>".into(), Class::Unauthorized),
        (403, "text/plain", "no".into(), Class::Unauthorized),
        (404, "text/plain", "404 page not found".into(), Class::BadAnswer),
        (302, "text/html", String::new(), Class::BadAnswer),
        (429, JSON, "[]".into(), Class::Unavailable),
    ] {
        assert_eq!(class(status, content_type, &body), expected, "{status} {content_type} {body}");
    }
}

#[test]
fn a_truncated_vector_is_no_answer() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[]},
        "warnings":["results truncated due to limit"]}"#;
    assert_eq!(class(200, JSON, body), Class::BadAnswer);
}

#[test]
fn victoriametrics_says_partial_in_its_own_way() {
    for (partial, expected) in [("true", &["partial answer"][..]), ("false", &[]), ("null", &[])] {
        let body = format!(
            r#"{{"status":"success","isPartial":{partial},"data":{{"resultType":"vector","result":[]}}}}"#
        );
        let (_, warnings) = read(200, JSON, body.as_bytes()).unwrap();
        assert_eq!(warnings, expected, "{partial}");
    }
}

#[test]
fn reads_a_matrix() {
    let body = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{"instance":"a"},"values":[[1.5,"8"],[2.5,"+Inf"]]},
        {"metric":{},"histograms":[[1,{"count":"1"}]]}]},"warnings":["w"]}"#;
    let mut series = Vec::new();
    let warnings = matrix(200, JSON, body.as_bytes(), |one| {
        series.push((one.labels.to_string(), one.samples));
        Ok(())
    });
    assert_eq!(warnings.unwrap(), ["w"]);
    let a = (r#"{instance="a"}"#.to_owned(), vec![(1.5, 8.0), (2.5, f64::INFINITY)]);
    assert_eq!(series, [a, ("{}".to_owned(), vec![])]);
}

#[test]
fn a_matrix_is_nothing_else_and_may_be_refused() {
    let read = |kind: &str, result: &str| {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#);
        let refuse = |_: RangeSeries<'_>| Err(QueryError::new(Class::BadAnswer, "mine"));
        matrix(200, JSON, body.as_bytes(), refuse).unwrap_err().message
    };
    let words = "the query gives a vector, where values over time (a matrix) are needed";
    assert_eq!(read("vector", "[]"), words);
    let series = r#"{"metric":{},"values":[[1,"1"]]}"#;
    assert_eq!(read("matrix", &format!("[{series},{series}]")), "mine");
    for broken in [r#"[{"metric":{},"values":[[1]]}]"#, r#"[{"metric":{},"values":[["1","1"]]}]"#] {
        assert!(read("matrix", broken).starts_with("matrix is not readable"), "{broken}");
    }
}

#[test]
fn the_servers_own_words_reach_the_user() {
    let body =
        r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unexpected )"}"#;
    let error = read(400, JSON, body.as_bytes()).unwrap_err();
    assert_eq!(error.message, "Prometheus says: 1:5: parse error: unexpected )");
}

/// The original divided the text of an answer at its commas, and panicked.
#[test]
fn a_comma_in_a_label_is_part_of_it() {
    let body = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"device":"eth0,eth1","in,stance":"a\",b="},"value":[1,"8"]}]}}"#;
    let (series, _) = read(200, JSON, body.as_bytes()).unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!(series[0].1, Some(8.0));
    vector(200, JSON, body.as_bytes(), |one| {
        assert_eq!(one.labels.get("device"), Some("eth0,eth1"));
        assert_eq!(one.labels.get("in,stance"), Some("a\",b="));
        Ok(())
    })
    .unwrap();
}

proptest! {
    #[test]
    fn never_panics_on_any_bytes(status: u16, body: Vec<u8>) {
        let _ = read(status, JSON, &body);
    }

    #[test]
    fn never_panics_on_mutated_answers(cut in 0usize..160, insert in ".{0,4}") {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}]},"warnings":["w"]}"#;
        let cut = body.floor_char_boundary(cut.min(body.len()));
        let mutated = format!("{}{insert}{}", &body[..cut], &body[cut..]);
        let _ = read(200, JSON, mutated.as_bytes());
    }

    #[test]
    fn values_survive_the_text(x: f64) {
        let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[0,"{x}"]}}]}}}}"#);
        let (series, _) = read(200, JSON, body.as_bytes()).unwrap();
        prop_assert_eq!(series[0].1.map(f64::to_bits), Some(x).map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }));
    }
}

/// Of a wrong path, a missing tenant and a server without queries each says so itself.
#[test]
fn an_error_names_a_cause_to_act_on() {
    let agent =
        r#"{"status":"error","errorType":"execution","error":"unavailable with Prometheus Agent"}"#;
    for (status, content_type, body, class, text) in [
        (422, JSON, agent, Class::BadAnswer, "agent mode"),
        (
            404,
            "text/plain; charset=utf-8",
            "404 page not found\n",
            Class::BadAnswer,
            "HTTP status 404: 404 page not found; is this the address to which /api/v1/query belongs?",
        ),
        (401, "text/plain", "no org id", Class::Unauthorized, "X-Scope-OrgID"),
        (
            400,
            "text/plain",
            "unsupported path requested: \"/graph\"",
            Class::BadAnswer,
            "unsupported path",
        ),
        (502, "text/html", "<html>", Class::Unavailable, "HTTP status 502"),
    ] {
        let error = read(status, content_type, body.as_bytes()).unwrap_err();
        assert_eq!(error.class, class, "{error}");
        assert!(error.message.contains(text) && !error.message.contains("<html>"), "{error}");
    }
}
