//! The watches that are open, and what they may bring.
use std::collections::BTreeMap;

use futures::channel::mpsc;
use serde_json::json;

use super::{
    super::{scope::NamespaceFacts, settings::Tenancy},
    *,
};
use crate::api::NetworkProber;

fn settings(namespace: &str, spec: &serde_json::Value) -> Settings {
    let mut full = json!({"podSelector": {"matchLabels": {"app": "a"}}});
    json_patch::merge(&mut full, spec);
    let prober: NetworkProber = serde_json::from_value(json!({
        "metadata": {"name": "np", "namespace": namespace}, "spec": full,
    }))
    .unwrap();
    Settings::of(&prober, &Tenancy::of("ops")).unwrap()
}

/// 500 namespaces, of which `consenting` consent, and two more.
fn namespaces(consenting: usize) -> Vec<NamespaceFacts> {
    let named = |name: &str| NamespaceFacts { name: name.into(), ..NamespaceFacts::default() };
    let mut all: Vec<_> = (0..500).map(|number| named(&format!("silent-{number:03}"))).collect();
    for namespace in all.iter_mut().take(consenting) {
        namespace.allow = Some("team/np".into());
    }
    all.extend([named("team"), named("ops"), named("kube-system")]);
    all
}

fn wanted(namespace: &str, spec: &serde_json::Value, consenting: usize) -> Vec<Option<String>> {
    let (settings, tenancy) = (settings(namespace, spec), Tenancy::of("ops"));
    let scope = Scope::of(&settings, None, &tenancy, &namespaces(consenting));
    let demand = demand(&settings, &scope, &tenancy);
    demand.queries.iter().map(|query| query.namespace.clone()).collect()
}

#[test]
fn what_is_watched_is_what_consents_and_the_own_namespace() {
    let everywhere = json!({"namespaceSelector": {}});
    let names = |names: &[&str]| -> Vec<_> { names.iter().map(|n| Some((*n).into())).collect() };
    assert_eq!(wanted("team", &everywhere, 0), names(&["team"]));
    assert_eq!(wanted("team", &everywhere, 1), names(&["silent-000", "team"]));
    assert_eq!(wanted("team", &json!({}), 500), names(&["team"]));
    assert_eq!(wanted("team", &everywhere, 500).len(), 501);
    // An author learns only about his own pods why they have no agent.
    assert_eq!(wanted("kube-system", &everywhere, 0), names(&["kube-system"]));
    let none = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
    assert_eq!(wanted("team", &none, 500), names(&[]));
    // An administrator's has one watch for everything.
    assert_eq!(wanted("ops", &everywhere, 0), [None]);
}

fn query(namespace: &str, labels: &str) -> Arc<PodQuery> {
    Arc::new(PodQuery { namespace: Some(namespace.into()), labels: labels.into() })
}

fn demand_of(namespace: &str, queries: &[Arc<PodQuery>]) -> Demand {
    Demand {
        payer: payer(namespace, &Tenancy::of("ops")),
        queries: queries.iter().cloned().collect(),
    }
}

/// Watches without an API server.
#[derive(Default)]
struct Bench {
    watches: PodWatches,
    opened: BTreeMap<Arc<PodQuery>, AbortHandle>,
}

impl Bench {
    fn settle(&mut self, demands: &[Demand], now: Instant) {
        let opened = &mut self.opened;
        self.watches.settle(demands.to_vec(), now, |query| {
            let stop = AbortHandle::new_pair().0;
            opened.insert(Arc::clone(query), stop.clone());
            stop
        });
    }

    fn is_open(&self, query: &Arc<PodQuery>) -> bool {
        self.opened.get(query).is_some_and(|stop| !stop.is_aborted())
    }

    fn lists(&mut self, query: &PodQuery, pods: &[PodObject], now: Instant) {
        self.watches.take(query, Event::Init, now);
        for pod in pods {
            self.watches.take(query, Event::InitApply(pod.clone()), now);
        }
        self.watches.take(query, Event::InitDone, now);
    }
}

fn pod(number: usize, version: u64) -> PodObject {
    serde_json::from_value(json!({"metadata": {
        "name": format!("p-{number}"), "namespace": "team", "uid": format!("uid-{number}"),
        "resourceVersion": version.to_string(), "labels": {"app": "a"},
    }}))
    .unwrap()
}

fn pods(numbers: std::ops::Range<usize>) -> Vec<PodObject> {
    numbers.map(|number| pod(number, 1)).collect()
}

#[test]
fn a_pod_is_kept_once_however_many_probers_select_it() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let (one, other) = (query("team", "app=a"), query("team", "app"));
    let demand = demand_of("team", std::slice::from_ref(&one));
    // Fifty with the same selector, and one with another that selects the same pods.
    let mut demands = vec![demand; 50];
    demands.push(demand_of("team", std::slice::from_ref(&other)));
    bench.settle(&demands, now);
    assert_eq!((bench.watches.open(), bench.opened.len()), (2, 2));
    bench.lists(&one, &pods(0..100), now);
    bench.lists(&other, &pods(0..100), now);
    assert_eq!(bench.watches.kept(), 100);
    let of = |bench: &Bench, place| {
        let mut pods = bench.watches.pods(place, false).unwrap();
        pods.sort_by(|a, b| a.uid().cmp(b.uid()));
        pods
    };
    let same = |a: &[Arc<PodObject>], b: &[Arc<PodObject>]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
    };
    let all = of(&bench, 0);
    assert!((0..51).all(|place| same(&all, &of(&bench, place))));
    drop(all);
    // A new version arrives by one watch, then by the other; and an old version changes nothing.
    bench.watches.take(&one, Event::Apply(pod(7, 3)), now);
    bench.watches.take(&other, Event::Apply(pod(7, 2)), now);
    bench.watches.take(&other, Event::Apply(pod(7, 3)), now);
    assert!(same(&of(&bench, 0), &of(&bench, 50)));
    assert_eq!(bench.watches.kept(), 100);
    // A pod that is gone, or that no prober needs any more, is not kept.
    bench.watches.take(&one, Event::Delete(pod(7, 4)), now);
    bench.watches.take(&other, Event::Delete(pod(7, 4)), now);
    assert_eq!(bench.watches.kept(), 99);
    bench.settle(&demands[50..], now);
    assert!(!bench.is_open(&one) && bench.is_open(&other));
    bench.settle(&[], now);
    assert_eq!((bench.watches.kept(), bench.watches.open()), (0, 0));
}

/// All versions of the restored store are older than those that the watches have seen.
#[test]
fn pods_are_as_a_list_has_them_also_after_etcd_was_restored_from_a_backup() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let (one, other) = (query("team", "app=a"), query("team", "app"));
    let demands = [&one, &other].map(|query| demand_of("team", std::slice::from_ref(query)));
    bench.settle(&demands, now);
    let at = |version: u64, ip: &str| -> PodObject {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p-7", "namespace": "team", "uid": "uid-7", "labels": {"app": "a"},
                "resourceVersion": version.to_string(),
            },
            "status": {"podIPs": [{"ip": ip}]},
        }))
        .unwrap()
    };
    let ips = |bench: &Bench| -> Vec<_> {
        let pods = [0, 1].map(|place| bench.watches.pods(place, false).unwrap());
        pods.iter().flatten().map(|pod| pod.ips()[0].to_string()).collect()
    };
    for query in [&one, &other] {
        bench.lists(query, &[at(900, "10.0.0.1")], now);
    }
    assert_eq!(ips(&bench), ["10.0.0.1", "10.0.0.1"]);
    bench.lists(&one, &[at(480, "10.0.0.2")], now);
    assert_eq!(ips(&bench), ["10.0.0.2", "10.0.0.1"], "the other has not listed again");
    bench.lists(&other, &[at(480, "10.0.0.2")], now);
    assert_eq!(ips(&bench), ["10.0.0.2", "10.0.0.2"]);
    assert_eq!(bench.watches.kept(), 1);
    for query in [&one, &other] {
        bench.watches.take(query, Event::Apply(at(490, "10.0.0.3")), now);
    }
    assert_eq!(ips(&bench), ["10.0.0.3", "10.0.0.3"]);
    // Of two watches one may still be behind the other.
    bench.watches.take(&one, Event::Apply(at(485, "10.0.0.4")), now);
    assert_eq!(ips(&bench), ["10.0.0.3", "10.0.0.3"]);
}

#[test]
fn watches_have_a_budget_and_the_older_keep_theirs() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let many = |namespace: &str, count: usize| -> Vec<_> {
        (0..count).map(|number| query(&format!("{namespace}-{number:03}"), "app=a")).collect()
    };
    let most = OF_NAMESPACE.watches;
    let oldest = demand_of("team", &many("a", 1));
    let large = demand_of("team", &many("b", most));
    let small = demand_of("team", &many("c", most - 1));
    let administrators = demand_of("ops", &many("d", 1));
    bench.settle(&[oldest.clone(), large, small.clone(), administrators], now);
    let over = |bench: &Bench, place| bench.watches.over(place).map(Over::to_string);
    assert_eq!([0, 2, 3].map(|place| over(&bench, place)), [None, None, None]);
    let said = over(&bench, 1).unwrap();
    assert!(said.contains("the namespace team may have 100 watches"), "{said}");
    assert!(said.contains("needs 100 and older ones have 1"), "{said}");
    assert_eq!(bench.watches.open(), most + 1);
    // A prober that shares its watches with others costs one, for its share of the work.
    let more = [oldest.clone(), small, oldest];
    bench.settle(&more, now);
    assert!(over(&bench, 2).unwrap().contains("100 watches"));
    // All authors together leave the administrators theirs.
    let tenants = OF_AUTHORS.watches / most;
    let full = |tenant: usize| {
        let name = format!("t{tenant}");
        demand_of(&name, &many(&name, most))
    };
    let mut demands: Vec<_> = (0..=tenants).map(full).collect();
    demands.push(demand_of("ops", &many("z", OF_ADMINISTRATORS.watches)));
    bench.settle(&demands, now);
    assert!((0..tenants).all(|place| over(&bench, place).is_none()));
    assert!(over(&bench, tenants).unwrap().contains("all namespaces but the operator's"));
    assert_eq!(over(&bench, tenants + 1), None);
}

#[test]
fn pods_have_a_budget_and_who_is_over_it_loses_only_itself() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let queries = ["x", "y", "z"].map(|labels| query("team", labels));
    let [older, younger, _] = &queries;
    let neighbors = query("shop", "x");
    let mut demands: Vec<_> =
        queries.iter().map(|q| demand_of("team", std::slice::from_ref(q))).collect();
    demands.push(demand_of("shop", std::slice::from_ref(&neighbors)));
    bench.settle(&demands, now);
    let most = OF_NAMESPACE.pods;
    // It has used up everything before the older one has listed its own.
    bench.lists(younger, &pods(0..most), now);
    bench.lists(&queries[2], &[], now);
    bench.lists(&neighbors, &pods(most..most + 1), now);
    assert!((0..4).all(|place| bench.watches.over(place).is_none()));
    assert!(bench.watches.take(older, Event::Apply(pod(most + 2, 1)), now), "one lost all pods");
    let said = bench.watches.over(1).unwrap().to_string();
    assert!(said.contains("5000 pods") && said.contains("the namespace team"), "{said}");
    assert!([0, 2, 3].into_iter().all(|place| bench.watches.over(place).is_none()));
    assert!(!bench.is_open(younger) && bench.is_open(older) && bench.is_open(&neighbors));
    assert_eq!(bench.watches.kept(), 2);
    // Events that a closed watch still delivers are ignored.
    assert!(!bench.watches.take(younger, Event::Apply(pod(5, 9)), now));
    assert_eq!(bench.watches.kept(), 2);
    // It is not read again at once, and then it is.
    bench.settle(&demands, now + RETRY / 2);
    assert!(!bench.is_open(younger) && bench.watches.over(1).is_some());
    bench.settle(&demands, now + RETRY);
    assert!(bench.is_open(younger) && bench.watches.over(1).is_none());
    bench.lists(younger, &pods(0..most - 1), now + RETRY);
    assert!(bench.is_open(younger) && bench.watches.over(1).is_none());
    // With another selector, it is a new watch at once.
    bench.watches.take(older, Event::Apply(pod(most + 3, 1)), now + RETRY);
    assert!(bench.watches.over(1).is_some());
    demands[1] = demand_of("team", &[query("team", "narrow")]);
    bench.settle(&demands, now + RETRY);
    assert!(bench.watches.over(1).is_none());
}

/// Both select the same pods, and one of the namespaces has others already.
#[test]
fn what_one_namespace_may_not_watch_another_may() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let (own, shared) = (query("team", "own"), query("shared", "x"));
    let team = [own.clone(), shared.clone()].map(|q| demand_of("team", &[q]));
    let [first, second] = team;
    bench.settle(&[first.clone(), second.clone()], now);
    bench.lists(&own, &pods(0..OF_NAMESPACE.pods), now);
    bench.lists(&shared, &pods(OF_NAMESPACE.pods..OF_NAMESPACE.pods + 1), now);
    assert!(bench.watches.over(1).is_some() && !bench.is_open(&shared));
    let all = [first, second, demand_of("shop", std::slice::from_ref(&shared))];
    for time in [now, now + RETRY / 2, now + RETRY, now + RETRY * 2] {
        bench.settle(&all, time);
        assert!(bench.watches.over(2).is_none() && bench.is_open(&shared));
        if time == now {
            bench.lists(&shared, &pods(OF_NAMESPACE.pods..OF_NAMESPACE.pods + 1), now);
        }
        let over = bench.watches.over(1).map(Over::to_string).unwrap();
        assert!(over.contains("the namespace team"), "{over}");
    }
    assert_eq!(bench.watches.pods(2, false).unwrap().len(), 1);
}

#[test]
fn a_namespace_that_is_new_keeps_nobody_in_the_others_waiting() {
    let (mut bench, now) = (Bench::default(), Instant::now());
    let (first, second) = (query("a", "x"), query("b", "x"));
    bench.settle(&[demand_of("team", std::slice::from_ref(&first))], now);
    assert!(bench.watches.pods(0, false).is_none(), "not listed yet");
    bench.lists(&first, &pods(0..3), now);
    bench.settle(&[demand_of("team", &[first, second.clone()])], now);
    let count = |bench: &Bench, known| bench.watches.pods(0, known).map(|pods| pods.len());
    // A replica that has just begun waits for all of them.
    assert_eq!((count(&bench, true), count(&bench, false)), (Some(3), None));
    bench.lists(&second, &pods(3..5), now);
    assert_eq!((count(&bench, true), count(&bench, false)), (Some(5), Some(5)));
    // A repeated list removes nothing until it is complete.
    bench.watches.take(&second, Event::Init, now);
    assert_eq!(count(&bench, false), Some(5));
}

#[tokio::test]
async fn lists_are_read_some_at_a_time() {
    let turns = Arc::new(Semaphore::new(1));
    let [(tell, mut one), (tell_other, mut other)] = [(); 2].map(|()| {
        let (tell, events) = mpsc::unbounded();
        (tell, Box::pin(in_turn(events, Arc::clone(&turns))))
    });
    let sent = |tell: &mpsc::UnboundedSender<_>, event| tell.unbounded_send(event).unwrap();
    sent(&tell, Ok(Event::Init));
    sent(&tell_other, Ok(Event::Init));
    assert!(matches!(one.next().await, Some(Ok(Event::Init))));
    assert!(futures::poll!(other.next()).is_pending(), "the other reads its list");
    sent(&tell, Ok(Event::InitApply(DeserializeGuard(Ok(pod(0, 1))))));
    assert!(one.next().await.is_some() && futures::poll!(other.next()).is_pending());
    // A list that fails leaves its turn to others, and comes back for another one.
    sent(&tell, Err(watcher::Error::NoResourceVersion));
    assert!(matches!(one.next().await, Some(Err(_))));
    assert!(matches!(other.next().await, Some(Ok(Event::Init))));
    sent(&tell, Ok(Event::Init));
    assert!(futures::poll!(one.next()).is_pending());
    sent(&tell_other, Ok(Event::InitDone));
    assert!(other.next().await.is_some());
    assert!(matches!(one.next().await, Some(Ok(Event::Init))));
    // A closed watch leaves it too.
    drop(one);
    sent(&tell_other, Ok(Event::Init));
    assert!(matches!(other.next().await, Some(Ok(Event::Init))));
}
