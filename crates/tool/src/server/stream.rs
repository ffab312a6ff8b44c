//! Commands that are sent before the replies to earlier ones were read, so that reading, the network and the server work at
//! the same time. Replies of a node come in the order of what was sent to it.

use anyhow::Result;
use redis::{Cmd, Value};

use super::{Address, Server, is_moving, slot};

impl Server {
    /// Sends one command about `key`, in the bytes of the protocol, and waits for nothing. The node that owes the reply: as
    /// long as it does, only [`Self::send`] and [`Self::receive`] may speak to it.
    ///
    /// # Errors
    /// [`super::Lost`].
    pub fn send(&mut self, packed: &[u8], key: &[u8]) -> Result<Address> {
        let node = if self.slots.is_some() { self.node_of(slot(key))? } else { self.first.clone() };
        let connection = self.connection(&node)?;
        connection.send_packed_command(packed).map_err(|error| self.lost(&error))?;
        Ok(node)
    }

    /// Waits for the next reply that a node owes. An error reply is a reply.
    ///
    /// # Errors
    /// [`super::Lost`].
    pub fn receive(&mut self, node: &Address) -> Result<Value> {
        loop {
            let reply = self.connection(node)?.recv_response().map_err(|error| self.lost(&error))?;
            if !matches!(reply, Value::Push { .. }) {
                return Ok(reply);
            }
        }
    }

    /// Whether another node of the cluster can do what this reply refuses, or the same one a little later.
    pub fn is_elsewhere(&self, reply: &Value) -> bool {
        self.slots.is_some() && is_moving(reply)
    }

    /// Sends a command again whose reply was [elsewhere](Self::is_elsewhere), until it is done. No node may owe a reply.
    ///
    /// # Errors
    /// [`super::Lost`].
    pub fn follow(&mut self, command: &Cmd, reply: Value, key: &[u8]) -> Result<Value> {
        self.settle(command, reply, slot(key))
    }
}
