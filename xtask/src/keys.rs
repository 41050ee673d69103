//! Names and values that Spin variables have on the way to the application.

use crate::Failure;

/// The environment variable from which both hosts read a Spin variable.
///
/// Everything goes this way and nothing on a command line, which any user of the machine can read.
pub fn environment_name(variable: &str) -> String {
    format!("SPIN_VARIABLE_{}", variable.to_uppercase())
}

/// Reads `--variable NAME=VALUE`.
pub fn parse_variable(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((name, value)) if is_variable_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => {
            let rule = "--variable takes NAME=VALUE, the name in lower case";
            Err(Failure::Usage(rule.into()))
        }
    }
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Whether an application manifest declares a variable, as `name = {…}` in its table `[variables]`
/// or as a table `[variables.name]`.
pub fn declares(manifest: &str, variable: &str) -> bool {
    let mut table = "";
    manifest.lines().map(str::trim).any(|line| {
        if let Some(header) = line.strip_prefix('[') {
            table = header.split(']').next().unwrap_or("").trim();
        }
        table.strip_prefix("variables.") == Some(variable)
            || table == "variables"
                && line
                    .split_once('=')
                    .is_some_and(|(name, _)| name.trim() == variable)
    })
}

/// Reads `merchant=key,merchant2=key2`.
///
/// The message names what is wrong without repeating a key.
pub fn parse_api_keys(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for (number, pair) in (1..).zip(text.split(',')) {
        let (merchant, key) = pair.split_once('=').unwrap_or_default();
        let (merchant, key) = (merchant.trim(), key.trim());
        if merchant.is_empty() || key.is_empty() {
            return Err(format!("pair {number} is not merchant=key"));
        }
        if keys.iter().any(|(known, _)| *known == merchant) {
            return Err(format!("merchant {merchant} is there twice"));
        }
        keys.push((merchant, key));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_split_at_the_first_equals_sign() {
        let (name, value) = parse_variable("api_keys=demo=x,shop=y").unwrap();
        assert_eq!(
            (name.as_str(), value.as_str()),
            ("api_keys", "demo=x,shop=y")
        );
        assert_eq!(environment_name(&name), "SPIN_VARIABLE_API_KEYS");
        for wrong in ["api_keys", "=x", "API_KEYS=x", "api-keys=x", "1x=y"] {
            assert!(
                matches!(parse_variable(wrong), Err(Failure::Usage(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn declared_variables_are_found_in_both_spellings() {
        let manifest = "\
            [application]\nname = \"x\"\n[variables]\n# c = 1\na = { default = \"b=c\" }\n\
            [variables.d]\nsecret = true\n[component.x]\ne = 1\n[component.x.variables]\nf = 1\n";
        assert!(declares(manifest, "a"));
        assert!(declares(manifest, "d"));
        for other in ["b", "c", "e", "f", "name", "secret"] {
            assert!(!declares(manifest, other), "{other}");
        }
    }

    #[test]
    fn api_keys_are_pairs_with_one_key_for_a_merchant() {
        let keys = parse_api_keys("a=1, b=2=3").unwrap();
        assert_eq!(keys, [("a", "1"), ("b", "2=3")]);
        for wrong in ["", "a", "a=", "=1", "a=1,", "a=1,a=2"] {
            assert!(parse_api_keys(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_list_of_keys_is_never_repeated() {
        let message = parse_api_keys("a=1,sesame").unwrap_err();
        assert!(!message.contains("sesame"));
    }
}
