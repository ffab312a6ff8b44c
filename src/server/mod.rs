//! The state of the server that commands depend on: its role, its forked children, its memory, its timers, the threads that free large
//! values and put large layers into huge pages, and whether a module of this name is loaded already.

pub mod ceiling;
pub mod duplicate;
pub mod fork;
pub mod freeing;
pub mod huge_pages;
pub mod role;
pub mod timer;
