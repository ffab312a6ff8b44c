//! Decides which requests are answered: those of this page and of programs on this machine. A page of another site can make the
//! browser send requests here, too. Such requests are recognised by their `Host` header (a foreign name means DNS rebinding),
//! and by `Sec-Fetch-Site` and `Origin`.

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, StatusCode, Uri};

/// The header that the page sends with each query. Pages of other sites would need a preflight request, which is refused.
const PAGE_HEADER: &str = "x-bloomgate";

/// The kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The page itself, which other sites may link to.
    Page,
    /// The parts of the page, and the metrics.
    File,
    /// The queries of the page.
    Api,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its method is neither GET nor HEAD.
    Method,
    /// Its `Host` is another one.
    Host,
    /// It was sent by another site.
    Site,
}

impl Refused {
    /// Returns the status and the text of the response.
    pub const fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n"),
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "only requests for 127.0.0.1 or localhost with the right port are answered\n",
            ),
            Self::Site => (StatusCode::FORBIDDEN, "requests from other sites are refused\n"),
        }
    }
}

/// Checks a request to the page on `port`.
///
/// # Errors
/// The reason for refusing it.
pub fn check(method: &Method, uri: &Uri, headers: &HeaderMap, port: u16, door: Door) -> Result<(), Refused> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Refused::Method);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let is_ours =
        |host: Option<&HeaderValue>| host.and_then(|host| host.to_str().ok()).is_some_and(|host| names(host, port));
    if !is_ours(hosts.next())
        || hosts.next().is_some()
        || uri.authority().is_some_and(|host| !names(host.as_str(), port))
    {
        return Err(Refused::Host);
    }
    let is_own_origin = |origin: &HeaderValue| {
        origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")).is_some_and(|host| names(host, port))
    };
    if !headers.get_all(ORIGIN).iter().all(is_own_origin) {
        return Err(Refused::Site);
    }
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let may_enter = match (door, said("sec-fetch-site")) {
        (Door::Api, None | Some("same-origin")) => headers.contains_key(PAGE_HEADER),
        (Door::Page | Door::File, None | Some("same-origin" | "none")) => true,
        (Door::Page, Some(_)) => {
            said("sec-fetch-mode") == Some("navigate") && said("sec-fetch-dest") == Some("document")
        }
        (Door::File | Door::Api, Some(_)) => false,
    };
    if may_enter { Ok(()) } else { Err(Refused::Site) }
}

/// Whether `host` is a loopback name with this port.
fn names(host: &str, port: u16) -> bool {
    let (name, said) = match host.rsplit_once(':') {
        Some((name, said)) if !said.ends_with(']') => (name, said.parse().ok()),
        _ => (host, Some(80)),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]";
    is_loopback && said == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_with(door: Door, lines: &[(&'static str, &str)]) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&Method::GET, &Uri::from_static("/"), &headers, 6390, door)
    }

    #[test]
    fn only_loopback_hosts_are_answered() {
        for host in ["127.0.0.1:6390", "localhost:6390", "LOCALHOST:6390", "[::1]:6390"] {
            assert_eq!(try_with(Door::File, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example:6390",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:80",
            "[::1]",
            "localhost.:6390",
            "a@localhost:6390",
            "",
        ] {
            assert_eq!(try_with(Door::File, &[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(try_with(Door::File, &[]), Err(Refused::Host));
        let two = [("host", "localhost:6390"), ("host", "evil.example:6390")];
        assert_eq!(try_with(Door::File, &two), Err(Refused::Host));
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost:6390"));
        let absolute = Uri::from_static("http://evil.example/");
        assert_eq!(check(&Method::GET, &absolute, &headers, 6390, Door::Page), Err(Refused::Host));
        assert!(names("localhost", 80) && names("[::1]", 80));
    }

    #[test]
    fn other_sites_may_only_link_to_the_page() {
        let with =
            |door, lines: &[(&'static str, &str)]| try_with(door, &[&[("host", "localhost:6390")], lines].concat());
        let page = [("x-bloomgate", "page"), ("sec-fetch-site", "same-origin")];
        assert_eq!(with(Door::Api, &page), Ok(()));
        assert_eq!(with(Door::Api, &page[..1]), Ok(()));
        assert_eq!(with(Door::Api, &page[1..]), Err(Refused::Site));
        for site in ["cross-site", "same-site", "none", "?"] {
            assert_eq!(with(Door::Api, &[page[0], ("sec-fetch-site", site)]), Err(Refused::Site), "{site}");
        }
        for origin in ["http://evil.example", "http://localhost:1", "https://localhost:6390", "null"] {
            assert_eq!(with(Door::Api, &[page[0], ("origin", origin)]), Err(Refused::Site), "{origin}");
        }
        assert_eq!(with(Door::Api, &[page[0], ("origin", "http://localhost:6390")]), Ok(()));
        for site in ["cross-site", "same-site"] {
            let link = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            assert_eq!(with(Door::Page, &link), Ok(()));
            assert_eq!(with(Door::File, &link), Err(Refused::Site));
            let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
            assert_eq!(with(Door::Page, &frame), Err(Refused::Site));
            assert_eq!(with(Door::Page, &link[..1]), Err(Refused::Site));
        }
    }
}
