//! Headers that occur once, and media types.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

/// A header occurs more than once.
pub(super) struct Repeated;

/// The value of a header that may occur once.
pub(super) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Repeated),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

/// The media type of a body, if it is text in UTF-8: in lower case, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = single(headers, &CONTENT_TYPE).ok()??;
    let mut parts = str::from_utf8(value).ok()?.split(';').map(str::trim);
    let essence = parts.next()?.to_ascii_lowercase();
    let is_utf_8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, charset)) if name.eq_ignore_ascii_case("charset") => {
            charset.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    is_utf_8.then_some(essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_without_its_parameters_and_only_utf_8_counts() {
        let of = |value: &'static str| {
            let pairs = [(CONTENT_TYPE, http::HeaderValue::from_static(value))];
            media_type(&pairs.into_iter().collect())
        };
        for json in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;v=1",
        ] {
            assert_eq!(of(json).as_deref(), Some("application/json"), "{json}");
        }
        assert_eq!(of("application/json; charset=latin1"), None);
        assert_eq!(
            of("application/jsonx").as_deref(),
            Some("application/jsonx")
        );
        assert_eq!(media_type(&HeaderMap::new()), None);
    }
}
