//! The variables of the application and of the component.
//!
//! A value comes from `--variable`, else from the environment (`SPIN_VARIABLE_` and the name in
//! capitals), else from the manifest's `default`. The component sees only its own variables, which
//! are templates such as `"https://{{ host }}/"` over those of the application. Everything is
//! resolved once, at the start. Spin also reads a file `.env`; this host does not.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, Result, bail, ensure};

use crate::manifest::Variable;

/// The environment variable that sets `name`.
pub fn environment_name(name: &str) -> String {
    format!("SPIN_VARIABLE_{}", name.to_ascii_uppercase())
}

/// The values of the application's variables.
#[derive(Debug, Default)]
pub struct Values(HashMap<String, String>);

impl Values {
    /// Finds a value for every variable of the manifest.
    ///
    /// `given` are those of the command line, of which the last one counts; `environment` looks up an
    /// environment variable. Values for other names are ignored, as Spin does.
    ///
    /// # Errors
    /// A variable without a value, or one whose name or declaration Spin would refuse.
    pub fn resolve(
        declared: &BTreeMap<String, Variable>,
        given: &[(String, String)],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let given: HashMap<_, _> = given.iter().map(|(name, value)| (name, value)).collect();
        let (mut values, mut missing) = (HashMap::new(), Vec::new());
        for (name, variable) in declared {
            check_name(name).map_err(|reason| anyhow::anyhow!("variable {name:?}: {reason}"))?;
            ensure!(
                variable.required != variable.default.is_some(),
                "variable {name:?} must be `required` or have a `default`, and not both"
            );
            let value = given
                .get(name)
                .map(|value| (*value).clone())
                .or_else(|| environment(&environment_name(name)))
                .or_else(|| variable.default.clone());
            match value {
                Some(value) => drop(values.insert(name.clone(), value)),
                None => missing.push(name.as_str()),
            }
        }
        if let [first, ..] = missing[..] {
            bail!(
                "no value for the required variable(s) {}: set {} or pass --variable {first}=…",
                missing.join(", "),
                environment_name(first)
            );
        }
        Ok(Self(values))
    }

    /// Replaces every `{{ name }}` of a template.
    ///
    /// # Errors
    /// An unknown name or an unmatched `{{`.
    pub fn render(&self, template: &str) -> Result<String> {
        let (mut rendered, mut rest) = (String::new(), template);
        while let Some((literal, tail)) = rest.split_once("{{") {
            let (name, tail) = tail
                .split_once("}}")
                .context("unmatched '{{' in template")?;
            let name = name.trim();
            let value = self
                .0
                .get(name)
                .with_context(|| format!("unknown variable {name:?}"))?;
            rendered.push_str(literal);
            rendered.push_str(value);
            rest = tail;
        }
        rendered.push_str(rest);
        Ok(rendered)
    }
}

/// The variables of the component.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    component: String,
    values: HashMap<String, String>,
}

/// Why a component did not get a variable; the texts are for the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// No variable can have this name.
    InvalidName(String),
    /// The component has no such variable.
    Undefined(String),
}

impl Variables {
    /// Renders the templates of a component.
    ///
    /// # Errors
    /// A name Spin would refuse, an unknown name in a template, an unmatched `{{`.
    pub fn new(
        component: &str,
        templates: &BTreeMap<String, String>,
        values: &Values,
    ) -> Result<Self> {
        let values = templates
            .iter()
            .map(|(name, template)| {
                let context = || format!("variable {name:?} of component {component:?}");
                check_name(name)
                    .map_err(anyhow::Error::msg)
                    .with_context(context)?;
                Ok((name.clone(), values.render(template).with_context(context)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            component: component.to_owned(),
            values,
        })
    }

    /// The value of one of the component's variables.
    ///
    /// # Errors
    /// See [`LookupError`].
    pub fn get(&self, name: &str) -> Result<String, LookupError> {
        check_name(name)
            .map_err(|reason| LookupError::InvalidName(format!("{name:?}: {reason}")))?;
        self.values.get(name).cloned().ok_or_else(|| {
            LookupError::Undefined(format!("no variable for {:?}.{name:?}", self.component))
        })
    }
}

/// Spin's rule: lower-case letters, digits and single underscores, a letter first, no underscore last.
fn check_name(name: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() {
        Err("must not be empty")
    } else if !name.chars().all(allowed) {
        Err("may contain only lower-case letters, digits and underscores")
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Err("must start with a lower-case letter")
    } else if name.ends_with('_') {
        Err("must end with a letter or a digit")
    } else if name.contains("__") {
        Err("must not contain two underscores in a row")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(entries: &[(&str, Option<&str>)]) -> BTreeMap<String, Variable> {
        entries
            .iter()
            .map(|(name, default)| {
                let default = default.map(str::to_owned);
                let required = default.is_none();
                (
                    (*name).to_owned(),
                    Variable {
                        required,
                        default,
                        ..Variable::default()
                    },
                )
            })
            .collect()
    }

    fn templates(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        templates(entries).into_iter().collect()
    }

    #[test]
    fn the_command_line_beats_the_environment_which_beats_the_default() {
        let declared = declared(&[
            ("a", Some("default")),
            ("b", Some("default")),
            ("c", Some("default")),
        ]);
        let environment = |name: &str| {
            matches!(name, "SPIN_VARIABLE_A" | "SPIN_VARIABLE_B").then(|| "environment".to_owned())
        };
        let values = Values::resolve(&declared, &pairs(&[("a", "flag")]), environment).unwrap();
        assert_eq!(
            values.render("{{ a }} {{b}} {{ c }}").unwrap(),
            "flag environment default"
        );
    }

    #[test]
    fn of_a_repeated_flag_the_last_one_counts() {
        let given = [
            ("a".to_owned(), "1".to_owned()),
            ("a".to_owned(), "2".to_owned()),
        ];
        let values = Values::resolve(&declared(&[("a", None)]), &given, |_| None).unwrap();
        assert_eq!(values.render("{{ a }}").unwrap(), "2");
    }

    #[test]
    fn a_required_variable_without_a_value_is_named() {
        let declared = declared(&[("api_key", None), ("other", Some(""))]);
        let error = Values::resolve(&declared, &[], |_| None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("api_key") && error.contains("SPIN_VARIABLE_API_KEY"),
            "{error}"
        );
        assert!(!error.contains("other"), "{error}");
    }

    #[test]
    fn a_variable_is_required_or_has_a_default() {
        for (required, default) in [(true, Some(String::new())), (false, None)] {
            let variable = Variable {
                required,
                default,
                ..Variable::default()
            };
            let declared = BTreeMap::from([("a".to_owned(), variable)]);
            assert!(Values::resolve(&declared, &[], |_| Some(String::new())).is_err());
        }
    }

    #[test]
    fn a_component_sees_its_own_variables_only() {
        let values = Values::resolve(&declared(&[("host", Some("h"))]), &[], |_| None).unwrap();
        let component = templates(&[("url", "https://{{ host }}/{{host}}"), ("plain", "{ x }")]);
        let variables = Variables::new("shop", &component, &values).unwrap();
        assert_eq!(variables.get("url").unwrap(), "https://h/h");
        assert_eq!(variables.get("plain").unwrap(), "{ x }");
        assert!(matches!(
            variables.get("host"),
            Err(LookupError::Undefined(_))
        ));
        assert!(matches!(
            variables.get("Host"),
            Err(LookupError::InvalidName(_))
        ));
    }

    #[test]
    fn a_template_with_an_unknown_name_or_an_open_brace_is_refused() {
        let values = Values::default();
        assert!(values.render("{{ nobody }}").is_err());
        assert!(values.render("{{ open").is_err());
        assert_eq!(values.render("closed }}").unwrap(), "closed }}");
    }

    #[test]
    fn names_follow_spins_rule() {
        for name in ["a", "a1", "a_b", "a_1"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "A", "1a", "_a", "a_", "a__b", "a-b", "ä"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
