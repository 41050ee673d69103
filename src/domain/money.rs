//! Money: whole minor units of an ISO 4217 currency. No floats, no unchecked arithmetic.

use iso_currency::Currency as Iso4217;
use serde::{Deserialize, Serialize};

/// The largest amount and the largest balance: 2^53 - 1 minor units, exact in every JSON parser.
pub const MAX_AMOUNT: i64 = 9_007_199_254_740_991;

/// An amount of money in minor units, 1 to [`MAX_AMOUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Amount(i64);

impl Amount {
    /// The number of minor units.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for Amount {
    type Error = &'static str;

    fn try_from(units: i64) -> Result<Self, Self::Error> {
        if (1..=MAX_AMOUNT).contains(&units) {
            Ok(Self(units))
        } else {
            Err("an amount is a whole number of minor units from 1 to 9007199254740991")
        }
    }
}

/// An ISO 4217 currency code in upper case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct Currency(Iso4217);

impl Currency {
    /// The three-letter code.
    pub fn code(self) -> &'static str {
        self.0.code()
    }
}

impl From<Currency> for &'static str {
    fn from(currency: Currency) -> Self {
        currency.code()
    }
}

impl TryFrom<String> for Currency {
    type Error = &'static str;

    fn try_from(code: String) -> Result<Self, Self::Error> {
        // The library takes lower case too.
        match Iso4217::from_code(&code) {
            Some(currency) if currency.code() == code => Ok(Self(currency)),
            _ => Err("a currency is an ISO 4217 code in upper case"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_whole_positive_and_exact_in_json() {
        for good in ["1", "9007199254740991"] {
            assert!(serde_json::from_str::<Amount>(good).is_ok(), "{good}");
        }
        for bad in [
            "0",
            "-1",
            "1.0",
            "1e2",
            "\"1\"",
            "9007199254740992",
            "18446744073709551616",
        ] {
            assert!(serde_json::from_str::<Amount>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn currencies_are_upper_case_iso_4217() {
        assert_eq!(
            serde_json::from_str::<Currency>("\"EUR\"").unwrap().code(),
            "EUR"
        );
        for bad in ["\"eur\"", "\"EURO\"", "\"XQX\"", "\"\"", "978"] {
            assert!(serde_json::from_str::<Currency>(bad).is_err(), "{bad}");
        }
    }
}
