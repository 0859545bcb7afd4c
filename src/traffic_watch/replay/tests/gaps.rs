//! Samples that are missing, late, or of another exporter: while the load stays the same, no node
//! becomes fit and no offer rises.
//!
//! A model of Prometheus and of `VictoriaMetrics` answers the facts that the built-in query asks
//! for; the operator's own code reads, judges and plans.
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

/// Milliseconds that an instant selector looks back.
const LOOKBACK: i64 = 300_000;

/// Bytes per second of a link.
const SPEED: f64 = 125e6;

/// The beginning of time, in milliseconds since the Unix epoch.
const START: i64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Server {
    /// Ranges contain both of their ends.
    Prometheus2,
    /// Ranges do not contain their start.
    Prometheus3,
    /// Rates are those between samples, of which one lies before the window.
    VictoriaMetrics,
}

/// Something that befalls the samples.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Nothing is scraped by the server, and nobody notes it.
    Gap,
    /// The exporter is down: its series end.
    Down,
    /// The target is a new one afterwards: nothing is known before.
    New,
    /// Samples arrive late by this many milliseconds.
    Late(i64),
    /// The exporter is replaced, with or without an end of its series.
    Replaced(bool),
    /// The host starts again: its counters begin at zero.
    Reboot,
    /// One replica of an HA pair is away, and comes back without its past.
    Replica,
}

#[derive(Clone, Debug)]
struct Story {
    server: Server,
    trouble: Trouble,
    /// All in milliseconds.
    scrape: i64,
    window: i64,
    phase: i64,
    /// Its beginning, and its length.
    began: i64,
    long: i64,
    /// The load in percent, and the threshold.
    load: f64,
    threshold: f64,
    consecutive: u32,
    reserves: bool,
}

/// A sample, or the end of a series.
type Sample = (i64, Option<f64>);

/// A series of the counter.
type Series = Vec<Sample>;

impl Story {
    fn end(&self) -> i64 {
        self.began + self.long
    }

    /// When the load falls to one percent, long after the trouble.
    fn falls(&self) -> i64 {
        self.end() + 2 * self.window + LOOKBACK
    }

    /// Bytes that the host has sent at a time, of a link that was used for an hour before.
    fn sent(&self, at: i64) -> f64 {
        let busy = at.min(self.falls());
        let carried = |from: i64, to: i64, percent: f64| {
            #[expect(clippy::cast_precision_loss, reason = "some hours")]
            let seconds = (to - from) as f64 / 1e3;
            seconds * percent / 100.0 * SPEED
        };
        let rebooted = matches!(self.trouble, Trouble::Reboot) && at >= self.end();
        let since = if rebooted { self.end() } else { START - 3_600_000 };
        let idle = carried(self.falls().min(at), at, 1.0);
        (carried(since, busy, self.load) + idle).floor()
    }

    /// The series at a time, as the server has them then.
    fn series(&self, now: i64) -> Vec<Series> {
        let until = match self.trouble {
            Trouble::Late(by) if (self.began..self.end()).contains(&now) => now - by,
            _ => now,
        };
        let scrapes = |phase: i64| {
            let first = START + phase;
            (0..).map(move |i| first + i * self.scrape).take_while(move |at| *at <= until)
        };
        let away = |at: i64| (self.began..self.end()).contains(&at);
        let sample = |at: i64| (at, Some(self.sent(at)));
        let healthy: Series = scrapes(self.phase).map(sample).collect();
        let outside = || healthy.iter().copied().filter(|(at, _)| !away(*at)).collect::<Series>();
        let after = || healthy.iter().copied().filter(|(at, _)| *at >= self.end()).collect();
        match self.trouble {
            Trouble::Late(_) => vec![healthy],
            Trouble::Gap => vec![outside()],
            Trouble::Down | Trouble::Reboot => {
                let mut series = outside();
                let end = scrapes(self.phase).find(|at| away(*at));
                series.extend(end.map(|at| (at, None)));
                series.sort_by_key(|(at, _)| *at);
                vec![series]
            }
            Trouble::New => vec![after()],
            Trouble::Replaced(ends) => {
                let mut old: Series =
                    healthy.iter().copied().filter(|(at, _)| *at < self.began).collect();
                let end = scrapes(self.phase).find(|at| *at >= self.began).filter(|_| ends);
                old.extend(end.map(|at| (at, None)));
                vec![old, after()]
            }
            Trouble::Replica => {
                let other = scrapes(self.phase / 2).map(sample);
                vec![other.filter(|(at, _)| *at >= self.end()).collect(), outside()]
            }
        }
    }

    /// Reports whether the exporter answered the last scrape.
    fn is_up(&self, now: i64) -> bool {
        let down = matches!(self.trouble, Trouble::Down | Trouble::Reboot);
        let last = now - (now - START - self.phase).rem_euclid(self.scrape);
        !(down && (self.began..self.end()).contains(&last))
    }

    /// The answer at a time.
    fn answer(&self, now: i64) -> Value {
        let mut elements = vec![];
        let mut add = |node: &str, measure: &str, value: Option<f64>| {
            let Some(value) = value else { return };
            elements.push(json!({
                "metric": {"instance": node, "device": "eth0", "measure": measure},
                "value": [seconds(now), value.to_string()],
            }));
        };
        let highest =
            |values: Vec<Option<f64>>| values.into_iter().flatten().max_by(f64::total_cmp);
        let calm = Self { trouble: Trouble::Late(0), load: 1.0, ..self.clone() };
        for (node, story) in [("busy", self), ("calm", &calm)] {
            let all = story.series(now);
            let each = |value: &dyn Fn(&[Sample]) -> Option<f64>| {
                highest(all.iter().map(|series| value(series)).collect())
            };
            let up = story.is_up(now);
            let at = |series: &[Sample], now: i64| story.server.instant(series, now);
            let then = now - story.window;
            let rate = each(&|series| story.server.rate(series, now, story.window));
            add(node, "transmit_rate", rate.filter(|_| up));
            let total = each(&|series| Some(at(series, now)?.1));
            add(node, "transmit_total", total.filter(|_| up));
            add(node, "transmit_total_before", each(&|series| Some(at(series, then)?.1)));
            let youngest = |time: i64| each(&|series| Some(seconds(at(series, time)?.0)));
            let earlier = each(&|series| match at(series, then) {
                Some(_) => None,
                None => story.server.last(series, then, story.window / 4),
            });
            add(node, "transmit_total_earlier", earlier);
            add(node, "age", youngest(now).map(|at| seconds(now) - at));
            add(node, "age_before", youngest(then).map(|at| seconds(now) - at));
            add(node, "speed", Some(SPEED));
        }
        json!({"status": "success", "data": {"resultType": "vector", "result": elements}})
    }

    fn watch(&self) -> TrafficWatch {
        let mut spec = json!({
            "maxBandwidthPercent": self.threshold.to_string(), "window": format!("{}s", self.window / 1000),
            "maxUnfit": "100%", "minFit": 0, "interval": "10s",
            "consecutive": {"unfit": self.consecutive, "fit": self.consecutive},
        });
        if self.reserves {
            spec["reservation"] = json!({"resource": "example.com/mbps"});
        }
        serde_json::from_value(json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec,
        }))
        .unwrap()
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of this age are exact")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1e3
}

impl Server {
    /// The sample that an instant selector finds.
    fn instant(self, series: &[Sample], now: i64) -> Option<(i64, f64)> {
        let (at, value) = series.iter().rfind(|(at, _)| *at <= now)?;
        let back = now - at;
        let seen = back < LOOKBACK || (back == LOOKBACK && matches!(self, Self::Prometheus2));
        Some((*at, (*value).filter(|_| seen)?))
    }

    /// `last_over_time`, to which ends of series are nothing.
    fn last(self, series: &[Sample], now: i64, range: i64) -> Option<f64> {
        let (at, value) = series
            .iter()
            .filter_map(|(at, value)| Some((*at, (*value)?)))
            .rfind(|(at, _)| *at <= now)?;
        let back = now - at;
        (back < range || (back == range && matches!(self, Self::Prometheus2))).then_some(value)
    }

    /// `rate`.
    fn rate(self, series: &[Sample], now: i64, window: i64) -> Option<f64> {
        let start = now - window;
        let is_in = |at: i64| {
            at <= now && (at > start || (at == start && matches!(self, Self::Prometheus2)))
        };
        let values = series.iter().filter_map(|(at, value)| Some((*at, (*value)?)));
        let before = values.clone().rfind(|(at, _)| *at <= start);
        let mut inside: Vec<_> = values.filter(|(at, _)| is_in(*at)).collect();
        if let Self::VictoriaMetrics = self {
            inside.splice(0..0, before);
        }
        let (first, last) = (*inside.first()?, *inside.last()?);
        if inside.len() < 2 {
            return None;
        }
        let resets = inside.windows(2).filter(|pair| pair[1].1 < pair[0].1).map(|pair| pair[0].1);
        let increase = last.1 - first.1 + resets.sum::<f64>();
        let sampled = seconds(last.0 - first.0);
        if let Self::VictoriaMetrics = self {
            return Some(increase / sampled);
        }
        #[expect(clippy::cast_precision_loss, reason = "some samples")]
        let average = sampled / (inside.len() - 1) as f64;
        let extended = |gap: f64| if gap < average * 1.1 { gap } else { average / 2.0 };
        let mut to_start = extended(seconds(first.0 - start));
        if increase > 0.0 {
            to_start = to_start.min(sampled * first.1 / increase);
        }
        let whole = sampled + to_start + extended(seconds(now - last.0));
        Some(increase * whole / sampled / seconds(window))
    }
}

/// The judgments of a story, one every ten seconds.
struct Told {
    story: Story,
    replay: Replay,
    identity: Identity,
    inquiry: Inquiry,
    now: i64,
    nodes: [&'static str; 2],
}

impl Told {
    fn begin(story: Story) -> Self {
        let watch = story.watch();
        let nodes = ["busy", "calm"];
        Self {
            replay: Replay::new(&watch, true),
            identity: Identity::new(nodes.map(|node| (node.into(), [].as_slice())).into()),
            inquiry: Inquiry::of(&watch, &Exporters::default()).unwrap(),
            now: START,
            story,
            nodes,
        }
    }

    /// Judges, and returns the state of the busy node, its mark and its offer.
    fn judge(&mut self) -> (NodeState, bool, Option<u64>) {
        self.now += 10_000;
        let answer = Answer {
            status: 200,
            content_type: "application/json".into(),
            body: self.story.answer(self.now).to_string().into_bytes(),
        };
        let reading = self.inquiry.read(0, &answer, &self.identity).unwrap();
        let facts = self.nodes.map(|node| NodeFacts::named(node.into())).into();
        let now = Timestamp::from_millisecond(self.now).unwrap();
        self.replay.step(now, facts, &[Ok(Arc::new(reading))]).unwrap();
        let (_, state, marked) = self.replay.states().next().unwrap();
        let offers = self.replay.offers();
        let offer =
            offers.and_then(|(_, all)| all.iter().find(|(node, _)| *node == "busy").copied());
        (state, marked, offer.map(|(_, offer)| offer))
    }

    /// Tells the whole story.
    fn tell(mut self) -> Result<(), TestCaseError> {
        let busy = self.story.load > self.story.threshold;
        let (mut was_marked, mut least) = (false, None::<u64>);
        while self.now + 10_000 < self.story.falls() {
            let (state, marked, offer) = self.judge();
            prop_assert!(
                !(busy && state == NodeState::Fit && was_marked),
                "fit at {}",
                self.now - START
            );
            prop_assert!(!was_marked || marked, "released at {}", self.now - START);
            if let Some((least, offer)) = least.zip(offer) {
                prop_assert!(
                    offer <= least,
                    "offers {offer} after {least} at {}",
                    self.now - START
                );
            }
            least = offer.or(least);
            was_marked |= marked;
        }
        // The window is full again, and what is true shows.
        prop_assert_eq!(was_marked, busy);
        let end = self.now
            + 3 * self.story.window
            + i64::from(2 * self.story.consecutive) * self.story.scrape.max(10_000);
        while self.now < end + LOOKBACK {
            if self.judge().0 == NodeState::Fit {
                return Ok(());
            }
        }
        prop_assert!(false, "never fit again");
        Ok(())
    }
}

prop_compose! {
    fn story()(
        server in prop::sample::select(&[Server::Prometheus2, Server::Prometheus3, Server::VictoriaMetrics][..]),
        trouble in prop_oneof![
            Just(Trouble::Gap), Just(Trouble::Down), Just(Trouble::New), Just(Trouble::Reboot),
            (0..90_000i64).prop_map(Trouble::Late), any::<bool>().prop_map(Trouble::Replaced),
            Just(Trouble::Replica),
        ],
        scrape in prop::sample::select(&[5_000, 7_000, 10_000, 15_000, 30_000, 45_000, 60_000][..]),
        scrapes in 4..=60i64,
        odd in 0..5_000i64,
        phase in 0..60_000i64,
        after in 0..60_000i64,
        long in 15_000..240_000i64,
        load in prop::sample::select(&[5.0, 30.0, 50.0, 71.5, 91.0, 100.0][..]),
        threshold in prop::sample::select(&[20.0, 45.0, 60.0, 90.0][..]),
        consecutive in 1..4u32,
        reserves: bool,
    ) -> Story {
        // Ten minutes at most, in whole seconds, and often not a multiple of the interval.
        let window = (scrape * scrapes + odd).min(600_000) / 1000 * 1000;
        let began = START + window + LOOKBACK + after;
        let phase = phase % scrape;
        Story { server, trouble, scrape, window, phase, began, long, load, threshold, consecutive, reserves }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn missing_samples_make_no_node_fit_and_raise_no_offer(story in story()) {
        Told::begin(story).tell()?;
    }
}

/// Prometheus is away for a minute, with the defaults.
#[test]
fn c31_a_gap_of_the_server_is_a_reason_to_wait() {
    let story = Story {
        server: Server::Prometheus3,
        trouble: Trouble::Gap,
        scrape: 15_000,
        window: 120_000,
        phase: 1_000,
        began: START + 600_000,
        long: 60_000,
        load: 71.5,
        threshold: 60.0,
        consecutive: 2,
        reserves: true,
    };
    let mut told = Told::begin(story);
    let mut reasons = vec![];
    while told.now < START + 900_000 {
        told.judge();
        reasons.push(told.replay.nodes()[0].reason.clone());
    }
    reasons.dedup();
    let partly = Some("PartialWindow".to_owned());
    // A new target; no sample for more than half of a window; and the window that the gap begins.
    let expected = [[partly.clone(), None], [partly.clone(), None], [partly, None]];
    assert_eq!(reasons, expected.concat());
}
