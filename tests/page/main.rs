//! The status page in a real browser: its content, its layout on a phone and in the dark, and that
//! no text from the API server becomes markup.
//!
//! Needs Chromium; as root it is installed with apt-get. Pictures for the documentation:
//! `UPDATE_IMAGES=1 cargo test --test page`.
mod fixtures;
mod http;
mod looks;
mod probers;
mod stage;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Result;
use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};

/// The number of pages in a browser at once: a browser is many processes.
const AT_ONCE: usize = 2;

type Look = fn(PathBuf) -> BoxFuture<'static, Result<()>>;
type Request = fn() -> BoxFuture<'static, Result<()>>;

macro_rules! looks {
    ($list:ident of $module:ident: $($name:ident),* $(,)?) => {
        const $list: &[(&str, Look)] =
            &[$((stringify!($name), |browser| Box::pin($module::$name(browser)))),*];
    };
}

macro_rules! requests {
    ($list:ident of $module:ident: $($name:ident),* $(,)?) => {
        const $list: &[(&str, Request)] = &[$((stringify!($name), || Box::pin($module::$name()))),*];
    };
}

requests![
    OF_PROBERS of probers:
    probers_are_served_under_the_same_policy_and_name_no_other_host,
    figures_are_given_for_one_prober_at_a_time,
];

looks![
    AT_PROBERS of probers:
    three_nodes_are_a_matrix_with_numbers,
    sixty_nodes_fit_and_are_read_by_their_titles,
    names_of_probers_and_nodes_are_never_markup,
    what_is_missing_is_shown_in_words,
];

requests![
    REQUESTS of http:
    every_file_is_served_under_a_strict_policy,
    the_files_name_no_other_host,
    only_reading_is_served,
    the_state_is_the_contract_and_is_filtered,
    a_follower_reports_it_and_has_no_watches,
];

looks![
    LOOKS of looks:
    what_is_wrong_stands_first_with_its_numbers,
    every_state_and_unit_is_shown_in_words,
    names_are_never_markup_and_never_too_long,
    everybody_can_read_and_reach_everything,
    rows_are_cards_on_a_phone,
    filters_choose_by_name_and_by_state,
    a_chosen_state_and_a_typed_name_are_kept_in_the_address,
    what_is_folded_unfolds_and_stays_so,
    a_page_that_nobody_sees_asks_nothing,
    of_many_fit_nodes_a_few_are_shown_and_the_rest_is_offered,
    a_follower_says_whom_to_ask,
    a_leader_without_watches_reports_it,
    the_page_follows_the_state,
    without_an_answer_the_last_one_stays_and_the_page_reports_it,
    pictures_for_the_documentation,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let browser = match browser() {
        Ok(browser) => browser,
        Err(error) => {
            eprintln!("no browser: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for (name, request) in REQUESTS.iter().chain(OF_PROBERS) {
        let runtime = Arc::clone(&runtime);
        trials.push(Trial::test(*name, move || {
            runtime.block_on(request()).map_err(|error| format!("{error:#}").into())
        }));
    }
    for (name, look) in LOOKS.iter().chain(AT_PROBERS) {
        let (runtime, browser) = (Arc::clone(&runtime), browser.clone());
        let trial = Trial::test(*name, {
            let browser = browser.clone();
            move || {
                let browser = browser.ok_or("no browser")?;
                runtime.block_on(look(browser)).map_err(|error| format!("{error:#}").into())
            }
        });
        trials.push(trial.with_ignored_flag(browser.is_none()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if browser.is_none() {
        println!(
            "LEFT OUT: {} looks at the status page need Chromium: install it, or run as root and \
             it is installed",
            LOOKS.len() + AT_PROBERS.len()
        );
    }
    conclusion.exit_code()
}

/// Returns the browser; `None` where it is missing and cannot be installed.
fn browser() -> Result<Option<PathBuf>> {
    use std::os::unix::fs::MetadataExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0);
    match lab::packages::browser() {
        Some(browser) => Ok(Some(browser)),
        None if is_root => lab::packages::ensure_browser().map(Some),
        None => Ok(None),
    }
}
