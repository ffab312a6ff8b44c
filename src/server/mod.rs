//! The state of the server that commands depend on: its role, its forked children, its memory, and the thread that frees large
//! values.

pub mod ceiling;
pub mod children;
pub mod freeing;
mod machine;
pub mod role;
mod thread;
