//! A network between the clients and the server: every message is held back for a while, as on its way to another machine.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use redis::{Client, ConnectionAddr};

/// How long a message takes there and back.
pub const ROUND_TRIP: Duration = Duration::from_micros(500);

/// Returns a client whose connections pass the network.
pub fn through_network(client: &Client) -> Result<Client> {
    let info = client.get_connection_info().clone();
    let ConnectionAddr::Tcp(host, port) = info.addr().clone() else { bail!("the URL must begin with redis://") };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let entry = ConnectionAddr::Tcp("127.0.0.1".to_owned(), listener.local_addr()?.port());
    thread::spawn(move || {
        for inner in listener.incoming().flatten() {
            // A failed connection is closed, and its client reports that.
            _ = TcpStream::connect((host.as_str(), port)).and_then(|outer| join(inner, outer));
        }
    });
    Ok(Client::open(info.set_addr(entry))?)
}

fn join(inner: TcpStream, outer: TcpStream) -> std::io::Result<()> {
    inner.set_nodelay(true)?;
    outer.set_nodelay(true)?;
    let (back_from, back_to) = (outer.try_clone()?, inner.try_clone()?);
    thread::spawn(|| carry(inner, outer));
    thread::spawn(|| carry(back_from, back_to));
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        thread::sleep(ROUND_TRIP / 2);
        if to.write_all(bytes.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
