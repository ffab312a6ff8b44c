//! Sentinels, which know the address of the current primary. The Sentinel client of redis-rs is not used, because it waits forever for a
//! hung Sentinel.

use anyhow::{Result, bail};
use redis::{ConnectionInfo, RedisConnectionInfo, RedisResult, cmd};

use super::connection::{CONNECT_TIMEOUT, ConnectionLost, line, open};
use super::{Address, Server};

impl Server {
    /// Connects to the server, or to the primary that the Sentinels currently name.
    pub(super) fn open_first(&mut self) -> Result<()> {
        let Some((sentinels, primary)) = self.options.sentinels()? else {
            return self.connection(&self.first.clone()).map(drop);
        };
        let (mut tried, mut failures) = (Vec::new(), Vec::new());
        for sentinel in &sentinels {
            let result = self.ask_sentinel(sentinel, &primary).and_then(|address| {
                if tried.contains(&address) {
                    return Ok(false);
                }
                tried.push(address.clone());
                self.first = address;
                self.ensure_primary().map(|()| true)
            });
            match result {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => failures.push(error.to_string()),
            }
        }
        Err(ConnectionLost(failures.join("; ")).into())
    }

    /// Fails if the server is not a primary: a failover is under way, or the Sentinel has not noticed it yet.
    fn ensure_primary(&mut self) -> Result<()> {
        match self.hello("role")?.as_deref() {
            None | Some("master") => Ok(()),
            Some(role) => bail!("the Sentinels name {} as the primary, and it is a {role}", self.first),
        }
    }

    fn ask_sentinel(&self, sentinel: &ConnectionInfo, primary: &str) -> Result<Address> {
        let address = sentinel.addr().to_string();
        let ask = |settings: RedisConnectionInfo| -> Result<RedisResult<Option<(String, u16)>>> {
            let client = self.options.client_of(sentinel.clone().set_redis_settings(settings))?;
            let mut connection = open(&client, &address, CONNECT_TIMEOUT)?;
            Ok(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(primary).query(&mut connection))
        };
        // The user and the password are the primary's. A Sentinel that requires authentication must accept them, too.
        let mut reply = ask(RedisConnectionInfo::default())?;
        if reply.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")) {
            reply = ask(sentinel.redis_settings().clone().set_db(0))?;
        }
        match reply {
            Ok(Some((host, port))) => Ok(format!("{host}:{port}")),
            Ok(None) => bail!("the Sentinel at {address} knows no primary named {primary}"),
            Err(error) => bail!("the Sentinel at {address} replied: {}", line(&error)),
        }
    }
}
