//! Finds runs: all of a scenario, or random ones, and the shortest that goes wrong.
//!
//! A run is the list of what was chosen, so it can be repeated. A component is deterministic: what it does
//! next depends on what it was told, and nothing else. So the rest of a run depends on the *state* only:
//! what each instance was told, when, what is on its way, what the stores hold and what the clients know.
//! Two orders of independent calls lead to one state, and what follows is explored once
//! (partial-order reduction by states). Nothing is left out: every choice in every state is tried.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::lab::Lab;
use crate::run::{Chooser, Report};
use crate::scenario::{self, Scenario};
use crate::world::Chain;

/// What is chosen, one number for each moment where there is a choice.
pub type Choices = Vec<u8>;

/// A run that went wrong.
pub struct Violation {
    pub scenario: Scenario,
    pub choices: Choices,
    pub what: String,
}

/// What came of an exploration.
#[derive(Default)]
pub struct Explored {
    /// Runs of the component.
    pub runs: u64,
    /// Different runs that these stand for.
    pub schedules: f64,
    pub violation: Option<Violation>,
}

/// Where runs part: what was chosen before, and the state in which that was.
struct Job {
    choices: Choices,
    parent: Option<Chain>,
}

/// What the workers of one exploration share.
struct Search<'a> {
    scenario: &'a Scenario,
    jobs: Mutex<Vec<Job>>,
    /// Jobs that are not done.
    open: AtomicUsize,
    runs: AtomicU64,
    /// For each state where there was a choice, what came next: another such state or an end.
    graph: Mutex<HashMap<Chain, Vec<Option<Chain>>>>,
    roots: Mutex<Vec<Option<Chain>>>,
    /// What ended the search early.
    found: Mutex<Option<Result<Violation>>>,
}

/// Goes through every run of a scenario, or as far as the first one that goes wrong.
///
/// # Errors
/// Where the simulation itself fails.
pub fn exhaust(labs: &mut [Lab], scenario: &Scenario) -> Result<Explored> {
    let search = Search {
        scenario,
        jobs: Mutex::new(vec![Job {
            choices: Vec::new(),
            parent: None,
        }]),
        open: AtomicUsize::new(1),
        runs: AtomicU64::new(0),
        graph: Mutex::default(),
        roots: Mutex::default(),
        found: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for lab in labs {
            scope.spawn(|| search.work(lab));
        }
    });
    let graph = search
        .graph
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let roots = search
        .roots
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let found = search
        .found
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(Explored {
        runs: search.runs.into_inner(),
        schedules: count(&graph, &roots),
        violation: found.transpose()?,
    })
}

impl Search<'_> {
    fn work(&self, lab: &mut Lab) {
        while self.open.load(Ordering::Acquire) > 0 && lock(&self.found).is_none() {
            let Some(job) = lock(&self.jobs).pop() else {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            };
            let mut walk = Walk {
                search: self,
                prefix: job.choices,
                taken: Vec::new(),
                parent: job.parent,
            };
            let report = lab.run(self.scenario, &mut walk, false);
            self.runs.fetch_add(1, Ordering::Relaxed);
            let violation = match report {
                Ok(report) if report.cut => None,
                Ok(report) => {
                    walk.arrive(None);
                    report.violation.map(|what| {
                        Ok(Violation {
                            scenario: self.scenario.clone(),
                            choices: walk.taken,
                            what,
                        })
                    })
                }
                Err(error) => Some(Err(error)),
            };
            if violation.is_some() {
                *lock(&self.found) = violation;
            }
            self.open.fetch_sub(1, Ordering::Release);
        }
    }
}

/// One run of an exploration.
struct Walk<'a> {
    search: &'a Search<'a>,
    prefix: Choices,
    taken: Choices,
    /// The state of the last choice.
    parent: Option<Chain>,
}

impl Walk<'_> {
    /// Notes where the last choice led to.
    fn arrive(&mut self, state: Option<Chain>) {
        match self.parent {
            None => lock(&self.search.roots).push(state),
            Some(parent) => lock(&self.search.graph)
                .entry(parent)
                .or_default()
                .push(state),
        }
        self.parent = state;
    }
}

impl Chooser for Walk<'_> {
    fn choose(&mut self, options: usize, state: &dyn Fn() -> Chain) -> Option<usize> {
        let position = self.taken.len();
        if let Some(choice) = self.prefix.get(position) {
            self.taken.push(*choice);
            return Some(usize::from(*choice));
        }
        let state = state();
        self.arrive(Some(state));
        let known = {
            let mut graph = lock(&self.search.graph);
            let known = graph.contains_key(&state);
            graph.entry(state).or_default();
            known
        };
        if known {
            return None;
        }
        let others = 1..u8::try_from(options).unwrap_or(u8::MAX);
        self.search.open.fetch_add(others.len(), Ordering::AcqRel);
        let others = others.rev().map(|choice| {
            let mut choices = self.taken.clone();
            choices.push(choice);
            Job {
                choices,
                parent: Some(state),
            }
        });
        lock(&self.search.jobs).extend(others);
        self.taken.push(0);
        Some(0)
    }
}

/// How many ways lead through the graph. Time and histories only grow, so it has no circles.
fn count(graph: &HashMap<Chain, Vec<Option<Chain>>>, roots: &[Option<Chain>]) -> f64 {
    let mut ways: HashMap<Chain, f64> = HashMap::new();
    let mut open: Vec<Chain> = roots.iter().copied().flatten().collect();
    let mut entered = HashSet::new();
    let total = |ways: &HashMap<Chain, f64>, next: &[Option<Chain>]| -> f64 {
        let each = next.iter().map(|next| match next {
            Some(state) => ways.get(state).copied().unwrap_or(0.0),
            None => 1.0,
        });
        each.sum()
    };
    while let Some(state) = open.last().copied() {
        let next = graph.get(&state).map_or(&[][..], Vec::as_slice);
        if entered.insert(state) {
            let unknown = next
                .iter()
                .flatten()
                .filter(|state| !ways.contains_key(state));
            open.extend(unknown);
        } else {
            open.pop();
            ways.insert(state, total(&ways, next));
        }
    }
    total(&ways, roots)
}

/// Runs random scenarios for a while; each is repeated now and then, and must be the same again.
///
/// # Errors
/// Where the simulation itself fails.
pub fn random(labs: &mut [Lab], seed: u64, budget: Duration) -> Result<Explored> {
    let (runs, found) = (AtomicU64::new(0), Mutex::new(None));
    let until = Instant::now() + budget;
    std::thread::scope(|scope| {
        for lab in labs {
            scope.spawn(|| {
                while Instant::now() < until && lock(&found).is_none() {
                    let number = runs.fetch_add(1, Ordering::Relaxed);
                    let seed = seed.wrapping_add(number);
                    let violation = wander(lab, seed, number.is_multiple_of(16));
                    if let Some(violation) = violation.transpose() {
                        *lock(&found) = Some(violation);
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Explored {
        runs: runs.into_inner(),
        schedules: 0.0,
        violation: found.transpose()?,
    })
}

/// One random run.
fn wander(lab: &mut Lab, seed: u64, twice: bool) -> Result<Option<Violation>> {
    let scenario = scenario::random(seed);
    let mut dice = Dice {
        random: StdRng::seed_from_u64(!seed),
        taken: Vec::new(),
    };
    let report = lab.run(&scenario, &mut dice, twice)?;
    let what = match report.violation {
        None if twice && replay(lab, &scenario, &dice.taken)?.trace != report.trace => {
            Some("the same choices gave another run".to_owned())
        }
        violation => violation,
    };
    Ok(what.map(|what| Violation {
        scenario,
        choices: dice.taken,
        what,
    }))
}

/// Chooses at random, and what needs no trouble more often.
struct Dice {
    random: StdRng,
    taken: Choices,
}

impl Chooser for Dice {
    fn choose(&mut self, options: usize, _: &dyn Fn() -> Chain) -> Option<usize> {
        let choice = match self.random.random_ratio(1, 2) {
            true => 0,
            false => self.random.random_range(0..options.min(256)),
        };
        self.taken.push(u8::try_from(choice).unwrap_or(0));
        Some(choice)
    }
}

/// Repeats a run, with its trace.
///
/// # Errors
/// Where the simulation itself fails.
pub fn replay(lab: &mut Lab, scenario: &Scenario, choices: &[u8]) -> Result<Report> {
    let mut script = Script { choices, next: 0 };
    lab.run(scenario, &mut script, true)
}

struct Script<'a> {
    choices: &'a [u8],
    next: usize,
}

impl Chooser for Script<'_> {
    fn choose(&mut self, options: usize, _: &dyn Fn() -> Chain) -> Option<usize> {
        let choice = self.choices.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        // What is shortened may have fewer options here.
        Some(usize::from(choice).min(options - 1))
    }
}

/// Makes a run that goes wrong as plain as possible: fewer choices, and fewer that are not the first.
///
/// # Errors
/// Where the simulation itself fails.
pub fn shrink(lab: &mut Lab, violation: &mut Violation) -> Result<()> {
    let mut fails = |choices: &[u8], scenario: &Scenario| -> Result<Option<String>> {
        let mut script = Script { choices, next: 0 };
        Ok(lab.run(scenario, &mut script, false)?.violation)
    };
    let mut changed = true;
    while changed {
        changed = false;
        let length = violation.choices.len();
        let mut attempts: Vec<Choices> = Vec::new();
        for end in [length / 2, length.saturating_sub(1)] {
            attempts.push(violation.choices[..end].to_vec());
        }
        for (index, choice) in violation.choices.iter().enumerate() {
            if *choice > 0 {
                let mut plainer = violation.choices.clone();
                plainer[index] = 0;
                attempts.push(plainer);
            }
            let mut shorter = violation.choices.clone();
            shorter.remove(index);
            attempts.push(shorter);
        }
        for mut attempt in attempts {
            while attempt.last() == Some(&0) {
                attempt.pop();
            }
            let plain =
                |choices: &[u8]| (choices.len(), choices.iter().filter(|c| **c > 0).count());
            if plain(&attempt) < plain(&violation.choices)
                && let Some(what) = fails(&attempt, &violation.scenario)?
            {
                violation.choices = attempt;
                violation.what = what;
                changed = true;
                break;
            }
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u32) -> Chain {
        let mut chain = Chain::default();
        chain.add(&number);
        chain
    }

    /// Two processes of two steps each: a grid, through which six ways lead.
    #[test]
    fn schedules_are_the_ways_through_the_states() {
        let at = |a: u32, b: u32| state(3 * a + b);
        let mut graph: HashMap<Chain, Vec<Option<Chain>>> = HashMap::new();
        for a in 0..=2 {
            for b in 0..=2 {
                let next = graph.entry(at(a, b)).or_default();
                if a < 2 {
                    next.push(Some(at(a + 1, b)));
                }
                if b < 2 {
                    next.push(Some(at(a, b + 1)));
                }
                if (a, b) == (2, 2) {
                    next.push(None);
                }
            }
        }
        assert_eq!(count(&graph, &[Some(at(0, 0))]), 6.0);
        assert_eq!(count(&HashMap::new(), &[None]), 1.0);
    }

    #[test]
    fn a_history_is_told_from_every_other() {
        let chain = |events: &[&str]| {
            let mut chain = Chain::default();
            events.iter().for_each(|event| chain.add(event));
            chain
        };
        assert!(chain(&["a", "b"]) == chain(&["a", "b"]));
        assert!(chain(&["a", "b"]) != chain(&["b", "a"]));
        assert!(chain(&["ab"]) != chain(&["a", "b"]));
    }
}
