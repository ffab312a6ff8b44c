//! `bloomgate web`: a page on this machine with the history of a server's filters, and metrics for Prometheus. It only reads. A
//! separate thread (`sampler`) queries the server and stores the results on the `board`. Requests are answered from there, so
//! open pages cost the server nothing.

mod board;
mod gate;
mod history;
mod http;
mod json;
mod metrics;
mod names;
mod pace;
mod plan;
mod query;
mod sampler;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::prometheus;
use crate::server::Options;
use board::Board;
use sampler::{Sampler, Settings};

const EXAMPLES: &str = "\
Examples:
  bloomgate web                              the server on port 6379; open http://127.0.0.1:6390/
  bloomgate web -p 6380 --listen 8080        another server, and another port for the page
  bloomgate web --url rediss://db:6379 --match 'seen:*' --interval 30
  curl http://127.0.0.1:6390/metrics         the metrics

It sends only commands that read (INFO, DBSIZE, SCAN, TYPE, PTTL, BF.STATS, BF.INFO, and BF.EXISTS when you try an item),
and keeps the server busy for at most about a tenth of the time. Only this machine can open the page. From elsewhere:
  ssh -L 6390:127.0.0.1:6390 that-machine";

/// Serve a web page with the filters of a server, and metrics for Prometheus
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The port of the page, or a loopback address with a port. Port 0 selects a free one
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:6390", value_parser = listen_address)]
    listen: SocketAddr,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    interval: Duration,
    /// The most filters to watch: the largest. The page says if there are more
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Watch only filters whose keys match this glob pattern, as in SCAN
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// The number of filters with their own metrics, largest first. Each has about 15 series
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    metrics_filters: usize,
    /// Another address, of any interface, that serves /metrics and nothing else. Everyone who reaches it sees the names of filters
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

/// Runs the subcommand until it is interrupted.
///
/// # Errors
/// The options are wrong, or a port is in use.
pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    // Wrong options are an error at once. A server that is away is waited for.
    options.client()?;
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("cannot listen on {}: choose another port with --listen", arguments.listen))?;
    let address = listener.local_addr()?;
    let board = Arc::new(Board::new(arguments.interval));
    let settings = Settings {
        interval: arguments.interval,
        filters_max: usize::try_from(arguments.max)?,
        pattern: arguments.pattern.clone(),
    };
    let (questions, asked) = mpsc::channel();
    let sampler = Sampler::new(options.clone(), settings, Arc::clone(&board), asked);
    thread::Builder::new().name("sampler".to_owned()).spawn(move || sampler.run())?;
    let filters = arguments.metrics_filters;
    if let Some(address) = arguments.metrics_listen {
        let board = Arc::clone(&board);
        prometheus::serve(address, move || metrics::text(&board, filters))?;
    }
    say(address);
    http::serve(listener, http::Site::new(board, questions, address.port(), filters))
}

/// Prints the URL. A closed standard output is ignored.
fn say(address: SocketAddr) {
    let mut output = io::stdout().lock();
    _ = writeln!(output, "http://{address}/  (metrics for Prometheus: /metrics; Ctrl-C to stop)");
    _ = output.flush();
}

/// Parses a loopback address. Any other address is refused, because the page has no password.
fn listen_address(text: &str) -> Result<SocketAddr> {
    let address = if let Ok(port) = text.parse() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    } else if let Some(port) = text.strip_prefix("localhost:") {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?))
    } else {
        text.parse().map_err(|_| anyhow!("must be a port, or ADDRESS:PORT as in 127.0.0.1:6390"))?
    };
    ensure!(
        IpAddr::is_loopback(&address.ip()),
        "must be a loopback address, such as 127.0.0.1, because the page has no password. From elsewhere use a \
         tunnel: ssh -L 6390:127.0.0.1:6390 that-machine"
    );
    Ok(address)
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse()?;
    ensure!((0.1..=3600.0).contains(&seconds), "must be 0.1 to 3600 seconds");
    Ok(Duration::try_from_secs_f64(seconds)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_loopback_addresses_only() {
        let shown = |text| listen_address(text).unwrap().to_string();
        assert_eq!(shown("80"), "127.0.0.1:80");
        assert_eq!(shown("localhost:0"), "127.0.0.1:0");
        assert_eq!(shown("[::1]:7"), "[::1]:7");
        for text in ["0.0.0.0:80", "192.168.0.1:80", "[::]:80", "example.com:80", "", "127.0.0.1"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interval_is_between_a_tenth_of_a_second_and_an_hour() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for text in ["0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
