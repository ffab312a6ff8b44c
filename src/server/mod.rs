//! The state of the server that commands depend on: its role, its forked children, its memory, and the threads that free large
//! values and put large layers into huge pages.

pub mod ceiling;
pub mod freeing;
pub mod huge_pages;
pub mod role;
