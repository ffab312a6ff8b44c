//! The query string of a request: what follows the `?`. It has its own file because both the routes and the calculator read it.

use super::names;

/// The parameters of a request, decoded. Bytes that are not UTF-8 become U+FFFD; keys and items are sent in hexadecimal.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `name=value&name=value`, with `+` for a space and `%` escapes.
    pub fn of(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Returns a parameter, unless it is missing or empty.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|word| !word.is_empty())
    }

    /// Returns the bytes of a parameter in hexadecimal, unless it is missing or invalid.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        names::of_hex(self.raw(name)?)
    }

    /// Returns a parameter, which may be empty. The first one counts if a name is repeated.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::of("rate=1%25&items=1+000&key=00ff&empty=&bare&rate=2&a=b=c&%61%26=%FF");
        for (name, value) in
            [("rate", "1%"), ("items", "1 000"), ("empty", ""), ("bare", ""), ("a", "b=c"), ("a&", "\u{fffd}")]
        {
            assert_eq!(query.raw(name), Some(value), "{name}");
        }
        assert_eq!((query.word("empty"), query.word("bare"), query.raw("other")), (None, None, None));
        assert_eq!(query.bytes("key"), Some(vec![0, 255]));
        assert_eq!((query.bytes("rate"), query.bytes("empty"), query.bytes("other")), (None, Some(vec![]), None));
    }
}
