//! A second `loadmodule` of a module named `bf`. If a module reports an error while the server starts, the server exits. So this decides
//! whether the second load is a mistake or a harmless repetition.
//!
//! A repetition is common: CONFIG REWRITE, which Sentinel sends, writes a `loadmodule` line for each loaded module, and a server whose
//! command line also has `--loadmodule` then loads the library twice.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bloomgate_filter::arguments::load_time;

use crate::api::{self, Element, Reply};
use crate::args::Args;
use crate::context::{Context, LogLevel};
use crate::server_info::ServerInfo;

/// Whether this library is loaded. The system maps a file once, so this is already true in a second load, whatever its path.
static IS_LOADED: AtomicBool = AtomicBool::new(false);

/// Records that this library is loaded.
pub fn record_load() {
    IS_LOADED.store(true, Relaxed);
}

/// Ignores a load if a module of this name is loaded and the load repeats it or allows that (`UNLESS_LOADED yes`). Otherwise returns an
/// error, a line for the log that names the loaded module.
///
/// The server regards the load as successful. It does not add a second module of the same name to its table, so the new one is never used,
/// and a few hundred bytes leak. A server that checked for duplicates would exit, as after an error.
pub fn ignore(context: Context, name: &CStr, version: i32, words: Args<'_>) -> Result<(), String> {
    let list = Reply::to_module_list(context);
    let loaded = list.as_ref().and_then(|list| Loaded::find(list, name));
    let loaded = loaded.ok_or("another module named 'bf' is already loaded: load only one")?;
    let path = String::from_utf8_lossy(loaded.path);
    let is_ours = IS_LOADED.load(Relaxed);
    let repeats = is_ours && words.words().iter().map(|word| word.bytes()).eq(loaded.words());
    if is_starting(context) && (repeats || load_time::parse(words.words())?.unless_loaded) {
        api::set_attributes(context, name, version);
        let line =
            format!("bloomgate: the module 'bf' is already loaded, from {path}; this loadmodule line has no effect");
        context.log(LogLevel::Notice, line);
        return Ok(());
    }
    if !is_ours {
        return Err(format!("another module named 'bf' is already loaded, from {path}: load only one"));
    }
    let words: Vec<Cow<'_, str>> = loaded.words().map(String::from_utf8_lossy).collect();
    Err(format!("this library is already loaded, as: loadmodule {path} {}", words.join(" ")).trim_end().to_owned())
}

/// Whether the server is starting. Afterwards a load comes from a client (MODULE LOAD), which gets the error.
fn is_starting(context: Context) -> bool {
    ServerInfo::of(context, c"clients").and_then(|clients| clients.number(c"connected_clients")) == Some(0)
}

/// The entry of a loaded module in MODULE LIST.
struct Loaded<'a> {
    path: &'a [u8],
    words: Option<Element<'a>>,
}

impl<'a> Loaded<'a> {
    fn find(list: &'a Reply, name: &CStr) -> Option<Self> {
        list.elements().find_map(|module| {
            let fields: Vec<Element<'_>> = module.elements().collect();
            let field = |wanted: &[u8]| {
                let pairs = fields.chunks_exact(2);
                pairs.flat_map(<&[_; 2]>::try_from).find(|[field, _]| field.bytes() == wanted).map(|[_, value]| *value)
            };
            let is_wanted = field(b"name")?.bytes() == name.to_bytes();
            is_wanted.then(|| Self {
                path: field(b"path").map_or(b"an unknown path", Element::bytes),
                words: field(b"args"),
            })
        })
    }

    fn words(&self) -> impl Iterator<Item = &'a [u8]> {
        self.words.into_iter().flat_map(Element::elements).map(Element::bytes)
    }
}
