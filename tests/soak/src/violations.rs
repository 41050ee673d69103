//! What must not be.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are kept and shown; the others are only counted.
const SHOWN: usize = 100;

/// Collects what is wrong, and says it at once.
#[derive(Default)]
pub struct Violations(Mutex<(u64, Vec<String>)>);

impl Violations {
    /// Something is wrong.
    pub fn add(&self, what: impl Into<String>) {
        let what = what.into();
        let mut found = self.found();
        found.0 += 1;
        if found.1.len() < SHOWN {
            eprintln!("VIOLATION: {what}");
            found.1.push(what);
        }
    }

    /// The same for what has to work.
    pub fn check(&self, outcome: Result<(), impl std::fmt::Display>) {
        if let Err(what) = outcome {
            self.add(format!("{what:#}"));
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.found().0
    }

    /// What was said.
    pub fn shown(&self) -> Vec<String> {
        self.found().1.clone()
    }

    fn found(&self) -> MutexGuard<'_, (u64, Vec<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
