//! Pipelined commands: they are sent before earlier replies are read, so that reading, the network and the server work in
//! parallel. The replies of a node arrive in the order of its commands.

use anyhow::Result;
use redis::{Cmd, Value};

use super::{Address, Server, is_moving};

impl Server {
    /// Sends one encoded command about `key` without waiting. Returns the node that owes the reply. Until that reply is read,
    /// only [`Self::send`] and [`Self::receive`] may use the node.
    ///
    /// # Errors
    /// [`super::Lost`].
    pub fn send(&mut self, packed: &[u8], key: &[u8]) -> Result<Address> {
        let node = self.node_of_key(key)?;
        let connection = self.connection(&node)?;
        connection.send_packed_command(packed).map_err(|error| self.lost(&error))?;
        Ok(node)
    }

    /// Waits for the next reply of a node. An error reply counts as a reply.
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

    /// Whether another node can execute the refused command, or the same one a little later.
    pub fn is_elsewhere(&self, reply: &Value) -> bool {
        self.slots.is_some() && is_moving(reply)
    }

    /// Resends a command whose reply was [elsewhere](Self::is_elsewhere) until it is executed. No node may owe a reply.
    ///
    /// # Errors
    /// [`super::Lost`].
    pub fn follow(&mut self, command: &Cmd, reply: Value, key: &[u8]) -> Result<Value> {
        self.settle(command, reply, key)
    }
}
