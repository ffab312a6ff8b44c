//! Checks that the server has loaded the module. Without it, commands that only read would report a server without filters.

use anyhow::{Result, anyhow, bail};
use redis::{Value, cmd};

use super::{Address, Lost, Server};

impl Server {
    /// Fails unless every node knows `command`. If the ACL user may not run COMMAND INFO, the check is skipped.
    ///
    /// # Errors
    /// A node does not know the command; [`Lost`].
    pub fn require_command(&mut self, command: &str) -> Result<()> {
        for node in self.nodes() {
            let reply = match self.ask_node(&node, cmd("COMMAND").arg("INFO").arg(command)) {
                Err(error) if error.is::<Lost>() => return Err(error),
                Err(_) => continue,
                Ok(reply) => reply,
            };
            let is_known =
                matches!(&reply, Value::Array(commands) if !matches!(commands.first(), None | Some(Value::Nil)));
            if !is_known {
                bail!(no_module(&node));
            }
        }
        Ok(())
    }
}

/// The error for a server that has not loaded the module.
pub fn no_module(address: &Address) -> anyhow::Error {
    anyhow!(
        "the server at {address} has not loaded the module: start it with redis-server --loadmodule \
         /path/to/libbloomgate.so"
    )
}
