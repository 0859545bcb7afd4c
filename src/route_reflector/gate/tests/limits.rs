//! The number that must be silent, or old, to matter.
use super::*;

/// With more than half of them without a session it is the measurement that is broken.
#[test]
fn three_silent_clients_of_five_are_a_broken_measurement() {
    let (nodes, reflectors) = (&NODES, &["a"]);
    let wanted = wanted(nodes, reflectors);
    let mut network = healthy(nodes, reflectors);
    for node in ["e", "f"] {
        without(node, &mut network);
    }
    let two = measured(&wanted, 1.0, &network);
    assert_eq!(two.silent(&wanted), ["e".into(), "f".into()].into());
    assert_eq!(judge(&wanted, &two, None), Ok(()));
    without("d", &mut network);
    let missing = GateClosed::Missing(vec![("a".into(), 2, 5)]);
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Err(missing));
}

/// Sessions of the mesh are known where at least half of the clients report.
#[test]
fn with_the_mesh_one_report_of_three_clients_is_not_enough() {
    let (nodes, reflectors) = (&["a", "b", "c", "d"], &["a"]);
    let mut wanted = wanted(nodes, reflectors);
    wanted.mesh = true;
    let mut network = healthy(nodes, reflectors);
    without("d", &mut network);
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Ok(()));
    network.retain(|(node, _)| ["a", "b"].contains(&node.as_str()));
    let missing = GateClosed::Missing(vec![("a".into(), 2, 3)]);
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Err(missing));
}

#[test]
fn of_two_ages_of_one_node_the_older_one_counts() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let names = [name("Node", "b"), name("Node", "c")];
    for (first, second, open) in [(1.0, 500.0, false), (500.0, 1.0, false), (1.0, 2.0, true)] {
        let mut elements = established(&wanted, first, &[("a", &names)]);
        let other = r#""instance":"10.0.0.1:9325","measure":"age""#.to_owned();
        elements.push((other, second.to_string()));
        let measured = read(&wanted, &elements);
        assert_eq!(measured.rejected, 0);
        assert_eq!(judge(&wanted, &measured, Some(900.0)).is_ok(), open, "{first} {second}");
    }
}
