//! What answers teach, in shared memory: who shares it with whom, and what others may do to it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "support/shared_memory.rs"]
mod shared_memory;

use std::cell::Cell;
use std::rc::Rc;

use shared_memory::SharedMemory;
use tollgate::config::FilterConfig;
use tollgate::local::{LearnedStore, News};
use tollgate_budget::Tokens;

type Teacher = LearnedStore<SharedMemory>;

/// A policy of these rules, by pattern and factor.
fn models(rules: &[(&str, f64)]) -> FilterConfig {
    let rule = |(pattern, factor): &(&str, f64)| {
        format!(r#"{{"match": "{pattern}", "tokenizer": {{"like": "o200k_base", "factor": {factor}}}}}"#)
    };
    let rules: Vec<String> = rules.iter().map(rule).collect();
    FilterConfig::from_slice(format!(r#"{{"version": 1, "models": [{}]}}"#, rules.join(",")).as_bytes())
        .unwrap()
}

fn teacher(memory: &SharedMemory, rules: &[(&str, f64)]) -> Teacher {
    LearnedStore::open(memory.clone(), &models(rules)).unwrap()
}

fn learn(teacher: &Teacher, model: usize, times: u64, milli: u64) {
    (0..times).for_each(|_| teacher.learn(model, Tokens::new(1000), Tokens::new(milli)));
}

/// What each model is corrected by after a tick, in thousandths.
fn told(teacher: &Teacher) -> Vec<u64> {
    let by = |news: &News| match news {
        News::Correct { model: _, by } => Some(by.milli()),
        News::BegunAnew { .. } | News::Failed => None,
    };
    teacher.share().iter().filter_map(by).collect()
}

#[test]
fn lessons_are_kept_by_the_rule_and_not_by_its_place() {
    let memory = SharedMemory::default();
    let before = teacher(&memory, &[("a", 1.0), ("b", 1.0), ("*", 1.0)]);
    learn(&before, 0, 30, 1300);
    learn(&before, 1, 30, 800);
    assert_eq!(told(&before), [1300, 800, 1000, 1000]);
    let after = teacher(&memory, &[("new", 1.0), ("b", 1.0), ("a", 1.0), ("*", 1.0)]);
    assert_eq!(told(&after), [1000, 800, 1300, 1000, 1000]);
}

#[test]
fn lessons_about_another_factor_are_no_lessons() {
    let memory = SharedMemory::default();
    let old = teacher(&memory, &[("a", 1.0)]);
    learn(&old, 0, 30, 1300);
    assert_eq!(told(&old)[0], 1300);
    let new = teacher(&memory, &[("a", 1.3)]);
    assert_eq!(told(&new)[0], 1000);
    learn(&new, 0, 30, 1000);
    assert_eq!((told(&new)[0], told(&old)[0]), (1000, 1300));
}

#[test]
fn exact_models_and_models_out_of_the_policy_are_not_learned() {
    let memory = SharedMemory::default();
    let policy = r#"{"version": 1, "models": [{"match": "*", "tokenizer": "o200k_base"}]}"#;
    let exact =
        LearnedStore::open(memory.clone(), &FilterConfig::from_slice(policy.as_bytes()).unwrap()).unwrap();
    [0, 1, 7, usize::MAX].into_iter().for_each(|model| learn(&exact, model, 30, 1300));
    assert_eq!((exact.share(), memory.keys()), (Vec::new(), 0));
}

#[test]
fn no_lesson_is_lost_to_other_workers_or_told_twice() {
    let memory = SharedMemory::default();
    let rules = [("a", 1.0)];
    let (here, there) = (teacher(&memory, &rules), Rc::new(teacher(&memory, &rules)));
    let other = Rc::clone(&there);
    // The other worker is faster in each of the first gaps.
    let left = Cell::new(100);
    memory.interrupt(move || {
        if left.get() > 0 {
            left.set(left.get() - 1);
            learn(&other, 0, 1, 1500);
            let _told = other.share();
        }
    });
    for _ in 0..150 {
        learn(&here, 0, 1, 1100);
        let _told = here.share();
    }
    let mean = (150_u64 * 1100 + 100 * 1500).div_ceil(250);
    assert_eq!((told(&there)[0], told(&here)[0]), (mean, mean));
}

#[test]
fn what_is_not_learned_is_not_written() {
    let memory = SharedMemory::default();
    let one = teacher(&memory, &[("a", 1.0), ("b", 1.0)]);
    let made = memory.writes();
    told(&one);
    assert_eq!(memory.writes(), made);
    learn(&one, 1, 500, 1300);
    told(&one);
    told(&one);
    assert_eq!(memory.writes(), made + 1);
}

#[test]
fn a_host_that_refuses_is_asked_once_a_tick_and_the_lessons_wait() {
    let memory = SharedMemory::default();
    let one = teacher(&memory, &[("a", 1.0), ("b", 1.0)]);
    learn(&one, 0, 30, 1300);
    memory.break_down();
    assert_eq!(one.share(), [News::Failed]);
    assert!(LearnedStore::open(memory.clone(), &models(&[("a", 1.0)])).is_err());
}

#[test]
fn a_record_of_another_program_is_replaced_and_an_empty_one_is_nothing_to_tell() {
    let memory = SharedMemory::default();
    let one = teacher(&memory, &[("a", 1.0)]);
    let keys: Vec<String> = memory.all().into_keys().collect();
    keys.iter().for_each(|key| memory.put(key, b"garbage"));
    let anew = |news: &[News]| news.iter().filter(|news| matches!(news, News::BegunAnew { .. })).count();
    assert_eq!(anew(&one.share()), keys.len());
    assert_eq!(anew(&one.share()), 0);
    keys.iter().for_each(|key| memory.put(key, b""));
    learn(&one, 0, 30, 1300);
    let news = one.share();
    assert_eq!((anew(&news), told(&one)[0]), (0, 1300));
}

#[test]
fn a_lost_race_is_run_again_at_the_next_tick_with_what_came_since() {
    let memory = SharedMemory::default();
    let one = teacher(&memory, &[("a", 1.0)]);
    learn(&one, 0, 30, 1300);
    memory.conflict(2);
    assert_eq!(told(&one)[0], 1000);
    learn(&one, 0, 30, 1500);
    assert_eq!((told(&one)[0], told(&one)[0]), (1000, 1400));
}

#[test]
fn what_is_learned_takes_no_memory_that_grows_with_it() {
    let memory = SharedMemory::default();
    let one = teacher(&memory, &[("a", 1.0), ("b", 1.0)]);
    let made = (memory.keys(), memory.bytes());
    for _ in 0..100 {
        learn(&one, 0, 100, 1300);
        told(&one);
    }
    assert_eq!((memory.keys(), memory.bytes()), made);
}
