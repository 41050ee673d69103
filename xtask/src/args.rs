//! The command line after the command: `--name value`, `--name=value` and switches.

use crate::Failure;

/// What is left of the command line; commands take flags off it until it is empty.
pub struct Args {
    words: std::vec::IntoIter<String>,
    /// The value of a flag that was written as `--name=value`.
    attached: Option<String>,
}

impl Args {
    pub fn new(words: impl Iterator<Item = String>) -> Self {
        Self {
            words: words.collect::<Vec<_>>().into_iter(),
            attached: None,
        }
    }

    /// The next flag, without its value.
    ///
    /// Fails when the flag before it was given a value that nobody asked for.
    pub fn flag(&mut self) -> Result<Option<String>, Failure> {
        if let Some(value) = self.attached.take() {
            return Err(Failure::Usage(format!("unexpected value `{value}`")));
        }
        let Some(word) = self.words.next() else {
            return Ok(None);
        };
        match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                self.attached = Some(value.to_owned());
                Ok(Some(name.to_owned()))
            }
            _ => Ok(Some(word)),
        }
    }

    /// The value of the flag that [`Args::flag`] returned last.
    pub fn value(&mut self, flag: &str) -> Result<String, Failure> {
        self.attached
            .take()
            .or_else(|| self.words.next())
            .ok_or_else(|| Failure::Usage(format!("{flag} needs a value")))
    }

    /// Everything that is left, as it was written.
    pub fn rest(self) -> impl Iterator<Item = String> {
        self.words
    }

    /// Fails when anything is left.
    pub fn end(mut self) -> Result<(), Failure> {
        match self.flag()? {
            Some(flag) => Err(unknown(&flag)),
            None => Ok(()),
        }
    }
}

/// The failure for a flag that the command does not have.
pub fn unknown(flag: &str) -> Failure {
    Failure::Usage(format!("unexpected `{flag}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args::new(words.iter().map(|word| word.to_string()))
    }

    #[test]
    fn values_come_attached_or_as_the_next_word() {
        let mut args = args(&["--port", "1", "--variable=a=b=c", "--spin"]);
        assert_eq!(args.flag().unwrap().unwrap(), "--port");
        assert_eq!(args.value("--port").unwrap(), "1");
        assert_eq!(args.flag().unwrap().unwrap(), "--variable");
        assert_eq!(args.value("--variable").unwrap(), "a=b=c");
        assert_eq!(args.flag().unwrap().unwrap(), "--spin");
        assert_eq!(args.flag().unwrap(), None);
    }

    #[test]
    fn a_missing_or_unwanted_value_is_a_usage_failure() {
        let mut missing = args(&["--port"]);
        missing.flag().unwrap();
        assert!(matches!(missing.value("--port"), Err(Failure::Usage(_))));
        let mut unwanted = args(&["--spin=yes"]);
        unwanted.flag().unwrap();
        assert!(matches!(unwanted.flag(), Err(Failure::Usage(_))));
    }

    #[test]
    fn nothing_may_be_left_at_the_end() {
        assert!(args(&[]).end().is_ok());
        assert!(matches!(args(&["--x"]).end(), Err(Failure::Usage(_))));
    }
}
