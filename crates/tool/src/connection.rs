//! The connection to the server, and what its errors mean to the person at the terminal: every failure becomes one line
//! that says what to do about it.

use std::time::Duration;

use anyhow::{Result, anyhow};
use redis::{Client, Cmd, Connection, ErrorKind, Pipeline, RedisError, Value};

/// How long to wait for a connection. Commands may take as long as they need.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that reports errors in the words of the terminal.
pub struct Server {
    connection: Connection,
    address: String,
}

impl Server {
    /// Connects to `url`. A password in it is never repeated in a message.
    pub fn connect(url: &str) -> Result<Self> {
        let client =
            Client::open(url).map_err(|_| anyhow!("--url is not of the form redis://[[USER]:PASSWORD@]HOST[:PORT]"))?;
        let address = client.get_connection_info().addr().to_string();
        let connection = client.get_connection_with_timeout(CONNECT_TIMEOUT).map_err(|error| match error.kind() {
            ErrorKind::Io => anyhow!("cannot reach a Redis server at {address}: {error}"),
            ErrorKind::AuthenticationFailed => {
                anyhow!("the server at {address} refuses the user or the password of --url")
            }
            _ => anyhow!("cannot connect to {address}: {error}"),
        })?;
        Ok(Self { connection, address })
    }

    /// Sends one command about `key` and returns its reply. An error inside an array reply stays where it is.
    pub fn ask(&mut self, command: &Cmd, key: &str) -> Result<Value> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(command.clone());
        let mut replies = self.ask_all(&mut pipeline, key)?;
        replies.pop().ok_or_else(|| anyhow!("the server at {} sent no reply", self.address))
    }

    /// Sends commands about `key` in one go and returns their replies in order, or the first error among them. An error
    /// inside an array reply stays where it is.
    pub fn ask_all(&mut self, commands: &mut Pipeline, key: &str) -> Result<Vec<Value>> {
        let replies: Vec<Value> =
            commands.ignore_errors().query(&mut self.connection).map_err(|error| self.describe_broken(&error))?;
        for reply in &replies {
            if let Value::ServerError(error) = reply {
                return Err(self.describe(error.code(), error.details().unwrap_or_default(), key));
            }
        }
        Ok(replies)
    }

    /// The one line for an error reply of the server: `code` is its first word, `details` the rest.
    pub fn describe(&self, code: &str, details: &str, key: &str) -> anyhow::Error {
        let address = &self.address;
        match code {
            "ERR" if details.starts_with("unknown command") => anyhow!(
                "the server at {address} has not loaded the module: start it with \
                 redis-server --loadmodule /path/to/libbloomgate.so"
            ),
            "ERR" if details == "non scaling filter is full" => anyhow!(
                "the filter `{key}` is full and was created to stay as it is (NONSCALING): name another --key, or delete \
                 it and reserve a larger one"
            ),
            "WRONGTYPE" => {
                anyhow!("the key `{key}` at {address} holds something else than a filter: name another --key")
            }
            "NOAUTH" => {
                anyhow!("the server at {address} asks for a password: --url redis://[USER]:PASSWORD@HOST:PORT")
            }
            "MOVED" => anyhow!("{address} belongs to a cluster and does not hold the key `{key}`: MOVED {details}"),
            _ => anyhow!("the server at {address} answers: {code} {details}"),
        }
    }

    fn describe_broken(&self, error: &RedisError) -> anyhow::Error {
        anyhow!("lost the server at {}: {error}", self.address)
    }
}
